"""A child process of an event loop: its output is handed on as it comes, its end is learnt from its pidfd.

Smaller and faster than asyncio's: no thread waits for it, nothing but this reaps it, and a kill can meet
no other process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Told of what the process writes, on the loop: 1 for standard output, 2 for standard error, and the bytes.
Output = Callable[[int, bytes], None]


class Process(ABC):
    """A process that runs. To be closed, whatever happens.

    streams: file descriptors of its standard output and error to read from, which this owns.
    """

    def __init__(self, streams: tuple[int, int], output: Output) -> None:
        self._loop, self._output = asyncio.get_running_loop(), output
        #: The exit status, negative for a signal.
        self.ended: asyncio.Future[int] = self._loop.create_future()
        self._pidfd: int | None = None
        self._open = dict(zip((1, 2), streams, strict=True))
        for number, fd in self._open.items():
            os.set_blocking(fd, False)
            self._loop.add_reader(fd, self._read, number)

    @property
    def pid(self) -> int:
        """Its number, while it runs."""
        for line in Path(f"/proc/self/fdinfo/{self._pidfd}").read_text().splitlines():
            if line.startswith("Pid:"):
                return int(line.split()[1])
        raise ProcessLookupError("the process has ended")

    @property
    def lost(self) -> bool:
        """Whether it ended because something of ours did."""
        return False

    def kill(self) -> None:
        if self._pidfd is not None:
            with suppress(ProcessLookupError):  # it has ended, and whose child it is knows already
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def drain(self) -> None:
        """Hand on what has been written and not yet read, as far as a pipe can hold it."""
        for number in (1, 2) * 16:  # a mebibyte; who writes on meanwhile is not waited for
            if number in self._open:
                self._read(number)

    async def close(self) -> None:
        """Kill it, and wait until it is gone."""
        self.kill()
        for number in list(self._open):
            self._shut(number)
        await asyncio.wait([self.ended])  # a cancellation is of who waits, not of the process

    @abstractmethod
    def _status(self) -> int:
        """The exit status of the process, which has ended."""

    def _watch(self, pidfd: int) -> None:
        self._pidfd = pidfd
        self._loop.add_reader(pidfd, self._reap)

    def _reap(self) -> None:
        assert self._pidfd is not None
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = None
        self.ended.set_result(self._status())

    def _read(self, number: int) -> None:
        try:
            data = os.read(self._open[number], 65536)
        except BlockingIOError:
            return
        if data:
            self._output(number, data)
        else:
            self._shut(number)

    def _shut(self, number: int) -> None:
        fd = self._open.pop(number)
        self._loop.remove_reader(fd)
        os.close(fd)


class Child(Process):
    """A process that is started from its command, at once.

    stdin: a file descriptor, which stays open here; None: nothing.
    contained: its end is the end of all that it started; otherwise its process group is killed with it.
    """

    def __init__(
        self,
        command: list[str],
        output: Output,
        *,
        inherited: tuple[int, ...],
        contained: bool,
        stdin: int | None = None,
    ) -> None:
        self._contained = contained
        with pipes() as (streams, ends):
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=ends[0],
                stderr=ends[1],
                env={},
                cwd="/",
                pass_fds=inherited,
                start_new_session=True,
            )
        super().__init__(streams, output)
        self._watch(os.pidfd_open(self._child.pid))

    def kill(self) -> None:
        super().kill()
        if not self._contained:
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)

    def _status(self) -> int:
        return self._child.wait()


@contextmanager
def pipes() -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Two pipes for a process's output: the ends to read from, and those of the process, closed after the block."""
    (out, to_out), (errors, to_errors) = os.pipe(), os.pipe()
    try:
        yield (out, errors), (to_out, to_errors)
    except BaseException:
        os.close(out)
        os.close(errors)
        raise
    finally:
        os.close(to_out)
        os.close(to_errors)
