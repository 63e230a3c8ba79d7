"""A process and all that it has started, ended together."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterable
from pathlib import Path


def end(child: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that descend from it: engines start processes, some in sessions of their own."""
    kill((*descendants(child.pid), child.pid))
    child.wait()


def end_with_parent() -> None:
    """Let this process, and all that it starts, end when the process ends that has started it."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        kill((*descendants(os.getpid()), os.getpid()))

    threading.Thread(target=watch, name="parent", daemon=True).start()


def kill(processes: Iterable[int]) -> None:
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it has ended since


def descendants(process: int) -> list[int]:
    """Of a process, those that it started and those that these did, by /proc."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            after = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended since
        children.setdefault(int(after[1]), []).append(int(status.parent.name))
    found, stack = list[int](), [process]
    while stack:
        own = children.get(stack.pop(), [])
        found += own
        stack += own
    return found
