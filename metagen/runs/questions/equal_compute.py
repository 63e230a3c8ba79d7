"""Strategies at equal compute: each against the plain vote of its model, at the budgets of the study.

Both sides always spend the same; where one was measured up to less than the budget, the most that both can spend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metagen.analysis.comparison import Contrast, p_number
from metagen.runs.curves.checks import remedy
from metagen.runs.curves.frontier import (
    SLACK,
    AtCost,
    curves_with_cost,
    even,
    ladder,
    main_cost,
    shared_problems,
)
from metagen.runs.curves.study import Bools, Curve, StudyResult
from metagen.runs.note import Note
from metagen.runs.questions.question import compare_pairs
from metagen.runs.questions.section import Table
from metagen.runs.words import DETECTABLE, difference, join_words, share, unit, with_unit

#: What the others are compared with: the first of these kinds that a model has.
REFERENCES = ("majority", "weighted", "best_of_n", "sample")
#: Budgets where the study names none.
BUDGETS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Rival:
    """A strategy of a model at a budget, beside the reference at the same cost. contrast: None of too few problems."""

    curve: Curve
    reference: Curve
    budget: float
    at: AtCost
    beside: AtCost
    contrast: Contrast | None


def budgets(result: StudyResult, cost: str) -> tuple[float, ...]:
    """Those of the study, ascending; without any, some over the costs of its curves, evenly in the logarithm."""
    if result.budgets.get(cost):
        return tuple(sorted(result.budgets[cost]))
    curves = curves_with_cost(result, cost)
    if not curves:
        return ()
    over = shared_problems(curves)
    ends = [ladder(curve, cost, over)[1] for curve in curves]
    least, most = min(costs[0] for costs in ends), max(costs[-1] for costs in ends)
    return tuple(np.geomspace(least, most, BUDGETS).tolist()) if most > least else (float(least),)


def costs(result: StudyResult) -> tuple[str, ...]:
    """The costs of the study's budgets that curves know, the main one first; without any, the main one."""
    main = main_cost(result)
    named = [cost for cost in result.budgets if curves_with_cost(result, cost)] or (
        [] if main is None else [main]
    )
    return tuple(sorted(named, key=lambda cost: cost != main))


def cheapest(result: StudyResult, cost: str) -> tuple[str, float] | None:
    """The configuration that costs least, and its mean cost; None where no curve knows the cost."""
    found = {
        curve.configuration(point): float(curve.costs[cost][point, there].mean())
        for curve in curves_with_cost(result, cost)
        for point, there in enumerate(np.isfinite(curve.accuracy))
        if there.any()
    }
    least = min(found, key=found.__getitem__, default=None)
    return None if least is None else (least, found[least])


def unpaid(result: StudyResult) -> tuple[Note, ...]:
    """Budgets of the study that pay for nothing: below the cheapest configuration, or of a cost that nobody knows."""
    notes = []
    for cost, given in result.budgets.items():
        if (least := cheapest(result, cost)) is None:
            what = f"it is unknown for every curve{remedy(cost)}; budgets in it are not compared"
            notes.append(Note(cost, what))
            continue
        name, spends = least
        notes += [
            Note(
                cost,
                f"{with_unit(b, cost)} pays for no configuration; the cheapest is {name} at {with_unit(spends, cost)}",
            )
            for b in sorted(given)
            if b < spends * (1.0 - SLACK)
        ]
    return tuple(notes)


def elsewhere(result: StudyResult) -> tuple[Note, ...]:
    """What is compared at the main cost alone, where the study names budgets in others."""
    main = main_cost(result)
    if main is None or not any(cost != main for cost in result.budgets):
        return ()
    others = [unit(cost) for cost in costs(result) if cost != main]
    own = f"budgets in {join_words(others)} have tables of their own; " if others else ""
    text = f"{own}the frontier's members, crossings, difficulty and the answers are compared in {unit(main)}"
    if not result.budgets.get(main):
        given = budgets(result, main)
        ends = f"{len(given)} from {with_unit(given[0], main)} to {with_unit(given[-1], main)}"
        text += f", of which the study names none: at {ends}"
    return (Note("budgets", text),)


