"""Worker processes that answer within a deadline or are killed and replaced."""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Hashable
from concurrent.futures import Future
from typing import Final

from metagen.errors import MetagenError
from metagen.verifiers.math.canonical import TIMEOUT, Percent, Verdict
from metagen.verifiers.math.child import Job, Worker, WorkerError

WORKERS: Final = 2
_REMEMBERED: Final = 1 << 14


class Pool:
    """At most `workers` processes, each started when there is work for it and served by a thread of its own.

    A process holds one answer at a time, so one that is killed takes nothing else with it. Batches of answers are
    served in turn, so that one with many slow answers does not starve the others; and once an answer has been slow, a
    spare process is kept ready to take the place of one that is killed. Verdicts are kept as long as the pool lives,
    `timeout` as well.
    """

    def __init__(self, workers: int = WORKERS) -> None:
        self.workers = workers
        #: Of each batch that waits, in the order of their turns.
        self._batches: dict[Hashable, deque[Job]] = {}
        self._known: dict[tuple[str, Percent, float], Verdict] = {}
        self._lock = threading.Lock()
        self._come = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []
        self._serving: set[Worker] = set()
        self._spare: Worker | None = None
        self._slow = False
        self._idle = 0
        self._closed = False

    def submit(
        self, answer: str, percent: Percent, deadline: float, batch: Hashable = None
    ) -> Future[Verdict]:
        """A future of the verdict. It may be awaited in any thread or event loop. batch: names those it waits with."""
        job = Job(answer, percent, deadline)
        with self._lock:
            if self._closed:
                raise WorkerError("the pool of worker processes is closed; the interpreter is shutting down")
            if (known := self._known.get(job.name)) is not None:
                job.verdict.set_result(known)
                return job.verdict
            if sum(map(len, self._batches.values())) >= self._idle and len(self._threads) < self.workers:
                thread = threading.Thread(target=self._serve, name="metagen math", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._batches.setdefault(batch, deque()).append(job)
            self._come.notify()
        return job.verdict

    def _serve(self) -> None:
        worker: Worker | None = None
        while (job := self._next()) is not None:
            if not job.verdict.set_running_or_notify_cancel():
                continue
            try:
                verdict = self._known.get(job.name)
                if verdict is None:
                    worker, verdict = self._judge(worker, job)
            except (MetagenError, OSError) as error:
                worker = None  # released where it failed
                job.verdict.set_exception(error)
            else:
                job.verdict.set_result(verdict)
        if worker is not None:
            self._release(worker)

    def _next(self) -> Job | None:
        """The first of the batch whose turn it is, which then waits for the others; None when the pool is closed."""
        with self._come:
            self._idle += 1
            while not self._batches and not self._closed:
                self._come.wait()
            self._idle -= 1
            if not self._batches:
                return None
            batch = next(iter(self._batches))
            jobs = self._batches.pop(batch)
            job = jobs.popleft()
            if jobs:
                self._batches[batch] = jobs
            return job

    def _judge(self, worker: Worker | None, job: Job) -> tuple[Worker | None, Verdict]:
        """The verdict, and the process for the next answer: what was killed is replaced at once."""
        verdict = None
        # What died early may have been killed by others, and is tried once more.
        for last in (False, True):
            worker = worker or self._engage()
            try:
                verdict = worker.ask(job, self._prepare)
            except (MetagenError, OSError):
                self._release(worker)
                raise
            if verdict is not None:
                break
            late = worker.late
            self._release(worker)
            worker = self._engage()
            if late or last:
                verdict = TIMEOUT
                break
        assert verdict is not None
        with self._lock:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[job.name] = verdict
        return worker, verdict

    def _engage(self) -> Worker:
        with self._lock:
            worker, self._spare = self._spare, None
        worker = worker or self._started()
        if self._slow:
            self._prepare()
        return worker

    def _prepare(self) -> None:
        """Keep a process ready from now on: starting one takes as long as many an answer."""
        self._slow = True
        if self._spare is None and not self._closed:
            worker = self._started()
            with self._lock:
                if self._spare is None:
                    self._spare = worker
                    return
            self._release(worker)

    def _started(self) -> Worker:
        if not self._closed:
            worker = Worker()
            with self._lock:
                self._serving.add(worker)
            if not self._closed:
                return worker
            self._release(worker)
        raise WorkerError("the pool of worker processes was closed")

    def _release(self, worker: Worker) -> None:
        with self._lock:
            self._serving.discard(worker)
        worker.close()

    def close(self) -> None:
        """End all processes; answers under way get a WorkerError."""
        with self._lock:
            self._closed = True
            serving, spare = list(self._serving), self._spare
            self._come.notify_all()
        for worker in serving:
            worker.kill()
        for thread in self._threads:
            thread.join(5)
        if spare is not None:
            self._release(spare)


_shared: Pool | None = None
_shared_lock = threading.Lock()


def shared() -> Pool:
    """The pool of this process: rules come and go, and each of its workers holds sympy in memory."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = Pool()
            atexit.register(_shared.close)
        return _shared


def _forked() -> None:
    """A forked child has neither the threads nor the processes of its parent."""
    global _shared, _shared_lock
    if _shared is not None:
        atexit.unregister(_shared.close)
    _shared, _shared_lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forked)
