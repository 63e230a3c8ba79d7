"""A thread with an event loop of its own, whose coroutines may be awaited from any other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from metagen.errors import EngineError

T = TypeVar("T")


class Loop:
    """new, then open, then closed. opened and closing run in its thread, before all work and after it."""

    def __init__(
        self, name: str, shown: str, opened: Callable[[], None], closing: Callable[[], Awaitable[None]]
    ) -> None:
        self._name, self._shown, self._opened, self._closing = name, shown, opened, closing
        self._state = "new"
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        with self._lock:
            if self._state != "new":
                raise EngineError(f"{self._shown} was opened before (it is {self._state}); make a new engine")
            self._state = "open"
            self._loop = asyncio.new_event_loop()
        ready: asyncio.Future[None] | Any = asyncio.run_coroutine_threadsafe(self._begin(), self._loop)
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        try:
            ready.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> bool:
        """End what runs, with an EngineError for whoever waits, and the thread. False if it was not open."""
        with self._lock:
            was, self._state = self._state, "closed"
            loop = self._loop
        if was != "open" or loop is None or self._thread is None:
            return False
        loop.call_soon_threadsafe(loop.stop)
        if self._thread is not threading.current_thread():
            self._thread.join()
        return True

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which runs in the thread. A cancelled wait cancels it."""
        with self._lock:
            if self._state != "open" or self._loop is None:
                work.close()
                hint = "use it inside `with engine:`" if self._state == "new" else "make a new engine"
                raise EngineError(f"{self._shown} is not open (it is {self._state}); {hint}")
            running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if self._state == "closed" and not (waiting and waiting.cancelling()):
                raise EngineError(
                    f"{self._shown} was closed while a request was running; make a new engine"
                ) from None
            raise

    async def _begin(self) -> None:
        self._opened()

    def _run(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._end())
        finally:
            self._loop.close()

    async def _end(self) -> None:
        await self._closing()
