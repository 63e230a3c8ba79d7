"""Runs in a line each: their state is what is true of them now, not only what they wrote last."""

import csv
import dataclasses
import os
import threading
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import filelock
import pytest
from rich.console import Console

from metagen.errors import InputError, JournalLocked
from metagen.journal import SQLiteJournal
from metagen.runs.curves.measured import derive
from metagen.runs.declare import schema
from metagen.runs.declare.grade import grading
from metagen.runs.directory import RunDirectory, State
from metagen.runs.page import listing
from metagen.runs.work import build, runner
from metagen.runs.work.progress import Meter

Write = Callable[..., Path]


def run(file: Path, root: Path, *sets: str) -> RunDirectory:
    directory = RunDirectory.at(root)
    with build.open_setup(schema.load(file, sets=sets)) as setup:
        runner.run(setup, directory)
    return directory


def shown(found: list[listing.Summary]) -> str:
    out = StringIO()
    Console(file=out, width=110).print(listing.render(found))
    return out.getvalue()


def test_states_are_what_is_true_now(experiment_file: Write, tmp_path: Path) -> None:
    file = experiment_file(count=2, n="[2]")
    found = {}
    for name in ("complete", "killed", "interrupted", "running"):
        found[name] = run(file, tmp_path / "runs" / name, "grid.generators=[small]")
    run(file, tmp_path / "runs" / "incomplete", "grid.generators=[small]", "generators.small.fails_on=sum-1")
    run(
        file,
        tmp_path / "runs" / "failed",
        "grid.generators=[small]",
        "generators.small.fails_on=sum-0",
        "task.count=1",
    )
    for name in ("killed", "running"):
        found[name].save(State("sums", "running", problems=2))
    found["interrupted"].save(State("sums", "interrupted", problems=2, samples=1))
    (found["interrupted"].root / "state.json").write_text("{")  # torn: it never came to its end
    with SQLiteJournal(found["running"].journal):
        states = {one.name: one.state for one in listing.runs(tmp_path / "runs")}
    assert states == {
        "complete": "complete", "killed": "interrupted", "interrupted": "interrupted", "running": "running",
        "incomplete": "incomplete", "failed": "failed",
    }  # fmt: skip
    summaries = {one.name: one for one in listing.runs(tmp_path / "runs")}
    assert (summaries["complete"].problems, summaries["complete"].samples) == (2, 4)
    assert summaries["killed"].samples == 4  # recorded, though its state knows of none
    assert summaries["complete"].size > 1000


def test_files_that_come_and_go_beside_it(experiment_file: Write, tmp_path: Path) -> None:
    """A run writes its state beside its place and renames it, and SQLite removes its side files."""
    directory = run(experiment_file(count=1, n="[1]"), tmp_path / "runs" / "one")
    size, ended = listing.summary(directory.root).size, threading.Event()
    names = [directory.root / "state.json.new", directory.root / "journal.sqlite-wal"]

    def write() -> None:
        while not ended.is_set():
            for path in names:
                path.write_text("x" * 100)
            for path in names:
                path.unlink()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        found = {listing.summary(directory.root).size for _ in range(300)}
    finally:
        ended.set()
        thread.join()
    assert size <= min(found) <= max(found) <= size + 200
    assert listing._size(directory.root / "gone") == 0
    assert listing._modification_time(directory.root / "gone") == 0


def test_a_run_waits_for_who_only_looks(experiment_file: Write, tmp_path: Path) -> None:
    file = experiment_file(count=1, n="[1]")
    directory = run(file, tmp_path / "run")
    lock = filelock.FileLock(f"{directory.journal}.lock", thread_local=False)
    lock.acquire()
    threading.Timer(0.005, lock.release).start()
    run(file, tmp_path / "run")
    with lock, pytest.raises(JournalLocked, match="being written by another process"):
        run(file, tmp_path / "run")


