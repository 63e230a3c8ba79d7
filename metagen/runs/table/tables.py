"""The tables that a run streams out, problem by problem: Parquet files, whole or not at all.

`problems`: what was asked. `candidates`: every sample of every pool, with answer, grade and scores; `position`: where a
recorded one stands in its problem's part of the file, from 0.
`costs`: for each pool and each number n of candidates that a configuration uses, what n of them are
expected to cost, one row for generation and one for each verifier. `outcomes`: what configurations that
ran by themselves returned, and what that cost: logical usage by its names, and beside it the tokens that were really
computed (`physical`), money, and attempts that were `lost`; null is unknown. `attempts`: the candidates of the largest
of these, as in `candidates`, with the configuration. `calls`, if asked for: each call that a pool or a configuration
needed, with what it waited for (see `calls.py`).
"""

from __future__ import annotations

from collections import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from metagen.cost import Usage
from metagen.errors import InputError
from metagen.runs.directory import writing
from metagen.runs.table.costs import USAGE, Part, is_scoring, usage_columns, values_of
from metagen.sequence import Score, Thought
from metagen.strategies.candidates import Candidate
from metagen.tasks.base import Problem
from metagen.trace import Trace

T = TypeVar("T")
#: Rows that wait in memory before they are written.
CHUNK = 4096

_PLACE = {"problem": pa.string(), "place": pa.int32(), "level": pa.int32()}
_ANSWER = {
    "text": pa.string(),
    "answer": pa.string(),
    "key": pa.string(),
    "correct": pa.bool_(),
    #: Whether the grader cannot tell: then `correct` is false.
    "ungraded": pa.bool_(),
    "finish": pa.string(),
    #: What was thought before the text, told apart from it: null where nothing was, or where it is not shown.
    "thought": pa.string(),
    "thought_tokens": pa.int32(),
}
#: Expected values, so all are floats; null is unknown.
_USAGE = dict.fromkeys(USAGE, pa.float64())
#: index: of the call in its configuration and problem; parents: indices of what it waited for. waits: for all calls
#: of a lesser depth besides. assumed: parents are taken, and not known. part: `generation`, or a verifier. context:
#: tokens before those that are generated. physical: tokens really computed. null is unknown.
_CALL = (
    dict.fromkeys(("configuration", "part", "kind", "maker", "path"), pa.string())
    | dict.fromkeys(("index", "sample", "depth"), pa.int32())
    | {"parents": pa.list_(pa.int32()), "waits": pa.bool_(), "assumed": pa.bool_()}
    | dict.fromkeys(("prefilled", "cached", "generated", "context", "physical"), pa.int32())
)


def schemas(pooled: Iterable[str], tried: Iterable[str] = (), *, calls: bool = False) -> dict[str, pa.Schema]:
    """The columns of each table, which have `score.NAME`, `raw.NAME` and `steps.NAME` of verifiers.

    pooled: verifiers of the pools, for `candidates`. tried: of what ran by itself, for `attempts`. calls: whether there
    is a table of calls.
    """
    candidates = (
        _PLACE
        | {"generator": pa.string(), "sample": pa.int32()}
        | _ANSWER
        | {"eligible": pa.bool_(), "logprob": pa.float64(), "position": pa.int32()}
        | _USAGE
    )
    columns = {
        "problems": _PLACE | {"prompt": pa.string(), "reference": pa.string(), "salt": pa.string()},
        "candidates": candidates | _scores(pooled),
        "attempts": candidates | {"configuration": pa.string()} | _scores(tried),
        "costs": _PLACE | {"generator": pa.string(), "part": pa.string(), "n": pa.int32()} | _USAGE,
        "outcomes": _PLACE
        | {"configuration": pa.string()}
        | _ANSWER
        | {"exhausted": pa.bool_()}
        | _USAGE
        | dict.fromkeys(
            ("verifier_flops", "verifier_prefilled", "verifier_generated", "verifier_calls"), pa.float64()
        )
        | dict.fromkeys(("physical", "physical_money", "most_money", "lost"), pa.float64()),
    }
    if calls:
        columns["calls"] = _PLACE | _CALL
    return {name: pa.schema(list(kinds.items())) for name, kinds in columns.items()}


