"""bubblewrap: namespaces without network, a read-only system, a private disk in memory, an unprivileged user.

The candidate sees the system's programs and libraries, those of its language, and an empty `/tmp`:
no `/proc`, no `/home`, no `/etc` but the loader's cache, no environment. As an ordinary user, bubblewrap
makes a user namespace. As root it needs none: the candidate then gets a user id of its own, drawn for
this run, because the kernel holds root to no limit on processes.
"""

from __future__ import annotations

import os
import platform
import secrets
import shutil
import subprocess
from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from metagen.verifiers.code import seccomp
from metagen.verifiers.code.isolation import IsolationError, find_program, kernel_limits, rlimits
from metagen.verifiers.code.limits import Limits

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_DEVICES = ("null", "zero", "urandom")
_CAP_SYS_ADMIN = 21

_REMEDY = (
    "metagen runs untrusted programs only where they can be isolated. On Linux, install bubblewrap "
    "(apt-get install bubblewrap, dnf install bubblewrap) and let it make namespaces: "
    "`sysctl kernel.unprivileged_userns_clone=1` (Debian), "
    "`sysctl kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu 24.04 and later), or, in a container, "
    "--privileged. For programs that you trust with your files, "
    "Sandbox(run_untrusted_programs_without_isolation=True)."
)


