"""MATH: problems of mathematics competitions (Hendrycks et al. 2021), and MATH-500, a subset (Lightman et al. 2023)."""

from __future__ import annotations

import re
from collections import abc
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from annotated_types import Ge, Le

from metagen.errors import DataError, InputError
from metagen.tasks.base import Problem
from metagen.tasks.records import Hub, Record, Source, question, text
from metagen.tasks.solutions import STEP_BY_STEP, SolutionsTask
from metagen.tasks.template import Asking, Form, Turns, Wording
from metagen.values import Count, EachOnce, Expects
from metagen.verifiers.rules import Rule

ASKING: Final = Asking(
    turns=Turns(STEP_BY_STEP),
    example="Problem:\n{question}\n\nSolution:",
    shots=(
        {
            "question": "If $3x - 7 = 11$, what is the value of $x^2 + 1$?",
            "solution": " Adding $7$ to both sides gives $3x = 18$, so $x = 6$. Then $x^2 + 1 = 36 + 1 = 37$. "
            "The final answer is $\\boxed{37}$.",
        },
        {
            "question": "A fair coin is tossed three times. What is the probability of exactly two heads? "
            "Give a common fraction.",
            "solution": " There are $2^3 = 8$ equally likely outcomes. Exactly two heads come up in "
            "$\\binom{3}{2} = 3$ of them. The probability is $\\frac{3}{8}$. "
            "The final answer is $\\boxed{\\frac{3}{8}}$.",
        },
        {
            "question": "Find all real solutions of $x^2 - 4x - 5 = 0$.",
            "solution": " The polynomial factors as $(x - 5)(x + 1)$. It is zero for $x = 5$ and for $x = -1$. "
            "The final answer is $\\boxed{-1, 5}$.",
        },
        {
            "question": "A right triangle has legs of length $2$ and $4$. How long is its hypotenuse?",
            "solution": " By the theorem of Pythagoras it is $\\sqrt{2^2 + 4^2} = \\sqrt{20} = 2\\sqrt{5}$. "
            "The final answer is $\\boxed{2\\sqrt{5}}$.",
        },
    ),
    stop="\n\nProblem:",
    asked="{question}",
)
#: Levels of difficulty and subjects, as the data set has them.
FiveLevels = Annotated[abc.Sequence[Annotated[int, Ge(1), Le(5), Expects("a level from 1 to 5")]], EachOnce()]
Subject = Literal[
    "prealgebra", "algebra", "intermediate_algebra", "number_theory", "counting_and_probability", "geometry",
    "precalculus",
]  # fmt: skip
Subjects = Annotated[abc.Sequence[Subject], EachOnce()]
_LEVEL: Final = re.compile(r"(?:Level )?([1-5])")
#: A brace, or an escaped character, such as a brace that is written.
_BRACE: Final = re.compile(r"\\.|[{}]", re.DOTALL)
_BOX: Final = re.compile(r"\\(?:boxed|fbox)\s*(?=[{\w])")


class BoxedTask(SolutionsTask):
    """Problems of competitions, whose reference is the answer, else the last box of the solution.

    Raises DataError for a solution without a box.
    """

    delimiter = "\n\n"
    asking = ASKING

    def problem(self, record: Record, number: int) -> Problem:
        asked = question(record, "problem", "question", "Problem").strip()
        name = next((record[n] for n in ("unique_id", "id", "ID") if record.get(n) is not None), None)
        name = f"{self.name}/{number - 1}" if name is None else str(name)
        prompt = self._asking.prompt(name, {"question": asked})
        return Problem(prompt, self.reference(record), _level(record.get("level")))

    def reference(self, record: Record) -> str:
        """The answer, else the last box of the solution."""
        if any(record.get(name) is not None for name in ("answer", "Answer")):
            return text(record, "answer", "Answer").strip()
        solution = text(record, "solution", "Solution")
        boxed = last_box(solution)
        if boxed is None:
            raise DataError("there is no answer, and no \\boxed{…} in the solution; give one of them")
        return boxed


