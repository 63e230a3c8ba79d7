"""Stop when a verifier is sure: of one sample, or of the answer that many share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metagen.errors import InputError
from metagen.generators.base import Generator
from metagen.strategies.adaptive.adaptive import Adaptive
from metagen.strategies.adaptive.stopping import Bools, Floats, Ints, StoppingRule, leaders, totals
from metagen.strategies.aggregators import Weighted
from metagen.verifiers.base import AnswerRule, Verifier


@dataclass(frozen=True)
class Sure(StoppingRule):
    """Stops when some sample has a score of at least `threshold`."""

    threshold: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.threshold <= 1.0:
            raise InputError(f"Sure: threshold={self.threshold!r}; expected a score in [0, 1]")

    def stops(self, classes: Ints, weights: Floats) -> Bools:
        return np.asarray((weights >= self.threshold).any(axis=1))


@dataclass(frozen=True)
class Share(StoppingRule):
    """Stops when the leading answer holds at least `share` of all weight, and at least `mass` of it.

    mass: in samples of score 1; without it the first sample, which is all there is, would always stop.
    """

    share: float = 0.9
    mass: float = 2.0

    def __post_init__(self) -> None:
        if not 0.0 < self.share <= 1.0:
            raise InputError(f"Share: share={self.share!r}; expected a share in (0, 1]")
        if not self.mass > 0.0:
            raise InputError(f"Share: mass={self.mass!r}; expected a sum of scores > 0")

    def stops(self, classes: Ints, weights: Floats) -> Bools:
        gathered = totals(classes, weights)
        first, _ = leaders(gathered)
        return np.asarray((first >= self.mass) & (first >= self.share * gathered.sum(axis=1)))


class WeightedUntilSure(Adaptive):
    """A weighted vote over as many samples as it takes until one answer holds `share` of the scores, at most n.

    For one sample of which the verifier is sure, see rejection sampling, or `Adaptive` with `Best` and `Sure`.
    """

    def __init__(
        self,
        generator: Generator,
        n: int = 40,
        *,
        verifier: Verifier,
        answer: AnswerRule,
        share: float = 0.9,
        mass: float = 2.0,
        batch: int = 1,
    ) -> None:
        super().__init__(generator, n, Weighted(verifier, answer), Share(share, mass), batch=batch)
