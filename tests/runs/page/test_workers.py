"""A report that several processes make is the report of one, and nothing of them is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path

import pytest

from metagen.errors import InputError, PluginError
from metagen.runs.page import study_page, workers
from metagen.runs.page.workers import Workers
from tests.runs.made import made
from tests.runs.sections import every


def fail(what: str) -> None:
    raise InputError(what)


def fill(path: str) -> None:
    raise OSError(28, "No space left on device", path)


def leave(status: int) -> None:
    os._exit(status)


@pytest.mark.usefixtures("whole_figures")
def test_several_processes_make_the_files_of_one(tmp_path: Path) -> None:
    with Workers(2) as two:
        for name, who in (("here", Workers()), ("there", two)):
            study_page.publish(tmp_path / name, made(24, 8), every(), workers=who)
    here, there = (
        sorted(p for p in (tmp_path / name).rglob("*") if p.is_file()) for name in ("here", "there")
    )
    assert len(here) == len(there) > 10
    for a, b in zip(here, there, strict=True):
        if a.name not in ("report.html", "report.md", "reported.json"):  # which name their place
            assert a.read_bytes() == b.read_bytes(), a.name
    pages = [
        (tmp_path / name / "report.html").read_text().replace(str(tmp_path / name), "")
        for name in ("here", "there")
    ]
    assert pages[0] == pages[1]


def test_what_is_called_runs_in_processes_of_its_own_and_in_order() -> None:
    with Workers(2) as two:
        assert two.map(abs, range(-9, 9)) == [abs(i) for i in range(-9, 9)]
        own = set(two.map(_process, [0.3] * 4))
        assert len(own) == 2 and os.getpid() not in own
    assert not any(_lives(pid) for pid in own)
    assert set(Workers().map(_process, [0.0])) == {os.getpid()}


def test_errors_come_back_as_they_are_and_a_lost_process_is_one() -> None:
    with Workers(2) as two:
        with pytest.raises(InputError, match="so it is"):
            two.begin(fail, "so it is").result()
        with pytest.raises(OSError, match="No space left"):
            two.begin(fill, "x").result()
        with pytest.raises(PluginError, match=r"the process of the report ended \(status 3"):
            two.begin(leave, 3).result()


def test_the_end_does_not_wait_for_what_is_under_way() -> None:
    with Workers(2) as two:
        began = two.begin(_process, 600.0)
        while not two._all:
            time.sleep(0.01)
    with pytest.raises(PluginError):
        began.result(timeout=60)


def test_a_process_that_is_still_starting_ends_too() -> None:
    with Workers(2) as two:
        began = two.begin(_process, 600.0)
    with pytest.raises((PluginError, CancelledError)):
        began.result(timeout=60)


def test_large_reports_have_processes_and_small_ones_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    small = made(24, 8)
    assert Workers.of(small)._threads is None
    large = replace(small, curves=small.curves * 100)
    with Workers.of(large) as four:
        assert four._threads is not None and four._threads._max_workers == 4
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert Workers.of(large)._threads is None


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from metagen.runs.page.workers import Workers\n"
        "print('begun')\n"
        "with Workers(2) as two:\n"
        "    print(two.map(abs, [-1, -2]))\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n")[:2] == ["begun", "[1, 2]"]


def _process(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
