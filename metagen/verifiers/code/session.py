"""One execution: a fresh isolated process that is asked over a socket, watched, and killed with all it started."""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
import time
from contextlib import suppress
from typing import Any, Literal, NoReturn

from metagen.errors import MetagenError
from metagen.verifiers.code.cgroup import Group
from metagen.verifiers.code.deadline import Deadline
from metagen.verifiers.code.limits import Limits
from metagen.verifiers.code.process import Process
from metagen.verifiers.code.wire import LONG, crowded, parsed, written

#: How an execution ended without an answer.
Ending = Literal["timeout", "memory", "output", "crashed", "forged"]


#: Seconds that a sandbox may take to stand; far more than it needs, even on a busy machine.
_START = 120.0


class SandboxError(MetagenError):
    """The sandbox itself failed: the candidate has not even begun."""


class Stopped(Exception):
    """Raised inside this package by what is asked of a process that has ended; never leaves it."""

    def __init__(self, verdict: Ending, detail: str) -> None:
        super().__init__(detail)
        self.verdict, self.detail = verdict, detail


class Session:
    """A running process and its channel. Use as `async with`: leaving kills the tree, whatever happened.

    who: its name in messages. `stdout` and `stderr` hold what was written so far, within the limit on output.
    """

    def __init__(self, limits: Limits, group: Group | None, who: str = "the program") -> None:
        self._limits, self._group, self._who = limits, group, who
        #: Bytes of all messages: answers and, beside them, arguments that were changed, tracebacks, names.
        self._most = 2 * limits.answer + 65536
        self._nonce = secrets.token_hex(16)
        self._ending: Stopped | None = None
        self._asked = 0
        self._received = 0
        #: Whether the last line was, so that what is in it should be looked at in a thread.
        self.long = False
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.process: Process | None = None

    async def start(
        self,
        command: list[str],
        inner: socket.socket,
        outer: socket.socket,
        *,
        inherited: tuple[int, ...],
        preamble: bytes,
        stdin: bytes,
        contained: bool,
    ) -> None:
        """Start the process, and wait until it can be asked.

        inner: the socket that it inherits; outer: the other end. To be awaited to its end, else a part of what
        it starts may live on. Raises SandboxError.
        """
        self._began = time.monotonic()
        self._deadline = Deadline(_START)
        self._reader, self._writer = await asyncio.open_connection(sock=outer, limit=self._most)
        try:
            self.process = Process(
                command,
                inherited=(inner.fileno(), *inherited),
                stdin=stdin,
                output=self._keep,
                contained=contained,
            )
        except OSError as error:
            raise SandboxError(
                f"a sandbox did not start: {error}; is the machine out of memory, processes or file descriptors?"
            ) from error
        # The end of the channel is seen here only if no one else holds the other end.
        inner.close()
        self._writer.write(preamble)
        await self._ready()

    async def _ready(self) -> None:
        """Wait until the inside stands; nothing of the candidate's has been run before."""
        self.send({"nonce": self._nonce, "room": self._limits.answer})
        try:
            await self.receive()
            # The wall deadline is the candidate's: a busy machine's slow start is not charged to it.
            self._began = time.monotonic()
            self._deadline = Deadline(self._limits.wall)
        except Stopped as stop:
            said = self.stderr.decode(errors="replace").strip() or stop.detail
            raise SandboxError(
                f"a sandbox did not start: {said!r}; is the machine out of memory or processes, or are the limits too "
                f"narrow for an interpreter (memory={self._limits.memory!r}, processes={self._limits.processes!r})?"
            ) from None

    async def ask(self, request: dict[str, Any], *, long: bool = False) -> dict[str, Any]:
        """The answer to one request; Stopped when there is none."""
        self._asked += 1
        await self.forward({"id": self._asked, **request}, long=long)
        answer = await self.receive()
        if answer.get("id") != self._asked:
            self.end("forged", f"{self._who} gave an answer that was not asked for")
        if "oversized" in answer:
            self.end("output", f"{self._who} returned more than {self._limits.answer} bytes")
        raised = answer.get("raised", ["", "", "", ""])
        if not (isinstance(raised, list) and [type(part) for part in raised] == [str] * 4):
            self.end("forged", f"{self._who} gave an answer of its own making")
        if raised[0] == "MemoryError":
            self.end("memory", f"{self._who} ran out of its {self._limits.memory} bytes of memory")
        return answer

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def output(self) -> tuple[str, str]:
        """What was written to standard output and error until now, within the limit."""
        if self.process is not None:
            self.process.drain()
        return self.stdout.decode(errors="replace"), self.stderr.decode(errors="replace")

    def send(self, message: dict[str, Any]) -> None:
        if self._ending is None:
            self._writer.write(written(message))

    async def forward(self, message: dict[str, Any], *, long: bool) -> None:
        """Send what came from another session; in a thread, where it is long."""
        if not long:
            self.send(message)
            return
        line = await asyncio.to_thread(written, message)
        if self._ending is None:
            self._writer.write(line)

    async def receive(self) -> dict[str, Any]:
        """The next line from the inside, if it carries the nonce of this run."""
        if self._ending is not None:
            raise self._ending
        try:
            line = await self._deadline.within(self._reader.readline)
        except TimeoutError:
            self._late()
        except ValueError:
            self.end("output", f"{self._who} returned more than {self._limits.answer} bytes")
        except ConnectionError:  # gone with words unread
            line = b""
        self._received += len(line)
        if self._received > self._most:
            self.end("output", f"{self._who} returned more than {self._limits.answer} bytes")
        if not line.endswith(b"\n"):
            await self._diagnose()
        self.long = len(line) > LONG
        if self.long and crowded(line, self._limits.answer):
            self.end("output", f"{self._who} returned more lists than {self._limits.answer} bytes may hold")
        # What a candidate makes long must not hold up the others.
        message = await asyncio.to_thread(parsed, line) if self.long else parsed(line)
        if not isinstance(message, dict) or message.get("nonce") != self._nonce:
            self.end("forged", f"{self._who} wrote a line of its own to the channel of answers")
        return message

    async def finished(self) -> None:
        """Close the channel, and wait for the process to end by itself; Stopped if it ends otherwise."""
        self._writer.close()
        await self._diagnose(expected=True)

    def end(self, verdict: Ending, detail: str) -> NoReturn:
        """Kill, and raise the reason for which this execution ended: the first one stays."""
        if self._ending is None:
            self._ending = Stopped(verdict, detail)
        self.kill()
        raise self._ending

    def _late(self) -> NoReturn:
        self.end("timeout", f"{self._who} was not done after {self._limits.wall:g} seconds")

    async def _diagnose(self, expected: bool = False) -> None:
        """The channel is closed: why? Raises Stopped, unless the end is `expected` and orderly."""
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
        # The shell's convention for a signal, which bubblewrap follows; and the one of processes started directly.
        killed = status - 128 if status > 128 else -status if status < 0 else 0
        spent = time.monotonic() - self._began >= self._limits.cpu_seconds
        if killed == signal.SIGXCPU or (killed == signal.SIGKILL and spent):
            self.end(
                "timeout", f"{self._who} used more than {self._limits.cpu_seconds} seconds of processor time"
            )
        if expected and not killed:
            return
        how = f"by signal {killed}" if killed else f"with exit status {status}"
        self.end("crashed", f"{self._who} ended {how} before it answered")

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
        if self.process is not None:
            self._writer.transport.abort()
            await self.process.close()
        if self._group is not None:
            await self._group.remove()
