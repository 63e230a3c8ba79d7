"""Two configurations on the same problems: their mean difference, its interval, and an exact test."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfc, ndtri

from metagen.analysis.intervals import SHARES, Floats, Support, finite, interval, within
from metagen.errors import InputError

#: Cells of the grid that differences without a common unit are rounded to.
CELLS = 1 << 14
#: More differences than these without a common unit have the normal approximation: the grid would be too coarse.
MOST = 500


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


def paired_difference(
    a: ArrayLike,
    b: ArrayLike,
    *,
    support: Support | None = SHARES,
    level: float = 0.95,
    tests: int = 1,
    fewest: int = 2,
) -> Difference:
    """Compare two configurations on the same problems; a, b: [problems], in the same order.

    The interval is `intervals.interval` of the differences. The p-value is `randomisation_test`. support: of a and b;
    None where values have no bounds, such as rewards. tests: how many are corrected together, which `detectable` alone
    allows for. fewest: problems that an interval and a test take.
    Raises InputError for shapes that differ, no problems, or values that are not finite or outside of the support.
    """
    x, y = finite(a), finite(b)
    if x.shape != y.shape or x.ndim != 1:
        raise InputError(
            f"paired difference of shapes {x.shape} and {y.shape}: expected one [problems] for both"
        )
    reach = None
    if support is not None:
        x, y, reach = within(x, support), within(y, support), support[1] - support[0]
    d = x - y
    n = len(d)
    if n < max(fewest, 2):
        return Difference(float(d.mean()), nan, nan, nan, nan, n)
    bounds = interval(d, support=None if reach is None else (-reach, reach), level=level)
    return Difference(
        estimate=float(bounds.estimate),
        low=float(bounds.low),
        high=float(bounds.high),
        p_value=randomisation_test(d),
        detectable=_detectable(d, (1.0 - level) / tests),
        problems=n,
    )


def randomisation_test(differences: ArrayLike) -> float:
    """Two-sided p-value of a sum under random signs: the share of sign patterns whose sum is as far from 0, or farther.

    differences: [problems]. Exact where they have a common unit, as those of single answers and of counts have: of
    single answers it is McNemar's exact test (the sign test of the discordant problems). Others are rounded to a grid,
    sums within its rounding counted as reached, so that the value is, if anything, too large; of more than `MOST` the
    sum is taken for normal. Raises InputError for values that are not finite.
    """
    d = finite(differences)
    d = d[np.abs(d) > 1e-12]
    if not len(d):
        return 1.0
    steps, slack = _steps(d)
    if slack and len(d) > MOST:
        return float(erfc(abs(d.sum()) / np.sqrt(2.0 * np.square(d).sum())))
    sizes = np.abs(steps)
    # The sum over signs is 2·T − total, T that of those with a plus: P(T = t), by one size after another.
    pmf = np.ones(1)
    for size in np.sort(sizes).tolist():
        grown = np.zeros(len(pmf) + size)
        grown[: len(pmf)] += pmf
        grown[size:] += pmf
        pmf = grown / 2.0
    sums = np.abs(2 * np.arange(len(pmf)) - int(sizes.sum()))
    return float(min(1.0, pmf[sums >= abs(int(steps.sum())) - slack].sum()))


def _steps(d: Floats) -> tuple[np.ndarray, int]:
    """The differences in whole steps, and how far sums of them may be off."""
    units = d / np.abs(d).min()
    whole = np.rint(units)
    if np.abs(units - whole).max() < 1e-6 and np.abs(whole).sum() <= CELLS:
        return whole.astype(np.int64), 0
    steps = np.rint(d * (CELLS / np.abs(d).sum())).astype(np.int64)
    return steps, int(np.ceil(np.sqrt(len(d))))


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
