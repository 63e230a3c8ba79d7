"""Training scripts as a user runs them, on a small share of the steps and data."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import runpy
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


#: Runs that are killed are forked from a process that has imported what takes them longest.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["torch.optim", "torch._dynamo", "transformers", "metagen.runs.curves.study"]
)


def silent(command: list[str]) -> None:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # noqa: PTH123
        Scripts.here(command)


class Scripts:
    """Runs `examples/train/<script> --into FOLDER …` at a small scale, with a checkpoint after each step."""

    seed, scale = 5, 0.0003

    @staticmethod
    def command(script: str, *arguments: object) -> list[str]:
        return [sys.executable, str(SCRIPTS / script), *map(str, arguments)]

    def trial(self, script: str, into: Path, *arguments: object) -> list[str]:
        options = (
            "--into",
            into,
            "--scale",
            self.scale,
            "--save-every",
            0,
            "--seed",
            self.seed,
            "--threads",
            1,
        )
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

    def interrupt(self, script: str, into: Path, reached: Callable[[], bool]) -> None:
        """Kill a run as soon as it has come somewhere."""
        process = PROCESSES.Process(target=silent, args=(self.trial(script, into),), daemon=True)
        process.start()
        try:
            patience = time.monotonic() + PATIENCE
            while not reached():
                assert process.is_alive(), "it ended before it was killed"
                assert time.monotonic() < patience
                time.sleep(0.01)
        finally:
            process.kill()
            process.join()

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
