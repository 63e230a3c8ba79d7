"""One execution: an isolated process that is watched, and killed with all it started, at its deadline at the latest."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal, NoReturn, TypeVar

from metagen.errors import MetagenError
from metagen.verifiers.code.cgroup import Group
from metagen.verifiers.code.limits import Limits
from metagen.verifiers.code.process import Output, Process

T = TypeVar("T")
#: Ends of an execution without an answer.
Ending = Literal["timeout", "memory", "output", "crashed", "forged"]
#: Seconds that a sandbox may take to stand; far more than it needs, even on a busy machine.
START = 120.0
#: Seconds. A timer that goes off so much too late says that this process was not running.
_HELD_UP = 0.25
#: Times that the deadline may begin anew.
_PAUSES = 3


class SandboxError(MetagenError):
    """The sandbox itself failed: the candidate has not even begun."""


class Stopped(Exception):
    """Raised inside this package by what is asked of a process that has ended; never leaves it."""

    def __init__(self, verdict: Ending, detail: str) -> None:
        super().__init__(detail)
        self.verdict, self.detail = verdict, detail


class Deadline:
    """`seconds` from now; begun anew, a few times, where this process was held up, so that the program had to wait."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._pauses = seconds, _PAUSES
        self._end = asyncio.get_running_loop().time() + seconds

    async def within(self, wait: Callable[[], Awaitable[T]]) -> T:
        """The result of `wait`, which may be called again; TimeoutError when the time is over."""
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


class Execution:
    """A process in its limits. `stdout` and `stderr` hold what was written so far, within the limit on output.

    who: its name in messages. To be closed, whatever happens.
    """

    def __init__(self, limits: Limits, group: Group | None, who: str = "the program") -> None:
        self._limits, self._group, self._who = limits, group, who
        self._ending: Stopped | None = None
        self._deadline, self._began = Deadline(START), time.monotonic()
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.process: Process | None = None

    def launch(self, start: Callable[[Output], Process]) -> None:
        """Start the process. Raises SandboxError."""
        try:
            self.process = start(self._keep)
        except OSError as error:
            raise SandboxError(
                f"a sandbox did not start: {error}; is the machine out of memory, processes or file descriptors?"
            ) from error

    def begin(self) -> None:
        """Start the clock. The wall deadline is the candidate's: a busy machine's slow start is not charged to it."""
        self._began = time.monotonic()
        self._deadline = Deadline(self._limits.wall)

    def start_error(self, detail: str) -> SandboxError:
        """The error for an inside that does not stand."""
        said = self.stderr.decode(errors="replace").strip() or detail
        return SandboxError(
            f"a sandbox did not start: {said!r}; is the machine out of memory or processes, or are the limits too "
            f"narrow for an interpreter (memory={self._limits.memory!r}, processes={self._limits.processes!r})?"
        )

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def output(self) -> tuple[str, str]:
        """Standard output and error until now, within the limit."""
        if self.process is not None:
            self.process.drain()
        return self.stdout.decode(errors="replace"), self.stderr.decode(errors="replace")

    def end(self, verdict: Ending, detail: str) -> NoReturn:
        """Kill, and raise the reason for which this execution ended: the first one stays."""
        if self._ending is None:
            self._ending = Stopped(verdict, detail)
        self.kill()
        raise self._ending

    async def wait(self) -> int:
        """Wait for the process to end by itself: its exit status. Stopped if a signal or a limit ended it."""
        assert self.process is not None
        process = self.process
        try:
            status = await self._deadline.within(lambda: asyncio.shield(process.ended))
        except TimeoutError:
            self._late()
        self.process.drain()
        if self._ending is not None:
            raise self._ending
        if self._group is not None and self._group.out_of_memory():
            self.end(
                "memory", f"{self._who} was killed for using more than {self._limits.memory} bytes of memory"
            )
        if process.lost:
            raise SandboxError(
                f"{self._who} ended because the process that started it did; is the machine out of memory?"
            )
        # The shell's convention for a signal, which bubblewrap follows; and the one of processes started directly.
        killed = status - 128 if 128 < status <= 192 else -status if status < 0 else 0
        spent = time.monotonic() - self._began >= self._limits.cpu_seconds
        if killed == signal.SIGXCPU or (killed == signal.SIGKILL and spent):
            self.end(
                "timeout", f"{self._who} used more than {self._limits.cpu_seconds} seconds of processor time"
            )
        if killed:
            self.end("crashed", f"{self._who} ended by signal {killed} before it answered")
        return status

    def _late(self) -> NoReturn:
        self.end("timeout", f"{self._who} was not done after {self._limits.wall:g} seconds")

    def _keep(self, number: int, data: bytes) -> None:
        """Keep output as far as the limit goes; beyond it, the execution ends."""
        room = max(0, self._limits.output - len(self.stdout) - len(self.stderr))
        kept = self.stdout if number == 1 else self.stderr
        kept += data[:room]
        if len(data) > room and self._ending is None:
            with suppress(Stopped):
                self.end("output", f"{self._who} wrote more than {self._limits.output} bytes of output")

    def kill(self) -> None:
        """Kill all of it: bubblewrap's child is bound to it, and ends its namespace with it."""
        if self.process is not None:
            self.process.kill()

    async def close(self) -> None:
        """Kill and clean up; the tree is gone, or dying, when this returns."""
        try:
            if self.process is not None:
                await self.process.close()
        finally:
            if self._group is not None:
                await self._group.remove()
