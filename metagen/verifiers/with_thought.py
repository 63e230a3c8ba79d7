"""A verifier that is shown what was thought before the answer."""

from __future__ import annotations

from collections import abc

from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.verifiers.base import Verifier


class WithThought(Verifier):
    """The member's score of thought and answer as one text (`Sequence.whole`); else it is shown the answer alone.

    A process verifier so scores the steps of the thought, and then those of the answer. A sequence without a thought is
    scored as it is.
    """

    def __init__(self, verifier: Verifier, *, name: str | None = None) -> None:
        self.members, self.name = (verifier,), verifier.name if name is None else name

    @property
    def fingerprint(self) -> str:
        return digest("with thought", self.members[0].fingerprint).hex()

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        return await self.members[0].score([s.whole for s in sequences], scope=scope)
