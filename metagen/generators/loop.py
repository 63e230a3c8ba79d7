"""An event loop in a thread of its own: what engines do there may be awaited from any other loop and any thread."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

from metagen.errors import EngineError
from metagen.logs import logger

_LOG = logger(__name__)
#: Seconds for what is cancelled to end.
PATIENCE = 30.0
T = TypeVar("T")
Live = TypeVar("Live")


class _Job(Generic[T]):
    """A coroutine on its way to the loop's thread and back. ended: called there when it is over."""

    __slots__ = ("ended", "task", "work")

    def __init__(self, work: Coroutine[Any, Any, T], ended: Callable[[], object]) -> None:
        self.work, self.ended = work, ended
        self.task: asyncio.Task[T] | None = None

    def start(self, running: set[_Job[Any]]) -> None:
        def over(task: asyncio.Task[T]) -> None:
            running.discard(self)
            if not task.cancelled():
                task.exception()  # has been seen, should nobody wait any more
            self.ended()

        self.task = asyncio.get_running_loop().create_task(self.work)
        running.add(self)
        self.task.add_done_callback(over)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


class Loop(Generic[Live]):
    """new, opening, open, closed; or failed, if it could not be opened or its thread ended by itself.

    live: what lives in the loop. It is entered there when the loop opens, and left when it closes, after all work.
    shown: how messages call it; what: what it is. patience: seconds for what is cancelled to end.

    The thread does not keep a program from ending. A process that was forked off has none, and is told so.
    """

    def __init__(
        self,
        live: Callable[[], AbstractAsyncContextManager[Live]],
        *,
        shown: str,
        what: str = "engine",
        patience: float = PATIENCE,
    ) -> None:
        self._live, self._shown, self._what, self._patience = live, shown, what, patience
        self._state, self._process = "new", 0
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._main: asyncio.Task[None] | None = None
        self._opened: Future[Live] = Future()
        self._closing = asyncio.Event()
        self._running: set[_Job[Any]] = set()
        self._cause: BaseException | None = None

    @property
    def state(self) -> str:
        return self._state

    # -- lifecycle -------------------------------------------------------------------------------

    def open(self) -> Live:
        """Start the thread, and enter what lives there.

        Raises what that raises, and EngineError if it was opened before, or is closed meanwhile.
        """
        self._check_process()
        with self._lock:
            if self._state != "new":
                raise EngineError(
                    f"{self._shown} was opened before (it is {self._state}); make a new {self._what}"
                )
            self._state, self._process = "opening", os.getpid()
            self._loop = loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._run, args=(loop,), name=f"{self._what} {self._shown}", daemon=True
            )
            self._thread.start()
        try:
            return self._opened.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> bool:
        """Cancel what runs, leave what lives there, and end the thread; whoever waits gets an EngineError.

        False if it was not open. May be called at any time, from any thread, and twice; in the loop's own thread it
        returns before the end. Raises what leaving raises.
        """
        if self._process not in (0, os.getpid()):
            return False
        with self._lock:
            before = self._state
            if before in ("new", "opening", "open"):
                self._state = "closed"
            if before in ("opening", "open") and self._loop is not None:
                self._loop.call_soon_threadsafe(self._close)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if before == "open" and self._cause is not None:
            raise self._cause
        return before == "open"

    def check(self) -> None:
        """EngineError unless it is open."""
        self._check_process()
        if self._state != "open":
            before = self._state in ("new", "opening")
            hint = f"use it inside `with {self._what}:`" if before else f"make a new {self._what}"
            raise EngineError(
                f"{self._shown} is not open (it is {self._state}{self._why}); {hint}"
            ) from self._cause

    @property
    def _why(self) -> str:
        """Why it has failed, if an error says so."""
        return "" if self._cause is None else f": {self._cause!r}"

    def _check_process(self) -> None:
        if self._process not in (0, os.getpid()):
            raise EngineError(
                f"{self._shown} runs in process {self._process}, off which this one, {os.getpid()}, was forked; make "
                f"a new {self._what} here"
            )

    # -- work ------------------------------------------------------------------------------------

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs in the loop's thread, awaited in any event loop.

        A cancelled wait cancels the work, and lasts until that has ended. EngineError if the loop is not open, or is
        closed meanwhile.
        """
        here = asyncio.get_running_loop()
        ended = here.create_future()

        def tell() -> None:
            try:
                here.call_soon_threadsafe(_settle, ended)
            except RuntimeError:  # that loop is closed: nobody waits any more
                return

        job = self._start(work, tell)
        try:
            await asyncio.wait({ended})
        except asyncio.CancelledError:
            self._cancel(job)
            await asyncio.wait({ended}, timeout=self._patience)
            raise
        return self._result(job)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """As `run`, where there is no event loop. EngineError in the loop's own thread, which would wait for itself."""
        if self._thread is threading.current_thread():
            work.close()
            raise EngineError(f"{self._shown} cannot wait for itself; await the work in its own thread")
        ended = threading.Event()
        job = self._start(work, ended.set)
        try:
            ended.wait()
        except BaseException:
            self._cancel(job)
            raise
        return self._result(job)

    def _start(self, work: Coroutine[Any, Any, T], ended: Callable[[], object]) -> _Job[T]:
        job = _Job(work, ended)
        try:
            self._check_process()  # before the lock: a fork may have copied it while it was held
            with self._lock:
                self.check()
                assert self._loop is not None
                self._loop.call_soon_threadsafe(job.start, self._running)
        except EngineError:
            work.close()
            raise
        return job

    def _cancel(self, job: _Job[Any]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(job.cancel)
        except RuntimeError:  # the loop is closed, and what ran there has ended
            return

    def _result(self, job: _Job[T]) -> T:
        if job.task is None or not job.task.done() or (job.task.cancelled() and self._state != "open"):
            was = f"has failed{self._why}" if self._state == "failed" else "was closed"
            raise EngineError(
                f"{self._shown} {was} while a request was running; make a new {self._what}"
            ) from self._cause
        return job.task.result()

    # -- in the thread ---------------------------------------------------------------------------

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.set_exception_handler(self._unheard)
        self._main = loop.create_task(self._lives())
        try:
            loop.run_until_complete(self._main)
        except BaseException as error:  # noqa: BLE001 - whoever opens or closes it must hear of it, whatever it is
            self._cause = error
        finally:
            with self._lock:
                failed = self._state != "closed"
                self._state = "failed" if failed else "closed"
            loop.run_until_complete(self._sweep())
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
            for job in list(self._running):
                job.ended()
            self._tell(failed)

    def _unheard(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error that nobody waited for, such as that of an answer that comes as the loop ends: for the log alone."""
        error = context.get("exception")
        said = {self._what: self._shown, "message_of_asyncio": context.get("message"), "error": repr(error)}
        _LOG.warning("nobody waited for an error", extra=said)

    def _tell(self, failed: bool) -> None:
        """Who still waits for it to open, of what became of it; or the log, if nobody does."""
        cause = self._cause
        if isinstance(cause, asyncio.CancelledError):
            cause = self._cause = None
        if not self._opened.done():
            closed = EngineError(
                f"{self._shown} was closed while it was being opened; make a new {self._what}"
            )
            self._opened.set_exception(cause or closed)
        elif failed:
            _LOG.error("loop failed", extra={self._what: self._shown, "error": repr(cause)})

    async def _lives(self) -> None:
        async with self._live() as value:
            with self._lock:
                opened = self._state == "opening"
                self._state = "open" if opened else self._state
            if opened:
                self._opened.set_result(value)
                await self._closing.wait()
                await self._end({job.task for job in self._running if job.task is not None})

    def _close(self) -> None:
        self._closing.set()
        if not self._opened.done() and self._main is not None:
            self._main.cancel()

    async def _sweep(self) -> None:
        """What was left running, if anything, once all that was handed in has been started."""
        await asyncio.sleep(0)
        await self._end(asyncio.all_tasks() - {asyncio.current_task()})

    async def _end(self, tasks: set[asyncio.Task[Any]]) -> None:
        for task in tasks:
            task.cancel()
        if not tasks:
            return
        _, left = await asyncio.wait(tasks, timeout=self._patience)
        if left:
            _LOG.warning(
                "what was cancelled has not ended", extra={self._what: self._shown, "tasks": len(left)}
            )


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
