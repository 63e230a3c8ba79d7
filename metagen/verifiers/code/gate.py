"""A limit on what runs at once that holds over all event loops of the process."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """Lets `places` through at a time, in the order in which they came, from whichever loop."""

    def __init__(self, places: int) -> None:
        self._free, self._lock = places, threading.Lock()
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        await self._enter()
        try:
            yield
        finally:
            self._leave()

    async def _enter(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.append((loop, turn))
        try:
            await turn
        except asyncio.CancelledError:
            with self._lock:
                waiting = (loop, turn) in self._waiting
                if waiting:
                    self._waiting.remove((loop, turn))
            if not waiting and not turn.cancelled():
                self._leave()  # the turn came together with the cancellation
            raise

    def _leave(self) -> None:
        with self._lock:
            while self._waiting:
                loop, turn = self._waiting.popleft()
                try:
                    loop.call_soon_threadsafe(self._give, turn)
                except RuntimeError:  # its loop has closed: nobody waits there any more
                    continue
                return
            self._free += 1

    def _give(self, turn: asyncio.Future[None]) -> None:
        """On the loop of the one who waits: its turn, or the next one's, if it was cancelled meanwhile."""
        if turn.done():
            self._leave()
        else:
            turn.set_result(None)
