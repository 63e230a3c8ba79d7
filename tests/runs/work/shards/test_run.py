"""What the head of a run in shards does with what its drivers record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metagen.attempts import State as Ending
from metagen.attempts import lost_attempts
from metagen.errors import InputError
from metagen.generators.ray.messages import Fault
from metagen.journal import ATTEMPT, Row, SQLiteJournal
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory, State
from metagen.runs.work import build, runner
from metagen.runs.work.makers import Makers
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
    """A driver that records a last row while its answer to the look before is under way.

    makers: None as long as it is not open, and tells no numbers.
    """

    makers: Makers | None = None

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
        return News(3, 3, 3, 1, 0, mark, records, self.makers)

    async def _table(self, name: str, offset: int, most: int) -> bytes:
        return b""

    async def _discard(self) -> None:
        self.discarded.append("driver")

    async def _take(self, records: object) -> None:
        raise AssertionError("there is nothing to take")


class Opened(Late):
    """Tells its numbers."""

    makers = Makers()


class Fails(Opened):
    """Ends by an error, after it has told that it made three, or at once."""

    def __init__(self, path: Path, error: Exception, *, at_once: bool = False) -> None:
        super().__init__(path, [])
        self.error, self.at_once = error, at_once

    async def _counts(self) -> dict[str, int]:
        if self.at_once:
            raise self.error
        return {}

    async def _run(self) -> State:
        await self.over.wait()
        raise self.error


def head(
    directory: RunDirectory,
    journal: SQLiteJournal,
    file: Path,
    shards_of: str = "1",
    *,
    problems: int = 1,
    meter: Meter | None = None,
) -> Any:
    text = FILE.replace("per_level: 1", f"per_level: {problems}")
    file.write_text(text + f"executor: {{kind: ray, shards: {shards_of}}}\n")
    with build.open_setup(schema.load(file)) as setup:
        return shards.Head(setup, directory, journal, meter or Meter())


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


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ray with its errors alone."""
    pytest.importorskip("ray", reason="shards need Ray, which the extra ray brings")
    from ray import exceptions

    monkeypatch.setattr(shards, "EVERY", 0.05)
    return SimpleNamespace(exceptions=exceptions, kill=lambda driver: None)


def drive(ray: Any, tmp_path: Path, first: Late, *others: Late, meter: Meter | None = None) -> Any:
    """A head whose only part is given these drivers, one after the other, to its end."""
    with SQLiteJournal(tmp_path / "journal.sqlite", seed=0) as journal:
        one, following = (
            head(RunDirectory(tmp_path), journal, tmp_path / "one.yaml", meter=meter),
            iter(others),
        )
        one._driver = lambda ray, part: next(following)
        try:
            asyncio.run(one._part(ray, one.parts[0], first))
        finally:
            for driver in (first, *others):
                driver.journal.close()
    return one


@pytest.mark.parametrize("kind", ["OutOfMemoryError", "ObjectLostError", "OwnerDiedError", "RayActorError"])
def test_a_driver_that_is_lost_in_any_way_is_replaced(ray: Any, tmp_path: Path, kind: str) -> None:
    told = {"OutOfMemoryError": ("killed by the memory monitor",), "RayActorError": ()}
    error = getattr(ray.exceptions, kind)(*told.get(kind, ("00" * 28, None, "")))
    one = drive(ray, tmp_path, Fails(tmp_path / "a.sqlite", error), Opened(tmp_path / "b.sqlite", []))
    assert one.delivered == 3 and one._lost == 1


def test_an_error_of_a_drivers_own_code_ends_the_run(ray: Any, tmp_path: Path) -> None:
    error = ray.exceptions.RayTaskError("run", "its traceback", ValueError("a bug"), "driver", 1, "127.0.0.1")
    with pytest.raises(ray.exceptions.RayTaskError, match="its traceback"):
        drive(ray, tmp_path, Fails(tmp_path / "a.sqlite", error))


def test_what_lost_drivers_made_is_counted_once(ray: Any, tmp_path: Path) -> None:
    """Three by the first, none by the second, which is lost before it tells anything, and three by the last."""
    error = ray.exceptions.RayActorError()
    first, second = Fails(tmp_path / "a.sqlite", error), Fails(tmp_path / "b.sqlite", error, at_once=True)
    one = drive(ray, tmp_path, first, second, Opened(tmp_path / "c.sqlite", []))
    assert one._lost == 2 and one.meter.fresh == 6


def test_a_run_counts_its_own_seconds_with_a_meter_that_has_counted_another(ray: Any, tmp_path: Path) -> None:
    """As the roles of a study do, one after the other."""
    seconds = 0.0
    meter = Meter(lambda: seconds)
    meter.begin(5, 1)
    seconds = 100.0
    one = drive(ray, tmp_path, Opened(tmp_path / "a.sqlite", []), meter=meter)
    assert one.delivered == 3 and one.state("complete").seconds == 0.0


