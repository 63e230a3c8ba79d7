"""Intervals of means over problems, and their standard errors.

The problems of a test set stand for all problems of their kind: they are what was drawn, so intervals are over problems
and hold the luck of the samples as well. Everything is in closed form: no resampling, no seed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, stdtrit

from metagen.errors import InputError

Floats = NDArray[np.float64]
#: Least and greatest value.
Support = tuple[float, float]
#: Supports of accuracies, and of differences of two.
SHARES: Support = (0.0, 1.0)
DIFFERENCES: Support = (-1.0, 1.0)
#: Values outside of their support by no more are rounding.
SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Interval:
    """Means over problems with their bounds; arrays [...], or 0-dimensional for one row.

    error: the standard error of the mean, s / √problems. Samples of one problem are one cluster, so it is the clustered
    one. low, high and error are NaN where there is one problem only: it tells nothing about others.
    """

    estimate: Floats
    low: Floats
    high: Floats
    error: Floats


def interval(values: ArrayLike, *, support: Support | None = None, level: float = 0.95) -> Interval:
    """Interval of the mean over problems, the last axis. values: [..., problems].

    support: the least and the greatest value that there can be, such as `SHARES` for accuracies. Each bound is then a
    quantile of a beta distribution with the moments of the Bayesian bootstrap (Rubin 1981) of the values and one
    pseudo-problem of weight w at the end of the support: with w = 1, and every value 0 or 1, the exact binomial bound
    (Clopper and Pearson 1934), for other values the bound of Gaffke (2005; Learned-Miller and Thomas 2020), nearly. The
    pseudo-problem allows for values that were not seen. It counts less the more the values say of that side: with K =
    Σ x², x from 0 at the other end to 1 (for differences: from 0 at none to 1 at a third of the support's end), and u =
    1 / (1 + (K/2)²), its weight is w = ½ + ½u, and it moves from the end of the support to within u of the last value.

    Without a support: Student's t with Johnson's correction for skewness (1978), which cannot allow for a kind of
    problem that was not seen; where all values are equal the interval is that value.
    Raises InputError for no problems, values that are not finite or outside of the support, a level outside (0, 1).
    """
    x = finite(values)
    if not 0.0 < level < 1.0:
        raise InputError(f"level={level!r}: expected 0 < level < 1, such as 0.95")
    rows = x.reshape(-1, x.shape[-1]) if support is None else within(x.reshape(-1, x.shape[-1]), support)
    problems = rows.shape[1]
    mean = rows.mean(axis=1)
    if problems == 1:
        low = high = error = np.full_like(mean, np.nan)
    else:
        error = rows.std(axis=1, ddof=1) / np.sqrt(problems)
        if support is None:
            low, high = _johnson(rows, mean, error, level)
        else:
            low, high = (_bound(rows, end, support, level) for end in support)
            # Equal values may have a mean that is off by rounding.
            low, high = np.minimum(low, mean), np.maximum(high, mean)
    shape = x.shape[:-1]
    return Interval(*(np.asarray(part).reshape(shape) for part in (mean, low, high, error)))


def finite(values: ArrayLike) -> Floats:
    """The values as floats, [..., problems]. InputError for no problems, and for values that are not finite."""
    x = np.asarray(values, dtype=np.float64)
    if x.ndim == 0 or x.size == 0:
        raise InputError(f"values of shape {x.shape}: expected [..., problems] with at least one problem")
    if not np.isfinite(x).all():
        raise InputError(
            f"{int((~np.isfinite(x)).sum())} of {x.size} values are NaN or infinite; "
            "leave out the problems that have no value, in every configuration alike"
        )
    return x


def within(values: Floats, support: Support) -> Floats:
    """The values, any shape, clipped to the support. InputError for values outside of it by more than rounding."""
    low, high = support
    outside = (values < low - SLACK) | (values > high + SLACK)
    if outside.any():
        raise InputError(
            f"{int(outside.sum())} of {values.size} values lie outside of [{low:g}, {high:g}], such as "
            f"{float(values[outside][0])!r}; give support= the least and the greatest value, or None if there is none"
        )
    return np.clip(values, low, high)


def _bound(rows: Floats, end: float, support: Support, level: float) -> Floats:
    """The bound towards one end of the support, [rows]."""
    low, high = support
    problems, mean = rows.shape[1], rows.mean(axis=1)
    # Of differences both signs speak of how far others may go, and a third of the way is far.
    anchor, whole = (0.0, 1.0 / 3.0) if low == -high else (low + high - end, 1.0)
    seen = np.minimum(np.square((rows - anchor) / (whole * (end - anchor))), 1.0).sum(axis=1)
    unseen = 1.0 / (1.0 + (seen / 2.0) ** 2)
    weight = 0.5 + 0.5 * unseen
    last = rows.max(axis=1) if end == high else rows.min(axis=1)
    place = last + (end - last) * unseen
    total = problems + weight
    centre = (problems * mean + weight * place) / total
    spread = (problems * rows.var(axis=1) + problems * weight / total * (mean - place) ** 2) / total
    # The weighted mean lies between the pseudo-problem and the value that is farthest from it.
    far = rows.min(axis=1) if end == high else rows.max(axis=1)
    flat = np.abs(place - far) < 1e-12
    width = np.where(flat, 1.0, np.abs(place - far))
    share = np.abs(centre - far) / width
    scaled = np.maximum(spread / (total + 1.0) / width**2, 1e-12)
    size = np.maximum(share * (1.0 - share) / scaled - 1.0, 1e-9)
    inner = betaincinv(
        np.maximum(share * size, 1e-3), np.maximum((1.0 - share) * size, 1e-3), (1.0 + level) / 2.0
    )
    return np.asarray(np.where(flat, place, far + np.sign(place - far) * width * inner))


def _johnson(rows: Floats, mean: Floats, error: Floats, level: float) -> tuple[Floats, Floats]:
    """Johnson's bounds, [rows]."""
    problems = rows.shape[1]
    centred = rows - mean[:, None]
    flat = np.ptp(rows, axis=1) == 0.0
    deviation = np.where(flat, 1.0, error * np.sqrt(problems))
    z = float(stdtrit(problems - 1, (1.0 + level) / 2.0))
    shift = (centred**3).mean(axis=1) / deviation**3 / np.sqrt(problems) * (2.0 * z * z + 1.0) / 6.0
    low, high = (np.where(flat, mean, mean + error * (shift + side * z)) for side in (-1.0, 1.0))
    return low, high
