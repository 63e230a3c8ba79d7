"""An instant engine behind the whole stack: calls per second, and memory that doesn't grow with the problems."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.row import Row
from metagen.generators.function import FunctionGenerator
from metagen.journal import SQLiteJournal
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.work import build, runner
from metagen.runs.work.garbage import rarely
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.strategies.parallel import Sample
from metagen.tasks.base import Problem, Task
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.function import FunctionRule

PROBLEMS, BEGIN, IN_FLIGHT = 100_000, 10_000, 256
#: Problems of a small and of a large run.
SMALL, LARGE = 10_000, 30_000
YAML = """\
name: stream
task: {{kind: "benchmarks.stream:Numbers", count: {count}}}
generators: {{instant: {{kind: "benchmarks.stream:instant"}}}}
strategies: {{single: {{kind: sample}}}}
grid: {{n: [1]}}
"""


def rows() -> Iterator[Row]:
    """A strategy, its scope, a generator and a durable journal, for one problem after another."""
    with tempfile.TemporaryDirectory() as folder, rarely():
        rate, slope = asyncio.run(_stream(Path(folder) / "journal.sqlite"))
    how = (
        f"{PROBLEMS:,} problems of one sample each, {IN_FLIGHT} in flight, strategy, scope and SQLite journal, "
        "garbage collected as in a run"
    )
    yield Row("instant engine behind the whole stack, calls per second", rate, "1/s", how, "≥ 5000")
    yield Row(
        "memory per streamed problem",
        slope,
        "bytes",
        f"{how}; growth of the peak from problem {BEGIN:,} to {PROBLEMS:,}",
        "≤ 100",
    )

    small, large = _run_apart(SMALL), _run_apart(LARGE)
    yield Row(
        "memory per problem of a run",
        (large - small) / (LARGE - SMALL),
        "bytes",
        f"an experiment with an instant generator: the peak with {LARGE:,} problems less that with {SMALL:,}",
        "≤ 250",
    )


class Numbers(Task):
    """Problems that are made when they are asked for."""

    def __init__(self, *, count: int) -> None:
        self.count = count

    @property
    def answer(self) -> AnswerRule:
        return FunctionRule(lambda text: text, lambda answer: answer)

    def problems(self) -> Iterator[Problem]:
        return (Problem(Prompt(f"p{i}", text=f"problem {i}"), "x") for i in range(self.count))


def instant() -> FunctionGenerator:
    return FunctionGenerator(lambda prefix, seed, index: "x", count=len, max_tokens=1)


def run_peak(count: int) -> int:
    """Peak resident memory of this process in bytes after an experiment of so many problems."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stream.yaml"
        file.write_text(YAML.format(count=count))
        with build.open_setup(schema.load(file)) as setup:
            state = runner.run(setup, RunDirectory.at(Path(folder) / "run"))
        assert state.samples == count, state
    return _peak()


def _run_apart(count: int) -> int:
    """`run_peak` in a process of its own: a peak never falls."""
    code = f"from benchmarks.stream import run_peak; print(run_peak({count}))"
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)


async def _stream(path: Path) -> tuple[float, float]:
    strategy = Sample(FunctionGenerator(lambda prefix, seed, index: "x", count=len, max_tokens=1))
    numbers = iter(range(PROBLEMS))
    begun = 0

    with SQLiteJournal(path, seed=0) as journal:

        async def worker() -> None:
            nonlocal begun
            for i in numbers:
                if i == BEGIN:
                    begun = _peak()
                scope = Scope.root(f"p{i}", journal=journal)
                await strategy.generate(Sequence(Prompt(f"p{i}", text=f"problem {i}")), scope=scope)

        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(worker())
        taken = time.perf_counter() - start
    return PROBLEMS / taken, (_peak() - begun) / (PROBLEMS - BEGIN)


def _peak() -> int:
    """Peak resident memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
