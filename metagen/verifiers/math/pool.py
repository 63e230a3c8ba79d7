"""Worker processes that answer within a deadline or are killed and replaced.

They are started as programs of their own, not by `multiprocessing`: forking copies locks that other threads hold,
and spawning runs the user's main module again.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from metagen.errors import MetagenError
from metagen.verifiers.math.canonical import TIMEOUT, Percent, Verdict

WORKERS: Final = 2
#: Seconds to import sympy on a busy machine.
_START: Final = 120.0
#: Seconds. Whoever wakes up so much too late was not running.
_PAUSE: Final = 1.0
_PAUSES: Final = 3
_REMEMBERED: Final = 1 << 14


class WorkerError(MetagenError):
    """A worker process could not be started."""


@dataclass(frozen=True, slots=True)
class Job:
    """One answer to be judged, within `deadline` seconds from when a worker takes it up."""

    answer: str
    percent: Percent
    deadline: float
    verdict: Future[Verdict] = field(default_factory=Future)

    @property
    def name(self) -> tuple[str, Percent, float]:
        """What its verdict is remembered under: more time may give another one."""
        return self.answer, self.percent, self.deadline


class Worker:
    """One process, and the pipes to it. Used by one thread. It goes on starting while nothing is asked."""

    def __init__(self) -> None:
        # The worker finds the modules that this process finds, and nothing in the directory it happens to run in.
        path = os.pathsep.join(p or str(Path.cwd()) for p in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "metagen.verifiers.math.worker", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._waiting = b""
        self._ready = False
        #: It did not answer in time, and may still be busy.
        self.late = False

    def ask(self, job: Job) -> Verdict | None:
        """The verdict; None if the process died, or is late. WorkerError if it never started."""
        if not self._ready and self._line(_START) is None:
            raise WorkerError(
                f"a worker process of {sys.executable!r} did not start; "
                "does `python -m metagen.verifiers.math.worker` run? It needs metagen[math]"
            )
        self._ready = True
        stdin = self._process.stdin
        assert stdin is not None
        request = {"answer": job.answer, "percent": job.percent, "deadline": job.deadline}
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            return None
        line = self._line(job.deadline)
        return None if line is None else Verdict(**json.loads(line))

    def _line(self, seconds: float) -> bytes | None:
        stdout = self._process.stdout
        assert stdout is not None
        poll = select.poll()
        poll.register(stdout, select.POLLIN | select.POLLHUP)
        end, pauses = time.monotonic() + seconds, 0
        while b"\n" not in self._waiting:
            left = end - time.monotonic()
            if left < -_PAUSE and pauses < _PAUSES:
                # We were paused, and the process most likely with us: its time begins anew.
                end, pauses = time.monotonic() + seconds, pauses + 1
                continue
            if left <= 0:
                self.late = True
                return None
            if not poll.poll(left * 1000):
                continue
            if not (piece := os.read(stdout.fileno(), 1 << 16)):
                return None
            self._waiting += piece
        line, _, self._waiting = self._waiting.partition(b"\n")
        return line

    def kill(self) -> None:
        """End it, and leave no zombie. Whoever waits for its answer learns that there is none."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Kill it, and give its pipes back."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


class Pool:
    """At most `workers` processes, each started when there is work for it and served by a thread of its own.

    A process holds one answer at a time, so one that is killed takes nothing else with it. Verdicts are kept.
    """

    def __init__(self, workers: int = WORKERS) -> None:
        self.workers = workers
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._known: dict[tuple[str, Percent, float], Verdict] = {}
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._serving: set[Worker] = set()
        self._idle = 0
        self._closed = False

    def submit(self, answer: str, percent: Percent, deadline: float) -> Future[Verdict]:
        """A future of the verdict. It may be waited for in any thread or event loop."""
        job = Job(answer, percent, deadline)
        with self._lock:
            if self._closed:
                raise WorkerError("the pool of worker processes is closed; the interpreter is shutting down")
            if (known := self._known.get(job.name)) is not None:
                job.verdict.set_result(known)
                return job.verdict
            if self._jobs.qsize() >= self._idle and len(self._threads) < self.workers:
                thread = threading.Thread(target=self._serve, name="metagen math", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._jobs.put(job)
        return job.verdict

    def forget(self) -> None:
        """Ask anew for all that has been judged: for measurements."""
        with self._lock:
            self._known.clear()

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
        with self._lock:
            self._idle += 1
        job = self._jobs.get()
        with self._lock:
            self._idle -= 1
        return job

    def _judge(self, worker: Worker | None, job: Job) -> tuple[Worker | None, Verdict]:
        """The verdict, and the process for the next answer: what was killed is replaced at once."""
        verdict = None
        # What died early may have been killed by others, and is tried once more.
        for last in (False, True):
            worker = worker or self._engage()
            try:
                verdict = worker.ask(job)
            except MetagenError:
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
            serving = list(self._serving)
            for _ in self._threads:
                self._jobs.put(None)
        for worker in serving:
            worker.kill()
        for thread in self._threads:
            thread.join(5)


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
