"""From the tables of a run to what its configurations achieve and cost, each with its interval.

Pools answer for every n by averages over random subsets, never by the first n; configurations that ran
by themselves answer for what they returned. Intervals are 95%, over problems.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Ordered
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import groupby
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from metagen import html
from metagen.analysis.estimators import best_of_k, majority_at_k, weighted_at_k
from metagen.analysis.intervals import SHARES, interval
from metagen.analysis.ranks import standing
from metagen.analysis.ties import first_best
from metagen.errors import DataError
from metagen.experiments.costs import USAGE
from metagen.experiments.directory import Line, RunDirectory, writing
from metagen.experiments.tables import read

Floats = NDArray[np.float64]
POOLED, DIRECT = "average over subsets", "direct"
#: Problems below which there is no interval: so few say hardly anything of others.
FEW = 8
#: Configurations that a notebook shows.
SHOWN = 60


@dataclass(frozen=True, slots=True)
class Measured:
    """A configuration's accuracy over `problems`, and what it costs a problem on average.

    low, high: of the accuracy; NaN for fewer than `FEW` problems. stderr: its standard error, clustered by problem, as
    logs of other harnesses print it; NaN for one problem.

    flops, flops_2n, tokens: all of it, generation and verification; verifier_flops: of these, the verifiers'.
    prefilled, generated: of the generator. error: Monte-Carlo error of the accuracy, from drawing subsets.
    seconds: of the calls, waiting for the engine included. None: unknown.
    """

    configuration: str
    generator: str
    strategy: str
    verifier: str | None
    n: int | None
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
    oracle: bool
    how: str

    @property
    def label(self) -> str:
        """The name as people see it: what knows the answers says so."""
        return f"{self.configuration} (oracle)" if self.oracle else self.configuration


def most_accurate(measured: Iterable[Measured]) -> Measured | None:
    """The most accurate configuration that does not know the answers; of those that tie (`analysis.ties`) the cheapest.

    Of equal accuracy and cost, the first.
    """

    def cost(m: Measured) -> tuple[float, float, int, float]:
        return (
            inf if m.flops is None else m.flops,
            inf if m.tokens is None else m.tokens,
            m.n or 1,
            -m.accuracy,
        )

    ours = sorted((m for m in measured if not m.oracle), key=cost)
    return ours[first_best([m.accuracy for m in ours], [m.error for m in ours])] if ours else None


@dataclass(frozen=True, slots=True)
class LevelMeasured:
    """A configuration's accuracy at one level; low and high are NaN for fewer than `FEW` problems."""

    configuration: str
    generator: str
    strategy: str
    n: int | None
    level: int
    accuracy: float
    low: float
    high: float
    stderr: float
    problems: int
    oracle: bool


@dataclass(frozen=True, slots=True, repr=False)
class Results:
    """What a run found, in the order of its configurations."""

    configurations: tuple[Measured, ...]
    levels: tuple[LevelMeasured, ...]

    def __repr__(self) -> str:
        return f"Results({len(self.configurations)} configurations, {len(self.levels)} by level)"

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
            table = pa.Table.from_pylist([asdict(row) for row in rows])
            for suffix, save in ((".parquet", pq.write_table), (".csv", pyarrow.csv.write_csv)):
                path, new = root / f"{name}{suffix}", root / f"{name}{suffix}.new"
                try:
                    with writing(root, path.name):
                        save(table, new)
                        new.replace(path)
                finally:
                    new.unlink(missing_ok=True)


def derive(directory: RunDirectory, lines: Iterable[Line]) -> Results:
    """Measure configurations from the tables of a run. Those without a single finished problem are left out."""
    lines = list(lines)
    pooled: dict[str, Solved] = {}
    for generator in dict.fromkeys(line.generator for line in lines if line.pooled):
        ours = [line for line in lines if line.pooled and line.generator == generator]
        pooled |= Pool.of(directory, generator).solved(ours)
    every = [(line, pooled.get(line.name) if line.pooled else _outcomes(directory, line)) for line in lines]
    found = [(line, solved) for line, solved in every if solved is not None]
    wholes = _bounds([solved.accuracy for _, solved in found])
    measured = [
        _measured(line, solved, *bounds) for (line, solved), bounds in zip(found, wholes, strict=True)
    ]
    parts = [(line, level, values) for line, solved in found for level, values in solved.by_level()]
    levels = [
        LevelMeasured(
            line.name, line.generator, line.strategy, line.n, level, *bounds, len(values), line.oracle
        )
        for (line, level, values), bounds in zip(
            parts, _bounds([values for *_, values in parts]), strict=True
        )
    ]
    return Results(tuple(measured), tuple(levels))


