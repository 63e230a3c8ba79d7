"""A verifier that is shown what was thought before the answer."""

from __future__ import annotations

from collections import abc
from dataclasses import field

from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.verifiers.base import Verifier


@part
class WithThought(Verifier):
    """The member's score of thought and answer as one text (`Sequence.whole`); else it is shown the answer alone.

    A process verifier so scores the steps of the thought, and then those of the answer. A sequence without a thought
    is scored as it is. verifier: the member.

    Examples:
        >>> import asyncio, metagen as mg
        >>> from metagen.verifiers.with_thought import WithThought
        >>> length = mg.FunctionVerifier(lambda s: min(1.0, len(s.text) / 10), name="length")
        >>> WithThought(length).name
        'length'
    """

    verifier: Verifier = field(kw_only=False)
    name: str = ""

    def __post_init__(self) -> None:
        self.members, self.name = (self.verifier,), self.name or self.verifier.name

    @property
    def fingerprint(self) -> str:
        return digest("with thought", self.verifier.fingerprint).hex()

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        return await self.verifier.score([s.whole for s in sequences], scope=scope)
