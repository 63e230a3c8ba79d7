"""What the viewer tells of runs, as JSON: read when it is asked for, and kept for as long as nothing has changed.

A run that has ended is read from its tables. Of one that has not, the same tables are made from its journal
(`runs.work.unfinished`), not more often than that is worth its time, and all that is said holds "so far".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from math import inf, isfinite
from pathlib import Path
from typing import Any, TypeVar

from metagen import trust
from metagen.errors import InputError, MetagenError
from metagen.journal import SQLiteJournal
from metagen.runs.curves.measured import FEW, derive
from metagen.runs.directory import RunDirectory, State
from metagen.runs.page import browser, listing, run_page
from metagen.runs.questions import compare
from metagen.runs.table.problem import examine
from metagen.runs.table.tables import read
from metagen.runs.work import spans, unfinished
from metagen.runs.work.growing import Growing
from metagen.runs.work.makers import Makers
from metagen.view.ledger import Ledger
from metagen.view.listed import Listed, Wish, lines_of
from metagen.view.replay import Replayer
from metagen.view.shelf import Shelf, outside

T = TypeVar("T")
#: Seconds for which figures of a run without an end hold at least, and in units of the time that making them took.
FRESH, WORTH = 5.0, 4.0
#: Seconds for which one look replays problems of such a run; the next look goes on.
SLICE = 2.0
#: Characters of a text on the page of a problem.
LONGEST = 200_000
#: Answers that are kept of a run.
KEPT = 64
#: Amounts in the list of runs. Seconds for which one look counts records: of all runs, and of one.
LISTED, PATIENCE, GLANCE = ("generated", "flops", "money"), 0.5, 0.3
#: States in which a run has no end.
GOING = ("running", "interrupted")
EVERY = Wish()


@dataclass
class Kept:
    """Something that was made: from files of this state (`stamp`), at a time, in so many seconds."""

    value: Any
    stamp: object
    made: float
    took: float


@dataclass
class _Opened:
    """What is held of one run. lock: around its journal and its replayer. counted: the journal that the list knows.
    making: around the three at the end.

    growing: of a run without an end, made from `grows`. grown: its results so far. listed: its problems.
    """

    lock: threading.RLock = field(default_factory=threading.RLock)
    making: threading.RLock = field(default_factory=threading.RLock)
    journal: SQLiteJournal | None = None
    inode: object = None
    counted: object = None
    ledger: Ledger = field(default_factory=Ledger)
    replayer: Replayer | None = None
    replays: object = None
    kept: dict[str, Kept] = field(default_factory=dict)
    growing: Growing | None = None
    grows: object = None
    grown: Kept | None = None
    listed: Kept | None = None

    def close(self) -> None:
        for one in (self.journal, self.replayer):
            if one is not None:
                one.close()
        self.journal = self.replayer = None
        self.stop()

    def stop(self) -> None:
        """Forget what was made of a run without an end."""
        if self.growing is not None:
            self.growing.close()
        self.growing = self.grown = None


class Desk:
    """Answers by the name of a run. Raises InputError for what there is not. Threads may share it."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self._opened: dict[Path, _Opened] = {}
        self._opening = threading.Lock()
        #: What experiments name is imported, and strategies run again, by one thread at a time.
        self._working = threading.RLock()

    def close(self) -> None:
        for one in self._opened.values():
            one.close()
        self._opened.clear()

    # -- all runs ----------------------------------------------------------------------------------

    def runs(self) -> list[dict[str, Any]]:
        """The runs, the latest first; one that cannot be read says why."""
        found: list[dict[str, Any]] = []
        known: list[tuple[RunDirectory, dict[str, Any]]] = []
        for name, directory in self.shelf.runs().items():
            try:
                _refuse_links(directory)
                known.append(
                    (directory, {"id": name, **asdict(listing.summary(directory.root)), "error": None})
                )
            except (MetagenError, OSError, ValueError, KeyError) as error:
                found.append({"id": name, "name": name, "error": str(error), "age": inf})
        # Small runs are counted first, so that a long one does not keep their amounts back.
        known.sort(key=lambda one: _size(one[0].journal))
        until = time.monotonic() + PATIENCE
        for directory, one in known:
            try:
                found.append({**one, **self._spent(directory, one["state"] == "running", until)})
            except (MetagenError, OSError, ValueError) as error:
                found.append({**one, "error": str(error)})
        found.sort(key=lambda one: (one["age"], one["id"]))
        return [_clean(one) for one in found]

    def _spent(self, directory: RunDirectory, running: bool, until: float) -> dict[str, float | None]:
        """Problems begun, and amounts spent, as far as they are known by then: the next look goes on."""
        opened, stamp = self._at(directory), _stamp(directory.journal)
        with opened.lock:
            if (running or opened.counted != stamp) and time.monotonic() < until and stamp is not None:
                with suppress(MetagenError), self._journal(directory, until) as (_, ledger):
                    opened.counted = stamp if ledger.whole else None
                if not running and opened.journal is not None:
                    opened.journal.close()
                    opened.journal = None
            ledger = opened.ledger
            if not ledger.whole:
                return dict.fromkeys(("begun", *LISTED))
            return {"begun": len(ledger.problems), **{name: ledger.total(name) for name in LISTED}}

    # -- one run -----------------------------------------------------------------------------------

    def run(self, name: str) -> dict[str, Any]:
        """How far a run came and what it has spent: cheap, for it is asked for again and again."""
        directory = self._find(name)
        summary = listing.summary(directory.root)
        state = self._state(directory)
        spent: dict[str, Any] = {}
        note = None
        if directory.journal.exists():
            try:
                with self._journal(directory) as (_, ledger):
                    spent = ledger.data(Makers.of_run(directory))
            except MetagenError as error:
                note = str(error)
        if directory.shards.exists():
            note = "This run works in shards: records of its drivers are counted once they are gathered."
        going = summary.state in ("running", "interrupted")
        told: dict[str, Any] = _clean(
            {
                "id": name,
                **asdict(summary),
                "going": going,
                "seed": state.seed if state else None,
                "delivered": state.samples if state and not going else None,
                "expected": expected(state) if state else None,
                "seconds": state.seconds if state else None,
                "lines": [asdict(line) for line in state.lines] if state else [],
                "failures": [asdict(one) for one in state.failures] if state else [],
                "notes": state.sample_notes if state else [],
                "note": note,
                "ledger": spent,
                "report": (directory.root / "report.html").is_file(),
                "resume": directory.resume_hint if going else None,
            }
        )
        return told

    def experiment(self, name: str) -> str:
        """The experiment file of a run."""
        return self._find(name).experiment.read_text(encoding="utf-8", errors="replace")

    def report(self, name: str) -> bytes:
        """The report of a run. InputError where it has none."""
        path = self._find(name).root / "report.html"
        if not path.is_file():
            raise InputError(f"the run {name!r} has no report; make it with: metagen report {path.parent}")
        return path.read_bytes()

    def results(self, name: str) -> dict[str, Any]:
        """What the configurations solve and cost; of a run without an end so far.

        left: problems that are recorded, and are not counted yet: the next look goes on.
        """
        directory = self._find(name)
        try:
            if _is_whole(directory):
                return self._keep(directory, "results", lambda: self._results(directory))
            found: dict[str, Any] = self._grow(directory, go_on=True)[0].value
            return found
        except InputError as error:
            nothing: dict[str, Any] = {"configurations": [], "levels": [], "headline": []}
            return {
                "why": str(error), "so_far": True, "delivered": 0, "few": 0, "left": 0, "counted": 0, "filters": {},
                **nothing,
            }  # fmt: skip

    def problems(self, name: str, wish: Wish = EVERY, start: int = 0, count: int = 100) -> dict[str, Any]:
        """A page of the list of problems, and what it can be narrowed to."""
        listed = self._listed(self._find(name))
        return {**listed.page(wish, start, count), **listed.facets()}

    def beside(self, name: str, problem: str, wish: Wish = EVERY) -> dict[str, Any]:
        """The problems before and after one in such a list."""
        return self._listed(self._find(name)).beside(wish, problem)

    def _listed(self, directory: RunDirectory) -> Listed:
        try:
            if not _is_whole(directory):
                return self._grow(directory, go_on=False)[1]
        except InputError:
            return Listed()
        opened, stamp = self._at(directory), _made(directory)
        with opened.making:
            if opened.listed is None or opened.listed.stamp != stamp:
                begun = time.monotonic()
                with self._tables(directory) as (found, state):
                    listed = Listed(_clean(lines_of(found, state.lines)))
                opened.listed = Kept(listed, stamp, begun, time.monotonic() - begun)
            made: Listed = opened.listed.value
            return made

    def _results(self, directory: RunDirectory) -> dict[str, Any]:
        with self._tables(directory) as (found, state):
            return _measured(found, state)

    def _grow(self, directory: RunDirectory, *, go_on: bool) -> tuple[Kept, Listed]:
        """Results and problems of a run without an end: as they are, or brought forward where that is due.

        Raises InputError where nothing is finished yet.
        """
        opened = self._at(directory)
        stamp = (_inode(directory.journal), *map(_stamp, (directory.experiment, directory.environment)))
        with opened.making, self._trusted():
            if opened.growing is None or opened.grows != stamp:
                opened.stop()
                opened.growing, opened.grows = Growing(directory), stamp
                opened.listed = Kept(Listed(), stamp, 0.0, 0.0)
            growing, grown = opened.growing, opened.grown
            assert opened.listed is not None
            listed: Listed = opened.listed.value
            begun = time.monotonic()
            age = inf if grown is None else begun - grown.made
            due = grown is None or (go_on and (growing.left or age >= max(FRESH, WORTH * grown.took)))
            if due:
                new = False
                for fresh in growing.advance(begun + SLICE):
                    listed.lines.update(_clean(lines_of(fresh, growing.state().lines)))
                    new = True
                if not growing.delivered and not growing.left:
                    raise unfinished.nothing_yet(directory)
                value = (
                    grown.value
                    if grown and not new
                    else _measured(
                        growing.tables, growing.state(), left=growing.left, counted=len(listed.lines)
                    )
                )
                grown = opened.grown = Kept(_clean(value), stamp, begun, time.monotonic() - begun)
            assert grown is not None
            return grown, listed

    def problem(self, name: str, problem: str) -> dict[str, Any]:
        """One problem: candidates, votes, choices, outcomes, and the calls that were made for it."""
        directory = self._find(name)
        found: dict[str, Any] = self._keep(
            directory, f"problem {problem}", lambda: self._problem(directory, problem)
        )
        return found

    def _problem(self, directory: RunDirectory, problem: str) -> dict[str, Any]:
        span = None
        if directory.journal.exists():
            with self._journal(directory) as (journal, _):
                (span,) = spans.trees(journal, [problem], Makers.of_run(directory))
        with self._tables(directory, problem) as (found, state):
            one = next(examine(found, state.lines, problem=problem), None)
            if one is None:
                known = read(found.table("problems"), ["problem"])["problem"].to_pylist()
                raise unfinished.unknown(directory, problem, known)
            data = browser.data_of(one, span, LONGEST)
            return {
                **data,
                "so_far": state.status in GOING,
                "failures": [asdict(f) for f in state.failures if f.problem == problem],
                "lines": [asdict(line) for line in state.lines],
            }

    def replay(self, name: str, problem: str, configuration: str) -> dict[str, Any]:
        """One configuration on one problem, call by call: see `metagen.view.replay`."""
        directory = self._find(name)

        def make() -> dict[str, Any]:
            with self._replayer(directory) as replayer:
                return replayer.replay(problem, configuration)

        found: dict[str, Any] = self._keep(directory, f"replay {configuration} {problem}", make)
        return found

    def recipe(self, name: str, configuration: str) -> dict[str, str]:
        """A configuration as YAML and as Python."""
        with self._replayer(self._find(name)) as replayer:
            return replayer.recipe(configuration)

    # -- two runs ----------------------------------------------------------------------------------

    def compare(self, first: str, second: str) -> dict[str, Any]:
        """Two runs problem by problem: as `metagen compare --json`, with what each problem asks."""
        a, b = self._find(first), self._find(second)
        with self._trusted():
            compared, problems = compare.compare(a, b)
        data: dict[str, Any] = _clean(compare.data(compared, problems, a, b))
        return {**data, "a": first, "b": second}

    # -- inside ------------------------------------------------------------------------------------

    def _find(self, name: str) -> RunDirectory:
        directory = self.shelf.find(name)
        _refuse_links(directory)
        return directory

    @staticmethod
    def _state(directory: RunDirectory) -> State | None:
        with suppress(InputError):
            return directory.state()
        return None

    def _at(self, directory: RunDirectory) -> _Opened:
        with self._opening:
            return self._opened.setdefault(directory.root.resolve(), _Opened())

    @contextmanager
    def _trusted(self) -> Iterator[None]:
        """Files that name code are read one after the other, each as if it were the first."""
        with self._working, trust.guard(Path.cwd()):
            yield

    @contextmanager
    def _tables(
        self, directory: RunDirectory, problem: str | None = None
    ) -> Iterator[tuple[RunDirectory, State]]:
        with self._trusted(), unfinished.tables(directory, problem) as found:
            yield found

    @contextmanager
    def _journal(
        self, directory: RunDirectory, until: float | None = None
    ) -> Iterator[tuple[SQLiteJournal, Ledger]]:
        """The journal of a run, and what is recorded so far; opened anew where it has been replaced.

        until: when counting what was recorded stops, by the monotonic clock; a moment from now by default.
        """
        opened, inode = self._at(directory), _inode(directory.journal)
        with opened.lock:
            if opened.inode != inode:
                if opened.journal is not None:
                    opened.journal.close()
                opened.journal, opened.ledger, opened.inode = None, Ledger(), inode
            if opened.journal is None:
                opened.journal = SQLiteJournal(directory.journal, read_only=True)
            opened.journal.follow()
            opened.ledger.read(opened.journal, time.monotonic() + GLANCE if until is None else until)
            yield opened.journal, opened.ledger

    @contextmanager
    def _replayer(self, directory: RunDirectory) -> Iterator[Replayer]:
        opened = self._at(directory)
        files = (directory.experiment, directory.environment)
        stamp = (_inode(directory.journal), *map(_stamp, files))
        with self._trusted(), opened.lock:
            if opened.replayer is None or opened.replays != stamp:
                if opened.replayer is not None:
                    opened.replayer.close()
                    opened.replayer = None
                opened.replayer, opened.replays = Replayer(directory), stamp
            yield opened.replayer

    def _keep(self, directory: RunDirectory, what: str, make: Callable[[], T]) -> T:
        """What `make` makes, unless it was made of the same files, or of a run without an end a moment ago."""
        opened = self._at(directory)
        stamp = _made(directory)
        with opened.lock:
            kept = opened.kept.get(what)
        if kept is not None and kept.stamp == stamp:
            state = self._state(directory)
            age = time.monotonic() - kept.made
            if (state and state.status not in GOING) or age < max(FRESH, WORTH * kept.took):
                found: T = kept.value
                return found
        begun = time.monotonic()
        value: T = _clean(make())
        now = time.monotonic()
        with opened.lock:
            opened.kept[what] = Kept(value, stamp, now, now - begun)
            while len(opened.kept) > KEPT:
                del opened.kept[next(iter(opened.kept))]
        return value


