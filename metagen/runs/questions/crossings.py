"""Where two curves cross: the cost from which the one behind is ahead.

Between its points a curve is linear in cost (`frontier.at_cost`), so the difference of two curves is linear between
the points of both, and its zeros are exact. How sure a crossing is, resamples of the problems say: costs and accuracies
are averaged anew in each. Where a resample has no crossing, one of the two leads throughout, and its crossing lies
below or above what was measured. A curve leads where it is ahead by more than a tie (`analysis.ties`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import inf, log

import numpy as np
from scipy.integrate import trapezoid

from metagen.analysis.ties import margin
from metagen.runs.curves.frontier import bootstrap_weights, ladder, shared_problems
from metagen.runs.curves.measured import FEW
from metagen.runs.curves.study import Curve, Floats


@dataclass(frozen=True, slots=True)
class Crossing:
    """before, after: names of who leads below and above `cost`, the last place where they change.

    low, high: the interval of it, 0 or inf where that end lies outside of what both measured; NaN for fewer than `FEW`
    problems. every: all places where the curves cross, ascending. share: of resamples that cross in this direction.
    """

    before: str
    after: str
    cost: float
    low: float
    high: float
    every: tuple[float, ...]
    share: float


@dataclass(frozen=True, slots=True)
class Range:
    """The costs that both curves measured, least to most, and who leads on average over them; None for a tie."""

    least: float
    most: float
    leader: str | None


def crossing(a: Curve, b: Curve, cost: str, *, resamples: int = 1000, seed: int = 0) -> Crossing | None:
    """The last crossing of two curves within the costs that both measured; None if they don't cross there.

    Touching without changing sides is no crossing, nor is a lead that is a tie. Raises InputError for a cost
    that one of them does not know, and for curves without a problem in common.
    """
    over = shared_problems([a, b])
    every = _zeros(*_means(a, cost, over), *_means(b, cost, over))
    if not every:
        return None
    place, rising = every[-1]
    found = [place for place, _ in every]
    names = (a.name, b.name) if rising < 0 else (b.name, a.name)
    count = int(over.sum())
    if count < FEW:
        return Crossing(*names, place, np.nan, np.nan, tuple(found), np.nan)
    drawn, crossed = [], 0
    one, other = _rows(a, cost, over), _rows(b, cost, over)
    for weights in bootstrap_weights(count, resamples, seed):
        first, second = _weighted_means(*one, weights), _weighted_means(*other, weights)
        alike = [at for at, sign in _zeros(*first, *second) if sign == rising]
        crossed += bool(alike)
        if alike:
            drawn.append(min(alike, key=lambda at: abs(log(at / place))))
        else:
            # Whoever is ahead below the crossing is so all along: it lies beyond.
            drawn.append(inf if _lead(*first, *second) * rising < 0 else 0.0)
    low, high = np.quantile(drawn, [0.025, 0.975], method="inverted_cdf")
    return Crossing(*names, place, float(low), float(high), tuple(found), crossed / resamples)


def common(a: Curve, b: Curve, cost: str) -> Range | None:
    """The costs over which two curves can be compared; None if one ends before the other begins."""
    over = shared_problems([a, b])
    first, second = _means(a, cost, over), _means(b, cost, over)
    least, most = max(first[0][0], second[0][0]), min(first[0][-1], second[0][-1])
    if least > most:
        return None
    lead = _lead(*first, *second)
    return Range(float(least), float(most), a.name if lead > 0 else b.name if lead < 0 else None)


def _means(curve: Curve, cost: str, over: np.ndarray) -> tuple[Floats, Floats]:
    """Costs, ascending, and accuracies of a curve over these problems."""
    points, costs = ladder(curve, cost, over)
    return costs, curve.accuracy[points][:, over].mean(axis=1)


def _rows(curve: Curve, cost: str, over: np.ndarray) -> tuple[Floats, Floats]:
    """Costs and accuracies of a curve on each of these problems, [known points, problems], by mean cost."""
    points, _ = ladder(curve, cost, over)
    return curve.costs[cost][points][:, over], curve.accuracy[points][:, over]


def _weighted_means(costs: Floats, rows: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Costs, ascending, and accuracies under weights of the problems."""
    means = costs @ weights
    order = np.argsort(means, kind="stable")
    return means[order], (rows @ weights)[order]


def _knots(x: Floats, y: Floats, u: Floats, v: Floats) -> tuple[Floats, Floats]:
    """The costs at which either curve has a point, within those that both have; accuracy of the first − the second.

    Among points of equal cost the last counts, which has the most samples.
    """
    least, most = max(x[0], u[0]), min(x[-1], u[-1])
    if least > most:
        return np.zeros(0), np.zeros(0)
    at = np.unique(np.clip(np.concatenate([x, u]), least, most))
    return at, _at(at, x, y) - _at(at, u, v)


def _at(places: Floats, x: Floats, y: Floats) -> Floats:
    last = np.append(np.diff(x) > 0.0, True)
    return np.asarray(np.interp(places, x[last], y[last]))


def _zeros(x: Floats, y: Floats, u: Floats, v: Floats) -> list[tuple[float, int]]:
    """Where the difference changes its sign, and to which: +1 where the first curve takes the lead."""
    at, gap = _knots(x, y, u, v)
    sign = np.sign(np.where(np.abs(gap) <= margin(), 0.0, gap)).astype(int)
    led = np.flatnonzero(sign)
    found = []
    for i, j in pairwise(led.tolist()):
        if sign[i] == sign[j]:
            continue
        # Behind a stretch where they tie, what counts is where the difference is nothing for the last time.
        last = max(k for k in range(i, j) if gap[k] * sign[j] <= 0.0 < gap[k + 1] * sign[j])
        zero = at[last] + (at[last + 1] - at[last]) * gap[last] / (gap[last] - gap[last + 1])
        found.append((float(zero), int(sign[j])))
    return found


def _lead(x: Floats, y: Floats, u: Floats, v: Floats) -> float:
    """How far the first curve is ahead, on average over the costs that both have; 0 for a tie."""
    at, gap = _knots(x, y, u, v)
    ahead = float(gap.sum()) if len(at) < 2 else float(trapezoid(gap, at) / (at[-1] - at[0]))
    return ahead if abs(ahead) > margin() else 0.0
