"""Scores that were recorded with a pool, as a verifier."""

from __future__ import annotations

from collections import abc
from dataclasses import field
from typing import ClassVar

from metagen.errors import DataError
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.values import Text
from metagen.verifiers.base import Verifier


@part
class RecordedVerifier(Verifier):
    """Reads `Sequence.scores[name]`, which a ReplayGenerator fills. Costs nothing."""

    whole: ClassVar[bool] = True
    by_sample: ClassVar[bool] = True
    spends: ClassVar[bool] = False

    name: str = field(kw_only=False)

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


def recorded(score: Text) -> RecordedVerifier:
    """Scores that were recorded with a pool, under `scores.NAME` of the generator's fields. score: that name."""
    return RecordedVerifier(score)
