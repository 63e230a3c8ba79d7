"""Stop when the full vote is foreseen: the samples that are left will probably not change the winner.

`Beta` asks which of two answers is the more probable one, had we endless samples; `Decided` asks what n samples say in
the worst case. Between them: with counts v₁ ≥ v₂ and r samples left, the votes that the leader gets of r more are
beta-binomial, X ~ BetaBin(r, v₁ + 1, v₂ + 1), if all of them go to one of the two. The rule stops when
P(v₁ + X > v₂ + r − X) ≥ confidence, ties counting half. Sequential trials know it as the predictive probability; it is
not from a paper on adaptive voting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import betabinom

from metagen.border import checked
from metagen.strategies.adaptive.stopping import Bools, Floats, Ints, StoppingRule, leaders, totals
from metagen.values import Certainty, Count


@checked
@dataclass(frozen=True)
class Predictive(StoppingRule):
    """Stops when the leader after k samples leads after n with this probability. Never later than `Decided`."""

    n: Count
    confidence: Certainty = 0.97

    def stops(self, classes: Ints, weights: Floats) -> Bools:
        left = max(0, self.n - classes.shape[1])
        return predictive_confidence(*leaders(totals(classes, weights)), left) >= self.confidence


def predictive_confidence(first: Floats, second: Floats, left: int) -> Floats:
    """P(v₁ + X > v₂ + r − X) + ½ P(=), X ~ BetaBin(r, v₁ + 1, v₂ + 1): arrays of counts of one shape, and r."""
    first, second = np.asarray(first), np.asarray(second)
    needed = (second - first + left) / 2.0
    whole = np.floor(needed)
    ahead = betabinom.sf(whole, left, first + 1.0, second + 1.0)
    tied = np.where(whole == needed, betabinom.pmf(whole, left, first + 1.0, second + 1.0), 0.0)
    return np.asarray(ahead + tied / 2.0)
