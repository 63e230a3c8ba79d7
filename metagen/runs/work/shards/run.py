"""Runs an experiment in shards into one run directory, like any other run: resumable at any moment.

Each driver is an actor with a part of the problems and a journal on the disk of its machine. Its records are copied
into the run's journal as they come, and its tables when it has ended; then nothing tells the run from one of a single
driver. The replicas of the engines belong to this process, and all drivers ask them. A total budget is dealt out by
problem before the work, so that drivers need not agree on what is left of it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
import uuid
from collections.abc import Awaitable, Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from metagen.errors import EngineError
from metagen.generators.ray import RayPool
from metagen.generators.ray.cluster import connect, list_free
from metagen.generators.ray.messages import Fault, Report, Roster
from metagen.generators.ray.placement import Placement
from metagen.journal import Columns, SQLiteJournal
from metagen.logs import logger
from metagen.runs.declare.schema import dump
from metagen.runs.directory import RunDirectory, State, Status, environment
from metagen.runs.table.tables import NAMES, join_tables
from metagen.runs.work.build import Setup, open_pools, refuse_cache
from metagen.runs.work.makers import Makers
from metagen.runs.work.progress import Meter
from metagen.runs.work.shards.driver import Driver, News, wait_for_journal
from metagen.runs.work.shards.part import Part
from metagen.runs.work.solve import bind, open_journal
from metagen.runs.work.survey import data
from metagen.runs.work.together import together
from metagen.sequence import digest
from metagen.strategies.base import wait

_LOG = logger(__name__)
#: Seconds between two looks at a driver; and for the last one, when the run is interrupted.
EVERY, LAST = 0.5, 3.0
#: Seconds until the log tells of a driver that has not answered yet.
LATE = 30.0
#: Records, and bytes of a table, that are fetched at a time.
RECORDS, PIECE = 5_000, 16 << 20


def run(setup: Setup, directory: RunDirectory, meter: Meter | None = None) -> State:
    """Run, or go on with, an experiment in shards; returns how it ended. As `runner.run` otherwise, which calls it.

    A driver that is lost is replaced, as many of them as `executor.replacements`, and goes on from what is recorded.
    """
    experiment = setup.experiment
    directory.claim()
    with directory.hold("run"), open_journal(directory, experiment.seed) as journal:
        bind(journal, setup.task)
        directory.write("experiment.yaml", dump(experiment))
        head = Head(setup, directory, journal, meter or Meter())
        head.note(Makers())
        directory.save(dataclasses.replace(head.state("running"), seconds=0.0))
        directory.discard()
        status: Status = "failed"
        try:
            with connect(experiment.executor.address) as ray:
                # Whatever the name of its address, others may have joined the cluster of this machine.
                if len({node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}) > 1:
                    refuse_cache(experiment)
                with head.start(ray) as drivers, open_pools(experiment) as pools:
                    wait(head.all(ray, pools, drivers))
            status = "complete" if head.delivered else "failed"
        except BaseException as error:
            if head.meter.done or isinstance(error, KeyboardInterrupt):
                status = "interrupted"
            raise
        finally:
            directory.save(head.state(status))
    return head.state(status)


@dataclasses.dataclass(slots=True)
class _Client:
    """A driver as the pools know it. By engine, reports: what it told last; rosters: what it was told last."""

    name: str
    reports: Mapping[str, Report] = dataclasses.field(default_factory=dict)
    rosters: dict[str, Roster] = dataclasses.field(default_factory=dict)


class Head:
    """Starts drivers, follows them, and puts together what they made."""

    def __init__(
        self,
        setup: Setup,
        directory: RunDirectory,
        journal: SQLiteJournal,
        meter: Meter,
    ) -> None:
        self.experiment, self.task = setup.experiment, setup.task
        self.directory, self.journal, self.meter = directory, journal, meter
        self.problems, self._journaled = setup.problems, setup.journaled
        count = min(self.experiment.executor.shares, setup.problems)
        self.parts = [Part(index, count) for index in range(count)]
        self._ended: dict[Part, State] = {}
        self._tables: dict[Part, dict[str, Path]] = {}
        self._last: dict[Part, News] = {}
        #: What was made by drivers that were lost.
        self._before = dict.fromkeys(self.parts, 0)
        self._lost = 0
        self.pools: Mapping[str, RayPool] = {}
        self._clients = {part: _Client(str(part)) for part in self.parts}
        self._data = data(setup.task)
        # Where problems are dealt otherwise, a part of the same name is another one.
        dealt = digest(*(problem.id for problem in setup.task.problems())).hex()
        self._root = directory.shards / f"{_name_of(journal)}-{dealt}"
        shards = self.experiment.executor.shards
        assert shards is not None
        self._place = Placement(num_cpus=shards.num_cpus, resources=shards.resources)

    @property
    def delivered(self) -> int:
        return sum(state.samples for state in self._ended.values())

    def state(self, status: Status) -> State:
        ended, meter = list(self._ended.values()), self.meter
        return State(
            self.experiment.name, status, self.problems, self.delivered, meter.fresh, round(meter.elapsed, 3),
            self.experiment.seed, ended[0].lines if ended else (), tuple(f for s in ended for f in s.failures),
            ended[0].notes if ended else (), self._journaled,
            sum(s.cached for s in ended),
        )  # fmt: skip

    def note(self, makers: Makers) -> None:
        """Who answers, beside what earlier calls noted."""
        facts = {**environment(), **makers.after(Makers.of_run(self.directory)).to_dict()}
        self.directory.write("environment.json", json.dumps(facts, indent=1) + "\n")

    @contextmanager
    def start(self, ray: Any) -> Iterator[dict[Part, Any]]:
        """The first driver of each part: they start while the engines open."""
        drivers = {part: self._driver(ray, part) for part in self.parts}
        try:
            yield drivers
        finally:
            for driver in drivers.values():
                _end(ray, driver)

    async def all(self, ray: Any, pools: Mapping[str, RayPool], drivers: Mapping[Part, Any]) -> None:
        """All parts side by side; the tables appear when all have ended."""
        self.pools = pools
        ours = {self._root / str(part) for part in self.parts}
        await gather(self.directory, self.journal, self.experiment.seed, ours)
        try:
            await together(self._part(ray, part, drivers[part]) for part in self.parts)
            join_tables(self.directory.root, [self._tables[part] for part in self.parts])
            await asyncio.to_thread(shutil.rmtree, self.directory.shards, ignore_errors=True)
        finally:
            for path in (self.directory.root).glob("*.parquet.part"):
                path.unlink(missing_ok=True)

    async def _part(self, ray: Any, part: Part, driver: Any) -> None:
        """One part to its end, by as many drivers as that takes."""
        while True:
            self._clients[part] = client = _Client(f"{part}/{self._lost}")
            try:
                await self._drive(driver, part)
            except ray.exceptions.RayError as error:
                # An error of its own code is no loss: the next driver would meet it too.
                if isinstance(error, ray.exceptions.RayTaskError):
                    raise
                self._lost += 1
                if (last := self._last.get(part)) is not None:
                    self._before[part] += last.fresh
                    self._last[part] = dataclasses.replace(last, fresh=0)
                _LOG.warning(
                    "driver lost", extra={"part": str(part), "reason": str(error), "lost": self._lost}
                )
                if self._lost > self.experiment.executor.replacements:
                    raise EngineError(
                        f"{self._lost} drivers were lost, the last of part {part} ({error}); "
                        f"{self.directory.resume_hint}"
                    ) from None
            else:
                return
            finally:
                _end(ray, driver)
                for pool in self.pools.values():
                    await pool.dismiss(client.name)
            driver = self._driver(ray, part)

    async def _exchange(self, part: Part) -> dict[str, Roster]:
        """What is new of the replicas for a driver, once the pools have heard what it told last."""
        client = self._clients[part]
        found = {
            name: await pool.share(client.name, client.reports.get(name)) for name, pool in self.pools.items()
        }
        new = {name: roster for name, roster in found.items() if roster != client.rosters.get(name)}
        client.rosters |= new
        return new

    def _driver(self, ray: Any, part: Part) -> Any:
        actor = ray.remote(Driver).options(**self._place.options(None))
        return actor.remote(self.experiment, str(self._root.resolve()), part, self._data)

    async def _drive(self, driver: Any, part: Part) -> None:
        late = asyncio.get_running_loop().call_later(LATE, self._warn_of_wait, part)
        try:
            there = await _unwrap(driver.counts.remote())
        finally:
            late.cancel()
        mark = await self._follow(driver, part, 0, replace=False)
        await self._feed(driver, part, there)
        ended = asyncio.ensure_future(driver.run.remote())
        try:
            while not ended.done():
                await asyncio.wait({ended}, timeout=EVERY)
                mark = await self._follow(driver, part, mark)
        except asyncio.CancelledError:
            # Where the run goes on, nobody may see this driver's disk.
            with suppress(Exception):
                await asyncio.wait_for(self._follow(driver, part, mark), LAST)
            raise
        finally:
            ended.cancel()
        found = await _unwrap(ended)
        # What was recorded while the last look was under way.
        await self._follow(driver, part, mark)
        self._tables[part] = {name: await self._table(driver, part, name) for name in NAMES}
        await _unwrap(driver.discard.remote())
        self._ended[part] = found

    def _warn_of_wait(self, part: Part) -> None:
        """Ray itself does not tell that it has no room for a driver."""
        import ray

        told = {"part": str(part), "needs": str(self._place), "free": list_free(ray)}
        _LOG.warning("driver has not started, it waits until the cluster has room for it", extra=told)

    async def _follow(self, driver: Any, part: Part, mark: int, *, replace: bool = True) -> int:
        """Copy what a driver has recorded since a mark; the mark behind it."""
        while True:
            rosters = await self._exchange(part)
            news: News = await _unwrap(driver.news.remote(mark, RECORDS, rosters))
            self._clients[part].reports = news.reports
            await self.journal.copy(news.records, replace=replace)
            mark = news.mark
            if news.makers is not None:
                if not self._last:
                    self.meter.begin(0, self.problems)
                if part not in self._last:
                    self.note(news.makers)
                self._last[part] = dataclasses.replace(news, records=[])
                self._count()
            if len(news.records) < RECORDS:
                return mark

    def _count(self) -> None:
        """The sums over the parts; a driver that takes another's place counts from the beginning."""
        meter, seen = self.meter, self._last.values()
        # Drivers that wait for room have as much to do as those that were heard.
        meter.total = sum(news.total for news in seen) * len(self.parts) // len(seen)
        done = sum(news.done for news in seen)
        fresh = sum(news.fresh for news in seen) + sum(self._before.values())
        meter.advance(max(0, done - meter.done), max(0, fresh - meter.fresh))
        meter.problems, meter.failures = sum(n.problems for n in seen), sum(n.failures for n in seen)

    async def _feed(self, driver: Any, part: Part, there: dict[str, int]) -> None:
        """Give a driver what the run has of its problems, and it has not."""
        here, waiting = self.journal.counts(), list[Columns]()
        for place, problem in enumerate(self.task.problems()):
            if part(place, problem) and here.get(problem.id, 0) != there.get(problem.id, 0):
                waiting += self.journal.stored_rows(problem.id)
            if len(waiting) >= RECORDS:
                await _unwrap(driver.take.remote(waiting))
                waiting = []
        if waiting:
            await _unwrap(driver.take.remote(waiting))

    async def _table(self, driver: Any, part: Part, name: str) -> Path:
        """A table of a part, fetched."""
        path = self.directory.root / f"{name}.{part}.parquet.part"
        with path.open("wb") as file:
            while piece := await _unwrap(driver.table.remote(name, file.tell(), PIECE)):
                file.write(piece)
        return path


async def gather(
    directory: RunDirectory, journal: SQLiteJournal, seed: int, but: Container[Path] = ()
) -> None:
    """Copy what lies here of parts of earlier calls into the run's journal, and remove it. but: parts that go on."""
    # Version 0.1 had no name of the run above its parts.
    layouts = ("*-of-*/journal.sqlite", f"{_name_of(journal)}-*/*/journal.sqlite")
    for path in sorted(path for layout in layouts for path in directory.shards.glob(layout)):
        if path.parent in but:
            continue
        with await wait_for_journal(RunDirectory(path.parent), seed) as other:
            mark, records = other.since(0, RECORDS)
            while records:
                await journal.copy(records, replace=False)
                mark, records = other.since(mark, RECORDS)
        shutil.rmtree(path.parent)


def _name_of(journal: SQLiteJournal) -> str:
    """The run's own name: other machines may have records of one that was deleted here."""
    return journal.keep("shards", uuid.uuid4().hex)


def _end(ray: Any, driver: Any) -> None:
    with suppress(Exception):
        ray.kill(driver)


async def _unwrap(answer: Awaitable[Any]) -> Any:
    """Return the answer of a driver, or raise the error that it met."""
    found = await answer
    if isinstance(found, Fault):
        raise found.error()
    return found
