"""From the tables of a run to what its configurations achieve and cost, each with its interval.

Pools answer for every n by averages over random subsets, never by the first n; configurations that ran
by themselves answer for what they returned. Intervals are 95%, over problems.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable
from dataclasses import dataclass, fields
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from metagen import html
from metagen.analysis.intervals import SHARES, interval
from metagen.analysis.ties import ENOUGH, first_best
from metagen.runs.curves.study import Floats
from metagen.runs.directory import Cell, RunDirectory, writing
from metagen.runs.table.costs import USAGE
from metagen.runs.table.pools import Pool, Solved, Stored, cost_columns, plus
from metagen.runs.table.tables import floats, integers, read_outcomes

__all__ = ["FEW", "LevelMeasured", "Measured", "Pool", "Results", "derive", "most_accurate"]

#: Problems below which there is no interval: so few say hardly anything of others.
FEW = 8
#: Configurations that a notebook shows.
SHOWN = 60


@dataclass(frozen=True, slots=True)
class Measured:
    """A cell's accuracy over `problems`, and what it costs a problem on average.

    low, high: of the accuracy; NaN for fewer than `FEW` problems. stderr: its standard error, clustered by problem, as
    logs of other harnesses print it; NaN for one problem.

    flops, flops_2n, tokens: all of it, generation and verification; verifier_flops: of these, the verifiers'.
    prefilled, generated: of the generator. error: Monte-Carlo error of the accuracy, from drawing subsets.
    seconds: of the calls, waiting for the engine included. None: unknown.
    """

    cell: Cell
    accuracy: float
    low: float
    high: float
    error: float
    stderr: float
    problems: int
    prefilled: float | None
    generated: float | None
    tokens: float | None
    flops: float | None
    flops_2n: float | None
    verifier_flops: float | None
    money: float | None
    seconds: float | None

    @property
    def label(self) -> str:
        """The name as people see it: what knows the answers says so."""
        return f"{self.cell.name} (oracle)" if self.cell.oracle else self.cell.name

    def row(self) -> dict[str, Any]:
        """It in the table of configurations. how: by averages over subsets of a pool, or by a run of its own."""
        how = "average over subsets" if self.cell.pooled else "direct"
        return {**_named(self.cell, "generator", "strategy", "verifier", "n"), **_figures(self), "how": how}


def comparable(measured: Iterable[Measured]) -> list[Measured]:
    """Those that do not know the answers and have enough of the problems (`ENOUGH`) to be compared."""
    ours = [m for m in measured if not m.cell.oracle]
    most = max((m.problems for m in ours), default=0)
    return [m for m in ours if m.problems >= ENOUGH * most]


def most_accurate(measured: Iterable[Measured]) -> Measured | None:
    """The most accurate of those that can be compared; of those that tie (`analysis.ties`) the cheapest.

    Of equal accuracy and cost, the first.
    """

    def cost(m: Measured) -> tuple[float, float, int, float]:
        return (
            inf if m.flops is None else m.flops,
            inf if m.tokens is None else m.tokens,
            m.cell.n or 1,
            -m.accuracy,
        )

    ours = sorted(comparable(measured), key=cost)
    return ours[first_best([m.accuracy for m in ours], [m.error for m in ours])] if ours else None


@dataclass(frozen=True, slots=True)
class LevelMeasured:
    """A cell's accuracy at one level; low and high are NaN for fewer than `FEW` problems."""

    cell: Cell
    level: int
    accuracy: float
    low: float
    high: float
    stderr: float
    problems: int

    def row(self) -> dict[str, Any]:
        """It in the table of levels."""
        return {**_named(self.cell, "generator", "strategy", "n"), **_figures(self)}


def _of_pool(cell: Cell) -> tuple[str, str, int | None]:
    """What sizes of a pool share, and what each configuration that ran by itself has alone."""
    return cell.generator, cell.strategy, None if cell.pooled else cell.n


def _named(cell: Cell, *names: str) -> dict[str, Any]:
    return {"configuration": cell.name} | {name: getattr(cell, name) for name in names}


def _figures(row: Measured | LevelMeasured) -> dict[str, Any]:
    found = {one.name: getattr(row, one.name) for one in fields(row) if one.name != "cell"}
    return {**found, "oracle": row.cell.oracle}