@dataclass(frozen=True, slots=True)
class Solved:
    """One configuration, problem by problem: accuracies, their Monte-Carlo errors, levels, mean costs.

    rows: which of the problems in its tables these are, in the order of the task.
    """

    accuracy: Floats
    error: Floats
    levels: NDArray[np.int64]
    cost: dict[str, float | None]
    rows: NDArray[np.int64]

    def by_level(self) -> Iterator[tuple[int, Floats]]:
        """The accuracies of each level; −1 stands for no level and is left out."""
        for level in sorted(set(self.levels.tolist()) - {-1}):
            yield level, self.accuracy[self.levels == level]


def _measured(
    line: Line, solved: Solved, accuracy: float, low: float, high: float, stderr: float
) -> Measured:
    return Measured(
        configuration=line.name,
        generator=line.generator,
        strategy=line.strategy,
        verifier=line.verifier,
        n=line.n,
        accuracy=accuracy,
        low=low,
        high=high,
        stderr=stderr,
        error=float(np.sqrt((solved.error**2).sum()) / len(solved.error)),
        problems=len(solved.accuracy),
        oracle=line.oracle,
        how=POOLED if line.pooled else DIRECT,
        **solved.cost,
    )


def _bounds(rows: Ordered[Floats]) -> list[tuple[float, float, float, float]]:
    """Mean, low, high and standard error of each row; rows of equal length at once, which takes far less time.

    Rows of fewer than `FEW` problems have no bounds.
    """
    bounds: dict[int, tuple[float, float, float, float]] = {}
    for length in {len(row) for row in rows}:
        at = [i for i, row in enumerate(rows) if len(row) == length]
        found = interval(np.stack([rows[i] for i in at]), support=SHARES)
        ends = (np.full(len(at), nan),) * 2 if length < FEW else (found.low, found.high)
        columns = [part.tolist() for part in (found.estimate, *ends, found.error)]
        bounds.update(zip(at, zip(*columns, strict=True), strict=True))
    return [bounds[i] for i in range(len(rows))]


# ------------------------------------------------------------------------------------------------ pools