@dataclass(frozen=True)
class Bubblewrap:
    """An isolation by the program at `path`. `Bubblewrap.find` tries it before it is used.

    root: started by a user who may do all, so user ids are drawn from `users`, and `setpriv` takes them on.
    prefix: a command that bubblewrap itself is started by.
    """

    path: str
    root: bool
    users: range
    filter: bytes | None
    prefix: tuple[str, ...] = ()
    contains: bool = True

    @classmethod
    def find(cls) -> Bubblewrap:
        """The isolation of this machine, tried out once; IsolationError says why there is none, and the remedy."""
        return _find()

    @property
    def holds(self) -> tuple[str, ...]:
        user = "a user id of its own in each run" if self.root else "an unprivileged user in a user namespace"
        calls = (
            "a filter of system calls"
            if self.filter
            else f"no filter of system calls on {platform.machine()!r}"
        )
        return (
            "no network, no view of the user's files, processes and environment",
            "a read-only system and a private /tmp in memory, as large as the limit on disk",
            user,
            calls,
            "processor time, address space, file size and number of processes, by the kernel's limits on each process",
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
        words = [
            *self.prefix,
            self.path,
            *self._namespaces(),
            *_view(tuple(readable), tuple(hidden), limits.disk),
            *(word for place, file in files.items() for word in ("--ro-bind", str(file), place)),
            "--chdir",
            "/tmp",
            "--remount-ro",
            "/",
        ]
        if filter_fd is not None:
            words += ["--seccomp", str(filter_fd)]
        # In a user namespace, the process that bubblewrap leaves there is of the same user.
        return [*words, "--", *self._user(), *rlimits(limits, beside=0 if self.root else 1), *inner]

    def server(
        self, inner: abc.Sequence[str], *, readable: abc.Sequence[Path], hidden: abc.Sequence[Path]
    ) -> list[str] | None:
        """As in `Isolation`. None without a filter, and where `/tmp`, which each copy gets anew, is to be read."""
        if self.filter is None or any(path.is_relative_to("/tmp") for path in readable):
            return None
        # The groups of copies are seen from where they were opened; older kernels look for them in this namespace.
        namespaces = [word for word in self._namespaces() if word != "--unshare-cgroup-try"]
        words = [*self.prefix, self.path, *namespaces, "--cap-add", "CAP_SYS_ADMIN"]
        words += _view(tuple(readable), tuple(hidden), 4096)
        if not self.root:
            words += ["--proc", "/tmp/proc"]  # a user namespace is described there
        return [*words, "--chdir", "/tmp", "--remount-ro", "/", "--", *inner]

    def confinement(self, limits: Limits) -> dict[str, Any]:
        """As in `Isolation`: what `inside/server.py` reads."""
        return {
            "user": self._draw_user() if self.root else None,
            "disk": limits.disk,
            "limits": kernel_limits(limits, beside=0 if self.root else 1),
        }

    def _namespaces(self) -> list[str]:
        words = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        words += ["--die-with-parent", "--new-session", "--hostname", "sandbox", "--cap-drop", "ALL"]
        if self.root:
            # Kept only for the change of user, which gives them up.
            return [*words, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        return [*words, "--unshare-user", "--uid", "65534", "--gid", "65534"]

    def _user(self) -> list[str]:
        if not self.root:
            return []
        setpriv = find_program("setpriv")
        if setpriv is None:
            raise IsolationError("no 'setpriv' here, which gives up the rights of root; install util-linux")
        user = self._draw_user()
        return [
            setpriv,
            f"--reuid={user}",
            f"--regid={user}",
            "--clear-groups",
            "--inh-caps=-all",
            "--no-new-privs",
            "--",
        ]

    def _draw_user(self) -> int:
        return self.users.start + secrets.randbelow(len(self.users))

    def path_inside(self, file: Path, place: str) -> str:
        return place

    def check(self) -> None:
        """Run the least program; IsolationError when even that fails."""
        command = self.command(["/bin/sh", "-c", "exit 7"], Limits(), readable=(), filter_fd=None)
        run = subprocess.run(command, env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
        if run.returncode != 7:
            said = run.stderr.decode(errors="replace").strip() or f"exit status {run.returncode}"
            raise IsolationError(f"bubblewrap ({self.path!r}) isolates nothing here: {said!r}. {_REMEDY}")


@cache
def _find() -> Bubblewrap:
    path = shutil.which("bwrap")
    if path is None:
        raise IsolationError(f"bubblewrap is not installed: no 'bwrap' on the PATH. {_REMEDY}")
    ids = _user_ids()
    root = os.geteuid() == 0 and _may_mount() and len(ids) > 1000
    isolation = Bubblewrap(path, root, ids, seccomp.program())
    if os.geteuid() == 0 and not root and len(ids) > 2**31:
        raise IsolationError(
            f"this is root without the right to mount (CAP_SYS_ADMIN): bubblewrap ({path!r}) cannot take on another "
            f"user, and the kernel holds root to no limit on processes; run as an ordinary user. {_REMEDY}"
        )
    isolation.check()
    return isolation


def _may_mount() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False


def _user_ids() -> range:
    """The upper half of the largest block of user ids that exist here: nobody's, as a rule."""
    blocks = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    first, _, count = max(blocks, key=lambda block: block[2])
    return range(first + count // 2, first + count)


@lru_cache(64)
def _view(readable: tuple[Path, ...], hidden: tuple[Path, ...], disk: int) -> list[str]:
    """The file system: the system as it is but for what is hidden, `readable`, a few devices, and /tmp.

    Kept, since it looks at many files, and what it finds does not change between two runs.
    """
    words: list[str] = []
    for name in _SYSTEM:
        path = Path(name)
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            words += ["--ro-bind", name, name]
    words += ["--perms", "0755", "--dir", "/etc", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    words += ["--perms", "0755", "--dir", "/dev"]
    for device in _DEVICES:
        words += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    # Locks of `multiprocessing` are files in /dev/shm; in /tmp the limit on disk holds for them too.
    words += ["--symlink", "/tmp", "/dev/shm", "--perms", "0755", "--dir", "/dev/fd"]
    words += ["--symlink", "../stdin", "/dev/fd/0"]
    # Before what is readable, some of which may lie in it.
    words += ["--perms", "1777", "--size", str(disk), "--tmpfs", "/tmp"]
    made = {Path("/tmp"), Path("/etc"), Path("/dev")}
    # From the outermost inwards, so that nothing covers what comes before it.
    for path in sorted({*readable, *hidden}):
        if path in hidden:
            if path.is_relative_to("/usr") or any(path.is_relative_to(p) for p in readable):
                words += ["--perms", "0555", "--size", "4096", "--tmpfs", str(path)]
            continue
        if any(path.is_relative_to(p) for p in _SYSTEM) and not any(path.is_relative_to(p) for p in hidden):
            continue
        # Made one by one, since bubblewrap would close what leads to a directory in a closed one to others.
        for parent in reversed(path.parents[:-1]):
            if parent not in made:
                words += ["--perms", "0755", "--dir", str(parent)]
                made.add(parent)
        words += ["--ro-bind", str(path), str(path)]
    for path in hidden:
        if str(path) in words:
            words += ["--remount-ro", str(path)]
    return words
