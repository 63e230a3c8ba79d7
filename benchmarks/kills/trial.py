"""One trial: work is killed once or several times, gone on with to its end, and held against the ledger."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import pyarrow.parquet as pq

from benchmarks.kills.parts import Entry, entries, keys
from benchmarks.kills.scenes import Scene
from metagen.cli.signals import ENDING
from metagen.errors import MetagenError
from metagen.journal import ATTEMPT, Columns, Row, SQLiteJournal

ROOT = Path(__file__).parents[2]
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
#: Seconds for which a process may go on after a signal, and a command may take.
PATIENCE = 120.0
#: Seconds that a process needs at least before it asks a server for anything: an import of metagen takes longer.
START = 0.1
#: Columns of tables that clocks have measured, that an engine counted, whose cache is cold after a kill, or that say
#: what the kill itself has lost.
MEASURED = {"seconds", "physical", "lost"}
#: Where a row is: the directory of its journal, and its key.
Rows = dict[tuple[str, bytes], Columns]
Counts = Counter[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Fault:
    """What must not be. kind: `lost`, `twice`, `differs` or `command`; count: of how many samples or scores."""

    kind: str
    words: str
    count: int = 1


@dataclass
class Found:
    """What a trial has shown.

    kills: by signal. finished: samples and scores that were finished by the last kill. unheard: those that were on
    their way at a SIGKILL, and that the journal lacks; oldest: for how many seconds at most. after: those that another
    process finished after the signal, for nobody. again: how many of both were paid for a second time.
    """

    scene: str
    number: int
    kills: dict[str, int] = field(default_factory=dict)
    finished: int = 0
    unheard: int = 0
    oldest: float = 0.0
    after: int = 0
    again: int = 0
    faults: list[Fault] = field(default_factory=list)

    @classmethod
    def of(cls, data: dict[str, Any]) -> Self:
        return cls(**{**data, "faults": [Fault(**fault) for fault in data["faults"]]})

    def fault(self, kind: str, words: str, count: int = 1) -> None:
        self.faults.append(Fault(kind, words, count))


class Place:
    """Where one experiment is run: its file, its ledger, its directory, and the server that it asks."""

    def __init__(self, root: Path, scene: Scene, environment: dict[str, str] | None = None) -> None:
        self.scene, self.root = scene, root
        self.file, self.ledger, self.out = root / "kills.yaml", root / "ledger", root / "out"
        fixed = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "METAGEN_TRUST": "1"}
        self.environment = fixed | (environment or {})

    @contextmanager
    def open(self) -> Iterator[Place]:
        self.root.mkdir(parents=True)
        if not self.scene.served:
            self.scene.write(self.file, self.ledger, None)
            yield self
            return
        command = [sys.executable, "-m", "benchmarks.kills.serving", str(self.ledger)]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | self.environment,
            cwd=ROOT,
        ) as server:
            assert server.stdout is not None
            try:
                self.scene.write(self.file, self.ledger, int(server.stdout.readline()))
                yield self
            finally:
                server.kill()

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Run, go on with or report the experiment, in a process of its own."""
        begun = any((self.out / name).exists() for name in ("experiment.yaml", "study.yaml"))
        if command == "report" or begun:
            arguments = ["report" if command == "report" else "resume", str(self.out)]
        else:
            arguments = [command, str(self.file), "--out", str(self.out)]
        return subprocess.Popen(
            [sys.executable, "-m", "metagen.cli", *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=(self.root / "stderr").open("wb"),
            env=os.environ | self.environment, cwd=self.root, start_new_session=True, preexec_fn=heed,
        )  # fmt: skip

    def finish(self, command: str) -> str | None:
        """Run it to its end; what went wrong, if anything did."""
        process = self.start(command)
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"{command} did not end within {PATIENCE:g} s"
        return None if code == 0 else f"{command} ended with {code}: {self.said()}"

    def said(self) -> str:
        return (self.root / "stderr").read_text(errors="replace").strip()[-400:]

    def rows(self) -> Rows:
        """What the journals hold of results, read in copies: a look at the log of a killed process may change it."""
        found: Rows = {}
        for journal in sorted(self.out.glob("**/journal.sqlite")):
            with tempfile.TemporaryDirectory() as folder:
                for file in journal.parent.glob("journal.sqlite*"):
                    shutil.copy(file, folder)
                with SQLiteJournal(Path(folder) / journal.name, read_only=True) as copied:
                    _, records = copied.since(0, 1_000_000)
            role = journal.parent.relative_to(self.out).parts[:1]
            # What a shard has recorded is the run's.
            name = "" if role in ((), ("shards",)) else role[0]
            found.update(
                {(name, bytes(record[0])): record for record in records if Row.of(record).limit != ATTEMPT}
            )
        return found

    def results(self) -> dict[str, list[str]]:
        """The tables, without what a clock has measured."""
        found = {}
        for file in sorted(self.out.glob("**/*.parquet")):
            table = pq.read_table(file)
            kept = table.select([name for name in table.column_names if name not in MEASURED])
            # As text, since what is unknown is nan, which equals nothing.
            found[str(file.relative_to(self.out))] = sorted(map(repr, kept.to_pylist()))
        return found

    @property
    def size(self) -> int:
        return self.ledger.stat().st_size if self.ledger.exists() else 0


def heed() -> None:
    """Signals as in a terminal, whatever a shell in the background has told this process to ignore."""
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)


