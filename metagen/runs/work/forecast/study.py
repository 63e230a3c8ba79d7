"""What a study would take, role by role, before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from metagen.html import amount
from metagen.runs.directory import Role
from metagen.runs.work.forecast.estimate import Estimate

#: Columns of the table: fields of an estimate's total, and what they are called.
COLUMNS = {
    "calls": "calls", "recorded": "recorded", "prefilled": "prefilled", "generated": "generated", "flops": "FLOPs",
}  # fmt: skip


def data(found: Mapping[Role, Estimate]) -> dict[str, Any]:
    """Estimates as JSON, and their sum; null where one is unknown."""
    totals = [one.to_dict()["total"] for one in found.values()]
    names = dict.fromkeys(name for total in totals for name in total)
    return {
        "roles": {role: one.to_dict() for role, one in found.items()},
        "total": {name: _sum([total[name] for total in totals]) for name in names},
    }


def render(found: Mapping[Role, Estimate]) -> RenderableType:
    """For the terminal: a row for each role, and what could not be counted."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("role")
    for column in ("problems", *COLUMNS.values()):
        table.add_column(column, justify="right")
    for role, one in found.items():
        table.add_row(role, f"{one.problems:,}", *(amount(getattr(one.total, name)) for name in COLUMNS))
    sums = (_sum([getattr(one.total, name) for one in found.values()]) for name in COLUMNS)
    table.add_section()
    table.add_row("total", "", *map(amount, sums))
    lines = [Text(line) for line in _explanations(found)]
    return Group(table, *lines, Text("Nothing was run. Without --dry-run, this command runs the study."))


def _explanations(found: Mapping[Role, Estimate]) -> list[str]:
    lines = []
    if any(one.bounds for one in found.values()):
        lines.append("Completions are taken to be as long as max_tokens allows: most are shorter.")
    if "development" in found:
        lines.append(
            "Settings are not chosen yet: the other roles are counted as written, and every other setting of a "
            "generator that is chosen adds samples of its own."
        )
    for role, one in found.items():
        if one.missing:
            first = one.missing[0].partition(":")[0]
            lines.append(
                f"{role}: {len(one.missing)} configurations are not counted, since they decide by themselves what they "
                f"ask for ({first}, …)"
            )
    return lines


def _sum(values: list[Any]) -> Any:
    return None if any(value is None for value in values) else sum(values)
