"""The pools of a run: candidates as arrays, what each number of them solves, and what that costs.

A pool is read block by block into a file of its own, from which problems are taken as they are needed: no more than a
block of samples is in memory, however many problems there are. Every n is answered by averages over random subsets.
"""

from __future__ import annotations

from collections import Counter, abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import fsum
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from metagen.analysis.estimators import best_of_k, majority_at_k, weighted_at_k
from metagen.analysis.ranks import standing
from metagen.analysis.subset_votes import Ballots, Draws, InClosedForm
from metagen.errors import DataError
from metagen.runs.directory import Aside, Cell, RunDirectory
from metagen.runs.table.costs import USAGE
from metagen.runs.table.tables import blocks

Floats = NDArray[np.float64]
#: Samples that are measured at once.
BLOCK: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Solved:
    """One configuration, problem by problem: accuracies, their Monte-Carlo errors, levels, mean costs.

    rows: which of the problems in its tables these are, in the order of the task; ids: their names.
    """

    accuracy: Floats
    error: Floats
    levels: NDArray[np.int64]
    cost: dict[str, float | None]
    rows: NDArray[np.int64]
    ids: list[str]

    def by_level(self) -> Iterator[tuple[int, Floats]]:
        """The accuracies of each level, [its problems]; −1 stands for no level and is left out."""
        for level in sorted(set(self.levels.tolist()) - {-1}):
            yield level, self.accuracy[self.levels == level]


@dataclass(slots=True)
class Vote:
    """How a vote over some problems is measured, so that it goes on as one over all of them.

    subsets: random ones for each n, exact: in closed form; as of `majority_at_k`. rng: draws the subsets.
    """

    subsets: int | None = None
    exact: bool | None = None
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))


