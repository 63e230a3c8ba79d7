"""The problems of a file of recorded samples, as its own records tell them."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from metagen.errors import DataError, InputError
from metagen.generators.pool import records
from metagen.generators.replay import VERDICT
from metagen.sequence import Prompt, Sequence
from metagen.tasks.base import Problem
from metagen.tasks.records import Record, RecordTask, as_text, field, in_text
from metagen.values import Count, Switch
from metagen.verifiers.rules import Rule, answer_rule
from metagen.verifiers.votes_only import VotesOnly

FIELDS: Final = ("id", "question", "reference", "successes", "n")


class RecordedTask(RecordTask):
    """Problems as the records of a pool have them; the first record of an id counts (of one sample a line).

    fields: names in the file for `id`, and for `question` and `reference` where there are any; who has no question
    asks nothing, and its samples are graded all the same. `successes`, `n` and where: as of `read_pool`. verdicts:
    whether the recorded verdicts of samples (`correct` of `read_pool`) grade, and no reference is looked at; by default
    where there is no reference. Answers are read for votes alone then, and what cannot be read has no vote. answer,
    pattern: how answers are read, as of JsonlTask. Raises DataError as RecordTask does. InputError for unknown
    `fields`, and without reference and verdicts.

    Examples:
        >>> import json
        >>> from pathlib import Path
        >>> from metagen.tasks.recorded import RecordedTask
        >>> record = {"id": "1", "asked": "What is 2 + 3?", "samples": ["5", "6"], "gold": "5"}
        >>> _ = Path("pool.jsonl").write_text(json.dumps(record))
        >>> task = RecordedTask("pool.jsonl", fields={"question": "asked", "reference": "gold"})
        >>> (problem,) = task.problems()
        >>> problem.reference
        '5'
    """

    name = "recorded"
    one: ClassVar[str] = "one record a line"

    def __init__(
        self,
        path: str | Path,
        *,
        fields: Mapping[str, str] | None = None,
        where: Mapping[str, Any] | None = None,
        verdicts: Switch | None = None,
        answer: Rule = "math",
        pattern: str | None = None,
        limit: Count | None = None,
    ) -> None:
        self._fields, self._where = {"id": "id", **(fields or {})}, where or {}
        if unknown := sorted(set(self._fields) - set(FIELDS)):
            raise InputError(f"fields={dict(fields or {})!r}: {unknown[0]!r} is none of {', '.join(FIELDS)}")
        referred = "reference" in self._fields
        if verdicts is False and not referred:
            raise InputError(f"fields={dict(fields or {})!r}: expected a reference, or verdicts")
        self._verdicts = not referred if verdicts is None else verdicts
        self.name = Path(path).stem
        rule = answer_rule(answer, pattern=pattern)
        super().__init__(Path(path), answer=VotesOnly(rule) if self._verdicts else rule, limit=limit)

    def problem(self, record: Record, number: int) -> Problem:
        name = as_text(field(record, self._fields["id"]), "the id")
        if (question := self._fields.get("question")) is not None and question not in record:
            raise DataError(
                f"record {name!r} has no field {question!r} for the question; give its name by fields"
            )
        asked = record.get(question or "") or name
        given = "" if self._verdicts else as_text(field(record, self._fields["reference"]), "the reference")
        said = in_text(asked, "the question")
        prompt = (
            Prompt(name, text=said) if isinstance(said, str) else Prompt(name, messages=said, form="auto")
        )
        return Problem(prompt, given)

    async def grade(self, problem: Problem, sequences: abc.Sequence[Sequence]) -> list[float]:
        return verdicts_of(sequences) if self._verdicts else await super().grade(problem, sequences)

    def _records(self) -> Iterator[tuple[int, Record | DataError]]:
        """The first record of each id; a DataError for a later one with another reference."""
        seen: dict[str, Any] = {}
        source = Path(self.source)  # type: ignore[arg-type]  # a path, as it was given
        for number, (_, record) in enumerate(records(source, self._fields, self._where), 1):
            given = None if self._verdicts else record.get(self._fields["reference"])
            if (name := str(record.get(self._fields["id"]))) not in seen:
                seen[name] = given
                yield number, record
            elif given is not None and seen[name] is not None and str(given) != str(seen[name]):
                yield (
                    number,
                    DataError(
                        f"the reference of {name!r} is {given!r:.80}, and {seen[name]!r:.80} in an earlier record; "
                        "give each question an id of its own, or grade by recorded verdicts"
                    ),
                )

    def _readable(self, found: Mapping[str, tuple[int, Problem]]) -> abc.Sequence[bool]:
        return [True] * len(found) if self._verdicts else super()._readable(found)


def verdicts_of(sequences: abc.Sequence[Sequence]) -> list[float]:
    """A(y) as it was recorded with each sample. InputError if one has no verdict."""
    for sequence in sequences:
        if VERDICT not in sequence.scores:
            raise InputError(
                f"a sample of problem {sequence.prompt.problem_id!r} has no recorded verdict; map it where the pool is "
                "read, fields: {correct: …}"
            )
    return [float((sequence.scores[VERDICT].value or 0.0) > 0.5) for sequence in sequences]
