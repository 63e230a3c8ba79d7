"""The tables of a run without an end, made bit by bit: they are those that one replay of all makes."""

import asyncio
import contextlib
import random
import shutil
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from metagen.journal import Row, SQLiteJournal
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.table.tables import NAMES, read
from metagen.runs.work import build, growing, runner, unfinished
from metagen.runs.work.growing import Growing

TOY = Path(__file__).parents[1] / "toy"
YAML = """\
name: sums
seed: 3
task: {kind: "metagen_toy:ToyTask", count: 12}
generators: {small: {kind: "metagen_toy:generator", skill: 0.5}}
verifiers: {judge: {kind: "metagen_toy:verifier"}}
strategies:
  majority: {kind: majority}
  weighted: {kind: weighted, verifier: judge}
  adaptive: {kind: adaptive_consistency}
grid: {n: [2, 6]}
"""


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOY))
    monkeypatch.setattr(growing, "STRIDE", 5)


@pytest.fixture
def whole(tmp_path: Path) -> RunDirectory:
    file = tmp_path / "sums.yaml"
    file.write_text(YAML)
    directory = RunDirectory.at(tmp_path / "whole")
    with build.open_setup(schema.load(file)) as setup:
        runner.run(setup, directory)
    return directory


def rows_of(directory: RunDirectory) -> list[Row]:
    with SQLiteJournal(directory.journal, read_only=True) as journal:
        return [row for name in journal.problems() for row in journal.of_problem(name)]


@pytest.fixture
def begun(whole: RunDirectory, tmp_path: Path) -> RunDirectory:
    """The same run, of which nothing is recorded yet."""
    shutil.copytree(whole.root, tmp_path / "begun")
    directory = RunDirectory(tmp_path / "begun")
    with contextlib.closing(sqlite3.connect(directory.journal)) as connection, connection:
        connection.execute("DELETE FROM rows")
    directory.journal.with_name("journal.sqlite.count").unlink(missing_ok=True)
    directory.save(replace(directory.state(), status="running"))
    directory.discard()
    return directory


def by_row(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def same(one: RunDirectory, other: RunDirectory) -> bool:
    return all(by_row(read(one.table(name))) == by_row(read(other.table(name))) for name in NAMES)


def all_of(made: Growing) -> Iterator[set[int]]:
    """Replay all that has changed; the places of each bit."""
    for fresh in made.advance(time.monotonic() + 60):
        yield set(read(fresh.table("problems"), ["place"])["place"].to_pylist())


def test_after_each_record_they_are_those_of_a_replay_of_all(
    whole: RunDirectory, begun: RunDirectory
) -> None:
    rows = rows_of(whole)
    random.Random(0).shuffle(rows)
    size = len(rows) // 6 + 1
    with SQLiteJournal(begun.journal, seed=3) as journal, Growing(begun) as made:
        for at in range(0, len(rows), size):
            asyncio.run(journal.record(rows[at : at + size]))
            touched = {row.problem for row in rows[at : at + size]}
            places = [place for bit in all_of(made) for place in bit]
            assert len(places) == len(set(places))
            assert at == 0 or len(places) == len(touched)
            assert made.left == 0 and list(all_of(made)) == []
            with contextlib.suppress(unfinished.InputError), unfinished.tables(begun) as (found, state):
                assert same(made.tables, found)
                assert made.state() == state and made.delivered == state.samples
        assert same(made.tables, whole)
        assert made.delivered == whole.state().samples


def test_it_stops_in_time_and_goes_on(whole: RunDirectory, begun: RunDirectory) -> None:
    with SQLiteJournal(begun.journal, seed=3) as journal:
        asyncio.run(journal.record(rows_of(whole)))
    with Growing(begun) as made:
        lefts = []
        while made.left:
            assert len(list(made.advance(0.0))) == 1  # the time is over: one bit all the same
            lefts.append(made.left)
        assert lefts == [7, 2, 0]
        assert same(made.tables, whole)


def test_what_was_begun_comes_first(whole: RunDirectory, begun: RunDirectory) -> None:
    late = [row for row in rows_of(whole) if row.problem in ("sum-10", "sum-11")]
    with SQLiteJournal(begun.journal, seed=3) as journal:
        asyncio.run(journal.record(late))
    with Growing(begun) as made:
        next(iter(made.advance(0.0)))
        assert made.left == 0 and set(read(made.tables.table("candidates"))["place"].to_pylist()) == {10, 11}


def test_shares_by_difficulty_are_replayed_as_a_whole(whole: RunDirectory, begun: RunDirectory) -> None:
    with Growing(begun) as made:
        assert made._apart
        made._apart = False
        with SQLiteJournal(begun.journal, seed=3) as journal:
            asyncio.run(journal.record(rows_of(whole)[:3]))
            (bit,) = all_of(made)
            assert bit == set(range(12))
            asyncio.run(journal.record(rows_of(whole)[3:]))
            (bit,) = all_of(made)
            assert bit == set(range(12)) and same(made.tables, whole)
            assert list(all_of(made)) == []
