"""What the head of a run in shards does with what its drivers record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metagen.errors import InputError
from metagen.generators.ray.messages import Fault
from metagen.journal import Row, SQLiteJournal
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory, State
from metagen.runs.work import build, runner
from metagen.runs.work.progress import Meter
from metagen.runs.work.shards import run as shards
from metagen.runs.work.shards.driver import Driver, News

FILE = """
name: one
task: {kind: arithmetic, split: validation, levels: [1], per_level: 1}
engines: {small: {kind: torch, model: tiny-0.1m}}
generators: {small: {engine: small, max_tokens: 60}}
strategies: {majority: {kind: majority, n: 4}}
grid: {}
"""


def row(number: int, text: str = "") -> Row:
    return Row(bytes([number]) * 16, "p", "0/sample", "generate", "g", b"c", number, {"text": text})


class Remote:
    """A method of an actor, called at once."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.remote = method


class Late:
    """A driver that records a last row while its answer to the look before is under way."""

    def __init__(self, path: Path, discarded: list[str]) -> None:
        self.journal, self.over, self.looks, self.discarded = (
            SQLiteJournal(path, seed=0),
            asyncio.Event(),
            0,
            discarded,
        )
        for name in ("counts", "take", "news", "run", "table", "discard"):
            setattr(self, name, Remote(getattr(self, f"_{name}")))

    async def _counts(self) -> dict[str, int]:
        return {}

    async def _run(self) -> State:
        await self.journal.record([row(0), row(1)])
        await self.over.wait()
        await self.journal.record([row(2)])
        return State("one", "complete", samples=3)

    async def _news(self, mark: int, most: int, rosters: object) -> News:
        mark, records = self.journal.since(mark, most)
        self.looks += 1
        if self.looks == 2:
            self.over.set()
        await asyncio.sleep(0.1)
        return News(3, 3, 3, 1, 0, mark, records, None)

    async def _table(self, name: str, offset: int, most: int) -> bytes:
        return b""

    async def _discard(self) -> None:
        self.discarded.append("driver")

    async def _take(self, records: object) -> None:
        raise AssertionError("there is nothing to take")


def head(directory: RunDirectory, journal: SQLiteJournal, file: Path) -> Any:
    file.write_text(FILE + "executor: {kind: ray, shards: 1}\n")
    with build.open_setup(schema.load(file)) as setup:
        return shards.Head(setup, directory, journal, Meter())


def test_what_is_recorded_last_is_copied_before_the_driver_forgets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "EVERY", 0.05)
    forgotten: list[str] = []
    with SQLiteJournal(tmp_path / "journal.sqlite", seed=0) as journal:
        one = head(RunDirectory(tmp_path), journal, tmp_path / "one.yaml")

        async def main() -> None:
            await one._drive(Late(tmp_path / "driver.sqlite", forgotten), one.parts[0])

        asyncio.run(main())
        assert journal.count() == 3 and forgotten == ["driver"]


def test_a_run_without_shards_takes_what_drivers_left_and_keeps_what_it_has(tmp_path: Path) -> None:
    file, directory = tmp_path / "one.yaml", RunDirectory.at(tmp_path / "run")
    file.write_text(FILE)
    with build.open_setup(schema.load(file)) as setup:
        assert runner.run(setup, directory).recorded == 4
        # As if the head had been killed before it heard of two of the four.
        left = directory.shards / "1-of-2" / "journal.sqlite"
        (directory.shards / "2-of-2").mkdir(
            parents=True
        )  # of a driver that was lost before it recorded anything
        with SQLiteJournal(directory.journal) as whole, SQLiteJournal(left, seed=0) as other:
            _, records = whole.since(0, 100)
            asyncio.run(other.copy(records))
        with SQLiteJournal(directory.journal) as whole:
            assert whole._writer is not None
            whole._writer.execute("DELETE FROM rows WHERE number >= 2")
            whole._writer.commit()
        assert runner.run(setup, directory).recorded == 0
    assert not directory.shards.exists()


def test_older_records_do_not_replace_newer_ones(tmp_path: Path) -> None:
    with (
        SQLiteJournal(tmp_path / "a.sqlite", seed=0) as old,
        SQLiteJournal(tmp_path / "b.sqlite", seed=0) as new,
    ):
        asyncio.run(old.record([row(0, "old"), row(1, "old")]))
        asyncio.run(new.record([row(0, "new")]))
        asyncio.run(new.copy(old.since(0, 10)[1], replace=False))
        assert [r.payload for r in new.of_problem("p")] == [{"text": "new"}, {"text": "old"}]
        assert new.counts() == {"p": 2} and len(new.stored_rows("p")) == 2


def test_a_driver_tells_its_faults(tmp_path: Path) -> None:
    """A directory that cannot be made, and problems that are not those of the head, are answers and no losses."""
    file = tmp_path / "one.yaml"
    file.write_text(FILE + "executor: {kind: ray, shards: 1}\n")
    experiment = schema.load(file)
    part = shards.Part(0, 1)
    (tmp_path / "taken").touch()
    found = asyncio.run(Driver(experiment, str(tmp_path / "taken"), part, b"").counts())
    assert isinstance(found, Fault) and isinstance(found.error(), InputError)
    assert "cannot make the run directory" in str(found.error())
