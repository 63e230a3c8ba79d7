"""The tables of a run without an end, made bit by bit: a problem is replayed anew only where the journal has grown.

`unfinished.tables` makes all of them at once, as a report needs it. Callers that look again and again ask here.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import pyarrow.parquet as pq

from metagen.journal import SQLiteJournal
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory, State
from metagen.runs.table.tables import replace_problems
from metagen.runs.work import build, offline
from metagen.runs.work.attempts import Recorded
from metagen.runs.work.makers import Makers
from metagen.runs.work.progress import Meter
from metagen.runs.work.unfinished import problems_of
from metagen.runs.work.window import shuffle
from metagen.runs.work.work import Work
from metagen.strategies.base import wait

#: Problems that are replayed at a time.
STRIDE = 400


class Growing:
    """A run over its journal, with engines closed, for as long as this is open.

    tables: of what has been replayed. delivered: samples and solutions in them. left: problems of which something is
    recorded that is not in the tables yet. Raises InputError for an experiment that cannot be made here.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self._stack = ExitStack()
        try:
            noted = Makers.of_run(directory).engines
            experiment = offline.with_stand_ins(
                schema.load(directory.experiment), fingerprints=True, noted=noted
            )
            self._setup = self._stack.enter_context(build.open_setup(experiment))
            self._journal = self._stack.enter_context(SQLiteJournal(directory.journal, read_only=True))
            folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="metagen-")))
        except BaseException:
            self.close()
            raise
        self._directory = directory
        self.tables, self._fresh = RunDirectory(folder / "all"), RunDirectory(folder / "fresh")
        for one in (self.tables, self._fresh):
            one.root.mkdir()
        self._work: Work | None = None
        #: Records of each problem when it was replayed.
        self._seen: dict[str, int] = {}
        # Where the work on a problem depends on others, or on files beside the journal, all is replayed.
        self._apart = self._setup.journaled and not self._setup.difficulties
        own = problems_of(directory)
        asked = [(i, one) for i, one in enumerate(self._setup.task.problems()) if own is None or own(i, one)]
        self._order = [one.id for _, one in shuffle(asked)]
        self.left = len(self._order)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()

    @property
    def delivered(self) -> int:
        return sum(pq.read_metadata(self.tables.table(name)).num_rows for name in ("candidates", "outcomes"))

    def state(self) -> State:
        """Of the run itself, with what its tables here hold; once something was replayed."""
        noted = self._directory.state()
        assert self._work is not None
        state = self._work.state(noted.status)
        return replace(
            state,
            problems=noted.problems,
            samples=self.delivered,
            seconds=noted.seconds,
            failures=noted.failures,
        )

    def advance(self, until: float) -> Iterator[RunDirectory]:
        """Replay what the journal has more of, bit by bit to `until` by the monotonic clock; at least one bit.

        Gives the tables of each bit, which last until the next is asked for.
        """
        self._journal.look()
        counts = self._journal.counts()
        waiting = [name for name in self._order if self._seen.get(name, -1) != counts.get(name, 0)]
        if not waiting:
            self.left = 0
            return
        # Those that were begun come first: of the others there is nothing yet.
        waiting = sorted(waiting if self._apart else self._order, key=lambda name: not counts.get(name, 0))
        stride = STRIDE if self._apart else len(waiting)
        for at in range(0, len(waiting), stride):
            bit = waiting[at : at + stride]
            self._replay(bit)
            self._seen.update({name: counts.get(name, 0) for name in bit})
            self.left = sum(counts.get(name, 0) > 0 for name in waiting[at + len(bit) :])
            yield self._fresh
            if time.monotonic() >= until:
                return

    def _replay(self, problems: list[str]) -> None:
        wanted = set(problems)
        self._work = Work(
            self._setup,
            self._fresh,
            Recorded(self._journal),
            Meter(),
            only=lambda place, one: one.id in wanted,
        )
        wait(self._work.all())
        if self.tables.table("problems").exists():
            replace_problems(self.tables.root, self._fresh.root)
        else:
            for file in self._fresh.root.iterdir():
                shutil.copy(file, self.tables.root)
