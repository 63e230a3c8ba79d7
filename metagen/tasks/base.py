"""Task: problems with their prompts, the answer rule, and the grader."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import abc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Final

from metagen.border import Part, one_each, promises
from metagen.errors import DataError
from metagen.sequence import Prompt, Sequence, digest
from metagen.verifiers.base import AnswerRule

#: Of levels.
LARGEST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: its prompt, the reference answer (never shown to a strategy), its level if levels exist."""

    prompt: Prompt
    reference: str
    level: int | None = None

    def __post_init__(self) -> None:
        level: Any = self.level
        if level is not None and not (isinstance(level, Integral) and 0 <= int(level) <= LARGEST):
            raise DataError(
                f"problem {self.prompt.problem_id!r}: level={level!r}; expected an integer from 0 to {LARGEST:,}"
            )

    @property
    def id(self) -> str:
        return self.prompt.problem_id

    @property
    def digest(self) -> bytes:
        """Names the data, prompt and reference: a run directory is never continued on other data."""
        return digest(self.prompt.digest, self.reference)


def _grades(grades: abc.Sequence[float], given: Mapping[str, Any]) -> str | None:
    if odd := [grade for grade in grades if not (math.isnan(grade) or 0.0 <= grade <= 1.0)]:
        return f"{odd[0]!r} is no grade in [0, 1], nor nan for an unknown one"
    return one_each("sequences")(grades, given)


class Task(Part, ABC):
    """Problems, prompts, the answer rule, and the grader A(y).

    name: of the task, in messages. delimiter: the text that ends a step of a solution. mark: a text within the step
    that holds the answer, so that a search asks for no step after it; None without such a text.
    """

    name: str = "task"
    #: It grades; its content is data.
    oracle: ClassVar[bool] = False
    #: The end of a step of a solution.
    delimiter: str = "\n"
    #: Text within the step that holds the answer, so that a search asks for no step after it; None without such a text.
    mark: str | None = None

    @property
    @abstractmethod
    def answer(self) -> AnswerRule:
        """The rule that reads answers for votes. The grader compares its keys with that of the reference."""

    @abstractmethod
    def problems(self) -> Iterator[Problem]:
        """The problems, always in the same order. Raises DataError for an empty or faulty data set."""

    @promises(_grades)
    async def grade(self, problem: Problem, sequences: abc.Sequence[Sequence]) -> list[float]:
        """Acceptability A(y) of each sequence: 1 if its answer equals the reference, else 0; nan where nobody knows."""
        answers = await self.answer.read(sequences)
        reference = await self._reference(problem)
        return [float(a.key is not None and a.key == reference) for a in answers]

    def check_steps(self, problem: Problem, text: str, *, finished: bool) -> list[bool] | None:
        """Whether each step of a completion follows from the problem and all before; None where the task cannot tell.

        finished: the text is not cut off.
        """
        return None

    async def _reference(self, problem: Problem) -> str:
        key = await self.answer.key(problem.reference)
        if key is None:
            raise DataError(
                f"task {self.name!r}: the reference {problem.reference!r} of problem {problem.id!r} cannot be "
                "read by the task's answer rule; mend the reference or give another rule"
            )
        return key


def check_problems(problems: Iterable[Problem], where: str) -> Iterator[Problem]:
    """The problems as they come; DataError for none at all, and for an id that occurs twice."""
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise DataError(f"{where}: problem id {problem.id!r} occurs twice; ids must be unique")
        seen.add(problem.id)
        yield problem
    if not seen:
        raise DataError(f"{where} holds no problems; expected at least one")
