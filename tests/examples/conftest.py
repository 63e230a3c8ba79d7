"""Training scripts as a user runs them: processes of their own, on a thousandth of the steps and data."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "train"
PATIENCE = 900.0


class Scripts:
    """Runs `examples/train/<script> --into FOLDER …` at a thousandth, with a checkpoint after each step."""

    seed = 5

    @staticmethod
    def command(script: str, *arguments: object) -> list[str]:
        return [sys.executable, str(SCRIPTS / script), *map(str, arguments)]

    def trial(self, script: str, into: Path, *arguments: object) -> list[str]:
        options = ("--into", into, "--scale", 0.001, "--save-every", 0, "--seed", self.seed, "--threads", 1)
        return self.command(script, *arguments, *options)

    def run(self, script: str, into: Path, *arguments: object) -> str:
        """A trial in this process, which has imported torch and transformers already; what it prints."""
        return self.here(self.trial(script, into, *arguments))

    @staticmethod
    def here(command: list[str]) -> str:
        _, path, *options = command
        said, before = io.StringIO(), (sys.argv, list(sys.path), torch.get_num_threads())
        sys.modules.pop(
            "first", None
        )  # imported once more, it finds the scripts one folder up for this run as well
        try:
            sys.argv, sys.path[:0] = [path, *options], [str(Path(path).parent)]
            with contextlib.redirect_stdout(said):
                runpy.run_path(path, run_name="__main__")
        finally:
            sys.argv, sys.path[:] = before[0], before[1]
            torch.set_num_threads(before[2])
        return said.getvalue()

    def go_on(self, script: str, into: Path, *arguments: object) -> None:
        """In a process of its own, as a run that was interrupted goes on."""
        command = self.trial(script, into, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr

    def interrupt(self, script: str, into: Path, reached: Callable[[], bool]) -> None:
        """Kill a run, its workers with it, as soon as it has come somewhere."""
        process = subprocess.Popen(
            self.trial(script, into),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            patience = time.monotonic() + PATIENCE
            while not reached():
                assert process.poll() is None, "it ended before it was killed"
                assert time.monotonic() < patience
                time.sleep(0.002)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    @staticmethod
    def files(into: Path) -> dict[str, bytes]:
        """Every file of the finished models, cards and tokenizers included."""
        return {
            str(p.relative_to(into / "models")): p.read_bytes() for p in sorted((into / "models").glob("*/*"))
        }


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """The modules of the training scripts, by name."""
    monkeypatch.syspath_prepend(str(SCRIPTS / "countdown"))
    monkeypatch.syspath_prepend(str(SCRIPTS / "programs"))
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return import_module


@pytest.fixture(scope="session")
def scripts() -> Scripts:
    return Scripts()


@pytest.fixture(scope="session")
def family(scripts: Scripts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of the whole family that nothing interrupted; not to be changed."""
    into = tmp_path_factory.mktemp("whole")
    scripts.run("family.py", into)
    return into
