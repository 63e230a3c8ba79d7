"""The limit of a vote: with ever more samples, the class with the largest expected weight wins.

A vote over samples of a distribution g with weights v tends to argmax_a Σ_y v(y)·g(y)·1[class(y) = a] (Wu et al. 2024,
theorems 1 and 2; plain voting has v = 1), if one class alone leads. So a vote is right in the limit where the right
class leads in that sum, and a curve of accuracy saturates at the share of problems where it does. Weights help on those
where it leads in shares of v·g and not in shares of g.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metagen.analysis.intervals import SHARES, interval
from metagen.analysis.subset_votes import TIE, Ballots, winners
from metagen.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """The limit of a vote, estimated from one pool.

    accuracy: [problems], of the winning class, ties split. tied: [problems], whether several classes lead.
    estimate, low, high: mean over problems, with its interval. samples: of the pool. stable: share of problems
    on which both halves of the pool (every other sample) have the same leader; NaN for one sample. Where it is low,
    leads are close: the pool's leader is then often not that of the distribution, and a larger pool has another limit.
    """

    accuracy: Floats
    tied: Bools
    estimate: float
    low: float
    high: float
    samples: int
    stable: float


def vote_limit(classes: ArrayLike, correct: ArrayLike, weights: ArrayLike | None = None) -> Limit:
    """The leader of the whole pool, as an estimate of that of the distribution.

    classes, correct, weights: [problems, samples], as in `estimators`: a negative class and a NaN weight have no vote;
    a problem without votes counts as wrong. Give a pool that is independent of the one whose curve is compared: a
    curve ends at its own pool's leader by construction. Raises InputError for shapes that differ, or weights that are
    negative or infinite.
    """
    ids, right = np.asarray(classes, dtype=np.int64), np.asarray(correct, dtype=bool)
    given = None if weights is None else np.asarray(weights, dtype=np.float64)
    shapes = {ids.shape, right.shape} | (set() if given is None else {given.shape})
    if len(shapes) != 1 or ids.ndim != 2 or ids.size == 0:
        raise InputError(
            f"limit of a vote: expected arrays of one shape [problems, samples]; got {sorted(shapes)}"
        )
    ballots = Ballots.of(ids, right, given)
    won = _leaders(ballots, slice(None))
    ties = won.sum(axis=1)
    accuracy = (won * ballots.right).sum(axis=1) / np.maximum(ties, 1)
    bounds = interval(accuracy, support=SHARES)
    stable = float("nan")
    if ids.shape[1] > 1:
        halves = (_leaders(ballots, slice(start, None, 2)) for start in (0, 1))
        stable = float(np.equal(*halves).all(axis=1).mean())
    return Limit(
        accuracy,
        ties > 1,
        float(bounds.estimate),
        float(bounds.low),
        float(bounds.high),
        ids.shape[1],
        stable,
    )


def exact_vote_limit(
    pmf: ArrayLike, classes: ArrayLike, correct: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """The limit where the distribution is known; pmf, classes, correct, weights: [outcomes] of one problem.

    1 or 0 where one class leads; the mean of those that tie. A class whose members differ in `correct` is right at
    their mean under pmf; without any vote, 0. Raises InputError for shapes that differ, a pmf that is no distribution,
    or weights that are negative or infinite.
    """
    g, ids = np.asarray(pmf, dtype=np.float64), np.asarray(classes, dtype=np.int64)
    right = np.asarray(correct, dtype=np.float64)
    v = np.ones(g.shape) if weights is None else np.asarray(weights, dtype=np.float64)
    if not g.shape == ids.shape == right.shape == v.shape or g.ndim != 1 or g.size == 0:
        shapes = [a.shape for a in (g, ids, right, v)]
        raise InputError(f"limit of a vote: expected [outcomes] of one length for all arrays; got {shapes}")
    if not (g >= 0.0).all() or abs(g.sum() - 1.0) > 1e-6:
        raise InputError(
            f"limit of a vote: pmf sums to {g.sum():.9g}, least {g.min():.3g}; expected a distribution"
        )
    if (v < 0.0).any() or np.isinf(v).any():
        raise InputError(
            "limit of a vote: a weight is negative or infinite; map weights to [0, 1], NaN for no vote"
        )
    there = (ids >= 0) & ~np.isnan(v) & (g > 0.0)
    if not there.any():
        return 0.0
    _, label = np.unique(ids[there], return_inverse=True)
    mass = np.bincount(label, weights=g[there])
    total = np.bincount(label, weights=g[there] * v[there])
    accuracy = np.bincount(label, weights=g[there] * right[there]) / mass
    lead = total >= total.max() * (1.0 - TIE)  # all of them where every weight is 0
    return float(accuracy[lead].mean())


def _leaders(ballots: Ballots, samples: slice) -> Bools:
    """[problems, classes]."""
    weights = None if ballots.weights is None else ballots.weights[:, samples]
    return winners(ballots.ids[:, samples], weights, ballots.none)
