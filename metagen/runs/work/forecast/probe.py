"""A probe: a few problems of an experiment, run for real to measure by."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from metagen.errors import InputError, MetagenError
from metagen.runs.declare.specs import Experiment
from metagen.runs.declare.subset import Subset
from metagen.runs.directory import RunDirectory
from metagen.runs.work import build, runner

PROBE = "metagen-probe-"


@dataclass(frozen=True, slots=True)
class Trial:
    """A probe: its journal, while it is there, and how many problems took how many seconds."""

    journal: Path
    problems: int
    samples: int
    seconds: float


@contextmanager
def run_probe(experiment: Experiment, problems: int | None) -> Iterator[Trial | None]:
    """Run some problems into a directory that lasts as long as the block."""
    if problems is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix=PROBE) as folder:
        directory = RunDirectory(Path(folder))
        with build.open_setup(experiment) as setup:
            state = runner.run(_some(setup, problems), directory)
        if not state.samples:
            why = state.failures[0].message if state.failures else "nothing was delivered"
            error = InputError if state.failures and state.failures[0].mendable else MetagenError
            raise error(f"the probe failed: {why}")
        yield Trial(directory.journal, state.problems, state.samples, state.seconds)


def _some(setup: build.Setup, count: int) -> build.Setup:
    """With so many of the problems, from all over the task."""
    count = min(count, setup.problems)
    chosen = set(Random(0).sample(range(setup.problems), count))
    problems = [problem for place, problem in enumerate(setup.task.problems()) if place in chosen]
    return replace(setup, task=Subset(setup.task, problems), problems=count)
