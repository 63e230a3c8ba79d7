"""Several prompts of one request: side by side, as far as there is room for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias, TypeVar

T = TypeVar("T")
#: Waits for a place, and has it for the block.
Room: TypeAlias = Callable[[], AbstractAsyncContextManager[None]]


async def run_all(do: Callable[[int], Awaitable[T]], count: int, most: int, room: Room) -> list[T]:
    """The results of `do` for the numbers from 0 to count − 1, in this order; they begin in this order, too.

    One is at work without further leave, and up to `most` with places of `room`. An error in one of them cancels the
    others, and is raised.
    """
    left, found = deque(range(count)), dict[int, T]()
    waiting: set[asyncio.Task[None]] = set()

    async def work() -> None:
        number = left.popleft()
        found[number] = await do(number)

    async def help_out(me: int) -> None:
        while left:
            waiting.add(helpers[me])
            async with room():
                waiting.discard(helpers[me])
                if left:
                    await work()

    try:
        async with asyncio.TaskGroup() as group:
            helpers = [group.create_task(help_out(i)) for i in range(min(count, most) - 1)]
            while left:
                await work()
            for one in waiting:
                one.cancel()  # all has begun: nothing is left to wait for
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors.exceptions[0].__cause__
    return [found[number] for number in range(count)]
