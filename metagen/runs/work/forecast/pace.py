"""How fast samples were made before: in a probe, or in an earlier run over the same generators."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable
from dataclasses import dataclass

from metagen.errors import InputError
from metagen.generators.base import Generator
from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.work.forecast.books import Book
from metagen.runs.work.forecast.probe import Trial


@dataclass(frozen=True, slots=True)
class Pace:
    """So many samples, with all that was done to them, took so many seconds. how: where and when."""

    samples: float
    seconds: float
    how: str

    def of(self, samples: float) -> float:
        """Seconds that so many samples take."""
        return samples * self.seconds / self.samples

    @classmethod
    def of_probe(cls, trial: Trial, calls: float) -> Pace:
        """The pace of a probe, which fills the engines' batches less than a run does.

        calls: samples that a problem takes on average, by whatever asks for them.
        """
        how = (
            f"seconds: at the pace of a probe of {trial.size}, {trial.samples:,} samples in "
            f"{trial.seconds:.1f} s; many problems at once are usually faster"
        )
        return cls(calls * trial.problems, trial.seconds, how)

    @classmethod
    def of_runs(cls, books: Iterable[Book], generators: abc.Sequence[Generator]) -> Pace | None:
        """The pace of the first run whose last call made something, with all of these generators."""
        for book in books:
            directory = RunDirectory(book.path.parent)
            try:
                state = directory.state()
            except InputError:
                continue
            told = state.recorded and state.seconds and all(map(_counts_samples, state.lines))
            if told and all(book.all_of(generator) for generator in generators):
                how = (
                    f"seconds: at the pace of the last call in {directory.root}, {state.recorded:,} samples in "
                    f"{state.seconds:.1f} s, on the machine that it ran on"
                )
                return cls(state.recorded, state.seconds, how)
        return None


def _counts_samples(line: Cell) -> bool:
    """Whether a run counts a configuration's samples, and not its solutions."""
    return line.pooled or line.kind in ("sample", "greedy")