def expected(state: State) -> int:
    """Samples and direct solutions that a run delivers if nothing fails."""
    pools: dict[str, int] = {}
    for line in state.lines:
        if line.pooled:
            pools[line.generator] = max(line.n or 1, pools.get(line.generator, 0))
    each = sum(pools.values()) + sum(not line.pooled for line in state.lines)
    return each * state.problems


def _is_whole(directory: RunDirectory) -> bool:
    """Whether the tables of a run are written."""
    return directory.state().status not in GOING and directory.table("candidates").exists()


def _measured(found: RunDirectory, state: State, left: int = 0, counted: int | None = None) -> dict[str, Any]:
    """What configurations solve, by tables. left, counted: problems that are not in them yet, and those that are."""
    results = derive(found, state.lines)
    so_far = state.status in GOING
    # So far each configuration has finished other problems: none of them is the best yet.
    known = bool(results.configurations) and not so_far
    return {
        "why": None,
        "so_far": so_far,
        "delivered": state.samples,
        "left": left,
        "counted": counted,
        "headline": run_page.headline(found, results) if known else [],
        "few": FEW if any(one.problems < FEW for one in results.configurations) else 0,
        "configurations": [one.row() for one in results.configurations],
        "levels": [one.row() for one in results.levels],
        "filters": {key: list(said) for key, said in browser.FILTERS.items()},
    }


def _refuse_links(directory: RunDirectory) -> None:
    if name := outside(directory):
        raise InputError(
            f"{name!r} of the run {directory.root.name!r} is a link to a place outside of it, which is not read; "
            "put the file itself there"
        )


def _clean(value: Any) -> Any:
    """With null in the place of what JSON cannot say."""
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _clean(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(one) for one in value]
    return value


def _inode(path: Path) -> object:
    with suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


def _made(directory: RunDirectory) -> object:
    """What the answers of a run are made from."""
    return tuple(map(_stamp, (directory.root / "state.json", directory.table("candidates"))))


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _stamp(path: Path) -> object:
    with suppress(OSError):
        found = path.stat()
        return found.st_mtime_ns, found.st_size, found.st_ino
    return None
