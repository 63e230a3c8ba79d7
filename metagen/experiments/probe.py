"""A probe: a few problems of an experiment, run for real to measure by."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from collections.abc import Sequence as Ordered
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from metagen.errors import MetagenError
from metagen.experiments import build, runner
from metagen.experiments.directory import RunDirectory
from metagen.experiments.specs import Experiment
from metagen.sequence import Sequence
from metagen.tasks.base import Problem, Task
from metagen.verifiers.base import AnswerRule

PROBE = "metagen-probe-"


class Some(Task):
    """Some of the problems of a task, in the order in which a run takes them."""

    def __init__(self, task: Task, count: int) -> None:
        problems = list(task.problems())
        self.task, self.name, self.delimiter = task, task.name, task.delimiter
        self._problems = Random(0).sample(problems, min(count, len(problems)))

    @property
    def answer(self) -> AnswerRule:
        return self.task.answer

    def problems(self) -> Iterator[Problem]:
        return iter(self._problems)

    async def grade(self, problem: Problem, sequences: Ordered[Sequence]) -> list[float]:
        return await self.task.grade(problem, sequences)


@dataclass(frozen=True, slots=True)
class Trial:
    """A probe: its journal, while it is there, and how many problems took how many seconds."""

    journal: Path
    problems: int
    samples: int
    seconds: float


@contextmanager
def probed(experiment: Experiment, problems: int | None) -> Iterator[Trial | None]:
    """Run some problems into a directory that lasts as long as the block."""
    if problems is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix=PROBE) as folder:
        directory = RunDirectory(Path(folder))
        with build.opened(experiment) as setup:
            some = Some(setup.task, problems)
            state = runner.run(replace(setup, task=some), directory)
        if not state.samples:
            why = state.failures[0].message if state.failures else "nothing was delivered"
            raise MetagenError(f"the probe failed: {why}")
        yield Trial(directory.journal, state.problems, state.samples, state.seconds)
