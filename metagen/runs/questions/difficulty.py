"""The best strategy by difficulty, where difficulty is told by samples that have no part in what is measured.

A problem's difficulty is its share of right samples. Taken from the samples that a strategy is measured on, it would
sort problems by luck: those that were unlucky look hard, and any strategy looks poor on them. So it is taken from the
independent pools that also tell the limits of votes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metagen.analysis.comparison import pick
from metagen.analysis.figures import Line
from metagen.analysis.intervals import SHARES, interval
from metagen.errors import InputError
from metagen.runs.curves.frontier import at_cost, curves_with_cost, ladder, main_cost, shared_problems, wins
from metagen.runs.curves.measured import FEW
from metagen.runs.curves.recorded import HALVES
from metagen.runs.curves.study import Curve, Floats, Ints, StudyResult, Votes
from metagen.runs.note import Note
from metagen.runs.questions.equal_compute import budgets, middle
from metagen.runs.questions.frontier import BANDS
from metagen.runs.questions.section import Plot, Section, Table
from metagen.runs.words import axis, often, share, with_interval, with_unit
from metagen.runs.work.allocation.allocate import quantiles

#: Groups of about equal size.
GROUPS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Which group each problem is in, hardest first: [problems], −1 for one whose difficulty is not known.

    names: of the groups, with the range of the share of right samples.
    """

    of: Ints
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Best:
    """The best strategy of one group at a budget.

    name: `model/strategy`. accuracy, low, high: of what is picked so, on problems that were not picked on (NaN for
    fewer than `FEW`); naive: on those that were. share: of resamples of the problems in which it is best. problems: how
    many the group has. options: how many could be had for the budget.
    """

    group: str
    budget: float
    name: str
    accuracy: float
    low: float
    high: float
    naive: float
    share: float
    problems: int
    options: int


def groups(pools: Sequence[Votes], count: int = GROUPS) -> Groups:
    """Quantiles of the share of right samples, the mean over models, in independent pools; fewer where they coincide.

    Raises InputError for a pool whose role is not `limit`: test samples must not sort what is measured on them.
    """
    wrong = [v for v in pools if v.role != "limit"]
    if wrong or not pools:
        given = f"a pool of {wrong[0].model} with role {wrong[0].role!r}" if wrong else "no pool"
        raise InputError(f"difficulty from {given}: expected independent pools, as `study.limit` draws them")
    found = np.full(len(pools[0].sizes), -1, dtype=np.int64)
    right = _right(pools)
    have = np.isfinite(right)
    if not have.any():
        return Groups(found, ())
    edges = quantiles(right[have], count)
    found[have] = np.searchsorted(edges, right[have], side="right")
    names = []
    for group in range(len(edges) + 1):
        mine = right[found == group]
        least, most = f"{mine.min():.0%}", f"{mine.max():.0%}"
        names.append(f"{least} right" if least == most else f"{least} to {most} right")
    return Groups(found, tuple(names))


def comparable(result: StudyResult, cost: str) -> list[Curve]:
    """The curves that know this cost and share no sample with the independent pools.

    With `limit: {halves: true}` those are halves of the pools; what runs by itself reads whole pools, and is left out.
    """
    return [c for c in curves_with_cost(result, cost) if not (result.facts.get(HALVES) and c.source == "run")]


def best_by_group(result: StudyResult, made: Groups, cost: str, at: Sequence[float]) -> list[Best]:
    """For every group and budget the best of all strategies of all models that the budget pays for."""
    curves = comparable(result, cost)
    if not curves:
        return []
    over = shared_problems(curves)
    found = []
    for group, name in enumerate(made.names):
        mine = over & (made.of == group)
        if not mine.any():
            continue
        for budget in at:
            bought = {c.name: at_cost(c, cost, budget, mine) for c in curves}
            rows = {name: one.accuracy[mine] for name, one in bought.items() if one is not None}
            if not rows:
                continue
            values = np.stack(list(rows.values()))
            choice = pick(values, support=SHARES)
            few = mine.sum() < FEW
            accuracy, low, high = (np.nan,) * 3 if few else (choice.estimate, choice.low, choice.high)
            found.append(
                Best(
                    name, budget, list(rows)[choice.chosen], accuracy, low, high, choice.naive,
                    wins(values)[choice.chosen], int(mine.sum()), len(rows),
                )
            )  # fmt: skip
    return found


