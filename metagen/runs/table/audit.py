"""What a run's recorded samples look like, in words: read from its tables, said in the report, kept as `audit.json`.

Only recorded samples are looked at: those that have a place in a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from metagen.analysis.audit import LONG, TOLD, Audit, Auditing, Samples, Scores
from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.table.tables import blocks, floats, integers

#: Characters of a sample that an example shows: its beginning and its end.
SHOWN: Final = 60
#: Leaves a number without its sign: what is negative is no class.
MASK: Final = (1 << 63) - 1
#: Share of unread samples from which the rule itself is in doubt.
DOUBTFUL: Final = 0.05


@dataclass(frozen=True, slots=True)
class Example:
    """A sample to look at. key: of its answer."""

    problem: str
    text: str
    key: str | None = None

    def __str__(self) -> str:
        text = " ".join(self.text.split())
        if len(text) > 2 * SHOWN:
            text = f"{text[:SHOWN]} … {text[-SHOWN:]}"
        return f"{text!r} of {self.problem!r}"


@dataclass(frozen=True, slots=True)
class Audited:
    """The audit of one generator's pool, with the samples that it points at."""

    generator: str
    counts: Audit
    unread: tuple[Example, ...] = ()
    mixed: Example | None = None
    fewest: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """What a reader should know, most important first; nothing where nothing is wrong."""
        return tuple(_lines(self))

    def to_dict(self) -> dict[str, Any]:
        """All counts and examples, as JSON has them."""
        found = asdict(self)
        for place in ("unread_at", "mixed_at", "fewest_at"):
            del found["counts"][place]
        return {**_plain(found), "lines": list(self.lines)}


def of_run(directory: RunDirectory, lines: Iterable[Cell]) -> tuple[Audited, ...]:
    """The audits of a run's recorded pools, by generator; none where samples were drawn. lines: its configurations."""
    path = directory.table("candidates")
    if not path.exists() or "position" not in pq.read_schema(path).names:  # a run of an earlier version
        return ()
    auditing: dict[str, Auditing] = {}
    row = 0
    columns = _Columns(pq.read_schema(path).names, _oracles(lines))
    for table in blocks(path, columns.names):
        there = np.flatnonzero(np.asarray(pc.is_valid(table["position"])))
        recorded = table.take(there)
        for generator in pc.unique(recorded["generator"]).to_pylist():
            ours = np.flatnonzero(pc.equal(recorded["generator"], generator).to_numpy())
            samples = columns.samples(recorded.take(ours))
            auditing.setdefault(generator, Auditing()).add(samples, row + there[ours])
        row += len(table)
    return tuple(_audit_pool(path, name, auditing[name].result) for name in sorted(auditing))


def publish(directory: RunDirectory, lines: Iterable[Cell]) -> tuple[Audited, ...]:
    """`of_run`, written as `audit.json` where there is something recorded."""
    found = of_run(directory, lines)
    if found:
        data = {one.generator: one.to_dict() for one in found}
        directory.write(directory.audit.name, json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    return found


def report_lines(audited: Iterable[Audited]) -> list[str]:
    """All lines of a run; by generator, where several have something to say."""
    lines = [(one.generator, line) for one in audited for line in one.lines]
    several = len({name for name, _ in lines}) > 1
    return [f"{name}: {line}" if several else line for name, line in lines]


# ---------------------------------------------------------------------------------------------- from tables to arrays


class _Columns:
    """What is looked at of recorded samples, as arrays of numbers."""

    def __init__(self, known: Iterable[str], oracles: Set[str]) -> None:
        known = list(known)
        self._thinks = "thought" in known  # a run of an earlier version has none
        named = [name.removeprefix("score.") for name in known if name.startswith("score.")]
        #: By name, the columns that have it: as it was recorded, where the table knows that, else as it was mapped.
        self._scores = {
            name: [column for column in (f"raw.{name}", f"score.{name}") if column in known]
            for name in named
            if name not in oracles
        }

    @property
    def names(self) -> list[str]:
        wanted = [column for columns in self._scores.values() for column in columns]
        return [
            "text",
            "key",
            "correct",
            "position",
            *(("thought", "finish") if self._thinks else ()),
            *wanted,
        ]

    def samples(self, table: pa.Table) -> Samples:
        text = table["text"]
        length = _numbers(pc.utf8_length(pc.utf8_trim_whitespace(text)))
        named, cut, written = text, None, None
        if self._thinks and table["thought"].null_count < len(table):
            thought = pc.fill_null(table["thought"], "")
            named = pc.binary_join_element_wise(thought, pc.fill_null(text, ""), "\0")
            written = _numbers(pc.utf8_length(thought)) + length
            cut = np.asarray(pc.is_valid(table["thought"])) & (length == 0)
            cut &= np.asarray(pc.fill_null(pc.equal(table["finish"], "length"), False))
        return Samples(
            problem=_numbers(table["place"]),
            key=np.where(np.asarray(pc.is_valid(table["key"])), _number_texts(table["key"]) & MASK, -1),
            correct=np.asarray(
                pc.fill_null(table["correct"], False).to_numpy(zero_copy_only=False), dtype=bool
            ),
            text=_number_texts(named),
            length=length,
            position=_numbers(table["position"]),
            scores={
                name: floats(pc.coalesce(*(table[column] for column in columns)))
                for name, columns in self._scores.items()
            },
            cut=cut,
            written=written,
        )


def _example(path: Path, at: int) -> Example:
    """The sample in a row of the table."""
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            if at < (rows := file.metadata.row_group(group).num_rows):
                (found,) = file.read_row_group(group, ["problem", "text", "key"]).slice(at, 1).to_pylist()
                return Example(found["problem"], found["text"] or "", found["key"])
            at -= rows
    raise AssertionError("a row that was read is there")


def _oracles(lines: Iterable[Cell]) -> set[str]:
    """Verifiers that know the answers: their scores were not recorded."""
    found: dict[str, bool] = {}
    for line in lines:
        if line.verifier is not None:
            found[line.verifier] = found.get(line.verifier, True) and line.oracle
    return {name for name, oracle in found.items() if oracle}


def _numbers(column: Any) -> NDArray[np.int32]:
    return integers(column, 0).astype(np.int32)


def _number_texts(column: Any) -> NDArray[np.int64]:
    """A number for each text, equal for equal texts, in every part of a file."""
    encoded = pc.dictionary_encode(pc.fill_null(column, "")).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0) if encoded.num_chunks else pa.array([], pa.string()).dictionary_encode()
    names = np.array([hash(one) for one in encoded.dictionary.to_pylist()], dtype=np.int64)
    codes = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
    return names[codes] if len(codes) else np.zeros(0, np.int64)