def _scores(verifiers: Iterable[str]) -> dict[str, pa.DataType]:
    columns: dict[str, pa.DataType] = {}
    for name in verifiers:
        columns |= {f"score.{name}": pa.float64(), f"raw.{name}": pa.float64()}
        columns |= {f"steps.{name}": pa.list_(pa.float64())}
        #: Why there is no score, or what else is said of it; answers of a judge that have no verdict.
        columns |= {f"verdict.{name}": pa.string(), f"unread.{name}": pa.int32()}
    return columns


#: The tables that a run writes.
NAMES = tuple(schemas(()))


def join_tables(root: Path, parts: Iterable[Mapping[str, Path]]) -> None:
    """Write the tables of a run from those of its parts, by name: all, or none."""
    parts = list(parts)
    try:
        with writing(root, "the tables"):
            for name in NAMES:
                files = [pq.ParquetFile(part[name]) for part in parts]
                with pq.ParquetWriter(_new(root, name), files[0].schema_arrow, compression="zstd") as out:
                    for file in files:
                        for group in range(file.num_row_groups):
                            out.write_table(file.read_row_group(group))
            for name in NAMES:
                _new(root, name).replace(root / f"{name}.parquet")
    finally:
        for name in NAMES:
            _new(root, name).unlink(missing_ok=True)


def replace_problems(old: Path, new: Path) -> None:
    """Put the tables of a run at `new` into those at `old`, in the place of what these hold of the same problems."""
    places = pq.read_table(new / "problems.parquet", columns=["place"])["place"]
    for name in NAMES:
        files = [pq.ParquetFile(root / f"{name}.parquet") for root in (old, new)]
        with pq.ParquetWriter(_new(old, name), files[0].schema_arrow, compression="zstd") as out:
            waiting: list[pa.Table] = []
            for file in files:
                for group in range(file.num_row_groups):
                    rows = file.read_row_group(group)
                    if file is files[0]:
                        rows = rows.filter(pc.invert(pc.is_in(rows["place"], value_set=places)))
                    waiting.append(rows)
                    # Parts would become many and small otherwise.
                    if sum(map(len, waiting)) >= CHUNK:
                        out.write_table(pa.concat_tables(waiting))
                        waiting = []
            if waiting:
                out.write_table(pa.concat_tables(waiting))
        for file in files:
            file.close()
        _new(old, name).replace(old / f"{name}.parquet")


def _new(root: Path, name: str) -> Path:
    return root / f"{name}.parquet.new"


