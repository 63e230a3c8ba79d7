"""One problem of a run as values: what was asked, what came, how it was voted on, what each strategy chose.

`metagen show` and the report's browser of problems are two renderings of these.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, abc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.table.costs import USAGE
from metagen.runs.table.tables import read
from metagen.strategies.aggregate import best_of, in_order, weighted_vote

Record = Mapping[str, Any]
VOTE = Cell("", "", "", "majority")
#: Parts of each table that are in memory.
HELD: Final = 4
#: Tables of a run that tell of its problems.
TABLES: Final = ("problems", "candidates", "costs", "outcomes", "attempts")


@dataclass(frozen=True, slots=True)
class Distinct:
    """A candidate with all samples that came out as this very text, after this very thought, with the same verdict and
    scores.

    samples: their numbers, at least one. tokens: generated, None if unknown. scores: by verifier, None where it
    gave none. steps: values of steps, of the verifiers that give them. eligible: it ended, with a readable answer where
    one is needed. thought: what was thought before the text, told apart from it; None where nothing was, or where it is
    not shown. thought_tokens: of it; None if unknown. votes: with an answer that votes.
    """

    text: str
    samples: tuple[int, ...]
    answer: str | None
    correct: bool
    eligible: bool
    finish: str | None
    tokens: float | None
    scores: Mapping[str, float | None]
    steps: Mapping[str, abc.Sequence[float]]
    thought: str | None = None
    thought_tokens: int | None = None
    votes: bool = True

    @property
    def thinks(self) -> bool:
        """Whether it has a thought of its own."""
        return self.thought is not None or self.thought_tokens is not None

    @property
    def flaw(self) -> str | None:
        """Why it has no vote."""
        if self.eligible:
            return None if self.votes else "no answer that can be read: no vote"
        if self.thinks and self.finish == "length" and not self.text:
            return "cut within its thought: there is no answer"
        return "unfinished" if self.finish not in ("eos", "stop") else "no answer that can be read"

    def scored_lines(self, verifier: str | None) -> list[tuple[str, float | None]]:
        """The text line by line, with the values of its steps where there is one for each line."""
        lines = self.text.splitlines() or [""]
        values = self.steps.get(verifier, ()) if verifier else ()
        return [(line, values[i] if len(values) == len(lines) else None) for i, line in enumerate(lines)]


@dataclass(frozen=True, slots=True)
class Vote:
    """What an answer gathered: votes, and by verifier the sum of scores."""

    key: str
    correct: bool
    votes: int
    totals: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a strategy makes of the pool at its largest n: of the first n candidates, as if it ran now."""

    line: Cell
    sample: int
    answer: str | None
    correct: bool

    @property
    def label(self) -> str:
        size = f"@{self.line.n}" if self.line.n else ""
        return f"{self.line.strategy}{size}{' (oracle)' if self.line.oracle else ''}"


