"""Stop when a verifier is sure: of one sample, or of the answer that many share."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from metagen import values
from metagen.border import checked
from metagen.parts import part
from metagen.strategies.adaptive.adaptive import AdaptiveStrategy
from metagen.strategies.adaptive.stopping import Bools, Floats, Ints, StoppingRule, leaders, totals
from metagen.strategies.aggregators import Aggregator, Weighted
from metagen.values import Count, Fraction, Positive
from metagen.verifiers.base import AnswerRule, Verifier


@checked
@dataclass(frozen=True)
class Sure(StoppingRule):
    """Stops when some sample has a score of at least `threshold`. threshold: the score.

    Examples:
        >>> import numpy as np
        >>> from metagen.strategies.adaptive.sure import Sure
        >>> Sure(0.9).stops(np.array([[0, 1], [0, 1]]), np.array([[0.2, 0.95], [0.2, 0.3]])).tolist()
        [True, False]
    """

    needs = "scores"

    threshold: values.Share

    def stops(self, classes: Ints, weights: Floats) -> Bools:
        return np.asarray((weights >= self.threshold).any(axis=1))


@checked
@dataclass(frozen=True)
class Share(StoppingRule):
    """Stops when the leading answer holds at least `share` of all weight, and at least `mass` of it.

    share: of all weight. mass: in samples of score 1; without it the first sample, which is all there is, would always
    stop.

    Examples:
        >>> import numpy as np
        >>> from metagen.strategies.adaptive.sure import Share
        >>> Share(0.8, mass=1.5).stops(np.array([[0, 0, 1], [0, 1, 1]]), np.array([[1, 0.9, 0.2], [1, 1, 1]])).tolist()
        [True, False]
    """

    needs = "answers"

    share: Fraction = 0.9
    mass: Positive = 2.0

    def stops(self, classes: Ints, weights: Floats) -> Bools:
        gathered = totals(classes, weights)
        first, _ = leaders(gathered)
        return np.asarray((first >= self.mass) & (first >= self.share * gathered.sum(axis=1)))


@part
class WeightedUntilSure(AdaptiveStrategy):
    """A weighted vote over as many samples as it takes until one answer holds `share` of the scores, at most n.

    For one sample of which the verifier is sure, see rejection sampling, or `Adaptive` with `Best` and `Sure`. share:
    of all scores, which one answer must hold. mass: the least sum of that answer's scores. batch: samples between two
    looks.

    Examples:
        >>> import metagen as mg
        >>> from metagen.strategies.adaptive.sure import WeightedUntilSure
        >>> same = mg.FunctionGenerator(lambda prefix, seed, index: "7", name="sevens")
        >>> good = mg.FunctionVerifier(lambda s: 0.8, name="good")
        >>> vote = WeightedUntilSure(same, 40, verifier=good, answer=mg.NumberRule(prose=True))
        >>> len(vote.solve("A digit?").candidates)
        3
    """

    adaptive = True

    n: Count = field(default=40, kw_only=False)
    verifier: Verifier
    answer: AnswerRule
    share: Fraction = 0.9
    mass: Positive = 2.0
    batch: Count = 1

    def _aggregator(self) -> Aggregator:
        return Weighted(self.verifier, self.answer)

    def _rule(self) -> StoppingRule:
        return Share(self.share, self.mass)

    @property
    def step(self) -> int:
        return self.batch