def middle(values: Sequence[float]) -> float:
    """The median budget; of two in the middle the smaller."""
    return sorted(values)[(len(values) - 1) // 2]


def rivals(result: StudyResult, cost: str) -> list[Rival]:
    """Every strategy of every model at every budget that pays for it and for the reference; one family of tests.

    Where one of the two ends below the budget they are compared at the most that both can spend: once.
    """
    found: list[tuple[Curve, Curve, float, AtCost, AtCost]] = []
    for curve, reference, over in _facing(result, cost):
        before = 0.0
        for budget in budgets(result, cost):
            both = None if over is None else even(curve, reference, cost, budget, over)
            if both is None or both[0].spends <= before * (1.0 + SLACK):
                continue
            before = both[0].spends
            found.append((curve, reference, budget, *both))
    tested = compare_pairs(
        {str(i): (beside.accuracy, at.accuracy) for i, (*_, at, beside) in enumerate(found)}
    )
    return [Rival(*one, tested.get(str(i))) for i, one in enumerate(found)]


def tables(result: StudyResult) -> tuple[tuple[Table, ...], tuple[Note, ...]]:
    """Paired differences at equal cost, a table for each cost of the study's budgets; and who has no row."""
    found: list[Table] = []
    notes: list[Note] = []
    for cost in costs(result):
        made, said = table(result, cost)
        found += [made] if made is not None else []
        if made is None and not said:
            what = f"nothing is compared: no model has two strategies with known {unit(cost)}"
            said = (Note(cost, what),)
        notes += said
    return tuple(found), tuple(notes)


def table(result: StudyResult, cost: str | None = None) -> tuple[Table | None, tuple[Note, ...]]:
    """Paired differences at this cost, the main one by default; None where there are none; and who has no row."""
    cost = main_cost(result) if cost is None else cost
    if cost is None:
        return None, ()
    every = rivals(result, cost)
    there = {rival.curve.name for rival in every}
    notes = tuple(
        Note(
            curve.name,
            f"not compared: it and {reference.name} share no budget in {unit(cost)}, or no problem",
        )
        for curve, reference, _ in _facing(result, cost)
        if curve.name not in there
    )
    if not every:
        return None, notes
    rows = tuple(_row(rival, cost) for rival in every)
    said = ("accuracy", "against", "its accuracy", "difference", "p", "detectable")
    columns = ("budget", "configuration", "n", "spends", *said)
    caption = (
        f"Accuracy at equal cost, in {unit(cost)}. Differences are in points, paired by problem, each with its own "
        f"uncorrected 95% interval. p is corrected by Holm for {sum(r.contrast is not None for r in every)} "
        f"comparisons. “Detectable”, where a difference is not shown, is the smallest detectable one. {DETECTABLE} "
        "“Spends” is the cost of both sides: the budget, or the largest cost that both can spend. “n” gives the "
        "neighbouring points."
    )
    counts = [int(np.isfinite(rival.at.accuracy).sum()) for rival in every]
    if min(counts) < len(result.problems):
        caption += (
            f" Each comparison uses the problems that both measured: {min(counts)} or more of "
            f"{len(result.problems)}."
        )
    return Table(
        table_name("equal-compute", result, cost), caption, columns, rows, frozenset({0, 3, 4, 6, 7, 8, 9})
    ), notes


def table_name(what: str, result: StudyResult, cost: str) -> str:
    """The name of a table at a cost: of the first of them plain, so that every study has it."""
    return what if cost == costs(result)[0] else f"{what}-{cost.replace(':', '-')}"


def _row(rival: Rival, cost: str) -> tuple[str, ...]:
    c = rival.contrast
    return (
        with_unit(rival.budget, cost), rival.curve.name, between(rival.at), with_unit(rival.at.spends, cost),
        share(rival.at.mean), f"{rival.reference.strategy}, n = {between(rival.beside)}", share(rival.beside.mean),
        "–" if c is None else difference(c.difference.estimate, c.difference.low, c.difference.high),
        "–" if c is None else p_number(c.p_value),
        "–" if c is None else "" if c.shown else points(c.difference.detectable),
    )  # fmt: skip


def between(at: AtCost) -> str:
    """The n that are mixed: 4–8, or 4 alone."""
    low, high = at.between
    return str(low) if at.share == 0.0 or low == high else f"{low}–{high}"


def points(value: float) -> str:
    """An unsigned difference in points; none, where so few problems could show none of any size."""
    return "–" if np.isnan(value) else "none" if np.isinf(value) else f"{100 * value:.1f}"


def _facing(result: StudyResult, cost: str) -> list[tuple[Curve, Curve, Bools | None]]:
    """Every curve with the reference of its model, and the problems of both; a sample is a vote of one."""
    found = []
    for model in dict.fromkeys(curve.model for curve in result.curves):
        curves = [c for c in curves_with_cost(result, cost) if c.model == model]
        reference = _reference(curves)
        if reference is not None:
            rest = [c for c in curves if c is not reference and c.kind != "sample"]
            found += [(curve, reference, _both(curve, reference)) for curve in rest]
    return found


def _reference(curves: list[Curve]) -> Curve | None:
    for kind in REFERENCES:
        for curve in curves:
            if curve.kind == kind:
                return curve
    return None


def _both(a: Curve, b: Curve) -> Bools | None:
    """The problems that both measured; None for none."""
    over = np.ones(a.accuracy.shape[1], dtype=bool)
    for curve in (a, b):
        over &= np.isfinite(curve.accuracy[_points(curve)]).all(axis=0)
    return over if over.any() else None


def _points(curve: Curve) -> Bools:
    return np.asarray(np.isfinite(curve.accuracy).any(axis=1))
