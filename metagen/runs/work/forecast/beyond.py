"""The calls of strategies beyond the pools that can be counted: as a probe measured them, scaled to all problems."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from metagen.cost import Usage
from metagen.generators.base import Generator
from metagen.journal import Row, SQLiteJournal
from metagen.runs.work.forecast.books import SCORES, Book, contents
from metagen.runs.work.forecast.judging import FIGURES
from metagen.runs.work.forecast.probe import Trial
from metagen.tasks.base import Problem

#: Names for the work of makers that the experiment does not define by name: texts, scores.
OTHERS = {True: "other texts", False: "other scores"}


@dataclass(frozen=True, slots=True)
class Pool:
    """The first n samples of a generator on each problem. scored: the records of the verifiers that score them."""

    generator: Generator
    n: int
    scored: abc.Set[str]


def sift(path: Path, pools: abc.Sequence[Pool], problems: abc.Sequence[Problem]) -> Iterator[Row]:
    """The rows of a journal that are no part of these pools, which are counted."""
    book = Book.read(path)
    with SQLiteJournal(path, read_only=True) as journal:
        for problem in problems:
            samples, scores = set[bytes](), set[tuple[str, bytes]]()
            for pool in pools:
                rows = book.samples(pool.generator, problem, pool.n)
                samples.update(row.key for row in rows + book.cuts(pool.generator, problem, pool.n))
                scores.update((by, content) for by in pool.scored for content in contents(problem, rows))
            for row in journal.of_problem(problem.id):
                scored = row.path == SCORES and (row.by, row.content) in scores
                # What was refused is no call.
                if row.payload is not None and row.key not in samples and not scored:
                    yield row


@dataclass(frozen=True, slots=True)
class Beyond:
    """Calls of one maker, a generator or a verifier, that no pool accounts for.

    name: of the maker, or one of `OTHERS`. generates: it makes texts; otherwise it scores. calls: expected of all
    problems. recorded: how many are recorded, which no figure includes. usage: None is unknown. how: what was measured.
    """

    name: str
    generates: bool
    calls: float
    recorded: int
    usage: Mapping[str, float | None]
    how: str


def scale(
    rows: abc.Sequence[Row],
    known: abc.Sequence[Row],
    trial: Trial,
    problems: int,
    names: Mapping[str, str],
) -> list[Beyond]:
    """What `problems` problems are expected to take, if they take on average what those of the probe took.

    rows: of the probe `trial`. known: what is recorded where the run goes on. names: of makers, by
    fingerprint.
    """

    def maker(row: Row) -> tuple[str, bool]:
        generates = row.kind == "generate"
        return names.get(row.by, OTHERS[generates]), generates

    found, factor = [], problems / trial.problems
    for name, generates in dict.fromkeys(maker(row) for row in rows if row.kind != "tool"):
        ours = [row for row in rows if row.kind != "tool" and maker(row) == (name, generates)]
        paid = [row for row in known if row.kind != "tool" and maker(row) == (name, generates)]
        counts = [sum(row.problem == problem for row in ours) for problem in trial.asked]
        spent, before = Usage.sum(row.usage for row in ours), Usage.sum(row.usage for row in paid)
        usage = {figure: _left(getattr(spent, figure), factor, getattr(before, figure)) for figure in FIGURES}
        how = f"as in the probe: {min(counts):,} to {max(counts):,} calls a problem, in {trial.size}"
        calls = max(0.0, factor * len(ours) - len(paid))
        found.append(Beyond(name, generates, calls, len(paid), usage, how))
    return found


def _left(spent: float | None, factor: float, before: float | None) -> float | None:
    return None if spent is None or before is None else max(0.0, factor * spent - before)
