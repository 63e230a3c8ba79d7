"""Runs an experiment in shards into one run directory, like any other run: resumable at any moment.

Each driver is an actor with a part of the problems, its own replicas of the engines and a journal on the disk of its
machine. What it records is copied into the run's journal as it comes, and its tables when it has ended; then nothing
tells the run from one of a single driver. A total budget is dealt out by problem before the work, so that drivers need
not agree on what is left of it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from metagen.errors import EngineError
from metagen.experiments import runner
from metagen.experiments.build import Setup
from metagen.experiments.directory import RunDirectory, State, Status, environment
from metagen.experiments.makers import Makers
from metagen.experiments.progress import Meter
from metagen.experiments.schema import dump
from metagen.experiments.shards.driver import Driver, News
from metagen.experiments.shards.part import Part
from metagen.experiments.tables import NAMES, joined
from metagen.experiments.together import together
from metagen.generators.ray.cluster import connected
from metagen.generators.ray.messages import Fault
from metagen.generators.ray.placement import Placement
from metagen.journal import SQLiteJournal
from metagen.logs import logger
from metagen.strategies.base import wait

_LOG = logger(__name__)
#: Seconds between two looks at a driver.
EVERY = 0.5
#: Records, and bytes of a table, that are fetched at a time.
RECORDS, PIECE = 5_000, 16 << 20


def run(setup: Setup, directory: RunDirectory, meter: Meter | None = None) -> State:
    """Run, or go on with, an experiment in shards; returns how it ended. As `runner.run` otherwise, which calls it.

    A driver that is lost is replaced, as many of them as `executor.replacements`, and goes on from what is recorded.
    """
    experiment = setup.experiment
    directory.claim()
    with runner.opened(directory, experiment.seed) as journal:
        runner.bind(journal, setup.task, journal.count())
        directory.write("experiment.yaml", dump(experiment))
        head = Head(setup, directory, journal, meter or Meter())
        head.note(Makers())
        directory.save(replace(head.state("running"), seconds=0.0))
        directory.discard()
        status: Status = "failed"
        try:
            with connected(experiment.executor.address) as ray:
                wait(head.all(ray))
            status = "complete" if head.delivered else "failed"
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        finally:
            directory.save(head.state(status))
    return head.state(status)


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
        self.problems = setup.problems
        count = min(self.experiment.executor.shares, setup.problems)
        self.parts = [Part(index, count) for index in range(count)]
        self._ended: dict[Part, State] = {}
        self._tables: dict[Part, dict[str, Path]] = {}
        self._last: dict[Part, News] = {}
        self._replaced = 0

    @property
    def delivered(self) -> int:
        return sum(state.samples for state in self._ended.values())

    def state(self, status: Status) -> State:
        ended, meter = list(self._ended.values()), self.meter
        return State(
            self.experiment.name, status, self.problems, self.delivered, meter.fresh, round(meter.elapsed, 3),
            self.experiment.seed, ended[0].lines if ended else (), tuple(f for s in ended for f in s.failures),
        )  # fmt: skip

    def note(self, makers: Makers) -> None:
        """Who answers, beside what earlier calls noted."""
        facts = {**environment(), **makers.after(Makers.recorded(self.directory)).to_dict()}
        self.directory.write("environment.json", json.dumps(facts, indent=1) + "\n")

    async def all(self, ray: Any) -> None:
        """All parts side by side; the tables appear when all have ended."""
        await self._gather()
        try:
            await together(self._part(ray, part) for part in self.parts)
            joined(self.directory.root, [self._tables[part] for part in self.parts])
            await asyncio.to_thread(shutil.rmtree, self.directory.root / "shards", ignore_errors=True)
        finally:
            for path in (self.directory.root).glob("*.parquet.part"):
                path.unlink(missing_ok=True)

    async def _gather(self) -> None:
        """Copy what lies here of runs in other numbers of shards, and remove it."""
        now = {str(part) for part in self.parts}
        for path in sorted((self.directory.root / "shards").glob("*/journal.sqlite")):
            if path.parent.name not in now:
                with SQLiteJournal(path, read_only=True) as other:
                    mark, records = other.since(0, RECORDS)
                    while records:
                        await self.journal.copy(records)
                        mark, records = other.since(mark, RECORDS)
                shutil.rmtree(path.parent)

    async def _part(self, ray: Any, part: Part) -> None:
        """One part to its end, by as many drivers as that takes."""
        while True:
            driver = self._driver(ray, part)
            try:
                await self._drive(driver, part)
            except ray.exceptions.RayActorError as error:
                self._replaced += 1
                most = self.experiment.executor.replacements
                _LOG.warning(
                    "driver lost", extra={"part": str(part), "reason": str(error), "lost": self._replaced}
                )
                if self._replaced > most:
                    raise EngineError(
                        f"{self._replaced} drivers were lost, the last of part {part} ({error}); "
                        f"{self.directory.resume_hint}"
                    ) from None
            else:
                return
            finally:
                with suppress(Exception):
                    ray.kill(driver)

    def _driver(self, ray: Any, part: Part) -> Any:
        shards = self.experiment.executor.shards
        assert shards is not None
        place = Placement(num_cpus=shards.num_cpus, resources=shards.resources)
        actor = ray.remote(Driver).options(**place.options(None))
        return actor.remote(self.experiment, str(self.directory.root.resolve()), part)

    async def _drive(self, driver: Any, part: Part) -> None:
        there = await driver.take.remote([])
        mark = await self._follow(driver, part, 0)
        await self._feed(driver, part, there)
        ended = asyncio.ensure_future(driver.run.remote())
        try:
            while not ended.done():
                await asyncio.wait({ended}, timeout=EVERY)
                mark = await self._follow(driver, part, mark)
        finally:
            ended.cancel()
        found: State | Fault = ended.result()
        if isinstance(found, Fault):
            raise found.error()
        self._tables[part] = {name: await self._table(driver, part, name) for name in NAMES}
        await driver.discard.remote()
        self._ended[part] = found

    async def _follow(self, driver: Any, part: Part, mark: int) -> int:
        """Copy what a driver has recorded since a mark; the mark behind it."""
        while True:
            news: News = await driver.news.remote(mark, RECORDS)
            await self.journal.copy(news.records)
            mark = news.mark
            if news.makers is not None and part not in self._last:
                self.note(news.makers)
            if news.makers is not None:
                self._last[part] = replace(news, records=[])
                self._count()
            if len(news.records) < RECORDS:
                return mark

    def _count(self) -> None:
        """The sums over the parts; a driver that takes another's place counts from the beginning."""
        meter, seen = self.meter, self._last.values()
        if not meter.total:
            meter.begin(0, self.problems)
        meter.total = sum(news.total for news in seen)
        done, fresh = sum(news.done for news in seen), sum(news.fresh for news in seen)
        meter.advance(max(0, done - meter.done), max(0, fresh - meter.fresh))
        meter.problems, meter.failures = sum(n.problems for n in seen), sum(n.failures for n in seen)

    async def _feed(self, driver: Any, part: Part, there: int) -> None:
        """Give a driver what the run has of its problems, unless it has as much: then it is the same."""
        ours = [p.id for place, p in enumerate(self.task.problems()) if part(place, p)]
        if sum(len(self.journal.of_problem(problem)) for problem in ours) == there:
            return
        for problem in ours:
            if rows := self.journal.of_problem(problem):
                await driver.take.remote([row.columns() for row in rows])

    async def _table(self, driver: Any, part: Part, name: str) -> Path:
        """A table of a part, fetched."""
        path = self.directory.root / f"{name}.{part}.parquet.part"
        with path.open("wb") as file:
            while piece := await driver.table.remote(name, file.tell(), PIECE):
                file.write(piece)
        return path