class TableWriter:
    """Appends rows to tables. They get their names when the block ends well, and vanish otherwise."""

    def __init__(
        self, root: Path, pooled: Iterable[str], tried: Iterable[str] = (), *, calls: bool = False
    ) -> None:
        self._root, self._schemas = root, schemas(pooled, tried, calls=calls)
        self._waiting = {name: self._empty(name) for name in self._schemas}
        self._files: dict[str, pq.ParquetWriter] = {}

    def add(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Columns that a row lacks are null; a lone surrogate, which UTF-8 cannot hold, becomes its escape."""
        rows = list(rows)
        self.extend(
            table, {name: [row.get(name) for row in rows] for name in self._waiting[table]}, len(rows)
        )

    def extend(self, table: str, columns: Mapping[str, abc.Sequence[Any]], count: int) -> None:
        """`add` for `count` rows that are given by columns."""
        waiting = self._waiting[table]
        for name, kind in zip(waiting, self._schemas[table].types, strict=True):
            values = columns.get(name)
            if values is not None and pa.types.is_string(kind):
                values = _encodable(values)
            waiting[name] += [None] * count if values is None else values
        if len(waiting["place"]) >= CHUNK:
            self._flush(table)

    def __enter__(self) -> Self:
        with self._errors():
            for name, schema in self._schemas.items():
                self._files[name] = pq.ParquetWriter(self._new(name), schema, compression="zstd")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with self._errors():
                for name, file in self._files.items():
                    if kind is None:
                        self._flush(name)
                    file.close()
                if kind is None:
                    for name in self._schemas:
                        self._new(name).replace(self._root / f"{name}.parquet")
        finally:
            for name in self._schemas:
                self._new(name).unlink(missing_ok=True)

    def _flush(self, name: str) -> None:
        columns, self._waiting[name] = self._waiting[name], self._empty(name)
        with self._errors():
            self._files[name].write_table(pa.Table.from_pydict(columns, self._schemas[name]))

    def _empty(self, name: str) -> dict[str, list[Any]]:
        return {column: [] for column in self._schemas[name].names}

    def _new(self, name: str) -> Path:
        return _new(self._root, name)

    def _errors(self) -> AbstractContextManager[None]:
        return writing(self._root, "the tables")


@dataclass(frozen=True, slots=True)
class ProblemRows:
    """Writes the rows of one problem."""

    tables: TableWriter
    place: int
    problem: Problem

    @property
    def _place(self) -> dict[str, Any]:
        return {"problem": self.problem.id, "place": self.place, "level": self.problem.level}

    def question(self) -> None:
        """Add the row of the problem. Its salt breaks the ties of votes."""
        prompt = self.problem.prompt
        text = (
            prompt.text
            if prompt.text is not None
            else "\n\n".join(f"{m.role}: {m.content}" for m in prompt.messages)
        )
        row = {"prompt": text, "reference": self.problem.reference, "salt": prompt.digest.hex()}
        self.tables.add("problems", [self._place | row])

    def candidates(
        self,
        generator: str,
        judged: abc.Sequence[Candidate],
        grades: abc.Sequence[float],
        usages: abc.Sequence[Usage],
        scores: Mapping[str, abc.Sequence[Score]],
        places: abc.Sequence[int] | None = None,
    ) -> None:
        """A pool, sample by sample. places: where recorded samples stand in their file."""
        columns = self._candidates(generator, judged, grades, usages, scores)
        if places is not None:
            columns["position"] = places
        self.tables.extend("candidates", columns, len(judged))

    def attempts(
        self,
        generator: str,
        configuration: str,
        judged: abc.Sequence[Candidate],
        grades: abc.Sequence[float],
        usages: abc.Sequence[Usage],
        scores: Mapping[str, abc.Sequence[Score]],
    ) -> None:
        """What a configuration that ran by itself drew, sample by sample."""
        columns = self._candidates(generator, judged, grades, usages, scores)
        columns["configuration"] = [configuration] * len(judged)
        self.tables.extend("attempts", columns, len(judged))

    def _candidates(
        self,
        generator: str,
        judged: abc.Sequence[Candidate],
        grades: abc.Sequence[float],
        usages: abc.Sequence[Usage],
        scores: Mapping[str, abc.Sequence[Score]],
    ) -> dict[str, abc.Sequence[Any]]:
        """The columns of these candidates. What is one object is looked at once."""
        size = len(judged)
        columns: dict[str, abc.Sequence[Any]] = {name: [value] * size for name, value in self._place.items()}
        columns |= {"generator": [generator] * size, "sample": range(size)}
        columns |= {
            "correct": [_right(grade) for grade in grades],
            "ungraded": [isnan(grade) for grade in grades],
        }
        columns |= _columns(judged, _candidate) | _columns(usages, _usage_values)
        for name, given in scores.items():
            columns |= {f"{part}.{name}": values for part, values in _columns(given, _score).items()}
        return columns

    def costs(self, generator: str, parts: Iterable[Part], sizes: Iterable[int]) -> None:
        """Expected usage of n candidates, for each part and each n of `sizes`."""
        rows = [
            self._place | {"generator": generator, "part": part.name, "n": n} | part.expected_usage(n)
            for part in parts
            for n in sizes
        ]
        self.tables.add("costs", rows)

    def calls(self, rows: Iterable[dict[str, Any]]) -> None:
        """The calls of one pool or configuration."""
        self.tables.add("calls", [self._place | row for row in rows])

    def outcome(self, configuration: str, chosen: Candidate, grade: float, trace: Trace) -> None:
        """What a configuration that ran by itself returned, and what all of it cost."""
        rows, real = trace.rows, trace.physical
        judging = Usage.sum(row.usage for row in rows if is_scoring(row))
        row = self._place | {"configuration": configuration} | _answer_columns(chosen)
        row |= {
            "correct": _right(grade),
            "ungraded": isnan(grade),
            "exhausted": chosen.sequence.exhausted,
            "verifier_flops": judging.flops,
            "verifier_prefilled": judging.prefilled,
            "verifier_generated": judging.generated,
            "verifier_calls": judging.calls,
            "physical": real.tokens,
            "physical_money": real.money,
            "most_money": trace.most.money,
            "lost": trace.lost,
        }
        row |= _usage_values(Usage.sum(row.usage for row in rows))
        self.tables.add("outcomes", [row])


def _encodable(values: abc.Sequence[Any]) -> abc.Sequence[Any]:
    odd = {
        v: v.encode("utf-8", "backslashreplace").decode("utf-8")
        for v in set(values)
        if isinstance(v, str) and not v.isascii()
    }
    return [odd.get(v, v) for v in values] if odd else values


def _columns(objects: abc.Sequence[T], read: Callable[[T], Mapping[str, Any]]) -> dict[str, list[Any]]:
    """What `read` says of each, by name; each object is read once, however often it occurs."""
    found = {id(one): read(one) for one in {id(one): one for one in objects}.values()}
    rows = [found[id(one)] for one in objects]
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}


def _score(score: Score) -> dict[str, Any]:
    names = ("raw", "steps", "verdict", "unread")
    return {"score": score.value} | {name: getattr(score, name) for name in names}


def _usage_values(usage: Usage) -> dict[str, float | None]:
    return usage_columns(values_of(usage))


def _candidate(one: Candidate) -> dict[str, Any]:
    return _answer_columns(one) | {"eligible": one.eligible, "logprob": one.sequence.logprob}


def _right(grade: float) -> bool:
    """Right is what the task's grader holds for more right than wrong."""
    return grade > 0.5


def _answer_columns(one: Candidate) -> dict[str, Any]:
    answer, thought = one.answer, one.sequence.thought or Thought()
    return {
        "text": one.sequence.text,
        "answer": answer.text if answer else None,
        "key": answer.key if answer else None,
        "finish": one.sequence.finish,
        "thought": thought.text,
        "thought_tokens": thought.tokens,
    }


def read(path: Path, columns: list[str] | None = None, **equal: str) -> pa.Table:
    """A table of a run, or the rows of it in which columns have these values.

    Raises InputError for a table of an older version that lacks one of the columns, or of the columns of usage.
    """
    _check_columns(path, USAGE if columns is None else columns)
    filters = [(column, "=", value) for column, value in equal.items()] or None
    return pq.read_table(path, columns=columns, filters=filters)


def read_outcomes(path: Path, configuration: str) -> pa.Table:
    """What a configuration returned on each problem, by place, without the texts. Raises InputError as `read` does."""
    _check_columns(path, USAGE)
    texts = _ANSWER.keys() - {"correct", "ungraded"}
    columns = [name for name in pq.read_schema(path).names if name not in texts]
    return read(path, columns, configuration=configuration).sort_by("place")


def parts(path: Path, columns: Iterable[str]) -> Iterator[pa.Table]:
    """Some columns of a table part by part, as it was written. Raises InputError as `read` does."""
    columns = list(columns)
    _check_columns(path, columns)
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, columns=columns)


