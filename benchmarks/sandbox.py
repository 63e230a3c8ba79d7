"""How many untrusted programs are executed a second, each in a fresh sandbox."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator

from benchmarks.row import Row, seconds
from metagen.verifiers.code.check import Suite, check
from metagen.verifiers.code.isolation import IsolationError
from metagen.verifiers.code.language import Python
from metagen.verifiers.code.sandbox import Sandbox

RUNS = 200
PROFILE = (
    "CPU milliseconds of one execution on a busy machine: 9 to 10, and 21 where it starts an interpreter of its own; "
    "two forks with their namespaces and mounts take 2.3"
)
PROGRAM = "def f(x): return x * x"
SUITE = Suite(("assert f(2) == 4", "assert f(3) == 9"))


def rows() -> Iterator[Row]:
    """Two cores are what the bounds are for."""
    cores = len(os.sched_getaffinity(0))
    plain = RUNS / seconds(lambda: asyncio.run(bare(2 * cores)), repeat=3)
    yield Row(
        "bare interpreters per second", plain, "1/s", f"{RUNS} starts of python -I -S, {2 * cores} at once"
    )
    try:
        sandbox = Sandbox()
    except IsolationError:
        return
    taken = seconds(lambda: asyncio.run(executions(sandbox)), repeat=3)
    yield Row(
        "sandboxed executions per second",
        RUNS / taken,
        "1/s",
        f"{RUNS} programs, one call each, {2 * cores} at once on {cores} cores",
        "≥ 100",
        PROFILE,
    )
    yield Row(
        "sandboxed executions per bare interpreter", RUNS / taken / plain, "", "of the same run", "≥ 0.6"
    )
    taken = seconds(lambda: asyncio.run(_checks(sandbox)), repeat=3)
    yield Row(
        "candidates tested per second",
        RUNS / 2 / taken,
        "1/s",
        f"{RUNS // 2} programs, two assertions each: two sandboxes for each program",
    )


async def bare(at_once: int) -> None:
    places = asyncio.Semaphore(at_once)

    async def one() -> None:
        async with places:
            command = [str(Python().interpreter), "-I", "-S", "-B", "-c", "pass"]
            process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, env={})
            await process.wait()

    await asyncio.gather(*(one() for _ in range(RUNS)))


async def executions(sandbox: Sandbox) -> None:
    outcomes = await asyncio.gather(*(sandbox.evaluate(PROGRAM, ["f(3)"]) for _ in range(RUNS)))
    assert all(outcome.verdict == "finished" for outcome in outcomes)


async def _checks(sandbox: Sandbox) -> None:
    reports = await asyncio.gather(*(check(sandbox, PROGRAM, SUITE) for _ in range(RUNS // 2)))
    assert all(report.verdict == "passed" for report in reports)
