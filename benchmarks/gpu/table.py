"""The record as a table: in the terminal, and in Markdown for a page."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.gpu.record import Record

HEAD = ("what", "value", "lowest to highest", "goal")


def cells(row: dict[str, Any]) -> tuple[str, str, str, str]:
    on = ", ".join(f"{name} {value}" for name, value in row.get("on", {}).items())
    what = f"{row['name']} (on {on})" if on else row["name"]
    if row["value"] is None:
        return what, "not measured", row["note"] or "", ""
    spread = "" if row["low"] is None else f"{row['low']:.4g} to {row['high']:.4g}"
    verdict = {True: ", holds", False: ", missed", None: ""}[row["holds"]]
    return (
        what,
        f"{row['value']:.4g} {row['unit']}",
        spread,
        f"{row['goal']}{verdict}" if row["goal"] else "",
    )


def show(record: Record, console: Console) -> None:
    table = Table(*HEAD, title=f"{record.machine.get('gpu', record.machine.get('cpu'))}: {record.path}")
    piece = None
    for row in record.rows:
        if piece not in (None, row["piece"]):
            table.add_section()
        piece = row["piece"]
        table.add_row(*map(escape, cells(row)))
    console.print(table)


def markdown(record: Record) -> str:
    """A table for a page of the documentation."""
    lines = ["| " + " | ".join(HEAD) + " |", "|---|---|---|---|"]
    lines += [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in cells(row)) + " |" for row in record.rows
    ]
    machine = ", ".join(f"{name} {value}" for name, value in record.machine.items())
    return f"{machine}.\n\n" + "\n".join(lines) + "\n"
