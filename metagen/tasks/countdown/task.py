"""Countdown as a Task: no reference is needed, since a solution is played and looked at."""

from __future__ import annotations

import json
from collections import abc
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path

from metagen.errors import DataError
from metagen.parts import part
from metagen.sequence import Form, Prompt, Sequence
from metagen.tasks.base import Problem, Task
from metagen.tasks.countdown import expressions, notation, problems
from metagen.tasks.countdown.game import COUNTDOWN, RATIONALS, Move, Number, Rules, Table, after, table
from metagen.tasks.countdown.problems import LEVELS
from metagen.tasks.levelled import FourLevels, LevelledTask
from metagen.tasks.split import Split
from metagen.tasks.template import Turns, Whole, Wording, turn_form, whole
from metagen.values import Count
from metagen.verifiers.base import Answer, AnswerRule


@part
class CountdownTask(LevelledTask):
    """`per_level` problems of each of `levels` (1 to 4), from one of three disjoint spaces.

    Numbers are to be put together by + − × ÷ until the target alone is left; all are used, and results are positive
    integers up to 999. `Prompt.public` holds `numbers` and `target`. A solution is graded by playing it. seed, limit:
    as of `LevelledTask`.
    """

    name = "countdown"
    delimiter = notation.DELIMITER

    levels: FourLevels = LEVELS

    @cached_property
    def answer(self) -> ExpressionRule:
        return ExpressionRule()

    def draw(self, level: int, count: int) -> list[problems.Problem]:
        return problems.problems(Split(self.split), level, count, self.seed)

    def as_problem(self, drawn: problems.Problem, name: str) -> Problem:
        public = {"numbers": list(drawn.numbers), "target": drawn.target}
        return Problem(Prompt(name, text=drawn.prompt, public=public), str(drawn.target), drawn.level)

    async def grade(self, problem: Problem, sequences: abc.Sequence[Sequence]) -> list[float]:
        """1 for a solution that uses every number once and leaves the target, else 0."""
        return [float(solves(one)) for one in sequences]

    def check_steps(self, problem: Problem, text: str, *, finished: bool) -> list[bool]:
        """Of each step: it and all before are right, and the target can still be reached."""
        numbers, target = notation.read_prompt(problem.prompt.text or "")
        return notation.check(numbers, target, text, finished=finished)


class Game24Task(Task):
    """Game of 24 from a JSONL file: `id` and `puzzle` (such as `4 5 6 10`), or `numbers`; `target`, 24 by default.

    Answers are expressions; any rational number may occur on the way. A candidate may be a text that ends in an
    expression, after `Answer:` if there is such a line. prompt, form: as of JsonlTask, with places for {question} (the
    task's own words), {numbers} and {target}. Raises DataError for a record that is none, InputError as JsonlTask does.

    Examples:
        >>> import json
        >>> from pathlib import Path
        >>> from metagen.tasks.countdown.task import Game24Task
        >>> import asyncio, metagen as mg
        >>> record = {"id": "1", "puzzle": "4 5 6 10"}
        >>> _ = Path("24.jsonl").write_text(json.dumps(record))
        >>> task = Game24Task("24.jsonl")
        >>> (problem,) = task.problems()
        >>> asyncio.run(task.grade(problem, [mg.Sequence(problem.prompt, "(10 - 6) * 5 + 4", finish="eos")]))
        [1.0]
    """

    name = "game24"

    def __init__(
        self,
        path: str | Path,
        *,
        prompt: Wording | None = None,
        form: Form | None = None,
        limit: Count | None = None,
    ) -> None:
        self.path, self.limit = Path(path), limit
        wording = "{question}" if prompt is None else prompt
        self._turns = Turns.of(wording).expecting("question", "numbers", "target")
        self._form = turn_form(wording, form)

    @cached_property
    def answer(self) -> AnswerRule:
        return Whole(ExpressionRule(RATIONALS)) if self._turns.assistant else ExpressionRule(RATIONALS)

    def problems(self) -> Iterator[Problem]:
        return islice(self._all(), self.limit)

    def _all(self) -> Iterator[Problem]:
        for number, line in enumerate(self.path.read_text("utf-8").splitlines(), 1):
            if line.strip():
                yield self._problem(line, f"{self.path}:{number}", number)

    def _problem(self, line: str, where: str, number: int) -> Problem:
        try:
            record = json.loads(line)
            given = record["numbers"] if "numbers" in record else record["puzzle"].split()
            numbers, target = [int(n) for n in given], int(record.get("target", 24))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{where}: no puzzle ({type(error).__name__}: {error}); expected an object with puzzle, such as "
                '"4 5 6 10", or numbers, and perhaps target'
            ) from None
        name = str(record.get("id", f"{self.name}/{number - 1}"))
        shown = " ".join(map(str, numbers))
        said = (
            f"Use each of the numbers {shown} exactly once, with +, -, * and /, to make {target}. "
            "End with a line `Answer:` and the expression."
        )
        public = {"numbers": numbers, "target": target}
        values = {"question": said, "numbers": shown, "target": str(target)}
        return Problem(self._turns.prompt(name, self._form, values, public), str(target))

    async def grade(self, problem: Problem, sequences: abc.Sequence[Sequence]) -> list[float]:
        """1 for an expression of every number once that makes the target, else 0."""
        return [float(solves(whole(one), RATIONALS)) for one in sequences]


