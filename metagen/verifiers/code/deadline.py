"""The time that a program has, which is not used up while this process stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

#: Seconds. A timer that goes off so much too late says that this process was not running.
_HELD_UP = 0.25
#: How often the time may begin anew.
_PAUSES = 3


class Deadline:
    """`seconds` from now. Where this process was held up meanwhile, the program waited for us as we for it."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._pauses = seconds, _PAUSES
        self._end = asyncio.get_running_loop().time() + seconds

    async def within(self, wait: Callable[[], Awaitable[T]]) -> T:
        """What `wait` comes to, which may be called again; TimeoutError when the time is over."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout_at(self._end):
                    return await wait()
            except TimeoutError:
                if loop.time() - self._end < _HELD_UP or not self._pauses:
                    raise
                self._pauses -= 1
                self._end = loop.time() + self._seconds