class MathTask(BoxedTask):
    r"""Fields `problem` (or `question`) and `answer`, or `solution` with a boxed answer; `level` is 1 to 5, if known.

    levels: only problems of these levels, from easy (1) to hard (5). subjects: only problems whose `subject` (or
    `type`) is one of these. Problems that do not say theirs are left out with the others. limit: the first problems
    only, of those that are left. Raises DataError as RecordTask does, and where no problem is left; InputError for
    another level or subject.

    Examples:
        >>> import json
        >>> from pathlib import Path
        >>> from metagen.tasks.math_dataset import MathTask
        >>> record = {"problem": "Find 1/2 + 1/2.", "solution": r"It is $\boxed{1}$.", "level": 1}
        >>> _ = Path("math.jsonl").write_text(json.dumps(record))
        >>> (problem,) = MathTask("math.jsonl", levels=[1]).problems()
        >>> problem.reference, problem.level
        ('1', 1)
    """

    name = "math"
    hub: ClassVar[Hub] = Hub("HuggingFaceH4/MATH-500")

    def __init__(
        self,
        source: Source | None = None,
        *,
        levels: FiveLevels | None = None,
        subjects: Subjects | None = None,
        prompt: Wording | None = None,
        form: Form = "chat",
        answer: Rule | None = None,
        shots: abc.Sequence[Mapping[str, str]] | None = None,
        limit: Count | None = None,
    ) -> None:
        self._levels = chosen("levels", levels, range(1, 6))
        self._subjects = chosen("subjects", subjects, get_args(Subject))
        super().__init__(source, prompt=prompt, form=form, answer=answer, shots=shots, limit=limit)

    def _records(self) -> Iterator[tuple[int, Record | DataError]]:
        had: set[tuple[int | None, str]] = set()
        for number, record in super()._records():
            if isinstance(record, DataError):
                yield number, record
                continue
            had.add(kind := (_level(record.get("level")), _subject(record)))
            if self._wanted(*kind):
                yield number, record
        if had and not any(self._wanted(*kind) for kind in had):
            levels = sorted({level for level, _ in had if level is not None})
            subjects = sorted({subject for _, subject in had if subject})
            raise DataError(
                f"{str(self.source)!r} has no problem of these levels and subjects; it has levels "
                f"{', '.join(map(str, levels)) or '(none)'} and subjects {', '.join(subjects) or '(none)'}"
            )

    def _wanted(self, level: int | None, subject: str) -> bool:
        return (self._levels is None or level in self._levels) and (
            self._subjects is None or subject in self._subjects
        )


def last_box(solution: str) -> str | None:
    r"""The content of the last `\boxed{…}` whose braces close, or the sign after a last `\boxed`; None without one.

    Of a model's answer boxes that stand together count together; a reference that is boxed twice is one answer.
    """
    for match in reversed(list(_BOX.finditer(solution))):
        start = match.end()
        if solution[start] != "{":
            return solution[start]
        depth = 0
        for brace in _BRACE.finditer(solution, start):
            depth += {"{": 1, "}": -1}.get(brace[0], 0)
            if not depth:
                return solution[start + 1 : brace.start()].strip()
    return None


def chosen(name: str, given: abc.Sequence[Any] | None, known: abc.Sequence[Any]) -> tuple[Any, ...] | None:
    """What is chosen of what there is, each once; None for all. InputError for anything else."""
    if given is None:
        return None
    try:
        values = EachOnce.check(tuple(given))
    except ValueError as error:
        raise InputError(f"{name}={list(given)!r}: {error}") from None
    if unknown := [one for one in values if isinstance(one, bool) or one not in known]:
        raise InputError(f"{name}={list(given)!r}: {unknown[0]!r} is none of {', '.join(map(str, known))}")
    return tuple(values)


def _level(value: object) -> int | None:
    """1 to 5; None where it is unknown, as for `Level ?`."""
    match = _LEVEL.fullmatch(str(value))
    return int(match[1]) if match else None


def _subject(record: Record) -> str:
    """As it is called here: `counting_and_probability` of `Counting & Probability`; empty where it is unknown."""
    given = next((record[name] for name in ("subject", "type") if record.get(name) is not None), "")
    return str(given).strip().lower().replace("&", "and").replace(" ", "_")
