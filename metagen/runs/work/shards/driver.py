"""One driver: solves its part of the problems in a run directory of its own, and tells what it has recorded."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from metagen.errors import EngineError, JournalLocked, JournalMismatch, MetagenError
from metagen.generators.ray.messages import Fault, Report, Roster
from metagen.journal import Columns, SQLiteJournal
from metagen.runs.declare.specs import Experiment
from metagen.runs.directory import RunDirectory, State
from metagen.runs.work import build
from metagen.runs.work.makers import Makers
from metagen.runs.work.progress import Meter
from metagen.runs.work.shards.part import Part
from metagen.runs.work.solve import open_journal, solve
from metagen.runs.work.survey import data

T = TypeVar("T")
#: Seconds in which a driver that this one takes the place of lets go of its journal.
PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class News:
    """How far a driver is. mark, records: as of `SQLiteJournal.since`. makers: None before its engines are open.

    reports: by engine, what its pool tells.
    """

    total: int
    done: int
    fresh: int
    problems: int
    failures: int
    mark: int
    records: list[Columns]
    makers: Makers | None
    reports: dict[str, Report] = field(default_factory=dict)


def return_faults(method: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T | Fault]]:
    """An error of metagen's own comes back as a Fault: it is no loss of the driver."""

    @wraps(method)
    async def answer(*given: Any) -> T | Fault:
        try:
            return await method(*given)
        except MetagenError as error:
            return Fault.of(error, asked=True)

    return answer


async def wait_for_journal(directory: RunDirectory, seed: int) -> SQLiteJournal:
    """The journal of a part, once a driver before this one has let go of it."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return open_journal(directory, seed)
        except JournalLocked:
            if time.monotonic() >= until:
                raise
            await asyncio.sleep(PATIENCE / 100)


class Driver:
    """Runs in an actor; `metagen.runs.work.shards.run` asks it.

    experiment: the whole one. root: of the directories of parts, on the disk of the machine that the driver is on.
    data: names the problems that it is to find.
    """

    def __init__(self, experiment: Experiment, root: str, part: Part, data: bytes) -> None:
        self.experiment, self.part, self.data = experiment, part, data
        self.directory = RunDirectory(Path(root) / str(part))
        self.meter = Meter()
        self.rosters: dict[str, Roster] = {}
        self._pools: Mapping[str, Any] = {}
        self._reader: SQLiteJournal | None = None

    @return_faults
    async def run(self) -> State:
        """Solve the part, or go on with it; how it ended. By then `news` has brought the rosters."""
        return await asyncio.to_thread(self._run)

    def _run(self) -> State:
        mine, cores = self.part.of(self.experiment), max(1, self.part.share(build.usable_cores()))
        with build.open_setup(mine, cores=cores, rosters=self.rosters) as setup:
            if data(setup.task) != self.data:
                raise JournalMismatch(
                    f"the driver of part {self.part} reads other problems than the process that started it; give all "
                    "machines the same files"
                )
            self._pools = setup.engines
            return solve(setup, self.directory, self.meter, only=self.part)

    @return_faults
    async def counts(self) -> dict[str, int]:
        """What it has recorded, by problem."""
        RunDirectory.at(self.directory.root)
        with await wait_for_journal(self.directory, self.experiment.seed) as journal:
            return journal.counts()

    @return_faults
    async def take(self, records: Sequence[Columns]) -> None:
        """Note what was recorded elsewhere of its problems, before it runs."""
        with await wait_for_journal(self.directory, self.experiment.seed) as journal:
            await journal.copy(records)

    @return_faults
    async def news(self, mark: int, most: int, rosters: Mapping[str, Roster]) -> News:
        """What is new since a mark, with up to so many records. rosters: those that have changed."""
        self.rosters |= rosters
        reports: dict[str, Report] = {}
        for name, pool in self._pools.items():
            with suppress(EngineError):  # it has closed
                reports[name] = await pool.follow(self.rosters[name])
        records: list[Columns] = []
        if self._reader is None and self.directory.journal.exists():
            self._reader = SQLiteJournal(self.directory.journal, read_only=True)
        if self._reader is not None:
            mark, records = await asyncio.to_thread(self._reader.since, mark, most)
        makers = Makers.of_run(self.directory) if self.meter.total else None
        m = self.meter
        return News(m.total, m.done, m.fresh, m.problems, m.failures, mark, records, makers, reports)

    @return_faults
    async def table(self, name: str, offset: int, most: int) -> bytes:
        """A piece of a table of its part."""
        with self.directory.table(name).open("rb") as file:
            file.seek(offset)
            return file.read(most)

    @return_faults
    async def discard(self) -> None:
        """Remove its directory: the run has all of it."""
        if self._reader is not None:
            self._reader.close()
        shutil.rmtree(self.directory.root)
        with suppress(OSError):  # another part is still there
            self.directory.root.parent.rmdir()
