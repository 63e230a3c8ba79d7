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
from metagen.runs.work.forecast.estimate import SUMMED, Estimate
from metagen.runs.work.forecast.show import MEASURE

#: Columns of the table: fields of an estimate's total, and what they are called.
COLUMNS = {
    "calls": "calls", "recorded": "recorded", "prefilled": "prefilled", "generated": "generated", "flops": "FLOPs",
}  # fmt: skip


def data(found: Mapping[Role, Estimate]) -> dict[str, Any]:
    """Estimates as JSON, their sum, and the sum of what is counted; null where one is unknown."""
    roles = {role: one.to_dict() for role, one in found.items()}
    sums = {
        kind: {name: _sum([role[kind][name] for role in roles.values()]) for name in SUMMED}
        for kind in ("total", "counted")
    }
    return {"roles": roles, **sums, "expected_seconds": _sum([one.seconds for one in found.values()])}


def render(found: Mapping[Role, Estimate]) -> RenderableType:
    """For the terminal: a row for each role, and what could not be counted."""
    columns = dict(COLUMNS)
    if any(one.hardware and one.counted.seconds for one in found.values()):
        columns["seconds"] = "least s"
    timed = any(one.seconds is not None for one in found.values())
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("role")
    for column in ("problems", *columns.values(), *(["expected"] if timed else [])):
        table.add_column(column, justify="right")
    for role, one in found.items():
        cells = [amount(getattr(one.total, name)) for name in columns]
        table.add_row(role, f"{one.problems:,}", *cells, *([_time(one.seconds)] if timed else []))
    sums = (_sum([getattr(one.total, name) for one in found.values()]) for name in columns)
    table.add_section()
    whole = [_time(_sum([one.seconds for one in found.values()]))] if timed else []
    table.add_row("total", "", *map(amount, sums), *whole)
    lines = [Text(line) for line in _explanations(found)]
    told = "Only the probes were run." if any(one.probed for one in found.values()) else "Nothing was run."
    return Group(table, *lines, Text(f"{told} Without --dry-run, this command runs the study."))


def _time(seconds: float | None) -> str:
    # Only here, since what makes reports takes a while to import.
    from metagen.runs.words import duration

    return "?" if seconds is None else duration(seconds) if seconds >= 1 else "< 1 s"


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
            counted = one.counted
            lines.append(
                f"{role}: the total is unknown, since these cannot be counted before they run: {one.uncounted}. The "
                f"rest takes {amount(counted.calls)} calls and {amount(counted.flops)} FLOPs."
            )
        lines += [f"{role}: {note}" for note in one.notes if "probe" in note]
    if any(one.missing and not one.probed for one in found.values()):
        lines.append(f"? is unknown: {MEASURE}, for each role.")
    if any(one.hardware for one in found.values()):
        names = {one.hardware: None for one in found.values() if one.hardware}
        lines.append(
            f"least s: the least that {', '.join(names)} can take (roofline), one part after the other."
        )
    return lines


def _sum(values: list[Any]) -> Any:
    return None if any(value is None for value in values) else sum(values)
