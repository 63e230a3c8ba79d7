"""Early-stopping self-consistency, ESC: stop at the first window of samples that all agree (Li et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from metagen.border import checked
from metagen.parts import part
from metagen.strategies.adaptive.adaptive import AdaptiveStrategy
from metagen.strategies.adaptive.stopping import Bools, Floats, Ints, StoppingRule
from metagen.strategies.aggregators import Aggregator, Majority
from metagen.values import Count
from metagen.verifiers.base import AnswerRule


@checked
@dataclass(frozen=True)
class Unanimous(StoppingRule):
    """Stops when the last of the consecutive windows of `size` samples holds one answer only.

    A sample without an answer breaks a window. size: samples of a window.
    """

    needs = "answers"

    size: Count = 5

    def stops(self, classes: Ints, weights: Floats) -> Bools:
        drawn = classes.shape[1]
        if not drawn or drawn % self.size:
            return np.zeros(len(classes), dtype=bool)
        last = classes[:, -self.size :]
        return np.asarray((last == last[:, :1]).all(axis=1) & (last[:, 0] >= 0))


@part
class EarlyStopping(AdaptiveStrategy):
    """ESC: draws window by window, at most n samples; the vote is over all of them.

    window: samples at a time; equal answers in one of them end the vote.
    """

    adaptive = True

    n: Count = field(default=40, kw_only=False)
    answer: AnswerRule
    window: Count = 5

    def _aggregator(self) -> Aggregator:
        return Majority(self.answer)

    def _rule(self) -> StoppingRule:
        return Unanimous(self.window)

    @property
    def step(self) -> int:
        return self.window
