"""Adaptive-Consistency: sample until the leading answer is likely to stay the majority (Aggarwal et al. 2023).

With counts v₁ ≥ v₂ ≥ … and a uniform prior, the shares of the answers are Dirichlet(v + 1). The rule stops when
P(θ₁ = max_i θ_i | v) ≥ 0.95. The Beta rule looks at the two leaders alone: P(θ₁ > θ₂) = I_½(v₂ + 1, v₁ + 1), an upper
bound, and the same where there are no other answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np

from metagen.border import checked
from metagen.parts import part
from metagen.strategies.adaptive.adaptive import AdaptiveStrategy
from metagen.strategies.adaptive.stopping import Bools, Floats, Ints, StoppingRule, leaders, totals
from metagen.strategies.aggregators import Aggregator, Majority
from metagen.values import Certainty, Count
from metagen.verifiers.base import AnswerRule

#: Probability that quadrature leaves out at either end.
TAIL = 1e-16
#: Gauss–Legendre nodes and weights on [−1, 1].
NODES, WEIGHTS = np.polynomial.legendre.leggauss(96)


@checked
@dataclass(frozen=True)
class Beta(StoppingRule):
    """Stops when the leader beats the runner-up with this probability. At 0.95, 4 equal answers are enough.

    confidence: the probability.
    """

    needs = "answers"

    confidence: Certainty = 0.95

    def stops(self, classes: Ints, weights: Floats) -> Bools:
        return beta_confidence(*leaders(totals(classes, weights))) >= self.confidence


@checked
@dataclass(frozen=True)
class Dirichlet(StoppingRule):
    """Stops when the leader beats all answers seen so far with this probability.

    Answers that nobody gave have no share; a single answer is compared with one of them. confidence: the probability.
    """

    needs = "answers"

    confidence: Certainty = 0.95

    def stops(self, classes: Ints, weights: Floats) -> Bools:
        counts, place = np.unique(-np.sort(-totals(classes, weights), axis=1), axis=0, return_inverse=True)
        found = [dirichlet_confidence(tuple(row[row > 0].tolist())) for row in counts]
        return np.asarray(found)[place.reshape(-1)] >= self.confidence


def beta_confidence(first: Floats, second: Floats) -> Floats:
    """P(θ > ½), θ ~ Beta(v₁ + 1, v₂ + 1), for the counts of two leaders: arrays of one shape."""
    from scipy.special import betainc  # which every run would wait for

    return np.asarray(betainc(np.asarray(second) + 1.0, np.asarray(first) + 1.0, 0.5))


@lru_cache(maxsize=100_000)
def dirichlet_confidence(counts: tuple[float, ...]) -> float:
    """P(θ₁ is the largest), θ ~ Dirichlet(counts + 1), for counts in descending order.

    θ is a vector of independent gamma variables over their sum, so the probability is one integral,
    ∫ g₁(x) Π_{i>1} G_i(x) dx, over the density g and the distribution functions G; by quadrature, to about 1e-12.
    """
    from scipy.special import gammainc, gammainccinv, gammaincinv, gammaln  # which every run would wait for

    first, *others = (*counts, *[0.0] * (2 - len(counts)))
    shape = first + 1.0
    low, high = float(gammaincinv(shape, TAIL)), float(gammainccinv(shape, TAIL))
    x = low + (high - low) * (NODES + 1.0) / 2.0
    density = np.exp((shape - 1.0) * np.log(x) - x - gammaln(shape))
    below = gammainc(np.array(others)[:, None] + 1.0, x).prod(axis=0)
    return float(np.clip((high - low) / 2.0 * (WEIGHTS * density * below).sum(), 0.0, 1.0))


@part
class AdaptiveConsistency(AdaptiveStrategy):
    """A majority vote over as many samples as it needs, at most n (the paper: 40).

    posterior: `beta` (the paper's default) or `dirichlet`, which asks for more where there are many answers.
    confidence: the probability that ends the vote. batch: samples between two looks.
    """

    adaptive = True

    n: Count = field(default=40, kw_only=False)
    answer: AnswerRule
    confidence: Certainty = 0.95
    posterior: Literal["beta", "dirichlet"] = "beta"
    batch: Count = 1

    def _aggregator(self) -> Aggregator:
        return Majority(self.answer)

    def _rule(self) -> StoppingRule:
        return (Beta if self.posterior == "beta" else Dirichlet)(self.confidence)

    @property
    def step(self) -> int:
        return self.batch
