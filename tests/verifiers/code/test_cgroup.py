"""Control groups, of whichever version rules here."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from metagen.verifiers.code.cgroup import Group, Groups
from metagen.verifiers.code.limits import MIB, Limits


@pytest.fixture
def groups() -> Groups:
    found = Groups.find()
    if found is None:
        pytest.skip("no control group can be made on this machine, by this user")
    return found


def inside(group: Group, code: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a group."""
    places = [str(directory / "cgroup.procs") for directory in group.directories]
    enter = f"import os\nfor place in {places!r}:\n    open(place, 'w').write('0')\n"
    return subprocess.run([sys.executable, "-I", "-c", enter + code], capture_output=True, text=True)


def test_memory_binds_and_is_told(groups: Groups) -> None:
    if groups.memory is None:
        pytest.skip("no group bounds memory on this machine")
    group = groups.create(Limits(memory=64 * MIB))
    assert inside(group, "x = bytearray(b'1') * (1 << 20)").returncode == 0
    assert not group.out_of_memory()
    assert inside(group, "x = bytearray(b'1') * (256 << 20)").returncode != 0
    assert group.out_of_memory()
    asyncio.run(group.remove())
    assert not any(d.exists() for d in group.directories)


def test_processes_bind(groups: Groups) -> None:
    if groups.pids is None:
        pytest.skip("no group bounds processes on this machine")
    group = groups.create(Limits(processes=3))
    code = """
import time
n = 0
try:
    while True:
        if not os.fork():
            time.sleep(1)
            os._exit(0)
        n += 1
except OSError:
    print(n)
"""
    assert (
        inside(group, code).stdout == "4\n"
    )  # of 3, and the 2 that a sandbox adds, one is the first process
    asyncio.run(group.remove())
    assert not any(d.exists() for d in group.directories)


def test_removing_waits_for_the_last_process(groups: Groups) -> None:
    group = groups.create(Limits())
    with subprocess.Popen(["sleep", "0.3"]) as process:
        for directory in group.directories:
            (directory / "cgroup.procs").write_text(str(process.pid))

        async def both() -> None:
            await asyncio.gather(group.remove(), asyncio.to_thread(process.wait))

        asyncio.run(both())
    assert not any(d.exists() for d in group.directories)


def test_groups_of_the_dead_are_swept(groups: Groups) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    parent = next(p for p in (groups.memory, groups.pids) if p is not None)
    left, own = parent / f"metagen-{process.pid}-0", parent / f"metagen-{os.getpid()}-never"
    left.mkdir()
    own.mkdir()
    Groups.find()
    assert not left.exists() and own.exists()
    own.rmdir()


def test_without_any(tmp_path: Path) -> None:
    group = Group(None, None)
    group.limit(Limits())
    group.kill()
    assert group.directories == [] and not group.out_of_memory()
    asyncio.run(group.remove())