def drivers() -> list[Path]:
    """Processes of drivers of shards on this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes().startswith(b"ray::Driver"):
                found.append(path)
    return found


def counted(rows: Rows) -> Counts:
    return keys(map(Row.of, rows.values()))


def facts(rows: Rows) -> dict[Any, Any]:
    """What must be equal in two runs: answers, their status, and logical usage; no clock, and no engine's luck.

    Which of several calls at a time pays for the prefix that they share depends on which ends first, so that their
    prefix tokens are compared as sums.
    """
    found: dict[Any, Any] = {}
    sums: Counter[tuple[str, str, str]] = Counter()
    for at, columns in rows.items():
        row = Row.of(columns)
        for name in ("prefilled", "cached"):
            sums[row.problem, row.by, name] += getattr(row.usage, name) or 0
        usage = replace(row.usage, seconds=None, prefilled=None, cached=None)
        found[at] = (row.problem, row.path, row.kind, row.payload, row.status, row.limit, repr(usage))
    return found | dict(sums)


class Model:
    """The same work, not interrupted."""

    def __init__(self, scene: Scene, root: Path) -> None:
        self.scene = scene
        self.place = Place(root, scene)
        began = time.monotonic()
        command = "run" if scene.command == "report" else scene.command
        with self.place.open() as place:
            if fault := place.finish(command):
                raise AssertionError(f"{scene.name}: {fault}")
            self.seconds, self.size = time.monotonic() - began, place.size
            self.rows, self.results = place.rows(), place.results()
        paid = Counter((e.kind, e.key) for e in entries(self.place.ledger) if e.kind != "seen")
        kept = counted(self.rows)
        assert paid == Counter({key: n for key, n in kept.items() if key[0] != "seen"}), scene.name
        assert self.rows and self.results, scene.name

    @cached_property
    def facts(self) -> dict[Any, Any]:
        return facts(self.rows)


class Trial:
    """Kills one run of a scene, at moments that `number` draws."""

    def __init__(
        self, scene: Scene, number: int, model: Model, root: Path, environment: dict[str, str] | None = None
    ) -> None:
        self.model, self.draw = model, random.Random(f"{scene.name} {number}")
        self.place = Place(root, scene, environment)
        self.found = Found(scene.name, number)
        self.before: Rows = {}
        self.missing: Counts = Counter()
        #: When the process began that is to be killed.
        self.began = 0.0

    def run(self, signals: tuple[signal.Signals, ...] = ()) -> Found:
        """signals: to send, one to a process; by default drawn."""
        scene = self.place.scene
        chosen = signals or tuple(self.draw.choice(SIGNALS) for _ in range(self.draw.choice((2, 3, 4, 5))))
        commands = [scene.command] * len(chosen)
        with self.place.open() as place:
            if scene.command == "report" and self.draw.random() < 0.5:
                shutil.copytree(self.model.place.out, place.out)
                shutil.copy(self.model.place.ledger, place.ledger)
            elif scene.command == "report":
                commands[0] = "run"
            last = (
                scene.command if place.out.exists() else {"report": "run"}.get(scene.command, scene.command)
            )
            try:
                for command, number in zip(commands, chosen, strict=True):
                    self.kill(command, number)
                if fault := place.finish(last):
                    self.found.fault("command", fault)
                else:
                    self.compare()
            except MetagenError as error:
                self.found.fault("lost", f"{type(error).__name__}: {error}")
        return self.found

    def kill(self, command: str, number: signal.Signals) -> None:
        """Start it, and kill it at a moment of its own; then see what is kept."""
        place, began, size = self.place, time.monotonic(), self.place.size
        left = self.model.size - size
        amount = self.draw.uniform(size, self.model.size) if left > 0 and self.draw.random() < 0.7 else 0
        wait = self.draw.uniform(0, 0.03) if amount else self.draw.uniform(0.2, 1.0) * self.model.seconds
        self.began = time.monotonic()
        process = place.start(command)
        while process.poll() is None and time.monotonic() - began < PATIENCE:
            if amount and place.size >= amount:
                amount, began = 0, time.monotonic()
            if not amount and time.monotonic() - began >= wait:
                break
            time.sleep(0.001)
        at = time.monotonic()
        if process.poll() is None:
            process.send_signal(number)
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self.found.fault("command", f"{command} went on for {PATIENCE:g} s after {number.name}")
            return
        if code not in (0, -number, 128 + number):
            if command != "report" or code != 2:  # nothing was there to be reported
                self.found.fault("command", f"{command} ended with {code}: {place.said()}")
        elif code:
            self.found.kills[number.name] = self.found.kills.get(number.name, 0) + 1
        self.settle()
        # Ray ends the drivers of shards by force, whatever has ended the process that started them.
        self.look(number, at, struck=code == -number or self.place.scene.executor is not None)

    def settle(self) -> None:
        """Wait for the drivers of shards, which Ray kills once nobody wants them."""
        until = time.monotonic() + PATIENCE
        while self.place.scene.executor is not None and drivers():
            assert time.monotonic() < until, "a driver outlives its run"
            time.sleep(0.05)

    def look(self, number: signal.Signals, at: float, struck: bool) -> None:
        """What is kept, right after the end of a process. struck: the signal ended it, and nobody heeded it."""
        rows = self.place.rows()
        self.unchanged(rows)
        kept, found = counted(rows), self.found
        noted = entries(self.place.ledger)
        paid = Counter((entry.kind, entry.key) for entry in noted if entry.kind != "seen")
        found.finished = len([entry for entry in noted if entry.kind != "seen"])
        told = {("seen", entry.key) for entry in noted if entry.kind == "seen"}
        if lost := [key for _, key in told if not kept["seen", key]]:
            words = f"{len(lost)} were handed on and are lost after {number.name}: {lost[:3]}"
            found.fault("lost", words, len(lost))
        missing = paid - kept - self.missing
        for key, count in missing.items():
            # What was made again is kept since: the first that nobody has missed yet are the ones.
            ours = [entry for entry in noted if (entry.kind, entry.key) == key][self.missing[key] :]
            for entry in ours[:count]:
                self.miss(entry, number, at, struck)
        self.missing += missing

    def miss(self, entry: Entry, number: signal.Signals, at: float, struck: bool) -> None:
        remote = self.place.scene.remote and entry.kind == "sample"
        # Before this process could ask: for the one that was killed before it, and that was looked at too early.
        if remote and (entry.at > at or entry.at < self.began + START):
            self.found.after += 1
        elif number == signal.SIGKILL or struck:
            self.found.unheard += 1
            self.found.oldest = max(self.found.oldest, at - entry.at)
        else:
            ago = f"{1000 * (at - entry.at):.1f} ms before {number.name}"
            self.found.fault("lost", f"a {entry.kind}, finished {ago}: {entry.key}")

    def unchanged(self, rows: Rows) -> None:
        """All that was recorded before still is, to the letter."""
        gone = [at for at, columns in self.before.items() if rows.get(at) != columns]
        if gone:
            self.found.fault("lost", f"{len(gone)} records are gone or were made anew: {gone[:3]}", len(gone))
        self.before = rows

    def compare(self) -> None:
        """The end: nothing paid twice, and all as in the work that was not interrupted."""
        rows, found = self.place.rows(), self.found
        self.unchanged(rows)
        kept = Counter({key: n for key, n in counted(rows).items() if key[0] != "seen"})
        noted = entries(self.place.ledger)
        paid = Counter((entry.kind, entry.key) for entry in noted if entry.kind != "seen")
        twice = paid - kept
        found.again = sum((twice & self.missing).values())
        if more := twice - self.missing:
            found.fault("twice", f"{more.total()} had been recorded: {list(more)[:3]}", more.total())
        if less := kept - paid:
            found.fault("differs", f"{less.total()} are recorded that nobody has made: {list(less)[:3]}")
        if facts(rows) != self.model.facts:
            found.fault("differs", "the records differ from those of the run that was not interrupted")
        results = self.place.results()
        if differing := [name for name, table in self.model.results.items() if results.get(name) != table]:
            found.fault("differs", f"tables differ: {', '.join(differing)}")
