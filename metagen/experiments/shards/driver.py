"""One driver: solves its part of the problems in a run directory of its own, and tells what it has recorded."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from metagen.errors import JournalLocked, MetagenError
from metagen.experiments import build, runner
from metagen.experiments.directory import RunDirectory, State
from metagen.experiments.makers import Makers
from metagen.experiments.progress import Meter
from metagen.experiments.shards.part import Part
from metagen.experiments.specs import Experiment
from metagen.generators.ray.messages import Fault
from metagen.journal import Columns, SQLiteJournal

#: Seconds in which a driver that this one takes the place of lets go of its journal.
PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class News:
    """How far a driver is. mark, records: as of `SQLiteJournal.since`. makers: None before its engines are open."""

    total: int
    done: int
    fresh: int
    problems: int
    failures: int
    mark: int
    records: list[Columns]
    makers: Makers | None


class Driver:
    """Runs in an actor; `metagen.experiments.shards.run` asks it.

    experiment: the whole one. root: of the run; this part of it has a directory below, on the disk of the machine that
    the driver is on.
    """

    def __init__(self, experiment: Experiment, root: str, part: Part) -> None:
        self.experiment, self.part = experiment, part
        self.directory = RunDirectory.at(Path(root) / "shards" / str(part))
        self.meter = Meter()
        self._reader: SQLiteJournal | None = None

    async def run(self) -> State | Fault:
        """Solve the part, or go on with it; how it ended, or why it could not go on."""
        return await asyncio.to_thread(self._run)

    def _run(self) -> State | Fault:
        mine, cores = self.part.of(self.experiment), max(1, self.part.share(build.usable_cores()))
        try:
            with build.opened(mine, cores=cores) as setup:
                return runner.run(setup, self.directory, self.meter, only=self.part)
        except MetagenError as error:
            return Fault.of(error, asked=True)

    async def take(self, records: Sequence[Columns]) -> int:
        """Note what was recorded elsewhere of its problems, before it runs; how many records it has then.

        Waits for a driver before this one to let go of the journal.
        """
        until = time.monotonic() + PATIENCE
        while True:
            try:
                with runner.opened(self.directory, self.experiment.seed) as journal:
                    await journal.copy(records)
                    return journal.count()
            except JournalLocked:
                if time.monotonic() >= until:
                    raise
                await asyncio.sleep(PATIENCE / 100)

    async def news(self, mark: int, most: int) -> News:
        """What is new since a mark, with up to so many records."""
        records: list[Columns] = []
        if self._reader is None and self.directory.journal.exists():
            self._reader = SQLiteJournal(self.directory.journal, read_only=True)
        if self._reader is not None:
            mark, records = await asyncio.to_thread(self._reader.since, mark, most)
        makers = Makers.recorded(self.directory) if self.meter.total else None
        m = self.meter
        return News(m.total, m.done, m.fresh, m.problems, m.failures, mark, records, makers)

    async def table(self, name: str, offset: int, most: int) -> bytes:
        """A piece of a table of its part."""
        with self.directory.table(name).open("rb") as file:
            file.seek(offset)
            return file.read(most)

    async def discard(self) -> None:
        """Remove its directory: the run has all of it."""
        if self._reader is not None:
            self._reader.close()
        shutil.rmtree(self.directory.root)