@dataclass(frozen=True)
class Pool:
    """The candidates of one generator. voted: whether the most frequent answer is right. spent: rows of `costs`.

    rows: of the candidates. configuration: of candidates that it drew by itself; None for a pool that several share.
    """

    generator: str
    size: int
    right: int
    verifiers: tuple[str, ...]
    rows: abc.Sequence[Record]
    voted: bool
    choices: tuple[Choice, ...]
    spent: tuple[Record, ...]
    configuration: str | None = None

    @cached_property
    def distinct(self) -> tuple[Distinct, ...]:
        return tuple(_distinct(self.rows, self.verifiers))

    @cached_property
    def votes(self) -> tuple[Vote, ...]:
        return tuple(_votes(self.rows, self.verifiers))

    @property
    def name(self) -> str:
        return self.configuration or self.generator

    @property
    def process(self) -> str | None:
        """The first verifier that scores steps."""
        return next((v for v in self.verifiers if any(d.steps.get(v) for d in self.distinct)), None)

    @property
    def silent(self) -> int:
        """Candidates without a vote."""
        return self.size - sum(vote.votes for vote in self.votes)

    @classmethod
    def of(
        cls, candidates: abc.Sequence[Record], lines: Iterable[Cell], salt: str, spent: Iterable[Record]
    ) -> Pool:
        """candidates: rows of one generator's pool, at least one, in the order of samples."""
        known = [name.removeprefix("score.") for name in candidates[0] if name.startswith("score.")]
        verifiers = tuple(v for v in known if any(c[f"score.{v}"] is not None for c in candidates))
        spent = [s for s in spent if s["n"] is not None]
        most = max((s["n"] for s in spent), default=0)
        return cls(
            generator=candidates[0]["generator"],
            size=len(candidates),
            right=sum(c["correct"] for c in candidates),
            verifiers=verifiers,
            rows=candidates,
            voted=candidates[choose(candidates, VOTE, salt)]["correct"],
            choices=tuple(_choices(candidates, lines, salt)),
            spent=tuple(s for s in spent if s["n"] == most),
        )

    @classmethod
    def of_outcome(cls, candidates: abc.Sequence[Record], line: Cell, outcome: Record, salt: str) -> Pool:
        """The samples of a configuration that ran by itself, and its choice. candidates: at least one row."""
        same = [c["sample"] for c in candidates if c["text"] == outcome["text"]]
        chosen = [Choice(line, sample, outcome["answer"], outcome["correct"]) for sample in same[:1]]
        return replace(cls.of(candidates, (), salt, ()), choices=tuple(chosen), configuration=line.name)


@dataclass(frozen=True, slots=True)
class Examined:
    """A problem with all that a run knows of it. outcomes: rows of configurations that ran by themselves.

    pools: of each generator the candidates that its configurations share, then those that some drew by themselves.
    """

    problem: str
    level: int | None
    prompt: str
    reference: str
    pools: tuple[Pool, ...]
    outcomes: tuple[Record, ...]


