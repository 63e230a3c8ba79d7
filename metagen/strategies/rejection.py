"""Rejection sampling: draw until the verifier accepts, up to a cap."""

from __future__ import annotations

from collections.abc import Sequence as Ordered

from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator, is_count
from metagen.scope import Scope
from metagen.sequence import Sequence, digest
from metagen.strategies.aggregators import Best
from metagen.strategies.candidates import Candidate
from metagen.strategies.parallel import Parallel
from metagen.verifiers.base import AnswerRule, Verifier


class RejectionSampling(Parallel):
    """The first of at most n samples, by number, with v(y) ≥ threshold; if there is none, the best by v.

    Accepted samples are draws of g conditioned on v ≥ threshold; the expected number of draws is 1/P(v ≥ threshold),
    if n does not bind. With a perfect verifier it is right as often as pass@n.

    batch: how many are drawn and scored at a time, so that engines are busy; up to batch − 1 are drawn in vain, and
    which one is returned does not depend on it. A candidate that is cut or has no answer (with `answer`) is never
    accepted. Raises InputError for n or batch < 1 and for a threshold outside [0, 1], UnsupportedError for joint
    draws, and for a verifier whose scores are relative.
    """

    def __init__(
        self,
        generator: Generator,
        n: int,
        *,
        verifier: Verifier,
        threshold: float = 0.5,
        batch: int = 1,
        answer: AnswerRule | None = None,
    ) -> None:
        super().__init__(generator, n, Best(verifier, answer=answer))
        if not is_count(batch, 1):
            raise InputError(f"rejection sampling: batch={batch!r}; expected a number of samples, at least 1")
        if not 0.0 <= threshold <= 1.0:
            raise InputError(f"rejection sampling: threshold={threshold!r}; expected a score in [0, 1]")
        if verifier.relative:
            raise UnsupportedError(
                f"rejection sampling: {verifier.name!r} scores candidates relative to each other, and a threshold says "
                "nothing of such scores; take a verifier that scores one alone"
            )
        self.threshold, self.batch = threshold, batch

    @property
    def fingerprint(self) -> str:
        return digest("rejection", super().fingerprint, repr(float(self.threshold)), str(self.batch)).hex()

    def accepts(self, candidate: Candidate) -> bool:
        """Whole, with an answer where answers are read, and with a score that is high enough."""
        return candidate.eligible and candidate.value is not None and candidate.value >= self.threshold

    def enough(self, candidates: Ordered[Candidate]) -> bool:
        return any(map(self.accepts, candidates))

    async def chosen(self, candidates: list[Candidate], prefix: Sequence, scope: Scope) -> Sequence:
        accepted = next((one for one in candidates if self.accepts(one)), None)
        return await super().chosen([accepted] if accepted else candidates, prefix, scope)
