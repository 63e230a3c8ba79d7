"""The runs below a directory, each in a line: what it is, how far it came, and the best that it found."""

from __future__ import annotations

import contextlib
import csv
import os
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any, Literal

import filelock
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from metagen.errors import InputError
from metagen.runs.directory import RUNS, RunDirectory, State
from metagen.runs.names import STUDY

Condition = Literal["running", "interrupted", "failed", "complete", "incomplete"]
STYLES: dict[Condition, str] = {
    "running": "cyan",
    "interrupted": "yellow",
    "failed": "bold red",
    "complete": "green",
    "incomplete": "yellow",
}


@dataclass(frozen=True, slots=True)
class Summary:
    """One run.

    name: of its directory; of a study's run with that of the study, such as `sums/test`. state: `running`
    while a process writes it; `interrupted` by Ctrl-C or killed; `failed` when nothing was delivered;
    `incomplete` when it came to its end, but parts of it failed; else `complete`. problems: of the
    experiment; None before the run came to know them. samples: delivered, or, of a run without an end,
    recorded so far; None where its journal does not hold them. best: the configuration of the highest
    accuracy, oracles aside, once the run was reported. age: seconds since it was last written. size: bytes of
    all its files.
    """

    name: str
    path: str
    state: Condition
    problems: int | None
    samples: int | None
    best: str | None
    accuracy: float | None
    age: float
    size: int


def runs(within: Path = RUNS) -> list[Summary]:
    """The runs in a directory, or the run that it is; the latest first.

    Raises InputError for a directory that is not there, unless it is the one where runs lie by default.
    """
    if not within.is_dir() and within != RUNS:
        raise InputError(f"there is no directory {str(within)!r}; give one with runs in it")
    roots = [within] if (within / "experiment.yaml").is_file() else _below(within)
    return sorted(map(summary, roots), key=lambda one: (one.age, one.name))


def summary(root: Path) -> Summary:
    """One run, read from what its directory holds."""
    directory = RunDirectory(root)
    # Before the journal is opened: reading it may touch its side files.
    age = time.time() - _last_write(directory)
    size = sum(_size(Path(folder) / name) for folder, _, names in os.walk(root) for name in names)
    try:
        state = directory.state()
    except InputError:
        state = None
    condition = _condition(directory, state)
    ended = condition in ("failed", "complete", "incomplete")
    best, accuracy = _best(root / "configurations.csv")
    samples = state.samples if state and ended else None
    if samples is None and (not state or state.journaled):
        samples = _count_samples(directory.journal)
    return Summary(
        _name(root), str(root), condition, state.problems if state else None, samples,
        best, accuracy, max(0.0, round(age, 3)), size,
    )  # fmt: skip


def render(found: Iterable[Summary], within: Path = RUNS) -> RenderableType:
    """A table, or a word where there are none."""
    found = list(found)
    if not found:
        return Text(f"there are no runs in {str(within)!r} yet; make one with: metagen run FILE")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in ("run", "state", "problems", "samples", "best configuration", "accuracy", "age", "size"):
        number = name in ("problems", "samples", "accuracy", "age", "size")
        table.add_column(name, justify="right" if number else "left", no_wrap=name in ("run", "state"))
    for one in found:
        table.add_row(
            one.name, Text(one.state, STYLES[one.state]), _count(one.problems), _count(one.samples),
            one.best or "–", "–" if one.accuracy is None else f"{100 * one.accuracy:.1f}%",
            ago(one.age), bytes_of(one.size),
        )  # fmt: skip
    return table


def data(found: Iterable[Summary]) -> list[dict[str, Any]]:
    """For JSON."""
    return [asdict(one) for one in found]


def ago(seconds: float) -> str:
    """An age in its largest unit: `3 h`."""
    for unit, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= unit:
            return f"{int(seconds / unit)} {name}"
    return f"{int(seconds)} s"


def bytes_of(size: float) -> str:
    """A size in decimal units: `1.2 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}" if unit != "B" else f"{size:.0f} B"
        size /= 1000
    return f"{size:,.3g} TB" if size < 1000 else f"{size:,.0f} TB"


def _below(within: Path) -> list[Path]:
    """The runs in a directory, and those of the studies in it."""
    studies = [path.parent for path in within.glob(f"*/{STUDY}")]
    return [path.parent for place in (within, *studies) for path in place.glob("*/experiment.yaml")]


def _name(root: Path) -> str:
    root = root.resolve()
    return f"{root.parent.name}/{root.name}" if (root.parent / STUDY).is_file() else root.name


def _condition(directory: RunDirectory, state: State | None) -> Condition:
    if (state is None or state.status == "running") and _is_locked(directory.journal):
        return "running"
    if state is None or state.status in ("running", "interrupted"):
        return "interrupted"
    if state.status == "failed":
        return "failed"
    return "incomplete" if state.failures else "complete"


def _is_locked(journal: Path) -> bool:
    """Whether a process holds the journal. Asked only of runs that are not known to have ended.

    To ask is to hold the lock for a moment; a run that begins just then waits for it (`runner.PATIENCE`).
    """
    path = journal.with_name(f"{journal.name}.lock")
    if not path.exists():
        return False
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        return True
    except OSError:
        return False
    lock.release()
    return False


def _count_samples(journal: Path) -> int | None:
    """Samples in a journal, without the checks that opening it for a run makes; None if it cannot be read."""
    if not journal.exists():
        return None
    try:
        uri = journal.resolve().as_uri() + "?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as connection:
            query = "SELECT COUNT(*) FROM rows WHERE kind = 'generate'"
            return int(connection.execute(query).fetchone()[0])
    except sqlite3.Error:
        return None


def _best(table: Path) -> tuple[str | None, float | None]:
    try:
        with table.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["oracle"] != "true"]
    except OSError:
        return None, None

    from metagen.analysis.ties import ENOUGH, first_best  # arrays, which listing runs does not need otherwise

    # As in the report (`measured.most_accurate`): of those that enough problems have and that tie, the cheapest.
    most = max((int(row["problems"]) for row in rows), default=0)
    rows = [row for row in rows if int(row["problems"]) >= ENOUGH * most]
    rows.sort(
        key=lambda row: (
            _number(row["flops"]),
            _number(row["tokens"]),
            _number(row["n"]),
            -float(row["accuracy"]),
        )
    )
    if not rows:
        return None, None
    errors = [float(row["error"] or 0.0) for row in rows]
    best = rows[first_best([float(row["accuracy"]) for row in rows], errors)]
    return best["configuration"], float(best["accuracy"])


def _number(figure: str) -> float:
    return float(figure) if figure else inf


def _last_write(directory: RunDirectory) -> float:
    journal = directory.journal
    wal = journal.with_name(journal.name + "-wal")
    files = [directory.experiment, directory.root / "state.json", journal]
    # An empty log is that of somebody who reads.
    files += [wal] if _size(wal) else []
    return max(map(_modification_time, files))


def _size(path: Path) -> int:
    """Bytes of a file; 0 for one that a run beside us has just removed or renamed."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _modification_time(path: Path) -> float:
    """The time at which a file was last written; 0 if there is no such file."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