def test_a_driver_that_finds_room_when_another_has_ended_is_waited_for_by_nobody(
    ray: Any, tmp_path: Path
) -> None:
    room, expected = asyncio.Event(), list[int]()

    class First(Opened):
        async def _discard(self) -> None:
            expected.append(one.meter.total)
            room.set()

    class Second(Opened):
        async def _counts(self) -> dict[str, int]:
            await room.wait()
            return {}

    with SQLiteJournal(tmp_path / "journal.sqlite", seed=0) as journal:
        one = head(RunDirectory(tmp_path), journal, tmp_path / "one.yaml", "2", problems=2)
        drivers = First(tmp_path / "a.sqlite", []), Second(tmp_path / "b.sqlite", [])

        async def main() -> None:
            async with asyncio.timeout(60):
                await asyncio.gather(*(one._drive(*of) for of in zip(drivers, one.parts, strict=True)))

        asyncio.run(main())
        for driver in drivers:
            driver.journal.close()
    assert one.delivered == 6 and expected == [6], "what the second one will make is counted on"


def test_drivers_go_on_with_a_part_of_this_run_and_of_no_other(tmp_path: Path) -> None:
    """Other machines keep what drivers recorded, also when the run is deleted here, or deals its problems otherwise."""
    actor = SimpleNamespace(options=lambda **given: SimpleNamespace(remote=lambda *given: given[1]))
    ray = SimpleNamespace(remote=lambda kind: actor)

    def root(**how: Any) -> str:
        with SQLiteJournal(tmp_path / "journal.sqlite", seed=0) as journal:
            one = head(RunDirectory(tmp_path), journal, tmp_path / "one.yaml", **how)
            return str(one._driver(ray, one.parts[0]))

    first = root()
    assert root(shards_of="2") == first != root(problems=2)
    (tmp_path / "journal.sqlite").unlink()
    assert root() != first


def test_a_cache_is_refused_where_others_have_joined_the_cluster_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address names this machine, and its cluster has another one too."""
    nodes = [{"NodeManagerAddress": f"10.0.0.{i}", "Alive": True} for i in (1, 2)]
    monkeypatch.setattr(shards, "connect", lambda address: nullcontext(SimpleNamespace(nodes=lambda: nodes)))
    file = tmp_path / "one.yaml"
    file.write_text(FILE + "cache: shared\nexecutor: {kind: ray, address: '127.0.0.1:1', shards: 2}\n")
    with (
        build.open_setup(schema.load(file)) as setup,
        pytest.raises(InputError, match=r"'127.0.0.1:1': drivers on other machines cannot share a file"),
    ):
        shards.run(setup, RunDirectory.at(tmp_path / "run"))


def test_a_driver_that_waits_for_room_is_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("ray", reason="shards need Ray, which the extra ray brings")
    monkeypatch.setattr(shards, "EVERY", 0.05)
    monkeypatch.setattr(shards, "LATE", 0.05)
    monkeypatch.setattr(shards, "list_free", lambda ray: {"CPU": 1.0})

    class Waits(Late):
        async def _counts(self) -> dict[str, int]:
            await asyncio.sleep(0.3)
            return {}

    file = tmp_path / "one.yaml"
    with SQLiteJournal(tmp_path / "journal.sqlite", seed=0) as journal:
        one = head(RunDirectory(tmp_path), journal, file, "{count: 1, num_cpus: 8}")
        asyncio.run(one._drive(Waits(tmp_path / "driver.sqlite", []), one.parts[0]))
    (told,) = [record for record in caplog.records if "has not started" in record.message]
    assert (told.part, told.needs, told.free) == ("1-of-1", "{'CPU': 8.0}", {"CPU": 1.0})  # type: ignore[attr-defined]  # fields of ours


def test_a_run_without_shards_takes_what_drivers_left_and_keeps_what_it_has(tmp_path: Path) -> None:
    file, directory = tmp_path / "one.yaml", RunDirectory.at(tmp_path / "run")
    file.write_text(FILE)
    with build.open_setup(schema.load(file)) as setup:
        assert runner.run(setup, directory).recorded == 4
        # As if the head had been killed before it heard of two of the four.
        left = parts_of(directory) / "1-of-2" / "journal.sqlite"
        (left.parents[1] / "2-of-2").mkdir(
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


def parts_of(directory: RunDirectory) -> Path:
    """Where drivers of a run have kept its parts."""
    with SQLiteJournal(directory.journal, seed=0) as journal:
        return directory.shards / f"{journal.keep('shards', 'its-name')}-as-it-was-dealt"


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


def test_an_attempt_that_has_ended_replaces_one_that_is_open_here(tmp_path: Path) -> None:
    """The head was killed before it heard of the ends; what it has of its own stays."""
    directory = RunDirectory.at(tmp_path / "run")
    states: list[tuple[Ending, Ending]] = [("open", "free"), ("open", "answered"), ("answered", "open")]
    attempts = [replace(row(i), status=here, limit=ATTEMPT) for i, (here, _) in enumerate(states)]
    ends = [replace(row(i), status=there, limit=ATTEMPT) for i, (_, there) in enumerate(states)]
    # The second lies where earlier versions put it.
    places = [parts_of(directory) / "1-of-2", directory.shards / "2-of-2"]
    with SQLiteJournal(directory.journal, seed=0) as journal:
        for place, some in zip(places, (ends[:2], ends[2:]), strict=True):
            place.mkdir(parents=True)
            with SQLiteJournal(place / "journal.sqlite", seed=0) as other:
                asyncio.run(other.record(some))
        asyncio.run(journal.record(attempts))
        asyncio.run(shards.gather(directory, journal, 0))
        assert sorted(one.status for one in journal.attempts("p")) == ["answered", "answered", "free"]
        assert not lost_attempts(journal, "p")


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