class ExpressionRule(AnswerRule):
    """A solution as one expression; solutions that differ only in order are one answer.

    Steps are read as `notation` writes them, else the last line as an expression. A solution that breaks the rules
    of the game, or does not use every number, is `unparsable`; whether it reaches the target plays no part.
    """

    def __init__(self, rules: Rules = COUNTDOWN) -> None:
        self.rules = rules

    @property
    def fingerprint(self) -> str:
        return f"countdown expression {self.rules!r}"

    async def read(self, sequences: abc.Sequence[Sequence]) -> list[Answer]:
        return [self._read(one) for one in sequences]

    async def key(self, answer: str) -> str | None:
        """An expression as it stands."""
        played = expressions.read(answer)
        if not played:
            return None
        return notation.expression(_first_numbers(played), played)

    def _read(self, sequence: Sequence) -> Answer:
        found = _play(sequence, self.rules)
        if found is None:
            return Answer(verdict="unparsable" if sequence.text.strip() else "missing")
        numbers, played = found
        written = notation.expression(numbers, played)
        return Answer(written, written)


def solves(sequence: Sequence, rules: Rules = COUNTDOWN) -> bool:
    """Whether a finished sequence reaches the target of its prompt with every number used once."""
    if sequence.finish not in ("eos", "stop"):
        return False
    found = _play(sequence, rules)
    return found is not None and found[1][-1].result == sequence.prompt.public["target"]


def _play(sequence: Sequence, rules: Rules) -> tuple[Table, tuple[Move, ...]] | None:
    """Numbers and moves of a solution that keeps to the rules and leaves one number."""
    numbers = table(sequence.prompt.public["numbers"])
    steps = notation.replay(numbers, sequence.text, rules)
    if steps.complete and steps.moves:
        return numbers, steps.moves
    lines = sequence.text.strip().splitlines()
    played = expressions.read(lines[-1].lower().removeprefix("answer:")) if lines else None
    left: Table | None = numbers
    for move in played or ():
        left = after(left, move, rules) if left is not None else None
    return (numbers, tuple(played)) if played and left is not None and len(left) == 1 else None


def _first_numbers(played: abc.Sequence[Move]) -> Table:
    """The numbers that moves begin with: all that no earlier move has made."""
    made: list[Number] = []
    given: list[Number] = []
    for move in played:
        for number in (move.left, move.right):
            if number in made:
                made.remove(number)
            else:
                given.append(number)
        if move.result is not None:
            made.append(move.result)
    return table(given)
