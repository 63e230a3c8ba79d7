"""Pools of samples of unequal size: one row per problem, as many samples as the problem has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metagen.errors import InputError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
#: An array [problems, samples], or rows of unequal length.
Rows = NDArray[Any] | Sequence[ArrayLike]


def pad(rows: Rows) -> Floats:
    """Rows as one array [problems, samples], NaN behind those that are shorter.

    Raises InputError if there is no row, or a row is no list of numbers.
    """
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        return np.asarray(rows, dtype=np.float64)
    lists = [np.asarray(row, dtype=np.float64) for row in rows]
    if not lists or any(row.ndim != 1 for row in lists):
        shapes = sorted({row.shape for row in lists})
        raise InputError(f"rows of shapes {shapes}: expected one row of numbers for each problem")
    result = np.full((len(lists), max(1, *(len(row) for row in lists))), np.nan)
    for i, row in enumerate(lists):
        result[i, : len(row)] = row
    return result


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Samples with scores and correctness.

    scores: [problems, samples], NaN where a sample has no score. correct: bool, same shape. sizes: [problems], samples
    of each; the rest of a row is no sample.
    """

    scores: Floats
    correct: Bools
    sizes: Ints

    @classmethod
    def of(cls, scores: Rows, correct: Rows) -> Pool:
        """From arrays [problems, samples], or rows [samples] of unequal length.

        Raises InputError if the rows of the two differ in length, a problem has no sample, or values are not allowed.
        """
        x, right = pad(scores), pad(correct)
        if x.shape != right.shape:
            raise InputError(f"scores {x.shape} and correct {right.shape}: expected one [problems, samples]")
        if any(np.size(a) != np.size(b) for a, b in zip(scores, correct, strict=True)):
            raise InputError(
                "scores and correct differ in the samples of a problem; give both for every sample"
            )
        there = ~np.isnan(right)
        sizes = there.sum(axis=1)
        behind = np.arange(x.shape[1]) >= sizes[:, None]
        if (sizes == 0).any() or (there & behind).any():
            raise InputError(
                "a problem has no sample, or one of which it is not known whether it is right; leave those out, "
                "and give NaN as the score of samples without one"
            )
        if np.isinf(x).any():
            raise InputError("a score is infinite; map scores to [0, 1], NaN where there is none")
        if not np.isin(right[there], (0.0, 1.0)).all():
            raise InputError("correct holds something else than true and false; give booleans, or 0 and 1")
        return cls(x, np.where(there, right, 0.0) > 0.5, sizes)

    @property
    def present(self) -> Bools:
        """Whether there is a sample, [problems, samples]."""
        return np.arange(self.scores.shape[1]) < self.sizes[:, None]

    @property
    def scored(self) -> Bools:
        """Whether there is a sample with a score, [problems, samples]."""
        return ~np.isnan(self.scores)

    def by_size(self) -> Iterator[tuple[Ints, Floats, Bools]]:
        """Problems of one size at a time: places [rows], and scores and correctness [rows, size] without gaps."""
        for size in np.unique(self.sizes):
            rows = np.flatnonzero(self.sizes == size)
            yield rows, self.scores[rows, :size], self.correct[rows, :size]
