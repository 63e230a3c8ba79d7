"""Runs that share records through a cache: real files, real processes, and what each of them really computed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from metagen.cache import Cache, CachedJournal
from metagen.cost import Usage
from metagen.errors import ConfigError, InputError, JournalCorrupt, JournalError
from metagen.journal import Limit, Row, RowKeys, SQLiteJournal
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory, State
from metagen.runs.page import report
from metagen.runs.work import build, runner
from metagen.runs.work.progress import Meter
from metagen.strategies.base import wait

File = Callable[..., Path]
Calls = Callable[[], list[str]]
ROOT = Path(__file__).parents[3]
TOY = Path(__file__).parents[1] / "toy"
CACHE = "cache: shared\n"


#: A run in a process of its own, without a report.
SCRIPT = """
import sys
from pathlib import Path
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.work import build, runner

with build.open_setup(schema.load(sys.argv[1])) as setup:
    runner.run(setup, RunDirectory.at(Path(sys.argv[2])))
"""


def ran(file: Path, name: str, *sets: str) -> tuple[RunDirectory, State]:
    directory = RunDirectory.at(file.parent / name)
    with build.open_setup(schema.load(file, sets=sets)) as setup:
        return directory, runner.run(setup, directory, Meter())


def tables(directory: RunDirectory) -> dict[str, bytes]:
    report.publish(directory)
    return {path.name: path.read_bytes() for path in sorted(directory.root.glob("*.csv"))}


def rows(directory: RunDirectory) -> list[Row]:
    with SQLiteJournal(directory.journal, read_only=True) as journal:
        return [row for problem in journal.problems() for row in journal.of_problem(problem)]


def logical(directory: RunDirectory) -> dict[bytes, tuple[object, ...]]:
    """All but wall clocks, and what was physically computed."""
    return {
        row.key: (row.problem, row.path, row.kind, row.by, row.content, row.index, row.payload, row.status)
        for row in rows(directory)
    }


def test_a_second_run_computes_nothing_and_finds_the_same(experiment_file: File, calls: Calls) -> None:
    plain, _ = ran(experiment_file(), "plain")
    file = experiment_file(more=CACHE)
    first, state = ran(file, "first")
    made = len(calls())
    assert state.cached == 0
    second, state = ran(file, "second")
    assert len(calls()) == made, "no sample is made again"
    assert state.cached == len(rows(second)) == len(rows(first)) and state.recorded == 0
    assert logical(plain) == logical(first) == logical(second), "the directory is whole"
    assert tables(first) == tables(second)
    assert {row.physical for row in rows(second)} == {Usage()}, "zero, not unknown"
    usages = {row.key: row.usage for row in rows(first)}
    assert {row.key: row.usage for row in rows(second)} == usages, "charged as it was when it was made"
    # What was made before the cache was named is not thrown away: a run needs its directory alone.
    shutil.rmtree(file.parent / "shared")
    third, state = ran(experiment_file(), "second")
    assert len(calls()) == made and state.cached == len(usages)
    with (third.root / "state.json").open() as text:
        assert json.load(text)["cached"] == len(usages)


def test_a_run_that_goes_on_brings_what_it_has(experiment_file: File, calls: Calls) -> None:
    ran(experiment_file(), "old")
    file = experiment_file(more=CACHE)
    ran(file, "old")
    made = len(calls())
    _, state = ran(file, "new")
    assert len(calls()) == made and state.cached


def test_more_is_made_only_of_what_is_new(experiment_file: File, calls: Calls) -> None:
    ran(experiment_file(n="[1, 2]", more=CACHE), "small")
    assert len(calls()) == 24
    large, state = ran(experiment_file(n="[1, 2, 8]", more=CACHE), "large")
    assert len(calls()) == 96 == len(set(calls())) and 0 < state.cached < len(rows(large))
    assert sum(row.physical == Usage() and row.started == 0.0 for row in rows(large)) == state.cached


@pytest.mark.parametrize("change", ["seed=1", "task.seed=1", "generators.small.skill=0.51"])
def test_another_seed_other_data_and_another_model_share_nothing(
    experiment_file: File, calls: Calls, change: str
) -> None:
    file = experiment_file(more=CACHE)
    ran(file, "first")
    made = len(calls())
    alone, _ = ran(experiment_file(), "alone", change)
    experiment_file(more=CACHE)
    second, _ = ran(file, "second", change)
    assert logical(alone) == logical(second)
    if change != "generators.small.skill=0.51":
        assert len(calls()) == 3 * made


def test_two_processes_use_one_cache_at_a_time(experiment_file: File, tmp_path: Path) -> None:
    file = experiment_file(count=12, more=CACHE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TOY), str(ROOT)]), "TOY_DELAY": "0.01"}
    command = [sys.executable, "-c", SCRIPT, str(file)]
    outs = [tmp_path / f"run-{i}" for i in range(2)]
    started = [
        subprocess.Popen([*command, str(out)], env=environment, cwd=tmp_path, stderr=subprocess.PIPE)
        for out in outs
    ]
    assert [(one.communicate()[1], one.returncode) for one in started] == [(b"", 0), (b"", 0)]
    alone, _ = ran(experiment_file(count=12), "alone")
    experiment_file(count=12, more=CACHE)
    for out in outs:
        assert logical(RunDirectory(out)) == logical(alone)
    _, state = ran(file, "after")
    assert state.cached == len(rows(alone))


def test_a_killed_run_leaves_a_cache_that_serves(experiment_file: File, tmp_path: Path) -> None:
    file = experiment_file(count=12, more=CACHE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TOY), str(ROOT)]), "TOY_DELAY": "0.02"}
    command = [sys.executable, "-c", SCRIPT, str(file), str(tmp_path / "killed")]
    process = subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL)
    log = Path(os.environ.get("TOY_LOG", tmp_path / "calls.log"))
    while process.poll() is None and not (log.exists() and len(log.read_text().splitlines()) > 20):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    killed, _ = ran(file, "killed")
    other, state = ran(file, "other")
    assert state.cached == len(rows(other)) and logical(other) == logical(killed)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    with Cache(tmp_path, 0):
        pass
    return tmp_path / "seed-0.sqlite"


def test_a_torn_or_foreign_file_is_an_error_that_names_it(shared: Path) -> None:
    named = str(shared)
    shared.write_bytes(b"no database" * 500)
    with pytest.raises(JournalCorrupt, match="is torn, or no cache") as told:
        Cache(shared.parent, 0)
    assert named in str(told.value) and "delete it" in str(told.value)
    shared.unlink()
    with sqlite3.connect(shared) as other:
        other.execute("CREATE TABLE mine (x)")
    with pytest.raises(JournalCorrupt, match="of another program"):
        Cache(shared.parent, 0)
    with Cache(shared.parent, 1):
        pass
    shared.with_name("seed-1.sqlite").rename(shared.with_name("seed-2.sqlite"))
    with pytest.raises(JournalCorrupt, match="of another seed"):
        Cache(shared.parent, 2)
    place = shared.parent / "file"
    place.touch()
    with pytest.raises(JournalError, match="cannot open the cache"):
        Cache(place, 0)


def row(index: int, **changes: object) -> Row:
    key = RowKeys("maker", "p", "0/sample")(b"content", index)
    made = Row(key, "p", "0/sample", "generate", "maker", b"content", index, {"text": "a"}, started=5.0)
    return Row(**{**{name: getattr(made, name) for name in Row.__dataclass_fields__}, **changes})  # type: ignore[arg-type]


def test_a_flipped_bit_is_an_error_and_never_wrong_data(shared: Path) -> None:
    data = {"p": b"data"}
    with Cache(shared.parent, 0) as cache:
        cache.add([row(0), row(1)], data)
    with sqlite3.connect(shared) as raw:
        raw.execute("UPDATE rows SET text = replace(text, '\"a\"', '\"b\"') WHERE number = 1")
    with Cache(shared.parent, 0) as cache:
        assert list(cache.find([row(0).key], data)) == [row(0).key]
        assert cache.find([row(0).key], {"p": b"others"}) == {} == cache.find([row(0).key], {"q": b"data"})
        with pytest.raises(JournalCorrupt, match=r"seed-0\.sqlite"):
            cache.find([row(1).key], data)


def test_only_what_is_complete_and_was_made_is_kept(shared: Path) -> None:
    limit = Limit("root", "calls", 1.0)
    data = {"p": b"data"}
    with Cache(shared.parent, 0) as cache:
        cache.add(
            [
                row(0, limit=limit, status="truncated"), row(1, limit=limit, status="refused", payload=None),
                row(2, payload=None), row(3, started=0.0), row(4),
            ],
            data,
        )  # fmt: skip
        cache.flush()
        assert set(cache.find([row(i).key for i in range(5)], data)) == {row(4).key}
        cache.add([row(4, payload={"text": "later"})], data)
        cache.flush()
        assert cache.find([row(4).key], data)[row(4).key].payload == {"text": "a"}, "the first stays"


def test_what_is_taken_is_in_the_journal_before_what_was_made_of_it(shared: Path, tmp_path: Path) -> None:
    data = {"p": b"data"}
    with Cache(shared.parent, 0) as cache, SQLiteJournal(tmp_path / "own.sqlite") as own:
        own.bind_all(data.items())
        cache.add([row(i) for i in range(3)], data)
        cache.flush()
        count = Meter()
        journal = CachedJournal(own, cache, count)

        async def work() -> None:
            assert set(journal.find([row(0).key, row(1).key])) == {row(0).key, row(1).key}
            assert len(journal.find([row(0).key, row(1).key])) == 2 == count.cached, "counted once"
            await journal.record([row(7)])

        wait(work())
        assert [one.index for one in own.of_problem("p")] == [0, 1, 7]


def test_what_cannot_be_shared_is_refused(experiment_file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    file = experiment_file(more=CACHE)
    (file.parent / "shared").write_text("")
    with pytest.raises(ConfigError, match=r"cache = .*is no directory"):
        schema.load(file)
    (file.parent / "shared").unlink()
    here = "executor={kind: ray, shards: {count: 2}, replicas: 2}"
    far = "executor={kind: ray, address: 'far:1', shards: {count: 2}, replicas: 2}"
    for executor, environment in ((far, ""), (here, "far:1")):
        monkeypatch.setenv("RAY_ADDRESS", environment)
        with (
            pytest.raises(InputError, match="'far:1': drivers on other machines cannot share a file"),
            build.open_setup(schema.load(file, sets=[executor])),
        ):
            pass
