"""What scope, budget and journal add to a call."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.row import Row, seconds
from metagen.budget import Budget
from metagen.generators.function import FunctionGenerator
from metagen.journal import Journal, MemoryJournal, SQLiteJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence

CALLS = 2000


async def _x(prefix: Sequence, seed: int, index: int) -> str:
    return "x"


#: An async function: a plain one has its thread, and the way there and back is no matter of the floor.
INSTANT = FunctionGenerator(_x, count=len, max_tokens=1)


def rows() -> Iterator[Row]:
    """Single-sample calls of an instant generator through the whole stack."""
    for name, budget in (("no budget", None), ("under a budget", Budget(generated=10**9, calls=10**9))):
        taken = seconds(lambda budget=budget: asyncio.run(_one_by_one(MemoryJournal(), budget)))  # type: ignore[misc]
        yield Row(
            f"scope.call, memory journal, {name}",
            taken / CALLS * 1e6,
            "µs",
            f"{CALLS} calls, one after another",
            "≤ 100",
        )
    taken = seconds(_durable)
    yield Row(
        "calls per second, SQLite journal",
        CALLS / taken,
        "1/s",
        f"{CALLS} problems, 256 in flight, group commit",
        "≥ 5000",
    )


async def _one_by_one(journal: Journal, budget: Budget | None) -> None:
    scope = Scope.root("p", journal=journal, budget=budget)
    prefix = Sequence.of(Prompt("p", text="a prompt"))
    for i in range(CALLS):
        await INSTANT.generate(prefix, start=i, scope=scope)


def _durable() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        SQLiteJournal(Path(folder) / "journal.sqlite", seed=0) as journal,
    ):
        asyncio.run(_many_problems(journal))


async def _many_problems(journal: Journal) -> None:
    free = asyncio.Semaphore(256)

    async def one(i: int) -> None:
        async with free:
            scope = Scope.root(f"p{i}", journal=journal)
            await INSTANT.generate(Sequence.of(Prompt(f"p{i}", text="a prompt")), scope=scope)

    async with asyncio.TaskGroup() as group:
        for i in range(CALLS):
            group.create_task(one(i))
