"""Each hazard is contained, and its verdict is right."""

import asyncio
import os
import socket
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from metagen.verifiers.code.check import Suite, check
from metagen.verifiers.code.nest import Nest
from metagen.verifiers.code.sandbox import Sandbox
from tests.verifiers.code.hazards import HAZARDS, HONEST, Hazard

TESTS = Suite(("assert f(2) == 4", "assert f(3) == 9"))


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What a candidate would find if it got out: a secret, and servers that would let it in."""
    place = tmp_path_factory.mktemp("targets")
    secret = place / "secret"
    secret.write_text("the user's")
    secret.chmod(0o644)
    abstract = f"metagen-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as unnamed,
    ):
        named.bind(str(place / "socket"))
        unnamed.bind(f"\0{abstract}")
        named.listen()
        unnamed.listen()
        yield {
            "{secret!r}": repr(str(secret)),
            "{home!r}": repr(str(Path.home())),
            "{port}": str(server.getsockname()[1]),
            "{socket!r}": repr(str(place / "socket")),
            "{abstract!r}": repr(abstract),
        }


@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda hazard: hazard.name)
def test_contained_and_judged(
    hazard: Hazard, sandbox: Sandbox, targets: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METAGEN_TEST_SECRET", "of the user")
    program = hazard.program
    for name, value in targets.items():
        program = program.replace(name, value)
    report = asyncio.run(check(sandbox, program, TESTS, limits=replace(sandbox.limits, wall=hazard.wall)))
    assert report.verdict in hazard.verdicts, report
    assert remains() == []


def remains() -> list[str]:
    """Processes and groups of sandboxes that are still there, a moment after their end."""
    deadline = time.monotonic() + 10
    while (left := processes() + groups()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def processes() -> list[str]:
    """Processes of sandboxes that descend from this one. Three are a nest's own, and wait for the next program."""
    nests = [nest.pid for nest in living()]
    for _ in range(2):
        nests += [pid for pid in map(int, pids()) if parent(pid) in nests and pid not in nests]
    found = []
    for pid in map(int, pids()):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if pid not in nests and (words[0].endswith(b"bwrap") or parent(pid) in nests) and mine(pid):
            found.append(b" ".join(words).decode(errors="replace"))
    return found


def living() -> list[Nest]:
    """Nests that something still holds. Each has a finalizer: there are far fewer of those than objects to walk."""
    finalizers = list(weakref.finalize._registry)  # type: ignore[attr-defined]  # the typeshed leaves it out
    things = [alive[0] for finalizer in finalizers if (alive := finalizer.peek()) is not None]
    return [thing for thing in things if type(thing) is Nest]


def pids() -> list[str]:
    return [path.name for path in Path("/proc").glob("[0-9]*")]


def parent(pid: int) -> int:
    """The parent of a process; 0 if there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def mine(pid: int) -> bool:
    """Whether a process descends from this one; workers that share the tests have sandboxes of their own."""
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = parent(pid)
    return False


def groups() -> list[str]:
    # What others remove meanwhile is passed over.
    mine = f"metagen-{os.getpid()}-"
    walk = os.walk("/sys/fs/cgroup")
    return [f"{root}/{name}" for root, names, _ in walk for name in names if name.startswith(mine)]


def test_there_are_enough_of_them() -> None:
    assert len(HAZARDS) >= 40
    assert len({hazard.name for hazard in HAZARDS}) == len(HAZARDS)


def test_what_is_honest_passes(sandbox: Sandbox) -> None:
    assert asyncio.run(check(sandbox, HONEST, TESTS)).verdict == "passed"
