"""Uncertainty over problems: intervals of means, and paired differences of two configurations.

The problems of a test set stand for all problems of their kind, so they are what is resampled.
Everything is deterministic under its seed, and rows given together are resampled together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, nan

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from metagen.errors import InputError

Floats = NDArray[np.float64]

#: Numbers in the largest temporary array.
CELLS = 4_000_000


@dataclass(frozen=True, slots=True)
class Interval:
    """Means over problems with their bounds; arrays [...], or 0-dimensional for one row.

    low and high are NaN where there is one problem only: it tells nothing about others.
    """

    estimate: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean of a − b over the same problems.

    low, high: its interval. p_value: two-sided, of the hypothesis that a and b are exchangeable.
    detectable: the smallest true difference that a test at α = 1 − level (0.05) on as many problems, as
    varied, would find with probability 0.8; inf where so few problems can show none of any size. NaN where the
    problems cannot tell: of fewer than `fewest`, all but the estimate; of differences that are all equal, `detectable`.
    """

    estimate: float
    low: float
    high: float
    p_value: float
    detectable: float
    problems: int


def interval(
    values: ArrayLike,
    *,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    proportion: bool = False,
) -> Interval:
    """Bias-corrected and accelerated (BCa) bootstrap interval of the mean over problems, the last axis.

    values: [..., problems]; all rows share the resamples. Efron (1987); where all values of a row are
    equal the bootstrap sees no spread and the interval is that value. proportion: the values are
    probabilities; where all are 0, or all are 1, the exact binomial bound (Clopper and Pearson) stands in.
    Raises InputError for no problems, values that are not finite, or a level outside (0, 1).
    """
    x = _finite(values)
    if not 0.0 < level < 1.0 or resamples < 100:
        raise InputError(f"level={level!r}, resamples={resamples!r}: expected 0 < level < 1, resamples ≥ 100")
    rows = x.reshape(-1, x.shape[-1])
    mean = rows.mean(axis=1)
    if rows.shape[1] == 1:
        low = high = np.full_like(mean, np.nan)
    else:
        low, high = _bca(rows, mean, level, np.concatenate(list(_means(rows, resamples, seed))))
    if proportion and rows.shape[1] > 1:
        bound = ((1.0 - level) / 2.0) ** (1.0 / rows.shape[1])
        high = np.where((rows == 0.0).all(axis=1), 1.0 - bound, high)
        low = np.where((rows == 1.0).all(axis=1), bound, low)
    shape = x.shape[:-1]
    return Interval(mean.reshape(shape), low.reshape(shape), high.reshape(shape))


def paired_difference(
    a: ArrayLike,
    b: ArrayLike,
    *,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    tests: int = 1,
    fewest: int = 2,
) -> Difference:
    """Compare two configurations on the same problems; a, b: [problems], in the same order.

    The interval is the BCa bootstrap of the mean difference. The p-value is the paired randomisation
    test, which swaps a and b within problems: (1 + hits) / (1 + resamples), so never 0. tests: how many are
    corrected together, which `detectable` alone allows for. fewest: problems that an interval and a test take.
    Raises InputError for shapes that differ, no problems, or values that are not finite.
    """
    x, y = _finite(a), _finite(b)
    if x.shape != y.shape or x.ndim != 1:
        raise InputError(
            f"paired difference of shapes {x.shape} and {y.shape}: expected one [problems] for both"
        )
    d = x - y
    n = len(d)
    if n < max(fewest, 2):
        return Difference(float(d.mean()), nan, nan, nan, nan, n)
    bounds = interval(d, level=level, resamples=resamples, seed=seed)
    return Difference(
        estimate=float(bounds.estimate),
        low=float(bounds.low),
        high=float(bounds.high),
        p_value=_randomisation_test(d, resamples, seed),
        detectable=_detectable(d, (1.0 - level) / tests),
        problems=n,
    )


def _detectable(d: Floats, alpha: float) -> float:
    """The least mean of such differences that the randomisation test at alpha finds with probability 0.8.

    Of m differences that are not 0 its p-value is 2/2^m at least: it takes `least` of them, all of one sign.
    """
    least = int(np.ceil(1.0 - np.log2(alpha) - 1e-9))
    if not d.any():
        return nan
    if len(d) < least:
        return inf
    if np.ptp(d) == 0.0:  # not the rounding error of equal numbers
        return nan
    reach = float(ndtri(1.0 - alpha / 2.0) + ndtri(0.8)) * float(d.std(ddof=1)) / np.sqrt(len(d))
    return max(float(reach), least / len(d) * float(np.abs(d[d != 0.0]).mean()))


def _finite(values: ArrayLike) -> Floats:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim == 0 or x.size == 0:
        raise InputError(f"values of shape {x.shape}: expected [..., problems] with at least one problem")
    if not np.isfinite(x).all():
        raise InputError(
            f"{int((~np.isfinite(x)).sum())} of {x.size} values are NaN or infinite; "
            "leave out the problems that have no value, in every configuration alike"
        )
    return x


def _means(rows: Floats, resamples: int, seed: int) -> Iterator[Floats]:
    """Means of the rows under bootstrap resamples of the columns, chunks of [resamples, rows]."""
    rng = np.random.default_rng(seed)
    n = rows.shape[1]
    step = max(1, CELLS // n)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        picked = rng.integers(n, size=(size, n)) + np.arange(size)[:, None] * n
        counts = np.bincount(picked.ravel(), minlength=size * n).reshape(size, n)
        yield counts @ rows.T / n


def _bca(rows: Floats, mean: Floats, level: float, means: Floats) -> tuple[Floats, Floats]:
    """BCa bounds [rows] from the resampled means [resamples, rows]."""
    centred = rows - mean[:, None]
    squares = (centred**2).sum(axis=1)
    flat = np.ptp(rows, axis=1) == 0.0
    # The jackknife's acceleration, in closed form for a mean.
    acceleration = (centred**3).sum(axis=1) / (6.0 * np.where(flat, 1.0, squares) ** 1.5)
    slack = 1e-12 * np.maximum(np.abs(mean), 1.0)  # resampled means that equal the estimate, but for rounding
    below = (means < mean - slack).mean(axis=0)
    tied = (np.abs(means - mean) <= slack).mean(axis=0)
    bias = ndtri(np.clip(below + tied / 2.0, 0.5 / len(means), 1.0 - 0.5 / len(means)))
    bounds = []
    for tail in ((1.0 - level) / 2.0, (1.0 + level) / 2.0):
        z = bias + ndtri(tail)
        share = ndtr(bias + z / (1.0 - acceleration * z))
        bound = [np.quantile(means[:, i], share[i]) for i in range(len(mean))]
        bounds.append(np.where(flat, mean, bound))
    return bounds[0], bounds[1]


def _randomisation_test(d: Floats, resamples: int, seed: int) -> float:
    """Two-sided p-value of the mean of d under random signs."""
    rng = np.random.default_rng(seed)
    observed = abs(d.sum()) - 1e-12 * np.abs(d).sum()
    hits = 0
    step = max(1, CELLS // len(d))
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        signs = rng.integers(2, size=(size, len(d)), dtype=np.int8)
        hits += int((np.abs(signs @ (2.0 * d) - d.sum()) >= observed).sum())
    return (1 + hits) / (1 + resamples)
