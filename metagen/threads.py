"""Plain functions that people give metagen run in threads, so that one that takes its time holds up nobody else.

Functions are seldom made for threads: those of one object run one at a time, in the order in which they were asked
for, in a daemon thread of its own. A call that is cancelled, by a deadline or an interrupt, ends at once; its function
cannot be stopped, goes on unheard, and keeps neither the next one nor the end of the process waiting.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
#: Seconds after which a thread that has nothing to do ends.
IDLE = 1.0


@dataclass(eq=False)
class _Task:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    named: dict[str, Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    context: contextvars.Context
    begun: bool = False

    def run(self) -> None:
        result: Any = None
        error: BaseException | None = None
        self.begun = True
        try:
            result = self.context.run(self.function, *self.args, **self.named)
        except BaseException as fault:  # noqa: BLE001 - it belongs to whoever waits
            error = fault
        try:
            self.loop.call_soon_threadsafe(self._end, result, error)
        except RuntimeError:  # that loop is closed: nobody waits any more
            return

    def _end(self, result: Any, error: BaseException | None) -> None:
        if self.future.done():
            return
        if isinstance(error, StopIteration):  # no future can have it
            error = RuntimeError(f"a function raised {error!r}")
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class Worker:
    """Runs functions one at a time, in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: queue.SimpleQueue[_Task] | None = None
        self._process = 0

    async def run(self, function: Callable[..., T], *args: Any, **named: Any) -> T:
        """What the function returns or raises. A function that comes back to its own worker gets another one."""
        if self in _INSIDE.get():
            return await Worker().run(function, *args, **named)
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        context.run(_INSIDE.set, (*_INSIDE.get(), self))
        future: asyncio.Future[T] = loop.create_future()
        task = _Task(function, args, named, loop, future, context)
        tasks = self._put(task)
        try:
            return await future
        except asyncio.CancelledError:
            if task.begun:
                self._leave(tasks)
            raise

    def _put(self, task: _Task) -> queue.SimpleQueue[_Task]:
        with self._lock:
            if self._tasks is None or self._process != os.getpid():
                self._tasks, self._process = queue.SimpleQueue(), os.getpid()
                name = f"metagen-function-{getattr(task.function, '__name__', 'call')}"
                threading.Thread(
                    target=_work, args=(weakref.ref(self), self._tasks), name=name, daemon=True
                ).start()
            self._tasks.put(task)
            return self._tasks

    def _leave(self, tasks: queue.SimpleQueue[_Task]) -> None:
        """Wait no longer for what runs in a thread: what was asked for behind it runs in another one."""
        with self._lock:
            if self._tasks is tasks:
                self._tasks = None
        behind = []
        while True:
            try:
                behind.append(tasks.get_nowait())
            except queue.Empty:
                break
        for task in behind:
            if not task.future.done():
                self._put(task)

    def _rest(self, tasks: queue.SimpleQueue[_Task]) -> bool:
        """Whether the thread of these tasks may end: nothing has been asked for."""
        with self._lock:
            if self._tasks is not tasks:
                return True
            if tasks.empty():
                self._tasks = None
            return tasks.empty()


def _work(worker: weakref.ref[Worker], tasks: queue.SimpleQueue[_Task]) -> None:
    while True:
        try:
            task = tasks.get(timeout=IDLE)
        except queue.Empty:
            owner = worker()
            if owner is None or owner._rest(tasks):
                return
            continue
        if not task.future.done():
            task.run()
        del task


#: The workers whose functions have led here.
_INSIDE: contextvars.ContextVar[tuple[Worker, ...]] = contextvars.ContextVar("metagen_inside", default=())


def within() -> bool:
    """Whether a plain function that metagen runs has led here."""
    return bool(_INSIDE.get())


#: By the identity of their objects, which need not be hashable.
_WORKERS: dict[int, Worker] = {}


async def run(owner: object, function: Callable[..., T], *args: Any, **named: Any) -> T:
    """What a function of `owner` returns, from the thread of that object."""
    worker = _WORKERS.get(id(owner))
    if worker is None:
        worker = _WORKERS[id(owner)] = Worker()
        weakref.finalize(owner, _WORKERS.pop, id(owner), None).atexit = False
    return await worker.run(function, *args, **named)
