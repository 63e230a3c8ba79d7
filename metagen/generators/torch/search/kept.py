"""The texts that a beam search has found, and when it need not look for more."""

from __future__ import annotations

import math
from typing import NamedTuple

from metagen.generators.decoding.search import EarlyStopping
from metagen.generators.engine import Sample


class Text(NamedTuple):
    """rank: the score that it is kept by. score: the one that it is returned with, without penalties."""

    rank: float
    score: float
    sample: Sample


class Kept:
    """The `size` best texts so far, by Σ log p / |y|^α. limit: tokens that a text may have."""

    def __init__(self, size: int, alpha: float, rule: EarlyStopping, limit: int) -> None:
        self._size, self._alpha, self._rule, self._limit = size, alpha, rule, limit
        self.texts: list[Text] = []

    def add(self, sample: Sample, total: float, length: int, penalty: float = 0.0) -> None:
        """A text of `length` tokens: the sum of its log-probabilities, less the penalty that is in it already."""
        norm = math.pow(length, self._alpha)
        self.texts.append(Text(total / norm, (total + penalty) / norm, sample))
        self.texts.sort(key=lambda text: -text.rank)
        del self.texts[self._size :]

    def settled(self, total: float, length: int) -> bool:
        """Whether the best live prefix, of `length` tokens and this total, need not be followed any further."""
        if len(self.texts) < self._size:
            return False
        if self._rule == "filled":
            return True
        reach = self._limit if self._rule == "bound" else length
        return total / math.pow(reach, self._alpha) <= self.texts[-1].rank
