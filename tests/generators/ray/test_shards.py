"""Experiments in shards: the same results as of one driver, whatever is killed, and a total that is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from metagen.journal import SQLiteJournal
from metagen.runs.directory import RunDirectory
from tests.generators.ray.test_runs import FILE, _rows, command, finished, results

pytestmark = pytest.mark.slow
TOTAL = 3000


def write(directory: Path, executor: str, *, total: bool = False, problems: int = 6) -> Path:
    file = directory / f"{len(list(directory.glob('*.yaml')))}.yaml"
    more = f"allocation: {{total: {{generated: {TOTAL}}}}}\n" if total else ""
    file.write_text(FILE.format(executor=executor, problems=problems) + more)
    return file


def drivers() -> list[int]:
    """Processes of drivers on this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes().startswith(b"ray::Driver"):
                found.append(int(path.parent.name))
    return found


def killed(run: Path, file: Path, rows: int, what: str) -> subprocess.Popen[str]:
    """A run in which, after so many records, the head or one of the drivers is killed."""
    head = subprocess.Popen(
        command(file, run),
        start_new_session=True,
        text=True,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    end = time.monotonic() + 300
    while head.poll() is None and _rows(run) < rows:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert head.poll() is None, "it was to be killed in the middle"
    if what == "head":
        os.killpg(head.pid, signal.SIGKILL)
    else:
        os.kill(drivers()[0], signal.SIGKILL)
    return head


def test_shards_change_no_result_and_outlive_their_drivers(cluster: Any, tmp_path: Path) -> None:
    alone, lost, resumed = (tmp_path / name for name in ("alone", "lost", "resumed"))
    assert finished(write(tmp_path, "local"), alone).returncode == 0

    two = write(tmp_path, "{kind: ray, concurrency: 4, replicas: 2, shards: 2}")
    with killed(lost, two, 20, "driver") as head:
        _, said = head.communicate(timeout=600)
    assert head.returncode == 0, said
    assert results(lost) == results(alone) and _rows(lost) == _rows(alone)
    assert not (lost / "shards").exists() and not list(lost.glob("*.part"))
    state = RunDirectory(lost).state()
    assert (state.status, state.problems, state.failures) == ("complete", 12, ())
    assert state.samples == RunDirectory(alone).state().samples
    assert sorted(pq.read_table(lost / "problems.parquet")["place"].to_pylist()) == list(range(12))

    with killed(resumed, two, 20, "head") as head:
        head.communicate()
    before = _rows(resumed)
    # Another number of drivers goes on with what those before have recorded, whoever had it.
    three = write(tmp_path, "{kind: ray, concurrency: 4, replicas: 3, shards: 3}")
    again = finished(three, resumed)
    assert again.returncode == 0, again.stderr
    assert "Traceback" not in again.stderr
    assert results(resumed) == results(alone) and _rows(resumed) == _rows(alone) > before
    state = RunDirectory(resumed).state()
    assert 0 < state.recorded < state.samples


def test_a_total_is_kept_whatever_the_number_of_drivers(cluster: Any, tmp_path: Path) -> None:
    alone, sharded = tmp_path / "alone", tmp_path / "sharded"
    assert finished(write(tmp_path, "local", total=True), alone).returncode == 0
    done = finished(write(tmp_path, "{kind: ray, replicas: 2, shards: 2}", total=True), sharded)
    assert done.returncode == 0, done.stderr
    spent = [_spent(run, name) for run in (alone, sharded) for name in ("small/weighted@8", "small/rebase@4")]
    assert spent[:2] == spent[2:] and max(spent) <= TOTAL


def test_shards_and_one_driver_share_a_cache(cluster: Any, tmp_path: Path) -> None:
    shared = f"cache: {tmp_path / 'shared'}\n"
    for name, executor in (
        ("first", "{kind: ray, replicas: 2, shards: 2}"),
        ("shards", "{kind: ray, replicas: 2, shards: 2}"),
        ("local", "local"),
    ):
        file = write(tmp_path, executor)
        file.write_text(file.read_text() + shared)
        done = finished(file, tmp_path / name)
        assert done.returncode == 0, done.stderr
    states = [RunDirectory(tmp_path / name).state() for name in ("first", "shards", "local")]
    assert states[0].cached == 0 and states[1].cached == states[2].cached == _rows(tmp_path / "first")
    assert results(tmp_path / "first") == results(tmp_path / "shards") == results(tmp_path / "local")


def _spent(run: Path, configuration: str) -> int:
    """Tokens generated, over all problems."""
    rows = pq.read_table(run / "outcomes.parquet", filters=[("configuration", "=", configuration)])
    return int(sum(rows["generated"].to_pylist()))


def test_a_run_that_waits_for_a_machine_can_be_interrupted(
    cluster: Any, tmp_path: Path, until: Callable[..., None]
) -> None:
    """No node has what its drivers need."""
    executor = "{kind: ray, shards: {count: 1, resources: {nowhere: 1}}, replacements: 0}"
    run = tmp_path / "run"
    head = subprocess.Popen(
        command(write(tmp_path, executor), run),
        start_new_session=True,
        # Jobs in the background of a shell inherit that interrupts are ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        until(lambda: (run / "state.json").exists())
        time.sleep(3)
        assert head.poll() is None
        head.send_signal(signal.SIGINT)
        assert head.wait(60) == 130
    finally:
        head.kill()
        head.wait()
    assert RunDirectory(run).state().status == "interrupted"


def test_an_interrupted_run_has_what_its_drivers_had_recorded(cluster: Any, tmp_path: Path) -> None:
    """Where it goes on, nobody may see their disks. This one looks at them once in an hour."""
    run, file = (
        tmp_path / "run",
        write(tmp_path, "{kind: ray, concurrency: 4, replicas: 2, shards: 2}", problems=60),
    )
    program = (
        "import metagen.runs.work.shards.run as run; run.EVERY = 3600.0; from metagen.cli import app; app()"
    )
    head = subprocess.Popen(
        [sys.executable, "-c", program, *command(file, run)[3:]],
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL),
    )
    recorded: set[bytes] = set()
    end = time.monotonic() + 300
    while len(recorded) < 20:
        assert head.poll() is None and time.monotonic() < end
        time.sleep(0.1)
        recorded = {key for path in run.glob("shards/*/journal.sqlite") for key in keys(path)}
    head.send_signal(signal.SIGTERM)
    assert head.wait(60) == 143
    assert recorded <= keys(run / "journal.sqlite")
    assert RunDirectory(run).state().status == "interrupted"


def keys(path: Path) -> set[bytes]:
    with SQLiteJournal(path, read_only=True) as journal:
        return {record[0] for record in journal.since(0, 100_000)[1]}
