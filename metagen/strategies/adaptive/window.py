"""Early-stopping self-consistency, ESC: stop at the first window of samples that all agree (Li et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metagen.errors import InputError
from metagen.generators.base import Generator
from metagen.strategies.adaptive.adaptive import Adaptive
from metagen.strategies.adaptive.stopping import Bools, Floats, Ints, StoppingRule
from metagen.strategies.aggregators import Majority
from metagen.verifiers.base import AnswerRule


@dataclass(frozen=True)
class Unanimous(StoppingRule):
    """Stops when the last of the consecutive windows of `size` samples holds one answer only.

    A sample without an answer breaks a window.
    """

    size: int = 5

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"Unanimous: size={self.size!r}; expected the samples of a window, at least 1")

    def stops(self, classes: Ints, weights: Floats) -> Bools:
        drawn = classes.shape[1]
        if not drawn or drawn % self.size:
            return np.zeros(len(classes), dtype=bool)
        last = classes[:, -self.size :]
        return np.asarray((last == last[:, :1]).all(axis=1) & (last[:, 0] >= 0))


class EarlyStopping(Adaptive):
    """ESC: draws window by window, at most n samples; the vote is over all of them."""

    def __init__(self, generator: Generator, n: int = 40, *, answer: AnswerRule, window: int = 5) -> None:
        super().__init__(generator, n, Majority(answer), Unanimous(window), batch=window)
