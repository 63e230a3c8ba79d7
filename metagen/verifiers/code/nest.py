"""A nest: a sandbox with a server that has loaded an inside, and forks a confined copy of itself for each program.

A copy costs a fraction of bubblewrap and of an interpreter's start. `inside/server.py` says how it is confined.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import threading
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from metagen.verifiers.code.isolation import Isolation
from metagen.verifiers.code.language import Language, Python, attempt, server
from metagen.verifiers.code.limits import Limits
from metagen.verifiers.code.process import Output, Process, pipes

Inside = Literal["candidate", "judge"]
#: Programs of one nest. Its copies share the order of sets of strings, and the addresses of what it has loaded.
PROGRAMS = 64
#: Seconds that a server may take to read a request, and an attempt to answer; far more than they need.
PATIENCE = 60.0
#: Bytes of a message that a socket takes in any case.
PIECE = 32 * 1024


class Nest:
    """A running server. It ends with this object, or with the thread that made it. Raises OSError if none can start."""

    def __init__(self, isolation: Isolation, python: Python, program: str) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            begin = python.run(program, theirs.fileno())
            command = isolation.server(begin.command, readable=python.readable, hidden=python.hidden)
            assert command is not None and isolation.filter is not None
            with pipes() as (streams, ends):  # as programs have them
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=ends[0],
                    stderr=ends[1],
                    env={},
                    cwd="/",
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        self.pid, self.left = process.pid, PROGRAMS
        self._control, self._streams = ours, streams
        weakref.finalize(self, _end, os.getpid(), process, ours, streams)
        os.set_blocking(streams[1], False)
        ours.settimeout(PATIENCE)
        for start in range(0, len(begin.preamble), PIECE):
            ours.send(begin.preamble[start : start + PIECE])
        ours.send(isolation.filter)

    @property
    def lives(self) -> bool:
        # It writes nothing: there is something to read when the other end has closed.
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        return not poll.poll(0)

    def errors(self) -> bytes:
        """What the server wrote to standard error, and has not been asked for before."""
        try:
            return os.read(self._streams[1], 65536)
        except OSError:
            return b""

    def fork(self, request: dict[str, Any], fds: Sequence[int]) -> None:
        """Ask for a copy that is confined as `request` says; what is in `fds`, `inside/server.py` tells."""
        socket.send_fds(self._control, [json.dumps(request).encode()], fds)
        self.left -= 1


class Copy(Process):
    """The first process of a copy's namespaces: all of them end with it."""

    def __init__(self, nest: Nest, report: socket.socket, streams: tuple[int, int], output: Output) -> None:
        super().__init__(streams, output)
        self._nest, self._report = nest, report
        self._told: int | None = None
        self._killed = self._gone = False
        report.setblocking(False)
        self._loop.add_reader(report, self._hear)

    @property
    def lost(self) -> bool:
        return self._told is None and not self._killed and not self._nest.lives

    def kill(self) -> None:
        self._killed = True
        super().kill()

    def _hear(self) -> bool:
        """Read from the server what ends it, from the first process the status: whether there was anything."""
        try:
            data, fds, *_ = socket.recv_fds(self._report, 64, 1, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return False
        except ConnectionError:
            data, fds = b"", []
        if fds:
            self._watch(fds[0])
            if self._killed:
                self.kill()
        elif data:
            self._told = int(data)
        else:
            self._close_report()
            if self._pidfd is None and not self.ended.done():
                self._output(2, self._nest.errors())
                self.ended.set_result(self._status())
        return bool(data)

    def _status(self) -> int:
        while self._report.fileno() >= 0 and self._told is None and self._hear():
            pass
        self._close_report()
        return -signal.SIGKILL if self._told is None else self._told

    def _close_report(self) -> None:
        if self._report.fileno() >= 0:
            self._loop.remove_reader(self._report)
            self._report.close()


class Nests:
    """The nests of a sandbox, for each thread its own: the end of a thread ends the processes that it has started."""

    def __init__(self, isolation: Isolation) -> None:
        self._isolation, self._of_thread = isolation, threading.local()

    def offer(self, language: Language) -> Python | None:
        """The language, if its programs are copies here; else each starts by itself."""
        if not isinstance(language, Python):
            return None
        command = self._isolation.server((), readable=language.readable, hidden=language.hidden)
        if command is None or not works(self._isolation, language):  # type: ignore[arg-type]  # hashable, as it says
            return None
        return language

    def fork(
        self,
        inside: Inside,
        python: Python,
        limits: Limits,
        channel: int,
        groups: Sequence[Path],
        output: Output,
    ) -> Process:
        """A copy of an inside within limits and control groups. It answers on the socket whose number is `channel`.

        Raises OSError if there is none to be had.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ExitStack() as stack:
            stack.enter_context(theirs)
            failed = stack.enter_context(ExitStack())
            failed.callback(ours.close)
            files = [stack.enter_context((group / "cgroup.procs").open("wb")) for group in groups]
            streams, ends = stack.enter_context(pipes())
            nest = self._find(inside, python)
            nest.fork(
                self._isolation.confinement(limits),
                [channel, *ends, theirs.fileno(), *(file.fileno() for file in files)],
            )
            failed.pop_all()
            return Copy(nest, ours, streams, output)

    def _find(self, inside: Inside, python: Python) -> Nest:
        nests: dict[tuple[int, str], Nest] = self._of_thread.__dict__.setdefault("nests", {})
        key = (os.getpid(), inside)  # a fork of this process has nests of its own
        nest = nests.get(key)
        if nest is None or nest.left <= 0 or not nest.lives:
            nest = nests[key] = Nest(self._isolation, python, server(inside))
        return nest


@lru_cache(64)
def works(isolation: Isolation, python: Python) -> bool:
    """Whether a server runs, and can confine a copy; tried once, for a kernel or a container may forbid it."""
    answer, channel = socket.socketpair()
    report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with answer, report:
        try:
            with channel, theirs, pipes() as (streams, ends):
                nest = Nest(isolation, python, attempt())
                nest.fork(isolation.confinement(Limits()), [channel.fileno(), *ends, theirs.fileno()])
            for fd in streams:
                os.close(fd)
            answer.settimeout(PATIENCE)
            return answer.recv(16) == b"stands"
        except OSError:
            return False


def _end(
    owner: int, process: subprocess.Popen[bytes], control: socket.socket, streams: tuple[int, int]
) -> None:
    """Close what belongs to a server, and end it, unless this is a fork of the process that started it."""
    control.close()
    for fd in streams:
        os.close(fd)
    if os.getpid() == owner:
        process.kill()
        process.wait()
