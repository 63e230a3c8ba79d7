"""What journals hold of the pools of a run, for estimates: samples and scores by who made them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from metagen.generators.base import Generator
from metagen.journal import Row, SQLiteJournal
from metagen.runs.directory import RUNS, RunDirectory
from metagen.runs.table import costs
from metagen.sequence import Sequence
from metagen.tasks.base import Problem
from metagen.verifiers.base import PrimitiveVerifier

SAMPLES, SCORES = f"{costs.POOL}/{costs.SAMPLING}", f"{costs.POOL}/{costs.SCORING}"
#: Problems, and texts of a generator, that lengths are taken from.
PROBLEMS, TEXTS = 200, 400
#: Earlier runs of the same name that are looked into.
EARLIER = 3


@dataclass(frozen=True)
class Book:
    """What a journal holds of pools: the rows of each maker, by problem."""

    path: Path
    rows: Mapping[tuple[str, str], list[Row]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Book:
        found: dict[tuple[str, str], list[Row]] = {}
        with SQLiteJournal(path, read_only=True) as journal:
            for problem in journal.problems():
                for row in journal.of_problem(problem):
                    if row.path in (SAMPLES, SCORES) and row.status == "complete":
                        found.setdefault((row.by, problem), []).append(row)
        return cls(path, found)

    def samples(self, generator: Generator, problem: str, n: int) -> list[Row]:
        """The first n samples of a problem, those that there are."""
        return [row for row in self.rows.get((generator.fingerprint, problem), ()) if row.index < n]

    def score_digests(self, verifier: PrimitiveVerifier, problem: str) -> set[bytes]:
        """Digests of the candidates that have a score."""
        return {row.content for row in self.rows.get((verifier.records, problem), ())}

    def all_of(self, generator: Generator) -> list[Row]:
        """Samples of a generator, of up to so many problems, at most `TEXTS` in all."""
        groups = [rows for (by, _), rows in self.rows.items() if by == generator.fingerprint]
        each = max(1, TEXTS // max(1, min(len(groups), PROBLEMS)))
        return [row for rows in groups[:PROBLEMS] for row in rows[:each]]


def earlier(name: str) -> list[Path]:
    """The journals of the latest runs of this name."""
    roots = [RUNS / name, *RUNS.glob(f"{name}-[0-9]*")]
    found = [path for root in roots if (path := RunDirectory(root).journal).is_file()]
    return sorted(found, key=lambda path: -path.stat().st_mtime)[:EARLIER]


def contents(problem: Problem, rows: Iterable[Row]) -> set[bytes]:
    """The digests under which samples are scored."""
    texts = {str((row.payload or {}).get("text", "")) for row in rows}
    return {Sequence(problem.prompt, text=text).digest for text in texts}