def _audit_pool(path: Path, generator: str, counts: Audit) -> Audited:
    # Of verifiers that another generator was scored by there is nothing.
    scores = {name: score for name, score in counts.scores.items() if score.distinct != 0}
    return Audited(
        generator,
        replace(counts, scores=scores),
        tuple(_example(path, at) for at in counts.unread_at),
        None if counts.mixed_at is None else _example(path, counts.mixed_at),
        _example(path, counts.fewest_at).problem,
    )


def _plain(value: Any) -> Any:
    """Without what JSON has no word for: NaN and infinities are null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value


# ------------------------------------------------------------------------------------------------------------ in words


def _lines(found: Audited) -> Iterator[str]:
    counts = found.counts
    yield from _unread(found)
    if counts.mixed:
        what = f", such as {found.mixed.key!r} of {found.mixed.problem!r}" if found.mixed else ""
        yield (
            f"{_count(counts.mixed, 'class', 'classes')} of answers in {_count(counts.mixed_problems, 'problem')} "
            f"{_verb(counts.mixed, 'holds', 'hold')} right and wrong samples{what}: the answer rule takes for "
            "equal what the verdicts tell apart, and a vote for such a class is right in part"
        )
    if counts.split:
        yield (
            f"in {_count(counts.split, 'problem')} the right samples are of several classes of answers: their votes "
            "are split, and a majority may miss what is right"
        )
    for name, score in counts.scores.items():
        yield from _score_lines(name, score, counts.problems)
    yield from _order_lines(counts)
    if counts.repeated_long:
        yield (
            f"{_share(counts.repeated_long, counts.samples)} samples repeat another one of their problem word for "
            f"word, in {LONG} characters or more: drawn at a low temperature, or copied"
        )
    if counts.cut:
        yield (
            f"{_share(counts.cut, counts.samples)} samples were cut within their thought: they have no answer, and no "
            "vote"
        )
    if 0 < counts.empty < counts.samples:
        yield f"{_share(counts.empty, counts.samples)} samples are empty: they have no vote"
    if counts.fewer:
        yield (
            f"{_share(counts.fewer, counts.problems)} problems have fewer samples than the others: from "
            f"{counts.fewest:,} ({found.fewest!r}) to {counts.most:,}"
        )


def _unread(found: Audited) -> Iterator[str]:
    counts = found.counts
    if not counts.unread:
        return
    examples = "; ".join(map(str, found.unread))
    doubt = counts.unread >= DOUBTFUL * (counts.samples - counts.empty - counts.cut)
    remedy = (
        ". Name a rule that reads them (answer: math, number, text, choice, word, literal), or say where answers stand "
        "(pattern)"
        if doubt
        else ""
    )
    yield (
        f"{_share(counts.unread, counts.samples)} samples have no answer that the rule can read, and no vote: "
        f"{examples}{remedy}"
    )


def _score_lines(name: str, score: Scores, problems: int) -> Iterator[str]:
    if score.contested:
        yield (
            f"score {name!r}: {_share(score.tied, problems)} problems have their highest score several times, "
            f"{score.contested:,} of them for right and wrong samples: the best of all is one of these at random"
        )
    if score.saturated:
        share, value = max((score.top, score.highest), (score.bottom, score.lowest))
        yield f"score {name!r} is saturated: {100 * share:.0f}% of the scores are {value:g}"


def _order_lines(counts: Audit) -> Iterator[str]:
    """The order of the file. metagen draws in an order of its own; whoever takes the first k of a file does not."""
    by = [f"score {name!r}" for name, score in counts.scores.items() if score.order]
    by += ["length"] if counts.by_length else []
    texts = counts.empty + counts.cut < counts.samples  # of counts alone there is no order
    trend = counts.trend if texts and counts.trend is not None and abs(counts.trend.z) >= TOLD else None
    if trend is not None:
        yield (
            f"verdicts depend on the place in the file (z = {trend.z:.1f}): {100 * trend.first:.1f}% of the first "
            f"quarter of each problem's samples are right, {100 * trend.last:.1f}% of the last"
            + (f"; the file is sorted by {' and '.join(by)}" if by else "")
            + ". Never read its first k samples; figures here are of random subsets"
        )
    elif by:
        yield (
            f"the file is sorted by {' and '.join(by)}: never read its first k samples; figures here are of random "
            "subsets"
        )


def _share(part: int, whole: int) -> str:
    percent = 100 * part / whole
    return f"{part:,} of {whole:,}" + (f" ({percent:.1f}%)" if part < whole else "")


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _verb(number: int, one: str, many: str) -> str:
    return one if number == 1 else many