class Examiner:
    """The problems of a run one by one, with little of its tables in memory.

    places: of the problems in the order of the task; levels: all that there are. The rest is read as it is asked for,
    and quickest in the order of `each`. tables: those that are read, `problems` among them. brief: without
    steps, thoughts and costs of candidates, so `Pool.distinct` is not to be asked for.
    """

    def __init__(
        self,
        directory: RunDirectory,
        lines: abc.Sequence[Cell],
        equal: Mapping[str, str] | None = None,
        *,
        tables: abc.Sequence[str] = TABLES,
        brief: bool = False,
    ) -> None:
        self._lines = lines
        self._tables = {
            name: _ByPlace(directory.table(name), equal or {}, brief)
            for name in tables
            # Runs of earlier versions have no attempts.
            if name != "attempts" or directory.table(name).exists()
        }
        asked = read(directory.table("problems"), ["problem", "place", "level"], **(equal or {})).sort_by(
            "place"
        )
        # As arrays: as lists they are most of what the page of a million problems holds.
        self.places: NDArray[np.int32] = asked["place"].to_numpy()
        self.levels: list[int] = sorted(pc.unique(asked["level"]).drop_null().to_pylist())
        self._ids = asked["problem"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for table in self._tables.values():
            table.close()

    def __len__(self) -> int:
        return len(self.places)

    def id(self, number: int) -> str:
        """That of the problem of this number, from 0."""
        found: str = self._ids[number].as_py()
        return found

    def __getitem__(self, number: int) -> Examined:
        """The problem of this number, from 0."""
        place = int(self.places[number])
        found = {name: table.rows(place) for name, table in self._tables.items()}
        row = found["problems"][0]
        return Examined(
            row["problem"],
            row["level"],
            row["prompt"],
            row["reference"],
            tuple(_pools(found, self._lines, row["salt"])),
            tuple(found["outcomes"]),
        )

    def each(self) -> Iterator[tuple[int, Examined]]:
        """All problems with their numbers, as they stand in the tables."""
        most = max(self._tables.values(), key=len)
        first = most.places[np.isin(most.places, self.places)]
        rest = self.places[np.isin(self.places, first, invert=True)]
        for number in np.searchsorted(self.places, np.concatenate([first, rest])):
            yield int(number), self[int(number)]


class _ByPlace:
    """A table of a run, of which the rows of one problem are read at a time."""

    def __init__(self, path: Path, equal: Mapping[str, str], brief: bool) -> None:
        self._file, self._equal = pq.ParquetFile(path), equal
        self._columns = _columns_to_read(self._file.schema_arrow.names, brief)
        #: Problems and the parts of the file in which they have rows, sorted by both.
        self._at, self._groups = self._index()
        self._held: OrderedDict[int, tuple[NDArray[Any], list[list[Any]]]] = OrderedDict()

    def __len__(self) -> int:
        return int(self._file.metadata.num_rows)

    def _index(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Places of problems, and the parts of the file, [pairs] each."""
        found = [
            np.unique(self._file.read_row_group(group, ["place"])["place"])
            for group in range(self._file.num_row_groups)
        ]
        at = np.concatenate([np.zeros(0, np.int32), *found])
        groups = np.repeat(np.arange(len(found), dtype=np.int32), [len(places) for places in found])
        order = np.argsort(at, kind="stable")
        return at[order], groups[order]

    @property
    def places(self) -> NDArray[np.int32]:
        """Of the problems, part by part of the file, each once."""
        last = np.flatnonzero(np.diff(self._at, append=-1))
        found: NDArray[np.int32] = self._at[last][np.argsort(self._groups[last], kind="stable")]
        return found

    def close(self) -> None:
        self._file.close()

    def rows(self, place: int) -> list[Record]:
        found: list[Record] = []
        # Of another type, the numbers that are looked for would make a copy of the whole array.
        between = np.array([place, place + 1], self._at.dtype)
        low, high = np.searchsorted(self._at, between)
        for group in self._groups[low:high].tolist():
            places, columns = self._group(group)
            start, end = np.searchsorted(places, between).tolist()
            rows = zip(*(column[start:end] for column in columns), strict=True)
            found += [dict(zip(self._columns, row, strict=True)) for row in rows]
        return [row for row in found if all(row[name] == value for name, value in self._equal.items())]

    def _group(self, group: int) -> tuple[NDArray[Any], list[list[Any]]]:
        """The rows of a part of the file by column, in the order of problems."""
        if group not in self._held:
            table = self._file.read_row_group(group, self._columns)
            order = np.argsort(table["place"].to_numpy(), kind="stable")
            table = table.take(order)
            self._held[group] = table["place"].to_numpy(), [_to_list(table[name]) for name in self._columns]
            while len(self._held) > HELD:
                self._held.popitem(last=False)
        self._held.move_to_end(group)
        return self._held[group]


def _to_list(column: pa.ChunkedArray) -> list[Any]:
    """A column as a list, in a fraction of the time that `to_pylist` takes."""
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_string(column.type):
        encoded = pc.dictionary_encode(column.combine_chunks())
        values = [*encoded.dictionary.to_pylist(), None]
        return [values[i] for i in pc.fill_null(encoded.indices, -1).to_pylist()]
    if column.null_count or not (pa.types.is_primitive(column.type)):
        return list(column.to_pylist())
    return list(column.to_numpy().tolist())


def examine(directory: RunDirectory, lines: abc.Sequence[Cell], **equal: str) -> Iterator[Examined]:
    """The problems of a run in the order of the task, or those in which columns have these values."""
    with Examiner(directory, lines, equal) as examiner:
        found = dict(examiner.each())
    return iter([found[number] for number in sorted(found)])


def _columns_to_read(names: list[str], brief: bool) -> list[str]:
    """The columns of a table that are looked at: candidates are many, and have many."""
    if brief and "exhausted" in names:
        return ["problem", "place", "configuration", "correct"]
    if "sample" not in names:
        return names
    left_out = {"level", "logprob", "position", *USAGE} - {"generated"}
    parts = ("verdict.", "unread.", *(("steps.", "thought", "finish", "generated") if brief else ()))
    return [n for n in names if n not in left_out and not n.startswith(parts)]


def _pools(found: Mapping[str, list[Record]], lines: abc.Sequence[Cell], salt: str) -> Iterator[Pool]:
    """found: the rows of one problem, by table."""
    outcomes = {o["configuration"]: o for o in found["outcomes"]}
    shared = _group(found["candidates"], "generator")
    own = _group(found.get("attempts", ()), "configuration")
    for generator in dict.fromkeys(line.generator for line in lines):
        ours = [line for line in lines if line.generator == generator]
        if candidates := shared.get(generator):
            spent = [s for s in found.get("costs", ()) if s["generator"] == generator]
            yield Pool.of(candidates, [line for line in ours if line.pooled], salt, spent)
        for line in ours:
            if (candidates := own.get(line.name)) and line.name in outcomes:
                yield Pool.of_outcome(candidates, line, outcomes[line.name], salt)


def _group(rows: Iterable[Record], column: str) -> dict[str, list[Record]]:
    """The rows by their value in a column, each group by number of the sample."""
    found: dict[str, list[Record]] = {}
    for row in rows:
        found.setdefault(row[column], []).append(row)
    return {value: sorted(same, key=lambda row: int(row["sample"])) for value, same in found.items()}


def choose(candidates: abc.Sequence[Record], line: Cell, salt: str) -> int:
    """The index of the candidate that a pooled configuration picks, by the strategies' own rules."""
    if line.kind == "sample":
        return 0
    able = [i for i, c in enumerate(candidates) if c["eligible"]] or list(range(len(candidates)))
    keys, texts = [candidates[i]["key"] for i in able], [candidates[i]["text"] for i in able]
    weights = [candidates[i][f"score.{line.verifier}"] if line.verifier else 1.0 for i in able]
    if line.kind == "best_of_n":
        raw = [candidates[i].get(f"raw.{line.verifier}") for i in able]
        return able[best_of(in_order(weights, raw), texts, salt).index]
    return able[weighted_vote(keys, weights, texts, salt).index]


def _distinct(candidates: abc.Sequence[Record], verifiers: Iterable[str]) -> Iterator[Distinct]:
    """By text, verdict and scores, in order of first appearance."""
    verifiers = tuple(verifiers)
    found: dict[tuple[Any, ...], list[Record]] = {}
    for c in candidates:
        # Runs of earlier versions tell no thoughts.
        same_as = (c["text"], c.get("thought"), c["correct"], *(c[f"score.{v}"] for v in verifiers))
        found.setdefault(same_as, []).append(c)
    for same in found.values():
        c = same[0]
        yield Distinct(
            text=c["text"],
            samples=tuple(s["sample"] for s in same),
            answer=c["answer"],
            correct=c["correct"],
            eligible=c["eligible"],
            finish=c["finish"],
            tokens=c["generated"],
            scores={v: c[f"score.{v}"] for v in verifiers},
            steps={v: c[f"steps.{v}"] for v in verifiers if c[f"steps.{v}"]},
            thought=c.get("thought"),
            thought_tokens=c.get("thought_tokens"),
            votes=c["key"] is not None,
        )


def _votes(candidates: abc.Sequence[Record], verifiers: Iterable[str]) -> Iterator[Vote]:
    """Answers by votes."""
    verifiers = tuple(verifiers)
    able = [c for c in candidates if c["eligible"] and c["key"] is not None]
    for key, votes in Counter(c["key"] for c in able).most_common():
        ours = [c for c in able if c["key"] == key]
        totals = {v: sum(c[f"score.{v}"] or 0.0 for c in ours) for v in verifiers}
        yield Vote(str(key), ours[0]["correct"], votes, totals)


def _choices(candidates: abc.Sequence[Record], lines: Iterable[Cell], salt: str) -> Iterator[Choice]:
    largest = {line.strategy: line for line in sorted(lines, key=lambda line: line.n or 1)}
    for line in largest.values():
        pool = candidates[: line.n or 1]
        best = pool[choose(pool, line, salt)]
        yield Choice(line, best["sample"], best["answer"], best["correct"])
