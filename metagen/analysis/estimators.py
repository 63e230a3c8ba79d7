"""What a strategy would score with k samples, estimated from a pool of N ≥ k samples per problem.

Each estimate is an average over random k-subsets of the pool, drawn without replacement, never the
first k: unbiased for k fresh samples, and far less noisy than one draw of k. Pass@k and best-of-k
have closed forms; votes are enumerated where the subsets are few, and sampled otherwise. Estimates
are per problem, so that the bootstrap over problems stays a separate step.

Arrays have one row per problem and one column per sample:

- `classes` int: the class of the sample's answer; any negative id is "no answer" and never votes.
- `scores` float: the verifier's score; NaN is "no score": such a sample is never chosen and has no
  weighted vote.
- `correct` bool: whether the sample is right.

If nothing in a subset can be chosen, the subset counts as wrong. Ties are split evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from metagen.analysis.ranks import standing
from metagen.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: Cells of the largest temporary array of a vote (8 bytes each).
CELLS = 2_000_000
#: Totals of votes closer than this, relative to the winner's, are a tie: sums of floats differ by order.
TIE = 1e-9


@dataclass(frozen=True, slots=True)
class AtK:
    """Expected accuracy at each k.

    ks: subset sizes. accuracy: [len(ks), problems], in [0, 1]. error: the Monte-Carlo standard error
    of `accuracy`, same shape; 0 where the value is exact.
    """

    ks: tuple[int, ...]
    accuracy: Floats
    error: Floats

    @property
    def mean(self) -> Floats:
        """Mean over problems, [len(ks)]."""
        return np.asarray(self.accuracy.mean(axis=1))

    @property
    def mean_error(self) -> Floats:
        """Monte-Carlo standard error of `mean`, [len(ks)]; problems are sampled independently."""
        return np.asarray(np.sqrt((self.error**2).sum(axis=1)) / self.error.shape[1])


def pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> Floats:
    """Coverage: the probability that k of n samples, c of them right, hold a right one.

    1 − C(n−c, k) / C(n, k), the unbiased estimator of Chen et al. (2021), Codex. The arguments
    broadcast. Raises InputError unless 0 ≤ c ≤ n and 1 ≤ k ≤ n everywhere.
    """
    n, c, k = (np.asarray(a, dtype=np.float64) for a in (n, c, k))
    if np.any((c < 0) | (c > n) | (k < 1) | (k > n)):
        raise InputError(f"pass@k: expected 0 ≤ c ≤ n and 1 ≤ k ≤ n, got n={n}, c={c}, k={k}")
    wrong = n - c
    missing = np.minimum(k, wrong)  # keeps the logarithms finite where the answer is 1
    log_miss = (gammaln(wrong + 1) - gammaln(wrong - missing + 1)) - (gammaln(n + 1) - gammaln(n - k + 1))
    return np.asarray(np.where(wrong < k, 1.0, -np.expm1(np.minimum(log_miss, 0.0))))


def best_of_k(scores: ArrayLike, correct: ArrayLike, ks: Sequence[int]) -> AtK:
    """Accuracy of the sample with the highest score among k; exact.

    A sample with `lower` samples below it and `equal` at its score (itself included) is chosen with
    probability [C(lower+equal, k) − C(lower, k)] / [C(N, k) · equal]: the k-subsets whose maximum is
    its score, shared evenly. Raises InputError for shapes that differ or k outside 1 … N.
    """
    scores, correct = np.asarray(scores, dtype=np.float64), np.asarray(correct, dtype=bool)
    _check(ks, scores, correct)
    lower, equal = standing(scores)
    unscored = np.isnan(scores)
    lower = lower + unscored.sum(axis=1, keepdims=True)
    share = np.where(correct & ~unscored, 1.0 / np.maximum(equal, 1), 0.0)
    rows = []
    for k in ks:
        below = subset_share(scores.shape[1], k)
        rows.append((share * (below[lower + equal] - below[lower])).sum(axis=1, where=~unscored))
    return AtK(tuple(ks), np.stack(rows), np.zeros((len(ks), len(scores))))


def majority_at_k(
    classes: ArrayLike, correct: ArrayLike, ks: Sequence[int], rng: np.random.Generator, subsets: int = 200
) -> AtK:
    """Accuracy of the most frequent class among k samples (self-consistency, Wang et al. 2022).

    Averages over `subsets` random subsets per problem; exact where there are no more subsets than
    that (or than samples). The same state of `rng` draws the same subsets for majority and weighted
    votes, and the subset of a smaller k lies within that of a larger one, so that curves compare.
    A class whose members differ in `correct` is right at their mean.
    Raises InputError for shapes that differ or k outside 1 … N.
    """
    classes, correct = np.asarray(classes, dtype=np.int64), np.asarray(correct, dtype=bool)
    _check(ks, classes, correct)
    return _vote(classes, np.ones(classes.shape), correct, ks, rng, subsets)


def weighted_at_k(
    classes: ArrayLike,
    scores: ArrayLike,
    correct: ArrayLike,
    ks: Sequence[int],
    rng: np.random.Generator,
    subsets: int = 200,
) -> AtK:
    """Accuracy of the class with the largest sum of scores among k samples (weighted voting).

    With equal scores this is `majority_at_k`; the rest is as there. Raises InputError also for
    scores that are negative or infinite: a vote's weight is in [0, ∞).
    """
    classes, correct = np.asarray(classes, dtype=np.int64), np.asarray(correct, dtype=bool)
    scores = np.asarray(scores, dtype=np.float64)
    _check(ks, classes, scores, correct)
    if np.any((scores < 0) | np.isinf(scores)):
        worst = scores[(scores < 0) | np.isinf(scores)][0]
        raise InputError(
            f"weighted voting: a score of {worst!r}; map scores to [0, 1], NaN where there is none"
        )
    return _vote(np.where(np.isnan(scores), -1, classes), np.nan_to_num(scores), correct, ks, rng, subsets)


def _check(ks: Sequence[int], *arrays: NDArray[np.generic]) -> None:
    shapes = {a.shape for a in arrays}
    if len(shapes) != 1 or any(len(s) != 2 or 0 in s for s in shapes):
        raise InputError(
            f"expected arrays of one shape [problems, samples], none empty; got {sorted(shapes)}"
        )
    n = arrays[0].shape[1]
    if not ks or any(not 1 <= k <= n for k in ks):
        raise InputError(f"ks={list(ks)!r}: expected subset sizes between 1 and the pool's {n} samples")


def subset_share(n: int, k: int) -> Floats:
    """C(m, k) / C(n, k) for m = 0 … n: the share of k-subsets that lie within m given samples."""
    m = np.arange(n + 1, dtype=np.float64)
    inside = np.maximum(m - k, 0.0)
    log_share = (gammaln(m + 1) - gammaln(inside + 1)) - (gammaln(n + 1) - gammaln(n - k + 1))
    return np.asarray(np.where(m < k, 0.0, np.exp(log_share)))


def _vote(
    classes: Ints, weights: Floats, correct: Bools, ks: Sequence[int], rng: np.random.Generator, subsets: int
) -> AtK:
    """Votes over subsets, a chunk of problems at a time."""
    if subsets < 2:
        raise InputError(f"subsets={subsets!r}: expected at least 2, to know the Monte-Carlo error")
    problems, n = classes.shape
    ids, right = _relabel(classes, correct)
    exact = {k: _all_subsets(n, k) for k in ks if comb(n, k) <= max(subsets, n)}
    accuracy, error = np.zeros((len(ks), problems)), np.zeros((len(ks), problems))
    step = max(1, CELLS // (max(subsets, n) * max(right.shape[1], n)))
    for start in range(0, problems, step):
        rows = slice(start, min(start + step, problems))
        drawn = _permutations(rng, (rows.stop - start, 0 if len(exact) == len(set(ks)) else subsets, n))
        for i, k in enumerate(ks):
            picks = exact.get(k, drawn[..., :k])
            won = _tally(ids[rows], weights[rows], right[rows], picks)
            accuracy[i, rows] = won.mean(axis=1)
            if k not in exact:
                error[i, rows] = won.std(axis=1, ddof=1) / np.sqrt(subsets)
    return AtK(tuple(ks), accuracy, error)


def _all_subsets(n: int, k: int) -> Ints:
    """[1, C(n, k), k]."""
    return np.array(list(combinations(range(n), k)), dtype=np.int64)[None]


def _permutations(rng: np.random.Generator, shape: tuple[int, int, int]) -> Ints:
    """Independent permutations along the last axis, whose first k places are a random k-subset."""
    return rng.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1)


def _relabel(classes: Ints, correct: Bools) -> tuple[Ints, Floats]:
    """Class ids as 0, 1, … of each row, the last id being "no answer"; and the accuracy of each id."""
    classes = np.maximum(classes, -1)
    order = np.argsort(classes, axis=1, kind="stable")
    ranked = np.take_along_axis(classes, order, axis=1)
    dense = np.cumsum(np.diff(ranked, axis=1, prepend=-1) != 0, axis=1)  # from 1; 0 is "no answer"
    none = max(int(dense.max()), 1)  # one class at least, even if nobody votes
    ids = np.empty_like(order)
    np.put_along_axis(ids, order, np.where(dense > 0, dense - 1, none), axis=1)
    cells = ids + np.arange(len(ids))[:, None] * (none + 1)
    size = len(ids) * (none + 1)
    members = np.bincount(cells.ravel(), minlength=size)
    hits = np.bincount(cells.ravel(), weights=correct.ravel(), minlength=size)
    right = (hits / np.maximum(members, 1)).reshape(len(ids), none + 1)
    return ids, right


def _tally(ids: Ints, weights: Floats, right: Floats, picks: Ints) -> Floats:
    """Expected accuracy of the vote in each subset, [problems, subsets]; picks [problems or 1, subsets, k]."""
    row = np.arange(len(ids))[:, None, None]
    voted = ids[row, picks]
    totals = _totals(voted, weights[row, picks], right.shape[1])
    idle = totals.max(axis=-1) == 0.0
    if idle.any():  # all weights are 0, a tie of the classes that are there; or there are none
        totals[idle] = _totals(voted[idle], np.ones(voted[idle].shape), right.shape[1]) > 0.0
    winners = (totals >= totals.max(axis=-1, keepdims=True) * (1.0 - TIE)) & (totals > 0.0)
    won = np.einsum("psc,pc->ps", winners, right[:, :-1])
    return np.asarray(won / np.maximum(winners.sum(axis=-1), 1))


def _totals(voted: Ints, weights: Floats, width: int) -> Floats:
    """Sum of weights of each id along the last axis, without the last id, "no answer"."""
    cells = voted.reshape(-1, voted.shape[-1])
    cells = cells + np.arange(len(cells))[:, None] * width
    totals = np.bincount(cells.ravel(), weights=weights.ravel(), minlength=len(cells) * width)
    return np.asarray(totals, dtype=np.float64).reshape(*voted.shape[:-1], width)[..., :-1]