@dataclass(frozen=True)
class Pool:
    """The candidates of one generator as arrays [problems, samples].

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
    sizes: NDArray[np.int64]
    raw: Mapping[str, Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, directory: RunDirectory, generator: str) -> Pool:
        """Read from a run; problems in the order of the task, and only those that were finished."""
        with Stored(directory, generator) as stored:
            return stored.pool(range(len(stored.places)))

    def accuracy(self, kind: str, n: int, verifier: str | None = None) -> tuple[Floats, Floats]:
        """Expected accuracy of a kind of strategy with n candidates, and its Monte-Carlo error, [problems] each."""
        accuracy, error = self.curve(kind, [n], verifier)
        return accuracy[0], error[0]

    def curve(self, kind: str, ns: abc.Sequence[int], verifier: str | None = None) -> tuple[Floats, Floats]:
        """`accuracy` for several n, [len(ns), problems] each; the same numbers, in less time.

        NaN where a problem has fewer than n samples: every estimate is over all subsets of its problem's own pool.
        """
        return _curve(self._equal, self.sizes, kind, ns, verifier)

    def _equal(self, rows: NDArray[np.int64]) -> Pool:
        """The problems in these rows, which have equally many samples."""
        size = int(self.sizes[rows[0]])
        return Pool(
            self.classes[rows, :size],
            self.eligible[rows, :size],
            self.correct[rows, :size],
            {name: values[rows, :size] for name, values in self.scores.items()},
            self.levels[rows],
            self.sizes[rows],
            {name: values[rows, :size] for name, values in self.raw.items()},
        )

    def measure(
        self, kind: str, ns: abc.Sequence[int], verifier: str | None, vote: Vote
    ) -> tuple[Floats, Floats]:
        """`curve` where every problem has as many samples as the arrays are wide, and no n is more.

        Accuracy and Monte-Carlo error, [len(ns), problems] each. Raises DataError for a strategy that a pool does not
        measure.
        """
        match kind:
            case "sample":
                mean = np.tile(self.correct.mean(axis=1), (len(ns), 1))
                return mean, np.zeros_like(mean)
            case "best_of_n":
                found = best_of_k(self._order(verifier), self.correct, ns)
            case "majority":
                found = majority_at_k(
                    self.classes, self.correct, ns, vote.rng, vote.subsets, exact=vote.exact
                )
            case "weighted":
                found = weighted_at_k(
                    self.classes,
                    self.weights(verifier),
                    self.correct,
                    ns,
                    vote.rng,
                    vote.subsets,
                    exact=vote.exact,
                )
            case _:
                raise DataError(
                    f"a strategy of kind {kind!r} cannot be measured from a pool; run it by itself"
                )
        silent = 0.0 if kind == "best_of_n" else self._silent(ns, verifier)
        # Without the rounding errors of sums, so that what is always right is exactly 1.
        return np.round(found.accuracy + silent, 12), found.error

    def weights(self, verifier: str | None) -> Floats:
        """Of votes, [problems, samples]: 0 without a score."""
        return np.nan_to_num(self.scores[verifier or ""], nan=0.0)

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

    def _silent(self, ns: abc.Sequence[int], verifier: str | None) -> Floats:
        """What subsets add in which nobody votes: there the best by score is taken, or one at random without scores."""
        votes = self.classes >= 0
        if votes.all():
            return np.zeros((len(ns), len(votes)))
        # A vote in a subset outdoes whatever has none.
        order = np.where(votes, np.inf, self._order(verifier))
        return best_of_k(order, self.correct & ~votes, ns).accuracy


class Stored:
    """The candidates of one generator, in a file that lasts as long as this is open; problems in the order of the task.

    ids, places, levels, sizes: of the problems that were finished; −1 for no level. beside: other columns of numbers.
    """

    def __init__(self, directory: RunDirectory, generator: str, beside: Iterable[str] = ()) -> None:
        self._directory, self._generator, self._beside = directory, generator, list(beside)
        path = directory.table("candidates")
        names = pq.read_schema(path).names
        verifiers = [name.removeprefix("score.") for name in names if name.startswith("score.")]
        #: Numbers by column; runs of earlier versions have no raw scores.
        self._scores = [
            f"{kind}.{v}" for v in verifiers for kind in ("score", "raw") if f"{kind}.{v}" in names
        ]
        numbers = [(name, "f8") for name in (*self._scores, *self._beside)]
        self._type = np.dtype([("key", "i4"), ("eligible", "?"), ("correct", "?"), *numbers])
        self._file = Aside()
        try:
            self._read(blocks(path, ["problem", "sample", "level", *self._columns]))
        except BaseException:
            self._file.close()
            raise

    @property
    def _columns(self) -> list[str]:
        return ["key", "eligible", "correct", *self._scores, *self._beside]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _read(self, tables: Iterable[pa.Table]) -> None:
        ids: list[str] = []
        places, levels, sizes, starts = [], [], [], []
        row = 0
        for whole in tables:
            table = whole.filter(pc.equal(whole["generator"], self._generator))
            if not len(table):
                continue
            place, sample = table["place"].to_numpy(), table["sample"].to_numpy()
            order = np.lexsort((sample, place))
            begins = np.flatnonzero(sample[order] == 0)
            found = np.empty(len(table), self._type)
            for name in self._columns:
                found[name] = _numbers(table[name], -1 if name == "key" else np.nan)
            self._file.write(found[order].tobytes())
            first = table.select(["problem", "level"]).take(order[begins])
            ids += first["problem"].to_pylist()
            levels.append(pc.fill_null(first["level"], -1).to_numpy())
            places.append(place[order[begins]])
            sizes.append(np.diff(np.r_[begins, len(table)]))
            starts.append(row + begins)
            row += len(table)

        def join(parts: list[NDArray[Any]]) -> NDArray[np.int64]:
            return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)

        turn = np.argsort(join(places), kind="stable")
        self.ids = [ids[i] for i in turn.tolist()]
        self.places, self.levels, self.sizes, self._starts = (
            join(parts)[turn] for parts in (places, levels, sizes, starts)
        )

    def pool(self, rows: abc.Sequence[int] | NDArray[np.int64]) -> Pool:
        """The problems in these rows; its arrays are [rows, samples]."""
        return self.pool_beside(rows)[0]

    def pool_beside(self, rows: abc.Sequence[int] | NDArray[np.int64]) -> tuple[Pool, dict[str, Floats]]:
        """`pool`, and the columns beside it, [rows, samples] each; NaN is unknown."""
        sizes = self.sizes[np.asarray(rows, dtype=np.int64)]
        width = int(max(sizes, default=1))
        kinds: dict[str, NDArray[Any]] = {
            "key": np.full((len(sizes), width), -1, np.int64),
            "eligible": np.zeros((len(sizes), width), np.bool_),
            "correct": np.zeros((len(sizes), width), np.bool_),
            **{name: np.full((len(sizes), width), np.nan) for name in (*self._scores, *self._beside)},
        }
        step = max(1, BLOCK // width)
        for start in range(0, len(sizes), step):
            some = slice(start, start + step)
            there, flat = np.arange(width) < sizes[some, None], self._read_rows(rows[some], sizes[some])
            for name, array in kinds.items():
                array[some][there] = flat[name]
        key, eligible, there = kinds["key"], kinds["eligible"], np.arange(width) < sizes[:, None]
        # As for a strategy: where nothing is eligible, everything is.
        eligible |= there & ~eligible.any(axis=1, keepdims=True)
        key[~eligible] = -1
        scores, raw = (
            {name.removeprefix(kind): kinds[name] for name in self._scores if name.startswith(kind)}
            for kind in ("score.", "raw.")
        )
        levels = self.levels[np.asarray(rows, dtype=np.int64)]
        pool = Pool(key, eligible, kinds["correct"], scores, levels, sizes, raw)
        return pool, {name: kinds[name] for name in self._beside}

    def _read_rows(
        self, rows: abc.Sequence[int] | NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> NDArray[Any]:
        """The samples of some problems, one behind the other."""
        flat, at, width = np.empty(int(sizes.sum()), self._type), 0, self._type.itemsize
        for row, size in zip(rows, sizes.tolist(), strict=True):
            data = self._file.read(int(self._starts[row]) * width, size * width)
            flat[at : at + size] = np.frombuffer(data, self._type)
            at += size
        return flat

    def results(self, lines: Iterable[Cell]) -> dict[str, Solved]:
        """By configuration, over the problems that have n samples; what no problem has is left out.

        Those that differ in n alone are measured at once.
        """
        found: dict[str, Solved] = {}
        alike: dict[tuple[str, str | None], list[Cell]] = {}
        for line in lines if len(self.places) else ():
            alike.setdefault((line.kind, line.verifier), []).append(line)
        spent = _Spent(self._directory, self._generator) if alike else None
        for (kind, verifier), ours in alike.items():
            sizes = sorted({line.n or 1 for line in ours})
            accuracy, error = _curve(self.pool, self.sizes, kind, sizes, verifier)
            for line in ours:
                n = line.n or 1
                at = sizes.index(n)
                if spent is not None and (rows := np.flatnonzero(self.sizes >= n)).size:
                    found[line.name] = Solved(
                        accuracy[at, rows],
                        error[at, rows],
                        self.levels[rows],
                        spent.of(n, verifier),
                        rows,
                        [self.ids[row] for row in rows.tolist()],
                    )
        return found


def _curve(
    take: Callable[[NDArray[np.int64]], Pool],
    sizes: NDArray[np.int64],
    kind: str,
    ns: abc.Sequence[int],
    verifier: str | None,
) -> tuple[Floats, Floats]:
    """Accuracy and Monte-Carlo error, [len(ns), problems] each, of a pool that is taken some rows at a time.

    Taken in one part or in several, the numbers are the same but for the last digit.
    """
    accuracy = np.full((len(ns), len(sizes)), np.nan)
    error = accuracy.copy()
    for size in np.unique(sizes).tolist():
        rows, held = np.flatnonzero(sizes == size), np.flatnonzero(np.asarray(ns) <= size)
        if not held.size:
            continue
        ours = [n for n in ns if n <= size]
        step = max(1, BLOCK // size)
        parts = [rows[start : start + step] for start in range(0, len(rows), step)]
        vote = _vote(take, parts, kind, verifier) if len(parts) > 1 else Vote()
        for part in parts:
            found = take(part).measure(kind, ours, verifier, vote)
            accuracy[np.ix_(held, part)], error[np.ix_(held, part)] = found
    return accuracy, error


def _vote(
    take: Callable[[NDArray[np.int64]], Pool],
    parts: abc.Sequence[NDArray[np.int64]],
    kind: str,
    verifier: str | None,
) -> Vote:
    """What to decide over all problems alike, before the first of them is measured."""
    vote = Vote(Draws.of(sum(map(len, parts)), None).subsets, False)
    if kind not in ("majority", "weighted"):
        return vote
    closed = InClosedForm()
    for part in parts:
        pool = take(part)
        weights = pool.weights(verifier) if kind == "weighted" else None
        closed.add(Ballots.of(pool.classes, pool.correct, weights))
        if not closed.possible:
            return vote
    return Vote(exact=True)


class _Spent:
    """Mean costs by n and part."""

    def __init__(self, directory: RunDirectory, generator: str) -> None:
        rows: Counter[tuple[int, str]] = Counter()
        sums: dict[tuple[int, str, str], list[float] | None] = {}
        for whole in blocks(directory.table("costs"), ["n", "part", *USAGE]):
            table = whole.filter(pc.equal(whole["generator"], generator))
            columns = {name: _numbers(table[name], np.nan) for name in USAGE}
            names, sizes = np.array(table["part"].to_pylist(), dtype=object), table["n"].to_numpy()
            for n, part in {*zip(sizes.tolist(), names.tolist(), strict=True)}:
                ours = np.flatnonzero((sizes == n) & (names == part))
                rows[n, part] += len(ours)
                for name, values in columns.items():
                    known = sums.setdefault((n, part, name), [])
                    total = fsum(values[ours])
                    if known is None or total != total:
                        sums[n, part, name] = None  # unknown if anything of it is
                    else:
                        known.append(total)
        self._means: dict[tuple[int, str], dict[str, float | None]] = {
            (n, part): {
                name: None if (found := sums[n, part, name]) is None else fsum(found) / count
                for name in USAGE
            }
            for (n, part), count in rows.items()
        }

    def of(self, n: int, verifier: str | None) -> dict[str, float | None]:
        """The cost columns of `Measured`."""
        made = self._means.get((n, "generation"), dict.fromkeys(USAGE))
        judged = (
            self._means.get((n, verifier), dict.fromkeys(USAGE)) if verifier else dict.fromkeys(USAGE, 0.0)
        )
        total = {name: plus(made[name], judged[name]) for name in USAGE}
        return cost_columns(made, total, judged["flops"])


def cost_columns(
    made: dict[str, float | None], total: dict[str, float | None], judged: float | None
) -> dict[str, float | None]:
    """The cost columns of `Measured`."""
    return {
        "prefilled": made["prefilled"],
        "generated": made["generated"],
        "tokens": plus(total["prefilled"], total["generated"]),
        "verifier_flops": judged,
        **{name: total[name] for name in ("flops", "flops_2n", "money", "seconds")},
    }


def plus(a: float | None, b: float | None) -> float | None:
    """The sum; None if a part of it is unknown."""
    return None if a is None or b is None else a + b


def _numbers(column: pa.ChunkedArray, missing: float) -> NDArray[Any]:
    """A column as numbers; texts become their numbers in the order of their first appearance."""
    if pa.types.is_string(column.type):
        column = pc.dictionary_encode(column).combine_chunks().indices
    if pa.types.is_boolean(column.type):
        missing = False
    return np.asarray(pc.fill_null(column, missing).to_numpy(zero_copy_only=False))
