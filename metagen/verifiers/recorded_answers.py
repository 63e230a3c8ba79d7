"""Answers that were recorded with the samples, in a field of their own."""

from __future__ import annotations

from collections import abc
from dataclasses import field

from metagen.errors import InputError
from metagen.generators.replay import ANSWER
from metagen.parts import part
from metagen.sequence import Score, Sequence, digest
from metagen.verifiers.base import Answer, AnswerRule


@part
class RecordedRule(AnswerRule):
    """Reads the answer that a sample's own record gives, in a field beside its text.

    rule: tells recorded answers apart, by the key of each as it stands. A sample without a recorded answer abstains:
    `missing`. Raises InputError where a pool has no such field at all: a sample that carries nothing.

    Examples:
        >>> import asyncio, metagen as mg
        >>> from metagen.generators.replay import ANSWER
        >>> from metagen.verifiers.recorded_answers import RecordedRule
        >>> answer = mg.Score(None, verdict="recorded", feedback="42.0")
        >>> sample = mg.Sequence(mg.Prompt("1", text="?"), "…", finish="eos").with_score(ANSWER, answer)
        >>> asyncio.run(RecordedRule(mg.NumberRule(prose=True)).read([sample]))[0].key
        '42'
    """

    rule: AnswerRule = field(kw_only=False)

    @property
    def fingerprint(self) -> str:
        return digest("recorded rule", self.rule.fingerprint).hex()

    async def read(self, sequences: abc.Sequence[Sequence]) -> list[Answer]:
        written = [read_recorded(s, ANSWER, "{answers: FIELD}").feedback for s in sequences]
        keys = {text: await self.rule.key(text) for text in dict.fromkeys(written) if text}
        return [
            Answer(text, keys[text], None if keys[text] is not None else "unparsable")
            if text
            else Answer(verdict="missing")
            for text in written
        ]

    async def key(self, answer: str) -> str | None:
        return await self.rule.key(answer)


def read_recorded(sequence: Sequence, name: str, fields: str) -> Score:
    """Read the record of a sample under a name; InputError where there is none. fields: names the mapping."""
    if name not in sequence.scores:
        raise InputError(
            f"a sample of problem {sequence.prompt.problem_id!r} has no recorded {name!r}; map it where the pool is "
            f"read, fields: {fields}, or read answers by another rule"
        )
    return sequence.scores[name]
