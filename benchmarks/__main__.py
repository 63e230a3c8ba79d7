"""`make bench`: run the measurements, print a table, write benchmarks/results/latest.json.

Arguments choose modules by name: `make bench ARGS='scope'`. Rows of other modules stay. Rows are kept when their module
ends, with the state of `metagen/` that they belong to: `make bench ARGS=left` measures what has none of this state, and
so goes on with a run that was ended. `make bench ARGS=quick` is benchmarks/quick.py, the gate on speed.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.apart import measured
from benchmarks.row import Row

HERE = Path(__file__).parent
PATH = HERE / "results" / "latest.json"
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
    "report",
    "replicas",
    "vllm_engine",
    "real_model",
)


def main(chosen: list[str]) -> int:
    kept: list[dict[str, Any]] = json.loads(PATH.read_text("utf-8")) if PATH.exists() else []
    code = state()
    names = list(MODULES)
    if chosen == ["left"]:
        if code is None:
            sys.exit(
                "metagen/ has changes that are not committed, so no row belongs to a state of it; commit them"
            )
        names = [name for name in MODULES if not any(belongs(row, name, code) for row in kept)]
    elif chosen:
        unknown = sorted(set(chosen) - set(MODULES))
        if unknown:
            sys.exit(f"no benchmark {unknown[0]!r}; expected left, or some of {', '.join(MODULES)}")
        names = chosen
    console = Console()
    load = os.getloadavg()[0]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f} at the start"
    console.print(machine)
    if load > 0.5:
        console.print("[yellow]The machine is not idle: read ratios, not times.[/]")
    took = {row["module"]: row["seconds"] for row in kept if "module" in row}
    rows: list[Row] = []
    failed: list[str] = []
    for i, name in enumerate(names):
        rest = [took.get(one) for one in names[i:]]
        minutes = sum(filter(None, rest)) / 60
        unknown_ones = f", without {rest.count(None)} that were never timed" if None in rest else ""
        console.print(
            f"{name}, {i + 1} of {len(names)}; the rest took {minutes:.0f} min last time{unknown_ones}"
        )
        began, made = time.monotonic(), list[Row]()
        try:
            for row in measured(name):
                console.print(f"  {row.name}: {row.value:,.2f} {row.unit}")
                made.append(row)
        except RuntimeError:  # the others go on
            failed.append(name)
            continue
        of = {"machine": machine, "module": name, "seconds": round(time.monotonic() - began), "code": code}
        new = {row.name: {**vars(row), "holds": row.holds, **of} for row in made}
        kept = [row for row in kept if row.get("module") != name and row["name"] not in new] + list(
            new.values()
        )
        if code is not None and all(any(belongs(row, one, code) for row in kept) for one in MODULES):
            kept = [
                row for row in kept if row.get("module") in MODULES
            ]  # others are of modules that are gone
        write(kept)
        rows += made
    console.print(table(rows))
    console.print(f"Written to {PATH}")
    if failed:
        console.print(f"[red]Failed: {', '.join(failed)}[/]")
    return 1 if failed else 0


def state() -> str | None:
    """The tree of metagen/ as git names it; None where it has changes, or there is no git."""
    asked = (["git", "status", "--porcelain", "metagen"], ["git", "rev-parse", "--short=12", "HEAD:metagen"])
    try:
        changes, tree = (
            subprocess.run(one, capture_output=True, text=True, check=True, cwd=HERE.parent).stdout.strip()
            for one in asked
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return None if changes else tree


def belongs(row: Mapping[str, Any], module: str, code: str) -> bool:
    """Whether a row is of a module, measured in a state of metagen/."""
    return row.get("module") == module and row.get("code") == code


def write(rows: list[dict[str, Any]]) -> None:
    PATH.parent.mkdir(exist_ok=True)
    unfinished = PATH.with_suffix(".tmp")
    unfinished.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    unfinished.replace(PATH)


def table(rows: list[Row]) -> Table:
    result = Table("what", "value", "unit", "bound", "holds", "how")
    for row in rows:
        holds = {True: "yes", False: "[red]no[/]", None: ""}[row.holds]
        result.add_row(row.name, f"{row.value:,.2f}", row.unit, row.bound or "", holds, row.how)
    return result


if __name__ == "__main__":
    if sys.argv[1:2] == ["quick"]:
        sys.exit(importlib.import_module("benchmarks.quick").main(sys.argv[2:]))
    sys.exit(main(sys.argv[1:]))
