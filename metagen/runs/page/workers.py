"""Processes that make the parts of a report side by side.

Each is an interpreter of its own (`metagen.apart`), so that a script that reports needs no guard around its main
part. Imports are not guarded there as on the command line (`metagen.trust`), so arguments name metagen's code alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Self, TypeVar

from metagen.apart import Apart
from metagen.runs.curves.study import StudyResult

T = TypeVar("T")
#: Processes at most; each takes about 200 MB.
MOST: Final = 8
#: Results, [configurations × problems], from which on processes save more time than their start takes.
MANY: Final = 10_000


class Workers:
    """Calls functions of modules in `count` processes, which start when they are first needed; with one, here.

    Used as a context: its end ends the processes.
    """

    def __init__(self, count: int = 1) -> None:
        self._threads = ThreadPoolExecutor(count, "metagen-report") if count > 1 else None
        self._own, self._opening = threading.local(), threading.Lock()
        self._all: list[Apart] = []
        self._closed = False

    @classmethod
    def of(cls, result: StudyResult) -> Self:
        """As many as there are cores, where a report is large."""
        many = sum(curve.accuracy.size for curve in result.curves) >= MANY
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cls(min(usable, MOST) if many else 1)

    @property
    def beside(self) -> bool:
        """Whether what is begun runs side by side with what follows."""
        return self._threads is not None

    def begin(self, function: Callable[..., T], *given: Any) -> Future[T]:
        """Call a function side by side with what follows; here, it has been called when this returns."""
        if self._threads is not None:
            return self._threads.submit(self._call, function, given)
        done: Future[T] = Future()
        done.set_result(function(*given))
        return done

    def map(self, function: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
        """What a function returns for each item, in order."""
        if self._threads is None:
            return [function(item) for item in items]
        return [one.result() for one in [self.begin(function, item) for item in items]]

    def _call(self, function: Callable[..., T], given: tuple[Any, ...]) -> T:
        if (mine := getattr(self._own, "worker", None)) is None:
            mine = self._own.worker = self._open()
        found: T = mine.call("run", function=function, given=given)
        return found

    def _open(self) -> Apart:
        made = Apart("the report", f"{__name__}:Worker", {})
        with self._opening:
            self._all.append(made)
            if self._closed:  # meanwhile
                made.close()
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        with self._opening:
            self._closed = True
            for worker in self._all:
                worker.close()


class Worker:
    """The other side."""

    @staticmethod
    def run(function: Callable[..., T], given: tuple[Any, ...]) -> T:
        return function(*given)
