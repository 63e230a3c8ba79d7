"""`make bench`: run the measurements, print a table, write benchmarks/results/latest.json.

Arguments choose modules by name: `make bench ARGS='scope'`. Rows of other modules, and of other machines, stay.
`make bench ARGS=quick` is benchmarks/quick.py, the gate on speed.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.row import Row
from metagen.generators.compiled import build

HERE = Path(__file__).parent
MODULES = (
    "scope",
    "attempts",
    "stream",
    "road",
    "engine",
    "by_row",
    "beams",
    "adapters",
    "grammar",
    "long_prompt",
    "rewards",
    "search",
    "speculation",
    "compression",
    "startup",
    "kills",
    "soak",
    "answers",
    "estimators",
    "calibration",
    "grade",
    "utilities",
    "sandbox",
    "routing",
    "serve",
    "view",
    "replicas",
    "vllm_engine",
    "real_model",
)


def main(chosen: list[str]) -> None:
    unknown = sorted(set(chosen) - set(MODULES))
    if unknown:
        sys.exit(f"no benchmark {unknown[0]!r}; expected some of {', '.join(MODULES)}")
    build.build()
    console = Console()
    load = os.getloadavg()[0]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f} at the start"
    console.print(machine)
    if load > 0.5:
        console.print("[yellow]The machine is not idle: read ratios, not times.[/]")
    rows: list[Row] = []
    for name in chosen or MODULES:
        for row in importlib.import_module(f"benchmarks.{name}").rows():
            console.print(f"  {row.name}: {row.value:,.2f} {row.unit}")
            rows.append(row)
    console.print(table(rows))
    path = HERE / "results" / "latest.json"
    path.parent.mkdir(exist_ok=True)
    known = json.loads(path.read_text("utf-8")) if path.exists() else []
    data = {row["name"]: row for row in known}
    data |= {row.name: {**vars(row), "holds": row.holds, "machine": machine} for row in rows}
    text = json.dumps(list(data.values()), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    console.print(f"Written to {path}")


def table(rows: list[Row]) -> Table:
    result = Table("what", "value", "unit", "bound", "holds", "how")
    for row in rows:
        holds = {True: "yes", False: "[red]no[/]", None: ""}[row.holds]
        result.add_row(row.name, f"{row.value:,.2f}", row.unit, row.bound or "", holds, row.how)
    return result


if sys.argv[1:2] == ["quick"]:
    sys.exit(importlib.import_module("benchmarks.quick").main(sys.argv[2:]))
main(sys.argv[1:])
