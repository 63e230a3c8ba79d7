"""The embedded task, for the embedded models: arithmetic in steps, at six levels of difficulty."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import Literal, TypeVar

from metagen.errors import InputError
from metagen.sequence import Prompt
from metagen.tasks import arithmetic
from metagen.tasks.arithmetic import DELIMITER, LEVELS, Form, Split
from metagen.tasks.base import Problem, Task
from metagen.verifiers.numbers import ANSWER_LINE, NumberRule

E = TypeVar("E", Split, Form)
#: The first line is the answer, when it is asked for directly.
FIRST_LINE = r"\A(.*)$"


class ArithmeticTask(Task):
    """`per_level` problems of each of `levels` (1 to 6), from one of three disjoint spaces.

    form: answer after working step by step, or directly. seed: another seed, other problems.
    limit: the first problems only. Levels take turns, so that the first problems are a fair picture.
    Raises InputError for what is out of range.
    """

    name = "arithmetic"
    delimiter = DELIMITER

    def __init__(
        self,
        split: Literal["train", "validation", "test"] = "validation",
        *,
        levels: Iterable[int] = LEVELS,
        per_level: int = 20,
        form: Literal["steps", "direct"] = "steps",
        seed: int = 0,
        limit: int | None = None,
    ) -> None:
        self.split, self.form = _member(Split, "split", split), _member(Form, "form", form)
        self.levels, self.per_level, self.seed, self.limit = tuple(levels), per_level, seed, limit
        wrong = [level for level in self.levels if level not in LEVELS]
        if wrong or not self.levels or len(set(self.levels)) < len(self.levels):
            raise InputError(
                f"levels={list(self.levels)!r}: expected some of {', '.join(map(str, LEVELS))}, each once"
            )
        if per_level < 1:
            raise InputError(
                f"per_level={per_level!r}: expected the number of problems of a level, at least 1"
            )
        if limit is not None and limit < 1:
            raise InputError(f"limit={limit!r}: expected a number of problems, at least 1, or None for all")

    @cached_property
    def answer(self) -> NumberRule:
        return NumberRule(ANSWER_LINE if self.form is Form.STEPS else FIRST_LINE)

    def problems(self) -> Iterator[Problem]:
        return islice(self._all(), self.limit)

    def check_steps(self, problem: Problem, text: str, *, finished: bool) -> list[bool]:
        asked, form = arithmetic.read_prompt(problem.prompt.text or "")
        return list(arithmetic.check(asked, text, form, finished=finished).steps)

    def _all(self) -> Iterator[Problem]:
        drawn = [arithmetic.problems(self.split, level, self.per_level, self.seed) for level in self.levels]
        for index, row in enumerate(zip(*drawn, strict=True)):
            for problem in row:
                name = f"{self.name}/{self.split}/{problem.level}/{index}"
                prompt = Prompt(name, text=arithmetic.prompt(problem, self.form))
                yield Problem(prompt, arithmetic.reference_answer(problem), problem.level)


def _member(kind: type[E], name: str, value: str) -> E:
    try:
        return kind(value)
    except ValueError:
        raise InputError(f"{name}={value!r}: expected one of {', '.join(kind)}") from None