@dataclass(frozen=True)
class Pool:
    """The candidates of one generator as arrays [problems, samples], and what n of them cost.

    classes: of the answer; −1 for a candidate without a vote. What is not eligible (cut, or without an answer that is
    needed) loses to whatever is, as in the strategies. scores: values in [0, 1], NaN for none; raw: by verifier, the
    scores before they were mapped there, NaN where there are no others. sizes: samples of each problem; what lies
    behind them in a row is nothing.
    """

    classes: NDArray[np.int64]
    eligible: NDArray[np.bool_]
    correct: NDArray[np.bool_]
    scores: dict[str, Floats]
    levels: NDArray[np.int64]
    costs: pa.Table
    sizes: NDArray[np.int64]
    raw: Mapping[str, Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, directory: RunDirectory, generator: str) -> Pool:
        """Read from a run; problems in the order of the task, and only those that were finished."""
        path = directory.table("candidates")
        names = pq.read_schema(path).names
        verifiers = [name.removeprefix("score.") for name in names if name.startswith("score.")]
        # Runs of earlier versions have no raw scores.
        unmapped = [v for v in verifiers if f"raw.{v}" in names]
        columns = [
            *["place", "sample", "level", "key", "eligible", "correct"],
            *(f"score.{v}" for v in verifiers),
            *(f"raw.{v}" for v in unmapped),
        ]
        table = read(path, columns, generator=generator).sort_by(
            [("place", "ascending"), ("sample", "ascending")]
        )
        sample = np.asarray(table["sample"].to_numpy(), dtype=np.int64)
        row = np.cumsum(sample == 0) - 1
        sizes = np.bincount(row)
        there = np.arange(max(sizes, default=1)) < sizes[:, None]

        def array(values: Any, missing: Any) -> NDArray[Any]:
            flat = np.asarray(pc.fill_null(values, missing).to_numpy())
            found = np.full(there.shape, missing, flat.dtype)
            found[row, sample] = flat
            return found

        keys = pc.dictionary_encode(table["key"]).combine_chunks().indices
        eligible = array(table["eligible"], False)
        # As for a strategy: where nothing is eligible, everything is.
        eligible = eligible | (there & ~eligible.any(axis=1, keepdims=True))
        scores = {v: array(table[f"score.{v}"], np.nan) for v in verifiers}
        raw = {v: array(table[f"raw.{v}"], np.nan) for v in unmapped}
        classes = np.where(eligible, array(keys, -1), -1)
        levels = array(table["level"], -1)[:, 0] if len(table) else np.zeros(0)
        costs = read(directory.table("costs"), generator=generator)
        correct = array(table["correct"], False)
        return cls(classes, eligible, correct, scores, levels.astype(np.int64), costs, sizes, raw)

    def solved(self, lines: Iterable[Line]) -> dict[str, Solved]:
        """By configuration, over the problems that have n samples; what no problem has is left out.

        Those that differ in n alone are measured at once.
        """
        found: dict[str, Solved] = {}
        alike: dict[tuple[str, str | None], list[Line]] = {}
        for line in lines if len(self.classes) else ():
            alike.setdefault((line.kind, line.verifier), []).append(line)
        for (kind, verifier), ours in alike.items():
            sizes = sorted({line.n or 1 for line in ours})
            accuracy, error = self.curve(kind, sizes, verifier)
            for line in ours:
                n = line.n or 1
                at = sizes.index(n)
                if (rows := np.flatnonzero(self.sizes >= n)).size:
                    cost = self._cost(n, verifier)
                    found[line.name] = Solved(
                        accuracy[at, rows], error[at, rows], self.levels[rows], cost, rows
                    )
        return found

    def accuracy(self, kind: str, n: int, verifier: str | None = None) -> tuple[Floats, Floats]:
        """Expected accuracy of a kind of strategy with n candidates, by problem, and its Monte-Carlo error."""
        accuracy, error = self.curve(kind, [n], verifier)
        return accuracy[0], error[0]

    def curve(self, kind: str, ns: Ordered[int], verifier: str | None = None) -> tuple[Floats, Floats]:
        """`accuracy` for several n, [len(ns), problems] each; the same numbers, in less time.

        NaN where a problem has fewer than n samples: every estimate is over all subsets of its problem's own pool.
        """
        accuracy = np.full((len(ns), len(self.sizes)), np.nan)
        error = accuracy.copy()
        for size in np.unique(self.sizes):
            rows, held = np.flatnonzero(self.sizes == size), np.flatnonzero(np.asarray(ns) <= size)
            if held.size:
                found = self._equal(rows, size)._curve(kind, [n for n in ns if n <= size], verifier)
                accuracy[np.ix_(held, rows)], error[np.ix_(held, rows)] = found
        return accuracy, error

    def _equal(self, rows: NDArray[np.int64], size: int) -> Pool:
        """The problems in these rows, which have `size` samples each."""
        return Pool(
            self.classes[rows, :size],
            self.eligible[rows, :size],
            self.correct[rows, :size],
            {name: values[rows, :size] for name, values in self.scores.items()},
            self.levels[rows],
            self.costs,
            self.sizes[rows],
            {name: values[rows, :size] for name, values in self.raw.items()},
        )

    def _curve(self, kind: str, ns: Ordered[int], verifier: str | None) -> tuple[Floats, Floats]:
        """`curve` where every problem has as many samples as the arrays are wide, and no n is more."""
        rng = np.random.default_rng(0)
        match kind:
            case "sample":
                mean = np.tile(self.correct.mean(axis=1), (len(ns), 1))
                return mean, np.zeros_like(mean)
            case "best_of_n":
                found = best_of_k(self._order(verifier), self.correct, ns)
            case "majority":
                found = majority_at_k(self.classes, self.correct, ns, rng)
            case "weighted":
                weights = np.nan_to_num(self.scores[verifier or ""], nan=0.0)
                found = weighted_at_k(self.classes, weights, self.correct, ns, rng)
            case _:
                raise DataError(
                    f"a strategy of kind {kind!r} cannot be measured from a pool; run it by itself"
                )
        silent = 0.0 if kind == "best_of_n" else self._silent(ns, verifier)
        # Without the rounding errors of sums, so that what is always right is exactly 1.
        return np.round(found.accuracy + silent, 12), found.error

    def _order(self, verifier: str | None) -> Floats:
        """What a choice by scores goes by, the highest first: only the order of these numbers means anything.

        By value, and where values are equal by the raw score. A candidate without a score is worse than any with one,
        and better than one that is not eligible.
        """
        order = np.where(self.eligible, 0.0, -1.0)
        if verifier is None:
            return order
        values = self.scores[verifier]
        known, width = self.eligible & ~np.isnan(values), values.shape[1]
        raw = self.raw.get(verifier, values)
        ranks = [
            standing(np.where(known, x, np.nan))[0] for x in (values, np.where(np.isnan(raw), values, raw))
        ]
        return np.where(known, 1.0 + ranks[0] * width + ranks[1], order)

    def _silent(self, ns: Ordered[int], verifier: str | None) -> Floats:
        """What subsets add in which nobody votes: there the best by score is taken, or one at random without scores."""
        votes = self.classes >= 0
        if votes.all():
            return np.zeros((len(ns), len(votes)))
        # A vote in a subset outdoes whatever has none.
        order = np.where(votes, np.inf, self._order(verifier))
        return best_of_k(order, self.correct & ~votes, ns).accuracy

    def _cost(self, n: int, verifier: str | None) -> dict[str, float | None]:
        made = self._spent.get((n, "generation"), dict.fromkeys(USAGE))
        judged = (
            self._spent.get((n, verifier), dict.fromkeys(USAGE)) if verifier else dict.fromkeys(USAGE, 0.0)
        )
        total = {name: _plus(made[name], judged[name]) for name in USAGE}
        return _cost_columns(made, total, judged["flops"])

    @cached_property
    def _spent(self) -> dict[tuple[int, str], dict[str, float | None]]:
        """Mean costs by n and part."""
        ordered = self.costs.sort_by([("n", "ascending"), ("part", "ascending"), ("place", "ascending")])
        keys = zip(ordered["n"].to_pylist(), ordered["part"].to_pylist(), strict=True)
        found: dict[tuple[int, str], dict[str, float | None]] = {}
        start = 0
        for key, same in groupby(keys):
            count = sum(1 for _ in same)
            found[key] = _means(ordered.slice(start, count))
            start += count
        return found