@dataclass(frozen=True, slots=True, repr=False)
class Results:
    """What a run found, in the order of its configurations."""

    configurations: tuple[Measured, ...]
    levels: tuple[LevelMeasured, ...]

    def __repr__(self) -> str:
        return f"Results({len(self.configurations)} configurations, {len(self.levels)} by level)"

    def missing(self, problems: int, lines: Iterable[Cell]) -> int:
        """How many of so many problems lack a result of these lines.

        Some sizes of a recorded pool only some problems have.
        """
        found = {_of_pool(line): 0 for line in lines}
        for m in self.configurations:
            found[_of_pool(m.cell)] = max(m.problems, found.get(_of_pool(m.cell), 0))
        return problems - min(found.values(), default=0)

    @property
    def few(self) -> bool:
        """Whether an accuracy of the run, or of a level, is of too few problems for an interval."""
        sizes = [m.problems for m in self.configurations] + [level.problems for level in self.levels]
        return any(size < FEW for size in sizes)

    def _repr_html_(self) -> str:
        """For notebooks: accuracy with its interval and the cost of a problem, configuration by configuration."""
        rows = [
            (
                html.text(m.label),
                f"{100 * m.accuracy:.1f}%",
                f"{100 * m.low:.0f}–{100 * m.high:.0f}" if m.low <= m.high else "–",
                html.bar(m.accuracy),
                html.amount(m.tokens),
                html.amount(m.flops),
            )
            for m in self.configurations[:SHOWN]
        ]
        if more := len(self.configurations) - len(rows):
            rows.append((f"… {more} more: configurations.csv", "", "", "", "", ""))
        return html.table(("configuration", "solved", "95% interval", "", "tokens", "FLOPs"), rows)

    def write(self, root: Path) -> None:
        """`configurations` and `levels`, as Parquet and as CSV, each whole or not at all."""
        for name, rows in (("configurations", self.configurations), ("levels", self.levels)):
            if not rows:
                continue
            table = pa.Table.from_pylist([row.row() for row in rows])
            for suffix, save in ((".parquet", pq.write_table), (".csv", pyarrow.csv.write_csv)):
                path, new = root / f"{name}{suffix}", root / f"{name}{suffix}.new"
                try:
                    with writing(root, path.name):
                        save(table, new)
                        new.replace(path)
                finally:
                    new.unlink(missing_ok=True)


def solve_pools(directory: RunDirectory, lines: abc.Sequence[Cell]) -> dict[str, Solved]:
    """Pooled configurations, problem by problem, by name; without those that no problem has enough samples for."""
    found: dict[str, Solved] = {}
    for generator in dict.fromkeys(line.generator for line in lines if line.pooled):
        with Stored(directory, generator) as stored:
            found |= stored.results(line for line in lines if line.pooled and line.generator == generator)
    return found


def derive(directory: RunDirectory, lines: Iterable[Cell]) -> Results:
    """Measure configurations from the tables of a run. Those without a single finished problem are left out."""
    lines = list(lines)
    pooled = solve_pools(directory, lines)
    every = [(line, pooled.get(line.name) if line.pooled else _outcomes(directory, line)) for line in lines]
    found = [(line, solved) for line, solved in every if solved is not None]
    wholes = bounds([solved.accuracy for _, solved in found])
    measured = [
        _measurement(line, solved, *whole) for (line, solved), whole in zip(found, wholes, strict=True)
    ]
    parts = [(line, level, values) for line, solved in found for level, values in solved.by_level()]
    levels = [
        LevelMeasured(line, level, *part, len(values))
        for (line, level, values), part in zip(parts, bounds([values for *_, values in parts]), strict=True)
    ]
    return Results(tuple(measured), tuple(levels))


def _measurement(
    line: Cell, solved: Solved, accuracy: float, low: float, high: float, stderr: float
) -> Measured:
    return Measured(
        cell=line,
        accuracy=accuracy,
        low=low,
        high=high,
        stderr=stderr,
        error=float(np.sqrt((solved.error**2).sum()) / len(solved.error)),
        problems=len(solved.accuracy),
        **solved.cost,
    )


def bounds(rows: abc.Sequence[Floats]) -> list[tuple[float, float, float, float]]:
    """Mean, low, high and standard error of each row of shares, [problems].

    Rows of equal length are measured at once, which takes far less time. Rows of fewer than `FEW` problems have no
    bounds.
    """
    every: dict[int, tuple[float, float, float, float]] = {}
    for length in {len(row) for row in rows}:
        at = [i for i, row in enumerate(rows) if len(row) == length]
        found = interval(np.stack([rows[i] for i in at]), support=SHARES)
        ends = (np.full(len(at), nan),) * 2 if length < FEW else (found.low, found.high)
        columns = [part.tolist() for part in (found.estimate, *ends, found.error)]
        every.update(zip(at, zip(*columns, strict=True), strict=True))
    return [every[i] for i in range(len(rows))]


# ------------------------------------------------------------------------------------------------ direct


def _outcomes(directory: RunDirectory, line: Cell) -> Solved | None:
    """What a configuration that ran by itself returned."""
    table = read_outcomes(directory.table("outcomes"), line.name)
    if not len(table):
        return None
    correct = floats(table["correct"])
    total = _means(table)
    judged = _mean(table["verifier_flops"])
    made = {name: plus(total[name], _less(_judged(table, name))) for name in ("prefilled", "generated")}
    levels = integers(table["level"])
    return Solved(
        correct, np.zeros(len(correct)), levels, cost_columns(made, total, judged), np.arange(len(correct)),
        table["problem"].to_pylist(),
    )  # fmt: skip


def _judged(table: pa.Table, name: str) -> float | None:
    """Of a usage, the verifiers' part. Earlier versions do not tell what verifiers wrote, unless they read nothing."""
    if (column := f"verifier_{name}") in table.column_names:
        return _mean(table[column])
    return 0.0 if _mean(table["verifier_prefilled"]) == 0 else None


def _less(amount: float | None) -> float | None:
    return None if amount is None else -amount


def _means(table: pa.Table) -> dict[str, float | None]:
    return {name: _mean(table[name]) for name in USAGE}


def _mean(column: pa.ChunkedArray) -> float | None:
    """None if anything in it is unknown."""
    return None if column.null_count or not len(column) else float(pc.mean(column).as_py())
