"""Two studies, or a study and a run: test runs configuration by configuration, and curve against curve at equal cost.

At a budget a curve is interpolated in cost (`frontier.even`), so that both sides spend the same on average: the budget,
or the most that both can. The problems are those that both have at all their points. All differences of one comparison
are one Holm family.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from metagen.analysis.comparison import Contrast, contrasts
from metagen.errors import InputError
from metagen.runs import directory, words
from metagen.runs.curves.frontier import MAIN, enough, even, ladder, main_cost, note_thin
from metagen.runs.curves.measured import FEW
from metagen.runs.curves.study import Bools, Curve, Floats, Ints, StudyResult
from metagen.runs.directory import RunDirectory
from metagen.runs.note import Note
from metagen.runs.questions import compare as runs
from metagen.runs.questions.found import Found, find

#: Configurations without a partner that a note names.
NAMED = 3


@dataclass(frozen=True, slots=True, eq=False)
class AtBudget:
    """Two curves where they cost the same: b − a. spends: what both do, less than the budget beyond the end of one."""

    cost: str
    budget: float
    spends: float
    contrast: Contrast


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """curves: at equal cost. runs: configurations of equal names, with the numbers of problems (both, a, b)."""

    a: Found
    b: Found
    curves: tuple[AtBudget, ...]
    notes: tuple[Note, ...]
    runs: tuple[list[runs.Compared], tuple[int, int, int]] | None


def studies(a: str, b: str, pairs: runs.Pairs | None = None) -> Comparison | None:
    """`compare` of what lies at two paths, if one of them is a study; None for two plain runs."""
    if all(isinstance(directory.find(path), RunDirectory) for path in (a, b)):
        return None
    return compare(find(a), find(b), pairs)


def compare(a: Found, b: Found, pairs: runs.Pairs | None = None) -> Comparison:
    """pairs: names of curves (`small/majority`), or of configurations, of a with those of b; by default equal names.

    Raises InputError where the two share no problem, a problem of one id is not the same, or nothing is comparable.
    """
    _identical(a.run, b.run)
    names = {curve.name for curve in a.result.curves}
    named = None if pairs is None else [(x, y) for x, y in pairs if x in names]
    others = None if pairs is None else [(x, y) for x, y in pairs if x not in names]
    found, notes = ([], []) if named == [] else curves(a.result, b.result, named)
    measured = None
    if others is None and not _lines(a.run) & _lines(b.run):
        text = "the runs share no configuration, since their settings differ: curves are compared alone"
        notes.append(Note("test", text))
    elif others is None or others:
        measured = runs.compare(a.run, b.run, others)
        notes += [] if others else _unpaired(a.run, b.run)
    if not found and measured is None:
        why = "; ".join(f"{note.about}: {note.text}" for note in notes[:3])
        raise InputError(f"nothing of {str(a.root)!r} and {str(b.root)!r} can be compared: {why}")
    return Comparison(a, b, tuple(found), tuple(notes), measured)


def _lines(run: RunDirectory) -> set[str]:
    return {line.name for line in run.state().lines}


def _unpaired(a: RunDirectory, b: RunDirectory) -> list[Note]:
    """Configurations that only one of the two has; a setting that was chosen anew is part of a name."""
    one, two = _lines(a), _lines(b)
    found = []
    for side, left in (("A", one - two), ("B", two - one)):
        if left:
            some = ", ".join(sorted(left)[:NAMED]) + (", …" if len(left) > NAMED else "")
            text = f"{len(left)} of {side} have no equal name in the other: {some}; pair them by --pair A=B"
            found.append(Note("configurations", text))
    return found


def _identical(a: RunDirectory, b: RunDirectory) -> None:
    """InputError for one id that is another problem."""
    one, two = runs.identities(a), runs.identities(b)
    if other := [id for id in one if id in two and one[id] != two[id]]:
        raise InputError(
            f"problem {other[0]!r} (and {len(other) - 1} more) of {str(a.root)!r} is not that of {str(b.root)!r}: one "
            "id, but another prompt or reference. Compare over the same data"
        )


# ------------------------------------------------------------------------------------------------ curves


def curves(
    a: StudyResult, b: StudyResult, pairs: runs.Pairs | None = None
) -> tuple[list[AtBudget], list[Note]]:
    """Curve against curve at the budgets of both, or at the costs of a's points where there are none.

    Oracles are left out. Raises InputError for unknown names, and for results that share no problem.
    """
    shared = [id for id in a.problems if id in set(b.problems)]
    if not shared:
        raise InputError(
            f"{a.name!r} and {b.name!r} share no problem: the first has {a.problems[0]!r}, …, the second "
            f"{b.problems[0]!r}, …; compare over the same task, split and seed"
        )
    places = tuple(_places(result, shared) for result in (a, b))
    rows: dict[str, tuple[Floats, Floats]] = {}
    found: dict[str, tuple[str, str, float, float]] = {}
    sides = (("A", a), ("B", b))
    notes = [
        replace(note, about=f"{side}, {note.about}") for side, result in sides for note in note_thin(result)
    ]
    for x, y in _pairs(a, b, pairs):
        name = x.name if x.name == y.name else f"{x.name} → {y.name}"
        fine = _complete_problems(x, places[0]) & _complete_problems(y, places[1])
        if not fine.any():
            notes.append(Note(name, "no problem that both have measured at all points: not compared"))
            continue
        at = tuple(place[fine] for place in places)
        last, outside = None, dict[tuple[str, str], list[str]]()
        for cost, budget in _budgets(a, b, x, y, at, notes):
            masks = (_mask(x, at[0]), _mask(y, at[1]))
            both = even(x, y, cost, budget, *masks)
            if both is None:
                begins = {c.name: float(ladder(c, cost, m)[1][0]) for c, m in ((x, masks[0]), (y, masks[1]))}
                dear = max(begins, key=begins.__getitem__)
                why = f"below the cheapest point of {dear}"
                if budget >= begins[dear]:
                    why = f"not compared, since the other curve ends {why}"
                outside.setdefault((cost, why), []).append(f"{cost}={budget:.4g}")
                continue
            # Beyond the last point of one nothing changes: one test, counted once.
            same = (cost, both[0].spends)
            if same != last:
                test = str(len(rows))  # costs that differ may be the same in words
                rows[test] = (both[0].accuracy[at[0]], both[1].accuracy[at[1]])
                found[test] = (name, cost, budget, both[0].spends)
            last = same
        for (_, why), at_costs in outside.items():
            notes.append(Note(name, f"{', '.join(at_costs)} {'is' if len(at_costs) == 1 else 'are'} {why}"))
    found_of = contrasts(rows, fewest=FEW) if rows else []
    few = [c for c in found_of if c.difference.problems < FEW]
    if few:
        text = f"{len(few)} comparisons have fewer than {FEW} problems: no interval, no test"
        notes.append(Note("curves", text))
    every = []
    for c in found_of:
        name, cost, budget, spends = found[c.name]
        told = replace(c, name=f"{name} at {words.with_unit(spends, cost)}")
        every.append(AtBudget(cost, budget, spends, told))
    return every, notes


def _places(result: StudyResult, ids: abc.Sequence[str]) -> Ints:
    at = {id: i for i, id in enumerate(result.problems)}
    return np.array([at[id] for id in ids], dtype=np.int64)


def _complete_problems(curve: Curve, places: Ints) -> Any:
    """Which of these problems have every point that any problem has."""
    there = np.isfinite(curve.accuracy)
    points = there.any(axis=1)
    return there[points][:, places].all(axis=0) & points.any()


def _mask(curve: Curve, places: Ints) -> Bools:
    over = np.zeros(curve.accuracy.shape[1], dtype=bool)
    over[places] = True
    return over


def _pairs(a: StudyResult, b: StudyResult, pairs: runs.Pairs | None) -> list[tuple[Curve, Curve]]:
    one, two = ({c.name: c for c in enough(result) if not c.oracle} for result in (a, b))
    return runs.pair(one, two, pairs, [repr(a.name), repr(b.name)], "curve")


def _budgets(
    a: StudyResult, b: StudyResult, x: Curve, y: Curve, at: tuple[Ints, ...], notes: list[Note]
) -> list[tuple[str, float]]:
    """Costs and budgets at which two curves are compared, of costs that both know."""

    def is_known(cost: str) -> bool:
        sides = (x, at[0]), (y, at[1])
        return all(cost in c.costs and np.isfinite(_paid(c, cost, p)).all() for c, p in sides)

    given = [
        (cost, budget)
        for cost in dict.fromkeys([*a.budgets, *b.budgets])
        for budget in sorted({*a.budgets.get(cost, ()), *b.budgets.get(cost, ())})
    ]
    if not given:
        cost = next(filter(is_known, filter(None, (main_cost(a), main_cost(b), *MAIN))), None)
        if cost is None:
            notes.append(Note(x.name, "no cost is known on both sides: not compared"))
            return []
        return [(cost, float(c)) for c in sorted(set(_paid(x, cost, at[0]).mean(axis=1).tolist()))]
    lacking = dict.fromkeys(cost for cost, _ in given if not is_known(cost))
    notes += [Note(x.name, f"{cost} is not known on both sides: not compared at it") for cost in lacking]
    return [(cost, budget) for cost, budget in given if cost not in lacking]


def _paid(curve: Curve, cost: str, places: Ints) -> Floats:
    """Costs at the points that are measured, [points, places]."""
    return curve.costs[cost][np.isfinite(curve.accuracy).any(axis=1)][:, places]


# ------------------------------------------------------------------------------------------------ words


def data(found: Comparison) -> dict[str, Any]:
    """For JSON; what the problems cannot tell is null. `configurations` are as those of two runs."""
    plain = runs.data(*found.runs, found.a.run, found.b.run) if found.runs else {}
    return {
        **plain,
        "a": str(found.a.root),
        "b": str(found.b.root),
        "curves": [
            {
                "name": one.contrast.name, "cost": one.cost, "budget": one.budget, "spends": one.spends,
                **runs.numbers_of(one.contrast),
            }
            for one in found.curves
        ],
        "notes": [asdict(note) for note in found.notes],
    }  # fmt: skip


def render(found: Comparison) -> RenderableType:
    """For the terminal."""
    parts: list[RenderableType] = []
    if found.runs:
        parts.append(runs.render(*found.runs, found.a.run, found.b.run))
    if found.curves:
        title = Text(f"Curves at equal cost, A {found.a.root}, B {found.b.root}", "bold")
        parts.append(Padding(Group(title, _table(found.curves)), (1, 0, 0, 1)))
    notes = [Text(f"note: {note.about}: {note.text}", "dim") for note in found.notes]
    return Group(*parts, Padding(Group(*notes), (0, 0, 0, 1)))


def _table(curves: Iterable[AtBudget]) -> Table:
    table = runs.table_of_tests("curves, budget")
    for one in curves:
        contrast = one.contrast
        means = words.share(contrast.a), words.share(contrast.b)
        table.add_row(contrast.name, *means, *runs.cells_of(contrast))
    return table
