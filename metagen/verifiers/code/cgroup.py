"""Control groups: memory and processes of a whole tree, bounded by the kernel. Version 2, or version 1 where it rules.

A group is made for one execution and removed after it. Where no group can be made, `Groups.find`
returns None, and `Bubblewrap.holds` says which limits hold then.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from metagen.errors import MetagenError
from metagen.verifiers.code.limits import Limits

_PREFIX = "metagen-"


class GroupError(MetagenError):
    """A control group could not be made for a run, which has not begun."""


_numbers = itertools.count()


@dataclass(frozen=True)
class Group:
    """The directories of one group: one in version 2, one for each controller in version 1."""

    memory: Path | None
    pids: Path | None

    @property
    def directories(self) -> list[Path]:
        return list(dict.fromkeys(d for d in (self.memory, self.pids) if d is not None))

    def limit(self, limits: Limits) -> None:
        if self.pids is not None:
            # The program that starts the tree, and the one that watches over it inside, count as well.
            (self.pids / "pids.max").write_text(str(limits.processes + 2))
        if self.memory is None:
            return
        if (self.memory / "memory.max").exists():
            values = {"memory.max": limits.memory, "memory.swap.max": 0, "memory.oom.group": 1}
        else:
            values = {"memory.limit_in_bytes": limits.memory, "memory.memsw.limit_in_bytes": limits.memory}
        for name, value in values.items():
            if (self.memory / name).exists():  # no file where the kernel has no swap accounting
                (self.memory / name).write_text(str(value))

    def out_of_memory(self) -> bool:
        """Whether the kernel killed a process of the group for memory."""
        if self.memory is None:
            return False
        for name in ("memory.events", "memory.oom_control"):
            file = self.memory / name
            if file.exists():
                words = file.read_text().split()
                return int(words[words.index("oom_kill") + 1]) > 0
        return False

    def kill(self) -> None:
        """Kill all in it: in one stroke, where the kernel offers that, else one by one."""
        for directory in self.directories:
            if (directory / "cgroup.kill").exists():
                (directory / "cgroup.kill").write_text("1")
                continue
            for pid in (directory / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)

    async def remove(self) -> None:
        """Kill all in it, and remove it when the last one is gone. Never raises: a rest is swept later."""
        pause = 0.001
        while pause < 2.0 and not self._try_remove():
            with suppress(OSError):  # gone meanwhile, or not ours any more
                self.kill()
            await asyncio.sleep(pause)
            pause *= 2

    def _try_remove(self) -> bool:
        gone = True
        for directory in self.directories:
            try:
                directory.rmdir()
            except FileNotFoundError:
                pass
            except OSError:  # busy: something in it is still dying
                gone = False
        return gone


@dataclass(frozen=True)
class Groups:
    """The places of new groups: a parent directory for memory and one for processes, often the same."""

    memory: Path | None
    pids: Path | None

    @classmethod
    def find(cls) -> Groups | None:
        """The nearest parents, from this process's own groups upwards, in which this user can make groups."""
        memory, pids = _parent("memory"), _parent("pids")
        if memory is None and pids is None:
            return None
        for parent in {memory, pids} - {None}:
            _sweep(parent)  # type: ignore[arg-type]  # None was taken out
        return cls(memory, pids)

    def create(self, limits: Limits) -> Group:
        name = f"{_PREFIX}{os.getpid()}-{next(_numbers)}"
        group = Group(self.memory and self.memory / name, self.pids and self.pids / name)
        try:
            for directory in group.directories:
                directory.mkdir()
            group.limit(limits)
        except OSError as error:
            for directory in group.directories:
                with suppress(OSError):
                    directory.rmdir()
            raise GroupError(
                f"no control group can be made for {limits!r}: {error}; mend what is said there, or do without groups: "
                "Sandbox(control_groups=False)"
            ) from error
        return group


def _parent(controller: str) -> Path | None:
    names = {"memory": ("memory.max", "memory.limit_in_bytes"), "pids": ("pids.max",)}[controller]
    for parent in _own(controller):
        probe = parent / f"{_PREFIX}{os.getpid()}-probe-{next(_numbers)}"
        try:
            probe.mkdir()
        except OSError:
            continue
        try:
            if any(os.access(probe / name, os.W_OK) for name in names):
                return parent
        finally:
            probe.rmdir()
    return None


def _own(controller: str) -> Iterator[Path]:
    """The directories of this process's own group and of those above it, for a controller of either version."""
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:  # not Linux, or no /proc
        return
    for _, controllers, path in groups:
        unified = not controllers
        if not unified and controller not in controllers.split(","):
            continue
        for mount in mounts:
            kind, options = mount[mount.index("-") + 1], mount[-1].split(",")
            if kind == ("cgroup2" if unified else "cgroup") and (unified or controller in options):
                # In a container the mount shows a part of the tree; paths outside of it are not seen.
                inside = path if mount[3] == "/" else path.removeprefix(mount[3])
                place = Path(mount[4]) / inside.lstrip("/")
                yield from (d for d in (place, *place.parents) if d.is_relative_to(mount[4]) and d.is_dir())


def _sweep(parent: Path) -> None:
    """Remove empty groups whose owner died before it could."""
    for directory in parent.glob(f"{_PREFIX}*"):
        owner = directory.name.removeprefix(_PREFIX).split("-")[0]
        if owner.isdecimal() and not Path("/proc", owner).exists():
            try:
                directory.rmdir()
            except OSError:  # another process sweeps as well, or something still dies in there
                continue
