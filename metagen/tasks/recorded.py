"""The problems of a file of recorded samples, as its own records tell them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Ordered
from pathlib import Path
from typing import ClassVar, Final, Literal

from metagen.errors import DataError, InputError
from metagen.sequence import Prompt, Sequence
from metagen.tasks.base import Problem
from metagen.tasks.records import Record, RecordTask, as_text, field, in_text, jsonl
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.numbers import ANSWER_LINE, NumberRule

FIELDS: Final = ("id", "question", "reference")


class RecordedTask(RecordTask):
    """What the records of a pool say of its problems; the first record of an id counts (of one sample a line).

    fields: names in the file for `id`, and for `question` and `reference` where there are any; who has no question
    asks nothing, and its samples are graded all the same. verdicts: the name of a recorded score that says whether a
    sample is right, which is then the grader, and no reference is looked at. answer, pattern: how answers are read for
    votes: as mathematics, or as numbers. Raises DataError as RecordTask does. InputError for unknown `fields`, and
    without reference and verdicts.
    """

    name = "recorded"
    one: ClassVar[str] = "one record a line"

    def __init__(
        self,
        path: str | Path,
        *,
        fields: Mapping[str, str],
        verdicts: str | None = None,
        answer: Literal["math", "number"] = "math",
        pattern: str | None = None,
        limit: int | None = None,
    ) -> None:
        if unknown := sorted(set(fields) - set(FIELDS)):
            raise InputError(f"fields={dict(fields)!r}: {unknown[0]!r} is none of {', '.join(FIELDS)}")
        if verdicts is None and "reference" not in fields:
            raise InputError(f"fields={dict(fields)!r}: expected a reference, or verdicts")
        self._fields, self._verdicts = dict(fields), verdicts
        self.name = Path(path).stem
        super().__init__(Path(path), answer=_rule(answer, pattern), limit=limit)

    def problem(self, record: Record, number: int) -> Problem:
        name = as_text(field(record, self._fields.get("id", "id")), "the id")
        asked = record.get(self._fields.get("question", "")) or name
        given = "" if self._verdicts else as_text(field(record, self._fields["reference"]), "the reference")
        said = in_text(asked, "the question")
        prompt = (
            Prompt(name, text=said) if isinstance(said, str) else Prompt(name, messages=said, form="auto")
        )
        return Problem(prompt, given)

    async def grade(self, problem: Problem, sequences: Ordered[Sequence]) -> list[float]:
        if self._verdicts is None:
            return await super().grade(problem, sequences)
        return verdicts_of(sequences, self._verdicts)

    def _records(self) -> Iterator[tuple[int, Record | DataError]]:
        """The first record of each id."""
        seen: set[object] = set()
        for number, record in jsonl(Path(self.source)):  # type: ignore[arg-type]  # a path, as it was given
            name = number if isinstance(record, DataError) else str(record.get(self._fields.get("id", "id")))
            if name not in seen:
                seen.add(name)
                yield number, record

    def _readable(self, found: Mapping[str, tuple[int, Problem]]) -> Ordered[bool]:
        return [True] * len(found) if self._verdicts else super()._readable(found)


def verdicts_of(sequences: Ordered[Sequence], name: str) -> list[float]:
    """A(y) as it was recorded with each sample; one without a verdict is not right. InputError if there are none."""
    for sequence in sequences:
        if name not in sequence.scores:
            raise InputError(
                f"a sample of problem {sequence.prompt.problem_id!r} has no recorded verdict {name!r}; "
                f"map it where the pool is read, fields: {{scores.{name}: …}}"
            )
    return [float((sequence.scores[name].value or 0.0) > 0.5) for sequence in sequences]


def _rule(answer: str, pattern: str | None) -> AnswerRule:
    if answer == "number":
        return NumberRule(pattern or ANSWER_LINE, prose=True)
    from metagen.verifiers.math import MathRule

    return MathRule(pattern)
