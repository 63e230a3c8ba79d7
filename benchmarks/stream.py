"""An instant engine behind the whole stack: calls per second, and memory that doesn't grow with the problems."""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.row import Row
from metagen.generators.function import FunctionGenerator
from metagen.journal import SQLiteJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.strategies.parallel import Sample

PROBLEMS, BEGIN, IN_FLIGHT = 100_000, 10_000, 256


def rows() -> Iterator[Row]:
    """A strategy, its scope, a generator and a durable journal, for one problem after another."""
    with tempfile.TemporaryDirectory() as folder:
        rate, slope = asyncio.run(_stream(Path(folder) / "journal.sqlite"))
    how = (
        f"{PROBLEMS:,} problems of one sample each, {IN_FLIGHT} in flight, strategy, scope and SQLite journal"
    )
    yield Row("instant engine behind the whole stack, calls per second", rate, "1/s", how, "≥ 5000")
    yield Row(
        "memory per streamed problem",
        slope,
        "bytes",
        f"{how}; growth of the peak from problem {BEGIN:,} to {PROBLEMS:,}",
        "≤ 100",
    )


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
