"""What journals hold of the pools of a run, for estimates: samples and scores by who made them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from metagen.generators.base import Generator
from metagen.generators.primitive import Primitive
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
    """What a journal holds of pools: the rows of each maker, by problem. cut: those that a limit cut short."""

    path: Path
    rows: Mapping[tuple[str, str], list[Row]] = field(default_factory=dict)
    cut: Mapping[tuple[str, str], list[Row]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Book:
        found, cut = dict[tuple[str, str], list[Row]](), dict[tuple[str, str], list[Row]]()
        with SQLiteJournal(path, read_only=True) as journal:
            for problem in journal.problems():
                for row in journal.of_problem(problem):
                    if row.path in (SAMPLES, SCORES) and row.payload is not None:
                        rows = found if row.status == "complete" else cut
                        rows.setdefault((row.by, problem), []).append(row)
        return cls(path, found, cut)

    def samples(self, generator: Generator, problem: Problem, n: int) -> list[Row]:
        """The first n samples of a problem, those that there are."""
        rows = self.rows.get((generator.fingerprint, problem.id), ())
        return [row for row in rows if row.index < n and is_whole(row, generator, problem)]

    def cuts(self, generator: Generator, problem: Problem, n: int) -> list[Row]:
        """Those of the first n samples of a problem that a limit cut short."""
        rows = self.cut.get((generator.fingerprint, problem.id), ())
        return [row for row in rows if row.index < n and is_whole(row, generator, problem)]

    def score_digests(self, verifier: PrimitiveVerifier, problem: str) -> set[bytes]:
        """Digests of the candidates that have a score."""
        return {row.content for row in self.rows.get((verifier.records, problem), ())}

    def all_of(self, generator: Generator) -> list[Row]:
        """Samples of a generator, of up to so many problems, at most `TEXTS` in all."""
        every = (rows for (by, _), rows in self.rows.items() if by == generator.fingerprint)
        groups = [whole for rows in every if (whole := [row for row in rows if not is_step(row)])]
        each = max(1, TEXTS // max(1, min(len(groups), PROBLEMS)))
        return [row for rows in groups[:PROBLEMS] for row in rows[:each]]


def earlier(name: str) -> list[Path]:
    """The journals of the latest runs of this name."""
    roots = [RUNS / name, *RUNS.glob(f"{name}-[0-9]*")]
    found = [path for root in roots if (path := RunDirectory(root).journal).is_file()]
    return sorted(found, key=lambda path: -path.stat().st_mtime)[:EARLIER]


def is_whole(row: Row, generator: Generator, problem: Problem) -> bool:
    """Whether a sample was asked for to its end, from the prompt. Steps may stand at the same path."""
    if not isinstance(generator, Primitive):
        return True
    return row.content == generator.request_digest(Sequence.of(problem.prompt), None)


def is_step(row: Row) -> bool:
    """Whether a text ends with a step or a block, and could go on."""
    payload = row.payload or {}
    return row.kind == "generate" and ("step_end" in payload or payload.get("finish") is None)


def contents(problem: Problem, rows: Iterable[Row]) -> set[bytes]:
    """The digests under which samples are scored."""
    texts = {str((row.payload or {}).get("text", "")) for row in rows}
    return {Sequence(problem.prompt, text=text).digest for text in texts}
