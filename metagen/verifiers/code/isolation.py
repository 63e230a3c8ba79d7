"""Isolation of a candidate: the contract of an isolation, and the absence of one.

An isolation turns a command into one that runs it isolated and within limits. `Bubblewrap` is the real
one. `NoIsolation` has to be asked for by its name.
"""

from __future__ import annotations

import shutil
from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from metagen.errors import InputError
from metagen.verifiers.code.limits import Limits


class IsolationError(InputError):
    """Untrusted code cannot be isolated on this machine; nothing was run."""


class Isolation(Protocol):
    """A way to start untrusted commands."""

    @property
    def filter(self) -> bytes | None:
        """A system-call filter to be handed over by file descriptor, if this isolation takes one."""

    @property
    def contains(self) -> bool:
        """Whether the end of the started process is the end of all its descendants."""

    @property
    def holds(self) -> tuple[str, ...]:
        """The guarantees, in words, one sentence each."""

    def command(
        self,
        inner: abc.Sequence[str],
        limits: Limits,
        *,
        readable: abc.Sequence[Path],
        hidden: abc.Sequence[Path] = (),
        files: Mapping[str, Path] = MappingProxyType({}),
        filter_fd: int | None,
    ) -> list[str]:
        """The command that runs `inner`.

        readable: directories that it sees, read-only; hidden: empty ones. files: files of ours, by where it sees them.
        """

    def path_inside(self, file: Path, place: str) -> str:
        """The path at which the candidate finds a file of ours that is put at `place`."""

    def server(
        self, inner: abc.Sequence[str], *, readable: abc.Sequence[Path], hidden: abc.Sequence[Path]
    ) -> list[str] | None:
        """The command that runs `inside/server.py`, whose copies are isolated as by `command`.

        None: that cannot be promised. An isolation that has such a command is hashable.
        """

    def confinement(self, limits: Limits) -> dict[str, Any]:
        """A request for such a copy."""


@cache
def find_program(program: str) -> str | None:
    """The path of a program of the system; None without it."""
    return shutil.which(program)


def kernel_limits(limits: Limits, *, beside: int = 0) -> dict[str, tuple[int, int]]:
    """The limits of the kernel on each process, soft and hard, by the names that `prlimit` has for them.

    beside: processes of ours that the kernel counts with the candidate's.
    """
    seconds, processes = limits.cpu_seconds, limits.processes + beside
    return {
        "nproc": (processes, processes),
        "as": (limits.memory, limits.memory),
        "fsize": (limits.file, limits.file),
        "cpu": (seconds, seconds + 1),
        "nofile": (256, 256),
        "core": (0, 0),
        "memlock": (0, 0),
    }


def rlimits(limits: Limits, *, beside: int = 0) -> list[str]:
    """A prefix that sets `kernel_limits`, and starts what follows. Raises IsolationError without `prlimit`."""
    prlimit = find_program("prlimit")
    if prlimit is None:
        raise IsolationError("no 'prlimit' here, which sets the limits of each process; install util-linux")
    bounds = kernel_limits(limits, beside=beside).items()
    return [prlimit, *(f"--{name}={soft}:{hard}" for name, (soft, hard) in bounds), "--"]


@dataclass(frozen=True)
class NoIsolation:
    """Candidates run as the user, with the user's files and network. For trusted programs alone.

    Limits of each process hold, except where the user is root; that on disk does not. Nobody stops daemonised children.
    """

    filter: bytes | None = None
    contains: bool = False

    @property
    def holds(self) -> tuple[str, ...]:
        return (
            "nothing is isolated: programs read the user's files, use the network, and can outlive the run",
            "no limit on disk: files are the user's, each as large as Limits.file",
        )

    def command(
        self,
        inner: abc.Sequence[str],
        limits: Limits,
        *,
        readable: abc.Sequence[Path],
        hidden: abc.Sequence[Path] = (),
        files: Mapping[str, Path] = MappingProxyType({}),
        filter_fd: int | None,
    ) -> list[str]:
        return [*rlimits(limits), *inner]

    def path_inside(self, file: Path, place: str) -> str:
        return str(file)

    def server(
        self, inner: abc.Sequence[str], *, readable: abc.Sequence[Path], hidden: abc.Sequence[Path]
    ) -> list[str] | None:
        return None

    def confinement(self, limits: Limits) -> dict[str, Any]:
        raise IsolationError("nothing confines the copies of a server here")
