"""Where two curves cross: the cost from which the one behind is ahead.

Between its points a curve is linear in cost (`frontier.at_cost`), so the difference of two curves is linear between
the points of both, and its zeros are exact. How sure a crossing is, resamples of the problems say: costs and accuracies
are averaged anew in each. Where a resample has no crossing, one of the two leads throughout, and its crossing lies
below or above what was measured. A curve leads where it is ahead by more than a tie (`analysis.ties`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, pairwise
from math import inf, log

import numpy as np
from scipy.integrate import trapezoid

from metagen.analysis.ties import margin
from metagen.runs.curves.frontier import bootstrap_weights, ladder, shared_problems
from metagen.runs.curves.measured import FEW
from metagen.runs.curves.study import Curve, Floats

#: Accuracies that differ by no more are a tie.
LED = float(margin())


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
    ((at, gap),) = zip(*_knots(*_means(a, cost, over), *_means(b, cost, over)), strict=True)
    every = _zeros(at, gap)
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
    means = [
        (*_weighted_means(*one, weights), *_weighted_means(*other, weights))
        for weights in bootstrap_weights(count, resamples, seed)
    ]
    knots = _knots(*(np.array(column) for column in zip(*means, strict=True)))
    beyond = cycle((0.0, inf))
    for at, gap, lead in zip(*knots, _leads(*knots).tolist(), strict=True):
        alike = [at for at, sign in _zeros(at, gap) if sign == rising]
        crossed += bool(alike)
        if alike:
            drawn.append(min(alike, key=lambda at: abs(log(at / place))))
        else:
            # Whoever is ahead below the crossing is so all along: it lies beyond.
            # Who ties all along has it on either side, so both ends open alike.
            drawn.append(next(beyond) if lead == 0 else inf if lead * rising < 0 else 0.0)
    low, high = np.quantile(drawn, [0.025, 0.975], method="inverted_cdf")
    return Crossing(*names, place, float(low), float(high), tuple(found), crossed / resamples)


def common(a: Curve, b: Curve, cost: str) -> Range | None:
    """The costs over which two curves can be compared; None if one ends before the other begins."""
    over = shared_problems([a, b])
    first, second = _means(a, cost, over), _means(b, cost, over)
    least, most = max(first[0][0], second[0][0]), min(first[0][-1], second[0][-1])
    if least > most:
        return None
    lead = float(_leads(*_knots(*first, *second))[0])
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

    [curves, points] of each, and [curves, knots]; or one curve, [points]. The difference is 0 where two curves have no
    costs in common.
    """
    x, y, u, v = map(np.atleast_2d, (x, y, u, v))
    least, most = np.maximum(x[:, :1], u[:, :1]), np.minimum(x[:, -1:], u[:, -1:])
    at = np.sort(np.clip(np.concatenate([x, u], axis=1), least, most), axis=1)
    return at, np.where(least > most, 0.0, _at(at, x, y) - _at(at, u, v))


def _at(places: Floats, x: Floats, y: Floats) -> Floats:
    """`np.interp` row by row. Among points of equal cost the last counts, which has the most samples."""
    before = (x[:, None, :] <= places[:, :, None]).sum(axis=2) - 1
    after = np.minimum(before + 1, x.shape[1] - 1)
    x0, x1, y0, y1 = (np.take_along_axis(of, i, axis=1) for of in (x, y) for i in (before, after))
    return np.asarray(y0 + (y1 - y0) / np.where(x1 > x0, x1 - x0, 1.0) * (places - x0))


def _zeros(at: Floats, gap: Floats) -> list[tuple[float, int]]:
    """Where the difference changes its sign, and to which: +1 where the first curve takes the lead. [knots] each."""
    gaps = gap.tolist()
    led = [(i, 1 if value > 0 else -1) for i, value in enumerate(gaps) if abs(value) > LED]
    found = []
    for (i, before), (j, sign) in pairwise(led):
        if before == sign:
            continue
        # Behind a stretch where they tie, what counts is where the difference is nothing for the last time.
        last = max(k for k in range(i, j) if gaps[k] * sign <= 0.0 < gaps[k + 1] * sign)
        zero = at[last] + (at[last + 1] - at[last]) * gaps[last] / (gaps[last] - gaps[last + 1])
        found.append((float(zero), sign))
    return found


def _leads(at: Floats, gap: Floats) -> Floats:
    """How far the first curve is ahead, on average over the costs that both have, [curves]; 0 for a tie."""
    wide = at[:, -1] - at[:, 0]
    ahead = np.where(wide > 0.0, trapezoid(gap, at, axis=1) / np.where(wide > 0.0, wide, 1.0), gap[:, 0])
    return np.where(np.abs(ahead) > LED, ahead, 0.0)
