"""Best-of-n as predicted from an imperfect verifier's error rates, at every n.

The model: whether a sample is right is drawn with the problem's accuracy p, and its score depends on that
alone. With the masses of the score's levels among right and among wrong samples, the accuracy of the best of n
is exact. A verifier that accepts or rejects has two levels, and its masses are its error rates; with n,
accuracy tends to p·t / (p·t + (1 − p)·f), t and f its true and false positive rates: the limit of resampling
(Stroebl et al. 2024, Brown et al. 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import hypergeom

from metagen.analysis.ragged import Floats, Pool
from metagen.errors import InputError

Ints = NDArray[np.int64]

#: Levels that a prediction keeps; neighbours share one beyond that.
LEVELS = 4096
#: Cells of the largest temporary array.
CELLS = 2_000_000


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """The error rates of accepting samples that score at least `threshold`.

    true_positive, false_positive: of right and of wrong samples, the share that is accepted.
    """

    threshold: float
    true_positive: float
    false_positive: float

    @property
    def levels(self) -> Levels:
        """Rejected and accepted, as the two levels of a score."""
        t, f = self.true_positive, self.false_positive
        return Levels(np.array([1.0 - t, t]), np.array([1.0 - f, f]))

    def limit(self, share: ArrayLike) -> Floats:
        """Accuracy of accepted samples where `share` of all are right, any shape; NaN where none is accepted."""
        p = np.asarray(share, dtype=np.float64)
        right, wrong = p * self.true_positive, (1.0 - p) * self.false_positive
        with np.errstate(invalid="ignore"):
            return np.asarray(right / (right + wrong))


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """The distribution of a score, levels ascending: its mass among right and among wrong samples, [levels] each.

    unscored: of right and of wrong samples, the mass without a score; such samples are never chosen.
    Raises InputError for negative masses, and for masses that do not sum to 1.
    """

    right: Floats
    wrong: Floats
    unscored: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        sums = [float(m.sum()) + u for m, u in zip((self.right, self.wrong), self.unscored, strict=True)]
        lowest = min(float(m.min(initial=0.0)) for m in (self.right, self.wrong))
        if self.right.shape != self.wrong.shape or min(lowest, *self.unscored) < 0.0:
            raise InputError(
                f"masses of {self.right.size} and {self.wrong.size} levels: expected as many, all ≥ 0"
            )
        if max(abs(s - 1.0) for s in sums) > 1e-9:
            raise InputError(f"masses of right and wrong samples sum to {sums!r}; expected 1 each")


def levels(pool: Pool) -> Levels:
    """The score's distribution in a pool, all problems taken together. InputError if all samples are right, or
    all wrong.
    """
    if not (pool.correct & pool.present).any() or not (~pool.correct & pool.present).any():
        raise InputError("error rates need right and wrong samples, and all are alike; give more problems")
    return _levels(pool)


def _levels(pool: Pool) -> Levels:
    """The levels of a pool. Without right (or wrong) samples their masses are those of the others, and never matter."""
    present, scored = pool.present, pool.scored
    values, place = np.unique(pool.scores[scored], return_inverse=True)
    if values.size > LEVELS:
        before = np.cumsum(np.bincount(place)) - 1
        place = (before * LEVELS // place.size)[place]
    width = int(place.max(initial=0)) + 1
    masses, missing = [], []
    for those in (pool.correct & present, ~pool.correct & present):
        among = those if those.any() else present
        masses.append(np.bincount(place[among[scored]], minlength=width) / among.sum())
        missing.append(float((among & ~scored).sum() / among.sum()))
    return Levels(masses[0], masses[1], (missing[0], missing[1]))


def error_rates(pool: Pool, threshold: float | None = None) -> ErrorRates:
    """At a threshold; None takes that at which true less false positive rate is largest (Youden 1950), the
    highest such.

    What has no score is rejected. InputError if all samples are right, or all wrong.
    """
    right, wrong = pool.correct & pool.present, ~pool.correct & pool.present
    if not right.any() or not wrong.any():
        raise InputError("error rates need right and wrong samples, and all are alike; give more problems")
    high = np.sort(pool.scores[right & pool.scored])
    low = np.sort(pool.scores[wrong & pool.scored])
    if threshold is None:
        candidates = np.unique(pool.scores[pool.scored])[::-1]
        if not candidates.size:
            raise InputError("error rates need scores, and no sample has one")
        youden = _at_least(high, candidates) / right.sum() - _at_least(low, candidates) / wrong.sum()
        threshold = float(candidates[int(np.argmax(youden))])
    accepted = (float(_at_least(one, np.array([threshold]))[0]) for one in (high, low))
    return ErrorRates(threshold, next(accepted) / int(right.sum()), next(accepted) / int(wrong.sum()))


def _at_least(ascending: Floats, thresholds: Floats) -> Ints:
    return ascending.size - np.searchsorted(ascending, thresholds, side="left")


def predict_best_of_n(share: ArrayLike, of: Levels, ns: Sequence[int]) -> Floats:
    """Accuracy of the best of n independent samples, [len(ns), …], where `share` […] of all samples are right.

    Σ_s [G(s)^n − G(s⁻)^n] · p·m₁(s) / g(s), with g = p·m₁ + (1 − p)·m₀ the mass of level s and G its sum up to
    s: the best lies on s, and is right as often as a sample on s. Ties are split evenly; where no sample has a score,
    the choice is wrong. Raises InputError for n < 1 and shares outside [0, 1].
    """
    p = np.asarray(share, dtype=np.float64)[..., None]
    if not ((p >= 0.0) & (p <= 1.0)).all() or not ns or min(ns) < 1:
        raise InputError(f"ns={list(ns)!r} and shares {share!r:.60}: expected n ≥ 1, and shares in [0, 1]")
    g = p * of.right + (1.0 - p) * of.wrong
    missing = p * of.unscored[0] + (1.0 - p) * of.unscored[1]
    upto = np.minimum(np.cumsum(g, axis=-1) + missing, 1.0)
    below = np.concatenate((missing, upto[..., :-1]), axis=-1)
    with np.errstate(invalid="ignore"):
        hit = np.where(g > 0.0, p * of.right / g, 0.0)
    return np.stack([((upto**n - below**n) * hit).sum(axis=-1) for n in ns])


def predict_in_pool(right: ArrayLike, sizes: ArrayLike, of: Levels, ns: Sequence[int]) -> Floats:
    """The same for problems with a known pool, [len(ns), problems]; right, sizes: [problems], numbers of samples.

    Averaged over the n-subsets of each pool, hence unbiased for the unknown accuracy of a problem, as
    `pass_at_k` is, where putting its observed share into `predict_best_of_n` would not be. InputError unless
    1 ≤ n ≤ sizes.
    """
    c, size = (np.asarray(a, dtype=np.int64) for a in (right, sizes))
    if not ns or min(ns) < 1 or max(ns) > size.min() or (c < 0).any() or (c > size).any():
        raise InputError(
            f"ns={list(ns)!r} of pools of at least {size.min()}: expected 1 ≤ n ≤ the smallest pool"
        )
    kinds, place = np.unique(np.stack([size, c]), axis=1, return_inverse=True)
    rows = []
    for n in ns:
        mixed = hypergeom.pmf(np.arange(n + 1), kinds[0][:, None], kinds[1][:, None], n)
        rows.append((mixed @ _by_number_right(of, n))[place.ravel()])
    return np.stack(rows)


def predict_by_group(pool: Pool, ns: Sequence[int], groups: ArrayLike | None = None) -> Floats:
    """`predict_in_pool` with the score's distribution of each group of problems, [len(ns), problems].

    groups: [problems], labels such as a level of difficulty; None: all are one group. Finer groups assume less, and
    predict less: a group of one problem predicts the measurement of that problem. Raises InputError for groups that are
    not one for each problem.
    """
    marks = np.zeros(len(pool.sizes), dtype=np.int64) if groups is None else np.asarray(groups)
    if marks.shape != pool.sizes.shape:
        raise InputError(
            f"groups of shape {marks.shape} for {len(pool.sizes)} problems: expected a label for each"
        )
    result = np.empty((len(ns), len(pool.sizes)))
    for mark in np.unique(marks):
        rows = np.flatnonzero(marks == mark)
        part = Pool(pool.scores[rows], pool.correct[rows], pool.sizes[rows])
        result[:, rows] = predict_in_pool(part.correct.sum(axis=1), part.sizes, _levels(part), ns)
    return result


def _by_number_right(of: Levels, n: int) -> Floats:
    """P(the best of n is right) if j of them are, for j = 0 … n.

    Σ_s j·m₁ ∫₀¹ (F₁ + m₁x)^(j−1) (F₀ + m₀x)^(n−j) dx, with F the mass below level s: one of j right samples
    lies on s, and of all on s its random tie-break x is the largest. The integrand is a polynomial of degree n
    − 1, which Gauss and Legendre's rule integrates exactly.
    """
    nodes, weights = np.polynomial.legendre.leggauss(ceil(n / 2))
    x, weights = (nodes + 1.0) / 2.0, weights / 2.0
    j = np.arange(1, n + 1)
    below = [np.cumsum(m) - m + u for m, u in zip((of.right, of.wrong), of.unscored, strict=True)]
    total = np.zeros(n + 1)
    step = max(1, CELLS // (len(x) * n))
    for start in range(0, len(of.right), step):
        rows = slice(start, start + step)
        high, low = (
            b[rows, None] + m[rows, None] * x for b, m in zip(below, (of.right, of.wrong), strict=True)
        )
        terms = high[..., None] ** (j - 1) * low[..., None] ** (n - j)
        total[1:] += j * np.einsum("s,x,sxj->j", of.right[rows], weights, terms)
    return total
