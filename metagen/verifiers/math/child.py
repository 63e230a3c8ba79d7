"""A worker process, seen from its parent: it is asked one answer at a time, within a deadline.

It is started as a program of its own, not by `multiprocessing`: forking copies locks that other threads hold, and
spawning runs the user's main module again.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from metagen.errors import MetagenError
from metagen.verifiers.math.canonical import Percent, Verdict

#: Seconds to import sympy on a busy machine.
_START: Final = 120.0
#: Seconds. Whoever wakes up so much too late was not running.
_PAUSE: Final = 1.0
_PAUSES: Final = 3


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

    def ask(self, job: Job, slow: Callable[[], None]) -> Verdict | None:
        """The verdict; None if the process died, or is late. WorkerError if it never started.

        slow: called when half of the deadline has passed.
        """
        if not self._ready and self._line(_START) is None:
            raise WorkerError(
                f"a worker process of {sys.executable!r} did not start; "
                "does `python -m metagen.verifiers.math.worker` run? It needs the extra math"
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
        line = self._line(job.deadline, slow)
        return None if line is None else Verdict(**json.loads(line))

    def _line(self, seconds: float, slow: Callable[[], None] | None = None) -> bytes | None:
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
            if slow is not None and left <= seconds / 2:
                slow()
                slow = None
            if not poll.poll((left - seconds / 2 if slow is not None else left) * 1000):
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
