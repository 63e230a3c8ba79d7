"""A test that waits for ever fails, and says where it waits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WAITS = """
import threading

def test_that_waits_for_a_lock_that_nobody_gives_back():
    lock = threading.Lock()
    with lock:
        lock.acquire()

def test_beside_it():
    pass
"""


def test_every_test_has_a_time_limit(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getini("faulthandler_timeout") == 600
    assert pytestconfig.getini("faulthandler_exit_on_timeout") is True


@pytest.mark.parametrize("workers", [0, 1])
def test_a_deadlock_fails_and_ends(workers: int, tmp_path: Path) -> None:
    """The rest runs in another worker; without workers the run ends there."""
    path = tmp_path / "test_waits.py"
    path.write_text(WAITS)
    options = [
        "-c",
        ROOT / "pyproject.toml",
        "-o",
        "faulthandler_timeout=2",
        "-p",
        "no:cacheprovider",
        "-n",
        workers,
    ]
    command = [sys.executable, "-m", "pytest", *map(str, options), "--rootdir", str(tmp_path), str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "Timeout (0:00:02)!" in done.stderr and "in test_that_waits_for_a_lock" in done.stderr
    assert not workers or ("1 failed, 1 passed" in done.stdout and "crashed while running" in done.stdout)
