"""What is best for its cost: Pareto-optimal configurations, curves at equal cost, the best size of model.

Costs are means over the same problems as accuracies. Between two points of a curve one may spend anything: a coin gives
a problem the smaller or the larger n, so that the mean cost is the budget and the accuracy of each problem the same
mixture of both. What is picked for being best on these problems looks better than it is: `analysis.comparison.picked`
measures it on problems that had no part in the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import nan

import numpy as np
from numpy.typing import ArrayLike

from metagen.analysis.frontier import Point, frontier
from metagen.analysis.ties import ENOUGH, leaders, margin
from metagen.errors import InputError
from metagen.runs.curves.measured import FEW, bounds
from metagen.runs.curves.study import Bools, Curve, Floats, Ints, Rated, StudyResult
from metagen.runs.note import Note

#: Relative difference of costs that is rounding.
SLACK = 1e-9
#: Costs that strategies are compared at, the first that is known before the others.
MAIN = ("flops", "flops_2n", "tokens", "generated", "samples")


@dataclass(frozen=True, slots=True)
class PricedCell(Rated):
    """One configuration over the problems that all have, with its mean cost."""

    cost: float

    @property
    def error(self) -> float:
        return 1.0 - self.accuracy

    @property
    def plot_point(self) -> Point:
        return Point(self.name, self.cost, self.accuracy, self.low, self.high, self.noise)


@dataclass(frozen=True, slots=True, eq=False)
class AtCost:
    """A curve at a budget.

    accuracy: [problems], NaN where it is not measured. spends: the mean cost; less than the budget beyond the last
    point. between: the n of the points that are mixed; share: of problems with the second.
    """

    accuracy: Floats
    spends: float
    between: tuple[int, int]
    share: float

    @property
    def mean(self) -> float:
        return float(np.nanmean(self.accuracy))


@dataclass(frozen=True, slots=True)
class Size:
    """Which model is best at a budget. accuracy, share: by model; share of resamples in which it is the best.

    model: None where the budget pays for none; of those that tie (`leaders`) the one that spends least. What a model
    cannot do for the budget is left out. alone: it pays for one only, so that nothing was compared.
    """

    budget: float
    model: str | None
    accuracy: Mapping[str, float]
    share: Mapping[str, float]
    tied: tuple[str, ...] = ()

    @property
    def alone(self) -> bool:
        return len(self.accuracy) == 1


def shared_problems(curves: Iterable[Curve]) -> Bools:
    """[problems] that all of these curves measured, at every point that any problem has.

    Raises InputError for no curves, and naming both for curves that have no problem in common.
    """
    given = list(curves)
    if not given:
        raise InputError("no curves: expected at least one to compare")
    has: Bools = np.ones(given[0].accuracy.shape[1], dtype=bool)
    for i, curve in enumerate(given):
        measured = np.isfinite(curve.accuracy)
        points = measured.any(axis=1)
        more = has & measured[points].all(axis=0) if points.any() else np.zeros_like(has)
        if not more.any():
            before = ", ".join(c.name for c in given[:i]) or "the study's problems"
            raise InputError(
                f"{curve.name} and {before} have no problem in common that both measured; "
                "leave one of them out, or let its run finish"
            )
        has = more
    return has


def curves_with_cost(result: StudyResult, cost: str, *, oracle: bool = False) -> list[Curve]:
    """The curves that know this cost, above zero at every measured point; oracles only if asked for.

    Without the points that fewer than half of the problems have (`ENOUGH`); `missing` names them.
    """
    return [c for c in enough(result) if (oracle or not c.oracle) and _payable(c, cost)]


def main_cost(result: StudyResult) -> str | None:
    """The cost that strategies are compared at: exact FLOPs if most curves know them, else the next that they do."""
    for cost in MAIN:
        curves = [c for c in result.curves if not c.oracle]
        if curves and len(curves_with_cost(result, cost)) * 2 > len(curves):
            return cost
    return None


def cells(result: StudyResult, cost: str, *, oracle: bool = False) -> list[PricedCell]:
    """Every configuration with its mean cost, over the problems that all curves have; nothing where cost is unknown."""
    curves = curves_with_cost(result, cost, oracle=oracle)
    if not curves:
        return []
    over, rated = _rate(result, oracle)
    found = []
    for curve in curves:
        costs = curve.costs[cost][:, over].mean(axis=1)
        for point, (accuracy, *bounds_and_errors) in rated[curve].items():
            # Sums of the same samples in another order are equal, so rounding must not rank them.
            at = (round(accuracy, 12), *bounds_and_errors, float(f"{costs[point]:.12g}"))
            found.append(PricedCell(curve, point, *at))
    return found


def pareto(result: StudyResult, cost: str) -> list[PricedCell]:
    """The configurations that beat every cheaper one by more than a tie (`analysis.ties`), by cost; never an oracle."""
    every = {cell.name: cell for cell in cells(result, cost)}
    return [every[point.label] for point in frontier(c.plot_point for c in every.values())]


def membership(result: StudyResult, cost: str, resamples: int = 1000, seed: int = 0) -> dict[str, float]:
    """By configuration: the share of resamples of the problems in which it is on the frontier.

    Empty for fewer than `FEW` problems, which cannot tell.
    """
    # Equals go by name, and rounding does not rank them: as in `cells` and `pareto`.
    every = sorted(cells(result, cost), key=lambda cell: cell.name)
    if not every:
        return {}
    over, _ = _rate(result, False)
    if over.sum() < FEW:
        return {}
    weights = bootstrap_weights(int(over.sum()), resamples, seed)
    accuracy = weights @ np.stack([c.curve.accuracy[c.point, over] for c in every]).T
    costs = weights @ np.stack([c.curve.costs[cost][c.point, over] for c in every]).T
    order = np.lexsort((-accuracy.round(12), np.log(costs).round(12)), axis=-1)
    ranked, noise = np.take_along_axis(accuracy, order, axis=1), np.array([c.noise for c in every])[order]
    best, unsure = np.full(len(ranked), -np.inf), np.zeros(len(ranked))
    on = np.empty(ranked.shape, dtype=bool)
    for rank, place in enumerate(order.T):
        better = ranked[:, rank] > best + margin(noise[:, rank], unsure)
        on[np.arange(len(on)), place] = better
        best, unsure = np.where(better, ranked[:, rank], best), np.where(better, noise[:, rank], unsure)
    return dict(zip([c.name for c in every], on.mean(axis=0).tolist(), strict=True))


def at_cost(curve: Curve, cost: str, budget: float, over: ArrayLike | None = None) -> AtCost | None:
    """The curve at a budget, by interpolation in cost; None below its cheapest point.

    over: [problems], over which costs are averaged; all that the curve has at every point by default. Raises
    InputError for a cost that the curve does not know.
    """
    mask = shared_problems([curve]) if over is None else np.asarray(over, dtype=bool)
    points, costs = ladder(curve, cost, mask)
    if budget < costs[0] * (1.0 - SLACK):
        return None
    low = int(np.searchsorted(costs, budget * (1.0 + SLACK), side="right")) - 1
    high = min(low + 1, len(points) - 1)
    gap = costs[high] - costs[low]
    part = float(np.clip((budget - costs[low]) / gap, 0.0, 1.0)) if gap > 0.0 else 0.0
    first, second = curve.accuracy[points[low]], curve.accuracy[points[high]]
    mixed = np.where(mask, (1.0 - part) * first + part * second, np.nan)
    between = (int(curve.ns[points[low]]), int(curve.ns[points[high]]))
    return AtCost(mixed, float(costs[low] + part * gap), between, part)


def even(
    a: Curve, b: Curve, cost: str, budget: float, over: Bools, others: Bools | None = None
) -> tuple[AtCost, AtCost] | None:
    """Two curves at one mean cost: the budget, or the most that both can spend; None where one of them begins above.

    over: [problems] of a, and of b unless `others` are. Raises InputError for a cost that one of them does not know.
    """
    sides = (a, over), (b, over if others is None else others)
    spends = min(budget, *(float(ladder(curve, cost, mask)[1][-1]) for curve, mask in sides))
    one, other = (at_cost(curve, cost, spends, mask) for curve, mask in sides)
    return None if one is None or other is None else (one, other)


def ladder(curve: Curve, cost: str, over: Bools) -> tuple[Ints, Floats]:
    """Points of a curve by mean cost over these problems, and these costs, [known points] each.

    over: which problems, [problems]. Raises InputError where no cost is known.
    """
    curve.cost(cost)
    costs = curve.costs[cost][:, over].mean(axis=1)
    fine = np.isfinite(costs) & np.isfinite(curve.accuracy[:, over]).all(axis=1)
    if not over.any() or not fine.any():
        raise InputError(
            f"{curve.name}: its {cost} is unknown; known costs: {', '.join(_costs(curve)) or 'none'}"
        )
    points = np.flatnonzero(fine)
    order = np.argsort(costs[points], kind="stable")
    return points[order], np.asarray(costs[points][order])


def optimal_size(
    result: StudyResult,
    cost: str,
    budgets: Sequence[float],
    ours: Callable[[Curve], bool],
    resamples: int = 1000,
    seed: int = 0,
) -> list[Size]:
    """The best model for each budget, by those of its curves that are `ours`; smallest budget first.

    A model with several such curves counts with its first. Nothing if no model has one whose cost is known.
    """
    curves: dict[str, Curve] = {}
    for curve in curves_with_cost(result, cost):
        if ours(curve):
            curves.setdefault(curve.model, curve)
    if not curves:
        return []
    over = shared_problems(curves.values())
    found = []
    for budget in sorted(budgets):
        bought = {model: at_cost(curve, cost, budget, over) for model, curve in curves.items()}
        rows = {model: at.accuracy[over] for model, at in bought.items() if at is not None}
        if not rows:
            found.append(Size(budget, None, {}, {}))
            continue
        means = {model: float(row.mean()) for model, row in rows.items()}
        won = wins(np.stack(list(rows.values())), resamples, seed)
        models = sorted(rows, key=lambda model: bought[model].spends)  # type: ignore[union-attr]
        alike = tuple(models[i] for i in leaders([means[model] for model in models]))
        found.append(Size(budget, alike[0], means, dict(zip(rows, won, strict=True)), alike))
    return found


def wins(rows: ArrayLike, resamples: int = 1000, seed: int = 0) -> list[float]:
    """Of rows [configurations, problems]: the share of resamples of the problems in which each is best.

    Ties (`analysis.ties`) are split. Fewer than `FEW` problems cannot tell: NaN, unless there is one row only.
    """
    values = np.asarray(rows, dtype=np.float64)
    if len(values) == 1:
        return [1.0]
    if values.shape[1] < FEW:
        return [nan] * len(values)
    means = bootstrap_weights(values.shape[1], resamples, seed) @ values.T
    best = means >= means.max(axis=1, keepdims=True) - margin()
    return [float(v) for v in (best / best.sum(axis=1, keepdims=True)).mean(axis=0)]


@lru_cache(maxsize=4)
def bootstrap_weights(problems: int, resamples: int, seed: int) -> Floats:
    """Weights of the problems under bootstrap resamples, [resamples, problems], rows that sum to 1; read only."""
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(problems, np.full(problems, 1.0 / problems), size=resamples)
    weights = np.asarray(counts / problems)
    weights.setflags(write=False)
    return weights


def note_unknown_costs(result: StudyResult, cost: str) -> list[Note]:
    """Name the curves that a comparison at this cost lacks, because their cost is unknown or zero."""
    notes = []
    fine = {c.name for c in curves_with_cost(result, cost)}
    pairs = zip(result.curves, enough(result), strict=True)
    # A curve that is left out altogether is said once, by `missing`.
    curves = [c for before, c in pairs if not c.oracle and (c is before or np.isfinite(c.accuracy).any())]
    zero = [c.name for c in curves if cost in c.costs and _zero(c, cost)]
    unknown = [c.name for c in curves if c.name not in fine and c.name not in zero]
    if zero:
        notes.append(
            Note(cost, f"zero for {', '.join(zero)}, which a logarithmic axis cannot show: left out")
        )
    if unknown:
        notes.append(Note(cost, f"unknown for {', '.join(unknown)}: left out of comparisons at this cost"))
    return notes


def missing(result: StudyResult) -> list[Note]:
    """Points that too few problems have, which are left out; and how many problems all curves have, if not all."""
    notes = note_thin(result)
    curves = [c for c in enough(result) if not c.oracle and np.isfinite(c.accuracy).any()]
    every = len(result.problems)
    if curves and (both := int(shared_problems(curves).sum())) < every:
        own = {curve.name: int(shared_problems([curve]).sum()) for curve in curves}
        least = min(own, key=own.__getitem__)
        text = f"compared on the {both} of {every} problems that all curves have; {least} has the fewest ({own[least]})"
        notes.append(Note("problems", text))
    return notes


def note_thin(result: StudyResult) -> list[Note]:
    """Points that too few problems have (`enough`)."""
    notes = []
    for curve in result.curves:
        if not curve.oracle and (thin := _thin(curve)).any():
            count = np.isfinite(curve.accuracy).sum(axis=1)
            those = [f"{curve.configuration(p)} ({count[p]})" for p in np.flatnonzero(thin).tolist()]
            few = f"measured on fewer than half of {curve.accuracy.shape[1]} problems: {', '.join(those)}; left out"
            notes.append(Note(curve.name, few))
    return notes


@lru_cache(maxsize=4)
def enough(result: StudyResult) -> tuple[Curve, ...]:
    """The curves, unmeasured at points that too few problems have; the same objects at every call."""
    return tuple(
        replace(curve, accuracy=np.where(thin[:, None], nan, curve.accuracy))
        if (thin := _thin(curve)).any()
        else curve
        for curve in result.curves
    )


def _thin(curve: Curve) -> Bools:
    """[points] that some problems have, but fewer than half."""
    count = np.isfinite(curve.accuracy).sum(axis=1)
    return np.asarray((count > 0) & (count < ENOUGH * curve.accuracy.shape[1]))


def _payable(curve: Curve, cost: str) -> bool:
    measured = np.isfinite(curve.accuracy)
    if cost not in curve.costs or not measured.any():
        return False
    costs = curve.costs[cost][measured]
    return bool(np.isfinite(costs).all()) and not _zero(curve, cost)


def _zero(curve: Curve, cost: str) -> bool:
    """Whether a point costs nothing on average."""
    costs = [row[np.isfinite(row)] for row in curve.costs[cost]]
    return any(len(row) > 0 and float(row.mean()) <= 0.0 for row in costs)


def _costs(curve: Curve) -> list[str]:
    return [name for name, values in curve.costs.items() if np.isfinite(values).any()]


@lru_cache(maxsize=4)
def _rate(
    result: StudyResult, oracle: bool
) -> tuple[Bools, dict[Curve, dict[int, tuple[float, float, float, float, float]]]]:
    """The shared problems; by curve and point, mean accuracy, bounds, standard and Monte-Carlo error."""
    curves = [c for c in enough(result) if (oracle or not c.oracle) and np.isfinite(c.accuracy).any()]
    over = shared_problems(curves)
    places = [
        (c, p) for c in curves for p in np.flatnonzero(np.isfinite(c.accuracy[:, over]).all(axis=1)).tolist()
    ]
    found: dict[Curve, dict[int, tuple[float, float, float, float, float]]] = {curve: {} for curve in curves}
    rated = bounds([curve.accuracy[point, over] for curve, point in places])
    for (curve, point), at in zip(places, rated, strict=True):
        found[curve][point] = (*at, curve.noise(point, over))
    return over, found