def test_best_configuration_leaves_the_oracle_out(experiment_file: Write, tmp_path: Path) -> None:
    directory = run(experiment_file(count=3), tmp_path / "runs" / "one")
    assert listing.summary(directory.root).best is None  # not reported yet
    results = derive(directory, directory.final_state().lines)
    results.write(directory.root)
    best = max((m for m in results.configurations if not m.cell.oracle), key=lambda m: m.accuracy)
    one = listing.summary(directory.root)
    assert (one.best, one.accuracy) == (best.cell.name, pytest.approx(best.accuracy))
    table = directory.root / "configurations.csv"
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    better = {
        **rows[0],
        "configuration": "few",
        "accuracy": "1.0",
        "problems": "1",
        "oracle": "false",
        "flops": "1",
    }
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows([*rows, better])
    assert listing.summary(directory.root).best == best.cell.name
    (row,) = listing.data(listing.runs(directory.root))  # a run by itself is listed as well
    assert (row["name"], row["best"]) == ("one", best.cell.name)


def test_latest_first_and_as_a_table(experiment_file: Write, tmp_path: Path) -> None:
    file = experiment_file(count=1, n="[1]")
    for name, age in (("old", 3 * 86400), ("new", 60)):
        directory = run(file, tmp_path / "runs" / name)
        for path in directory.root.iterdir():
            os.utime(path, (time.time() - age, time.time() - age))
    found = listing.runs(tmp_path / "runs")
    assert [one.name for one in found] == ["new", "old"]
    assert "3 d" in shown(found)
    assert "complete" in shown(found)


def test_no_runs_and_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert listing.runs() == []
    assert "no runs" in shown([])
    with pytest.raises(InputError, match=r"no directory 'elsewhere'"):
        listing.runs(Path("elsewhere"))


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 B"), (999, "999 B"), (1234, "1.23 kB"), (56e6, "56 MB"), (3.2e12, "3.2 TB")]
)
def test_sizes(size: float, words: str) -> None:
    assert listing.bytes_of(size) == words


@pytest.mark.parametrize(("age", "words"), [(3.9, "3 s"), (61, "1 min"), (7300, "2 h"), (200_000, "2 d")])
def test_ages(age: float, words: str) -> None:
    assert listing.ago(age) == words


def test_samples_that_no_journal_holds_are_unknown_until_the_run_ends(tmp_path: Path) -> None:
    """A grading reads its samples where they are recorded: the rows of its journal would say that there are none."""
    pool = tmp_path / "pool.jsonl"
    pool.write_text('{"id": "a", "samples": ["1", "2"], "right": [1, 0]}\n')
    found = grading(pool, correct="right")
    directory = RunDirectory.at(tmp_path / "runs" / "graded")
    seen = []

    class Watched(Meter):
        def begin(self, samples: int, problems: int) -> None:
            seen.append(listing.summary(directory.root))

    with build.open_setup(found.experiment) as setup:
        runner.run(setup, directory, Watched())
    ended = listing.summary(directory.root)
    directory.save(dataclasses.replace(directory.state(), status="interrupted"))
    assert [(one.state, one.samples) for one in (*seen, ended, listing.summary(directory.root))] == [
        ("running", None), ("complete", 2), ("interrupted", None),
    ]  # fmt: skip
    assert "–" in shown([seen[0]])


def test_runs_of_a_study_have_its_name(experiment_file: Write, tmp_path: Path) -> None:
    root = tmp_path / "runs" / "sums"
    for role in ("development", "test"):
        run(experiment_file(count=1, n="[1]"), root / role)
    assert (
        listing.runs(tmp_path / "runs") == []
    )  # no study: directories within directories are not looked into
    (root / "study.yaml").write_text("name: sums\n")
    for within in (tmp_path / "runs", root):
        found = listing.runs(within)
        assert {one.name for one in found} == {"sums/development", "sums/test"}
    assert "sums/development" in shown(found)
    with pytest.raises(InputError, match="is a study; name one of its runs: sums/development, sums/test"):
        RunDirectory.find("sums", tmp_path / "runs")
