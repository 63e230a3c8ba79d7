"""What each of several budgets buys in a run: the best configuration within it, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import ceil, floor, isnan, log10

from metagen.analysis.figures import Axis
from metagen.analysis.frontier import Point
from metagen.analysis.ties import first_best
from metagen.runs.curves.measured import Measured, comparable
from metagen.runs.page.answer import Answer, draw_budgets, short_label
from metagen.runs.page.figure import Cost
from metagen.runs.questions.section import Table
from metagen.runs.words import between, cost_amount, percent

#: Rows of a table of budgets.
BUDGETS = 6
UNITS: dict[Cost, tuple[Axis, str]] = {
    "flops": ("flops", "FLOPs"),
    "generated": ("tokens", "tokens generated"),
}


def answer(measured: Iterable[Measured]) -> Answer:
    """The figure and the table that the page of a run begins with, by FLOPs, else by tokens."""
    honest = comparable(measured)
    cost = next((one for one in UNITS if honest and all(getattr(m, one) for m in honest)), None)
    if cost is None:
        return Answer({}, None)
    several = len({m.cell.generator for m in honest}) > 1
    groups: dict[str, list[Point]] = {}
    named = {m.label: m.cell for m in honest}
    for point in points(honest, cost):
        cell = named[point.label]
        strategy = f"{cell.generator}/{cell.strategy}"
        label = short_label(point.label, cell.generator if several else strategy)
        groups.setdefault(cell.generator if several else cell.strategy, []).append(
            replace(point, label=label)
        )
    axis, unit = UNITS[cost]
    drawn, caption = draw_budgets(groups, axis, "generator" if several else "strategy")
    rows = tuple(
        (
            cost_amount(budget, cost), best.label, percent(best.accuracy) + _bounds(best),
            cost_amount(best.cost, cost),
        )
        for budget, best in bought(honest, cost)
    )  # fmt: skip
    told = (
        f"The configuration to run, by the {unit} that a problem may take on average, and its accuracy with the "
        "95% interval."
    )
    table = Table("answer", told, ("budget", "run", "solves", "spends"), rows, frozenset({0, 2, 3}))
    return Answer(drawn, table if rows else None, caption)


def _bounds(point: Point) -> str:
    return "" if isnan(point.low) else f" ({between(point.low, point.high)})"


def bought(measured: Iterable[Measured], cost: Cost) -> list[tuple[float, Point]]:
    """Round budgets, each with the best configuration within it; none where fewer than two costs are known."""
    found = points(measured, cost)
    if len(found) < 2:
        return []
    rows = []
    for budget in budgets([p.cost for p in found]):
        paid = sorted((p for p in found if p.cost <= budget), key=lambda p: (p.cost, -p.accuracy))
        if paid:
            rows.append((budget, paid[first_best([p.accuracy for p in paid], [p.error for p in paid])]))
    return rows


def budgets(values: Iterable[float], most: int = BUDGETS) -> list[float]:
    """Round numbers (1, 2, 5 · 10^k) from the least to the greatest of the costs, at most so many."""
    values = [v for v in values if v > 0]
    if not values:
        return []
    ladder = [
        m * 10.0**k for k in range(floor(log10(min(values))), ceil(log10(max(values))) + 1) for m in (1, 2, 5)
    ]
    low = max(range(len(ladder)), key=lambda i: (ladder[i] <= min(values), i))
    high = next(i for i, v in enumerate(ladder) if v >= max(values))
    steps = ladder[min(low + 1, high) : high + 1]
    stride = ceil(len(steps) / most)
    return steps[::-1][::stride][::-1]


def points(measured: Iterable[Measured], cost: Cost) -> list[Point]:
    """Configurations that can be compared, at their costs; of those that are one and the same, the first."""
    found: dict[tuple[str, float, float], Point] = {}
    for m in comparable(measured):
        if value := getattr(m, cost):
            point = Point(m.label, value, m.accuracy, m.low, m.high, m.error)
            found.setdefault((m.cell.generator, round(m.accuracy, 9), round(value, 6)), point)
    return list(found.values())
