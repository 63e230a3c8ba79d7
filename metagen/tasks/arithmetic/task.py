"""The embedded task, for the embedded models: arithmetic in steps, at eight levels of difficulty."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Literal

from metagen.parts import part
from metagen.sequence import Prompt
from metagen.tasks import arithmetic
from metagen.tasks.arithmetic import DELIMITER, LEVELS, Form
from metagen.tasks.base import Problem
from metagen.tasks.levelled import EightLevels, LevelledTask
from metagen.tasks.split import Split
from metagen.verifiers.numbers import ANSWER_LINE, NumberRule

#: The first line is the answer, when it is asked for directly.
FIRST_LINE = r"\A(.*)$"


@part
class ArithmeticTask(LevelledTask):
    """`per_level` problems of each of `levels`, from one of three disjoint spaces.

    The embedded models were trained on levels 1 to 6, the default; 7 (eight definitions) and 8 (definitions in any
    order) are harder than all that they have seen.

    form: answer after working step by step, or directly. seed, limit: as of `LevelledTask`. Raises InputError for what
    is out of range.
    """

    name = "arithmetic"
    delimiter = DELIMITER

    levels: EightLevels = LEVELS
    form: Literal["steps", "direct"] = "steps"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._form = Form(self.form)
        self.mark = "A:" if self._form is Form.STEPS else None

    @cached_property
    def answer(self) -> NumberRule:
        return NumberRule(ANSWER_LINE if self._form is Form.STEPS else FIRST_LINE)

    def draw(self, level: int, count: int) -> Iterable[arithmetic.Problem]:
        return arithmetic.problems(Split(self.split), level, count, self.seed)

    def as_problem(self, drawn: arithmetic.Problem, name: str) -> Problem:
        prompt = Prompt(name, text=arithmetic.prompt(drawn, self._form))
        return Problem(prompt, arithmetic.reference_answer(drawn), drawn.level)

    def check_steps(self, problem: Problem, text: str, *, finished: bool) -> list[bool]:
        asked, form = arithmetic.read_prompt(problem.prompt.text or "")
        return list(arithmetic.check(asked, text, form, finished=finished).steps)