def _check_columns(path: Path, columns: Iterable[str]) -> None:
    schema = schemas((), calls=True).get(path.stem)
    if schema is None:  # such as configurations: derived, and written anew by each report
        return
    known, declared = pq.read_schema(path).names, schema.names
    missing = next((name for name in columns if name in declared and name not in known), None)
    if missing is not None:
        raise InputError(
            f"{str(path)!r} has no column {missing!r}, for an older version of metagen wrote it; read the run with "
            f"that version, or run it anew: metagen run {path.parent / 'experiment.yaml'} --out {path.parent}-anew"
        )


def blocks(path: Path, columns: Iterable[str], whose: str = "generator") -> Iterator[pa.Table]:
    """A table of pools part by part, each with whole pools: all rows that a problem has of a generator.

    whose: another column in the place of `generator`. It and `place` are among the columns, asked for or not.
    """
    rest: pa.Table | None = None
    for part in parts(path, dict.fromkeys(["place", whose, *columns])):
        table = part if rest is None else pa.concat_tables([rest, part])
        if not len(table):
            continue
        # The last pool may go on in the next part.
        last = pc.and_(
            pc.equal(table["place"], table["place"][-1]),
            pc.equal(table[whose], table[whose][-1]),
        )
        others = np.flatnonzero(~last.to_numpy())
        keep = int(others[-1]) + 1 if others.size else 0
        rest, table = table.slice(keep), table.slice(0, keep)
        if len(table):
            yield table
    if rest is not None and len(rest):
        yield rest


def floats(column: pa.ChunkedArray | pa.Array) -> NDArray[np.float64]:
    """A column of numbers, or of yes and no, [rows]; NaN is unknown."""
    return np.asarray(pc.fill_null(pc.cast(column, pa.float64()), np.nan).to_numpy(), dtype=np.float64)


def integers(column: pa.ChunkedArray | pa.Array, unknown: int = -1) -> NDArray[np.int64]:
    """A column of integers, [rows], with a number in place of unknown ones."""
    return np.asarray(pc.fill_null(column, unknown).to_numpy(), dtype=np.int64)
