"""Rejection sampling: draw until the verifier accepts, up to a cap."""

from __future__ import annotations

from collections import abc

from metagen.errors import UnsupportedError
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.strategies.aggregators import Aggregator, Best
from metagen.strategies.candidates import Candidate
from metagen.strategies.parallel import ParallelStrategy
from metagen.values import Count, Share
from metagen.verifiers.base import AnswerRule, Verifier


@part
class RejectionSampling(ParallelStrategy):
    """The first of at most n samples, by number, with v(y) ≥ threshold; if there is none, the best by v.

    Accepted samples are draws of g conditioned on v ≥ threshold; the expected number of draws is 1/P(v ≥ threshold),
    if n does not bind. With a perfect verifier it is right as often as pass@n.

    batch: how many are drawn and scored at a time, so that engines are busy; up to batch − 1 are drawn in vain, and
    which one is returned does not depend on it. A candidate that is cut or has no answer (with `answer`) is never
    accepted. threshold: the least score that is accepted. Raises InputError for n or batch < 1 and for a threshold
    outside [0, 1], UnsupportedError for joint draws, and for a verifier whose scores are relative.
    """

    chooses = True

    verifier: Verifier
    threshold: Share = 0.5
    batch: Count = 1
    answer: AnswerRule | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.verifier.relative:
            raise UnsupportedError(
                f"RejectionSampling: {self.verifier.name!r} scores candidates relative to each other, and a threshold "
                "says nothing of such scores; take a verifier that scores one alone"
            )

    def _aggregator(self) -> Aggregator:
        return Best(self.verifier, answer=self.answer)

    @property
    def step(self) -> int:
        return self.batch

    def accepts(self, candidate: Candidate) -> bool:
        """Whole, with an answer where answers are read, and with a score that is high enough."""
        return candidate.eligible and candidate.value is not None and candidate.value >= self.threshold

    def enough(self, candidates: abc.Sequence[Candidate]) -> bool:
        return any(map(self.accepts, candidates))

    async def choose(self, candidates: list[Candidate], prefix: Sequence, scope: Scope) -> Sequence:
        accepted = next((one for one in candidates if self.accepts(one)), None)
        return await super().choose([accepted] if accepted else candidates, prefix, scope)
