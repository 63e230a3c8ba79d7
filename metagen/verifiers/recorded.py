"""Scores that were recorded with a pool, as a verifier."""

from __future__ import annotations

from collections import abc
from typing import ClassVar

from metagen.errors import DataError
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.verifiers.base import Verifier


class RecordedVerifier(Verifier):
    """Reads `Sequence.scores[name]`, which a ReplayGenerator fills. Costs nothing."""

    whole: ClassVar[bool] = True
    by_sample: ClassVar[bool] = True

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def fingerprint(self) -> str:
        return digest("recorded", self.name).hex()

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        for sequence in sequences:
            if self.name not in sequence.scores:
                known = ", ".join(sorted(sequence.scores)) or "none"
                raise DataError(
                    f"a sample of problem {sequence.prompt.problem_id!r} has no recorded score {self.name!r} "
                    f"(it has {known}); map it when the pool is read"
                )
        return [sequence.scores[self.name] for sequence in sequences]