# ------------------------------------------------------------------------------------------------ direct


def _outcomes(directory: RunDirectory, line: Line) -> Solved | None:
    """What a configuration that ran by itself returned."""
    table = read(directory.table("outcomes"), configuration=line.name).sort_by("place")
    if not len(table):
        return None
    correct = np.asarray(table["correct"].to_numpy(), dtype=np.float64)
    total = _means(table)
    judged, scored = _mean(table["verifier_flops"]), _mean(table["verifier_prefilled"])
    made = {**total, "prefilled": _plus(total["prefilled"], None if scored is None else -scored)}
    levels = np.asarray(pc.fill_null(table["level"], -1).to_numpy(), dtype=np.int64)
    rows = np.arange(len(correct))
    return Solved(correct, np.zeros(len(correct)), levels, _cost_columns(made, total, judged), rows)


def _cost_columns(
    made: dict[str, float | None], total: dict[str, float | None], judged: float | None
) -> dict[str, float | None]:
    """The cost columns of `Measured`."""
    return {
        "prefilled": made["prefilled"],
        "generated": made["generated"],
        "tokens": _plus(total["prefilled"], total["generated"]),
        "verifier_flops": judged,
        **{name: total[name] for name in ("flops", "flops_2n", "money", "seconds")},
    }


def _means(table: pa.Table) -> dict[str, float | None]:
    return {name: _mean(table[name]) for name in USAGE}


def _mean(column: pa.ChunkedArray) -> float | None:
    """None if anything in it is unknown."""
    return None if column.null_count or not len(column) else float(pc.mean(column).as_py())


def _plus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b
