"""Answers that serve votes alone, where something else says what is right: recorded verdicts."""

from __future__ import annotations

from collections import abc
from dataclasses import field, replace

from metagen.parts import part
from metagen.sequence import Sequence, digest
from metagen.verifiers.base import Answer, AnswerRule


@part
class VotesOnly(AnswerRule):
    """Reads as another rule does. A text that it cannot read has no vote, and is as good a candidate as any other.

    Examples:
        >>> import asyncio, metagen as mg
        >>> from metagen.verifiers.votes_only import VotesOnly
        >>> silent = mg.Sequence(mg.Prompt("1", text="?"), "No number here.", finish="eos")
        >>> asyncio.run(VotesOnly(mg.NumberRule(prose=True)).read([silent]))[0].needed
        False
    """

    rule: AnswerRule = field(kw_only=False)

    def __post_init__(self) -> None:
        self.oracle = self.rule.oracle

    @property
    def fingerprint(self) -> str:
        return digest("votes only", self.rule.fingerprint).hex()

    async def read(self, sequences: abc.Sequence[Sequence]) -> list[Answer]:
        return [replace(answer, needed=False) for answer in await self.rule.read(sequences)]

    async def key(self, answer: str) -> str | None:
        return await self.rule.key(answer)
