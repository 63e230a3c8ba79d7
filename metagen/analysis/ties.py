"""When one estimate counts as better than another: the one rule of frontiers, recommendations, crossings and headlines.

Two accuracies tie where they differ by no more than half a point, or by no more than two Monte-Carlo standard errors of
their difference. A winner must win by more. Of estimates that tie, the cheapest is named.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Accuracies that differ by no more are a tie, however precise they are.
TIE = 0.005
#: Differences in Monte-Carlo standard errors that are a tie.
ERRORS = 2.0
#: The least share of the problems that a configuration needs to be compared: fewer may be the easy ones.
ENOUGH = 0.5
#: Room for rounding.
SLACK = 1e-12


def margin(error: ArrayLike = 0.0, other: ArrayLike = 0.0) -> NDArray[np.float64]:
    """The excess by which one accuracy beats another, from the Monte-Carlo standard errors of both (any shapes)."""
    both = ERRORS * np.hypot(np.asarray(error, dtype=np.float64), np.asarray(other, dtype=np.float64))
    return np.asarray(np.maximum(TIE, both) + SLACK)


def leaders(accuracies: ArrayLike, errors: ArrayLike = 0.0) -> NDArray[np.int64]:
    """The places of those that tie with the highest, ascending; accuracies, errors: [options]."""
    means = np.asarray(accuracies, dtype=np.float64)
    mine = np.broadcast_to(np.asarray(errors, dtype=np.float64), means.shape)
    top = int(np.argmax(means))
    return np.flatnonzero(means >= means[top] - margin(mine, mine[top]))


def first_best(accuracies: ArrayLike, errors: ArrayLike = 0.0) -> int:
    """The first option that ties with the most accurate; accuracies, errors: [options], cheapest first."""
    return int(leaders(accuracies, errors)[0])
