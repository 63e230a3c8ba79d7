"""Judging side by side, and one after the other where a limit is shared."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from metagen.budget import Budget
from metagen.scope import Scope
from metagen.testing import run
from metagen.verifiers.pace import paced


@pytest.mark.parametrize(
    ("budget", "generates", "most"),
    [
        (None, True, 4),
        (Budget(seconds=60), True, 4),
        (Budget(generated=5), True, 1),
        (Budget(generated=5), False, 4),
        (Budget(generated=5, calls=5), False, 1),
        (Budget(calls=5), False, 1),
        (Budget(prefilled=5), True, 1),
        (Budget(flops=1.0), True, 1),
        (Budget(money=1.0), True, 1),
    ],
)
def test_only_limits_that_calls_use_up_make_them_wait(
    budget: Budget | None, generates: bool, most: int
) -> None:
    running, seen = set[int](), list[int]()

    async def one(i: int) -> int:
        running.add(i)
        seen.append(len(running))
        for _ in range(3):
            await asyncio.sleep(0)
        running.remove(i)
        return i

    async def main(scope: Scope) -> list[int]:
        return await paced([partial(one, i) for i in range(4)], scope, generates=generates)

    assert run(main, budget=budget)[0] == [0, 1, 2, 3]
    assert max(seen) == most
