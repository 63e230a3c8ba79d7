"""Candidates of many problems as arrays, and what is chosen among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metagen.analysis.estimators import best_of_k, majority_at_k, weighted_at_k

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Candidates:
    """Arrays [problems, samples]. classes: of answers, -1 for none. ns: sizes at which rules are looked at."""

    ns: tuple[int, ...]
    right: NDArray[np.bool_]
    classes: NDArray[np.int64]

    @classmethod
    def of(
        cls, right: Sequence[Sequence[bool]], keys: Sequence[Sequence[str | None]], ns: Iterable[int]
    ) -> Candidates:
        """From rows by problem: whether each is right, and the key of its answer, if it has one."""
        classes = []
        for row in keys:
            known = {key: i for i, key in enumerate(dict.fromkeys(key for key in row if key is not None))}
            classes.append([-1 if key is None else known[key] for key in row])
        return cls(tuple(n for n in ns if n <= len(keys[0])), np.array(right), np.array(classes))

    def answered(self, scores: ArrayLike) -> Floats:
        """The scores, NaN for candidates without an answer: they are never chosen."""
        return np.where(self.classes < 0, np.nan, np.asarray(scores, dtype=np.float64))

    def vote(self, scores: Floats | None = None) -> Floats:
        """Expected accuracy of a vote at each of `ns`, [len(ns), problems]: weighted, if there are scores."""
        rng = np.random.default_rng(0)  # the same subsets for all
        if scores is None:
            return majority_at_k(self.classes, self.right, self.ns, rng).accuracy
        return weighted_at_k(self.classes, scores, self.right, self.ns, rng).accuracy

    def best(self, scores: Floats) -> Floats:
        """Expected accuracy of best-of-n, likewise."""
        return best_of_k(scores, self.right, self.ns).accuracy