def section(result: StudyResult) -> Section:
    """The best strategy of each group and budget, curves by group, and accuracy by the levels of the task."""
    name, title = "difficulty", "By difficulty"
    pools = [v for v in result.votes if v.role == "limit"]
    cost = main_cost(result)
    notes: list[Note] = []
    pictures, tables = [], []
    curves = comparable(result, cost) if cost is not None else []
    if cost is not None and pools and (left := len(curves_with_cost(result, cost)) - len(curves)):
        text = (
            f"{left} curves are left out: these strategies run by themselves, on both halves of the samples, and one "
            "half is needed for the difficulty of the problems"
        )
        notes.append(Note(name, text))
    if cost is not None and pools and curves:
        over = shared_problems(curves)
        made = groups(pools, min(GROUPS, max(1, int(over.sum()) // FEW)))
        fewest = min((int((over & (made.of == g)).sum()) for g in range(len(made.names))), default=0)
        if fewest < FEW:
            notes.append(Note(name, f"the smallest group has {fewest} problems; intervals need {FEW}"))
        if len(made.names) < 2:
            notes.append(
                Note(
                    name,
                    "one group: there are too few problems, or their independent samples show no difference",
                )
            )
        tables.append(_table(best_by_group(result, made, cost, budgets(result, cost)), cost))
        pictures += [_curves(result, model, made, cost) for model in dict.fromkeys(c.model for c in curves)]
    elif not pools:
        notes.append(
            Note(
                name,
                "only levels are shown: difficulty needs an independent pool of samples (`study.limit`)",
            )
        )
    if cost is not None and (levels := _levels(result, cost)) is not None:
        pictures.append(levels)
    return Section(
        name,
        title,
        "The difficulty of a problem is its share of right samples in independent pools, averaged over models. It uses "
        "the answers, so the gain from adapting to difficulty is an upper bound. The best strategy of a "
        "group is picked on one half of its problems and measured on the other, both ways.",
        pictures=tuple(p for p in pictures if p.panels),
        tables=tuple(t for t in tables if t.rows),
        notes=tuple(notes),
    )


def _right(pools: Sequence[Votes]) -> Floats:
    """[problems]: share of right samples, mean over models, first over the pools of one; NaN where one has none."""
    models: dict[str, list[Floats]] = {}
    for votes in pools:
        there = np.arange(votes.correct.shape[1]) < votes.sizes[:, None]
        hits = (votes.correct & there).sum(axis=1)
        models.setdefault(votes.model, []).append(
            np.where(votes.sizes > 0, hits / np.maximum(votes.sizes, 1), np.nan)
        )
    return np.asarray(np.mean([np.mean(rows, axis=0) for rows in models.values()], axis=0))


def _table(every: list[Best], cost: str) -> Table:
    rows = []
    for one in every:
        words = with_interval(one.accuracy, one.low, one.high)
        where = (one.group, str(one.problems), with_unit(one.budget, cost))
        rows.append((*where, one.name, often(one.share), words, share(one.naive), str(one.options)))
    caption = (
        "The best of all strategies of all models by group and budget. Best in: share of resamples of the problems. "
        "Accuracy: of what is so picked, on other problems; as picked: on the same, which flatters. Options: what the "
        "budget pays for."
    )
    columns = ("group", "problems", "budget", "best", "best in", "accuracy", "as picked", "options")
    return Table("difficulty", caption, columns, tuple(rows), frozenset({1, 2, 4, 5, 6, 7}))


def _curves(result: StudyResult, model: str, made: Groups, cost: str) -> Plot:
    """The strategies of one model in each group."""
    curves = [c for c in comparable(result, cost) if c.model == model]
    over = shared_problems(comparable(result, cost))
    panels: dict[str, list[Line]] = {}
    for group, name in enumerate(made.names):
        mine = over & (made.of == group)
        if not mine.any():
            continue
        panels[name] = []
        for curve in curves:
            points, costs = ladder(curve, cost, mine)
            rows = curve.accuracy[points][:, mine]
            panels[name].append(_line(curve, rows, costs.tolist(), banded=len(curves) <= BANDS))
    caption = f"Strategies of {model} by the share of right samples in independent pools."
    return Plot(f"difficulty-{model}", f"{model} by difficulty", caption, axis(cost), "accuracy", panels)


def _levels(result: StudyResult, cost: str) -> Plot | None:
    """Accuracy by level at the median budget; None for a task with fewer than two levels."""
    curves = curves_with_cost(result, cost)
    over = shared_problems(curves)
    levels = sorted({int(v) for v in result.levels[over] if v >= 0})
    if len(levels) < 2:
        return None
    budget = middle(budgets(result, cost))
    panels: dict[str, list[Line]] = {}
    for curve in curves:
        at = at_cost(curve, cost, budget, over)
        if at is None:
            continue
        rows = [at.accuracy[over & (result.levels == level)] for level in levels]
        x, y = [float(level) for level in levels], [float(row.mean()) for row in rows]
        if min(map(len, rows)) < FEW or len(curves) > BANDS * len(result.models):
            line = Line(curve.strategy, x, y)
        else:
            bounds = [interval(row, support=SHARES) for row in rows]
            line = Line(curve.strategy, x, y, [float(b.low) for b in bounds], [float(b.high) for b in bounds])
        panels.setdefault(curve.model, []).append(line)
    caption = (
        f"Accuracy by level, each strategy at {with_unit(budget, cost)} per problem or what it has for less."
    )
    return Plot("levels", "By level", caption, "level", "accuracy", panels, x_scale="linear")


def _line(curve: Curve, rows: Floats, costs: list[float], *, banded: bool) -> Line:
    means = rows.mean(axis=1).tolist()
    if rows.shape[1] < FEW or not banded:
        return Line(curve.strategy, costs, means)
    bounds = interval(rows, support=SHARES)
    return Line(curve.strategy, costs, means, bounds.low.tolist(), bounds.high.tolist())
