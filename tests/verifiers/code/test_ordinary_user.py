"""The same hazards where the user is nobody special, and no control group can be made."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from metagen.verifiers.code.bubblewrap import Bubblewrap
from metagen.verifiers.code.check import check
from metagen.verifiers.code.isolation import IsolationError
from metagen.verifiers.code.language import Python
from metagen.verifiers.code.sandbox import Sandbox
from tests.verifiers.code.conftest import LIMITS
from tests.verifiers.code.hazards import HAZARDS, Hazard
from tests.verifiers.code.test_hazards import TESTS, remains
from tests.verifiers.code.test_sandbox import counted

CHOSEN = (
    "os._exit", "fork bomb", "fork bomb in a call", "memory bomb", "fills the disk", "one huge file",
    "a thousand threads", "endless loop", "ignores all signals", "daemonised child", "kills all it can",
    "its own memory as a file", "the system's files", "the root directory", "root by setuid", "root by a program",
    "higher limits", "a device of its own", "packages of the system", "ptrace",
    "a user namespace", "a mount", "the virtual machine's host",
)  # fmt: skip


@pytest.fixture(scope="module")
def ordinary() -> Sandbox:
    """bubblewrap as an unprivileged user starts it: in a user namespace."""
    interpreter = Python()
    try:
        isolation = Bubblewrap.find()
        if isolation.root:
            setpriv = shutil.which("setpriv")
            system = shutil.which("python3", path="/usr/bin:/bin")
            if setpriv is None or system is None:
                pytest.skip("nobody has no interpreter here: root's may lie where only root reads")
            nobody = (setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", "--")
            isolation = replace(isolation, root=False, prefix=nobody)
            interpreter = Python(Path(system))
        isolation.check()
    except IsolationError as error:
        pytest.skip(f"an ordinary user cannot isolate programs on this machine: {error}")
    return Sandbox(interpreter, LIMITS, isolation=isolation, control_groups=False)


@pytest.mark.parametrize("hazard", [h for h in HAZARDS if h.name in CHOSEN], ids=lambda hazard: hazard.name)
def test_contained_and_judged(hazard: Hazard, ordinary: Sandbox) -> None:
    limits = replace(LIMITS, wall=hazard.wall)
    report = asyncio.run(check(ordinary, hazard.program, TESTS, limits=limits))
    assert report.verdict in hazard.verdicts, report
    assert remains() == []


def test_the_chosen_exist() -> None:
    assert set(CHOSEN) <= {hazard.name for hazard in HAZARDS}


def test_processes_are_counted_for_each_run(ordinary: Sandbox) -> None:
    """The limit is not shared with what else the user runs, which may be more already."""
    assert asyncio.run(counted(ordinary)) == [LIMITS.processes - 1] * 2
