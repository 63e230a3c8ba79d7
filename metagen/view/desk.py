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
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from metagen import trust
from metagen.errors import InputError, MetagenError
from metagen.journal import SQLiteJournal
from metagen.runs.curves.measured import FEW, Results, derive
from metagen.runs.directory import RunDirectory, State
from metagen.runs.page import browser, listing, run_page
from metagen.runs.questions import compare
from metagen.runs.table.problem import Examined, Examiner, examine
from metagen.runs.table.tables import read
from metagen.runs.work import spans, unfinished
from metagen.runs.work.makers import Makers
from metagen.view.ledger import Ledger
from metagen.view.replay import Replayer
from metagen.view.shelf import Shelf, outside

T = TypeVar("T")
#: Seconds for which figures of a run without an end hold at least, and in units of the time that making them took.
FRESH, WORTH = 5.0, 4.0
#: Characters of a prompt in the list of problems, and of a text on the page of one.
HEAD, LONGEST = 160, 200_000
#: Amounts in the list of runs, and seconds that one look at all runs takes for them.
LISTED, PATIENCE = ("generated", "flops", "money"), 1.5
#: States in which a run has no end.
GOING = ("running", "interrupted")


@dataclass
class Kept:
    """Something that was made: from files of this state (`stamp`), at a time, in so many seconds."""

    value: Any
    stamp: object
    made: float
    took: float


@dataclass
class _Opened:
    """What is held of one run. lock: around its journal and its replayer. counted: the journal that the list knows."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    journal: SQLiteJournal | None = None
    inode: object = None
    counted: object = None
    ledger: Ledger = field(default_factory=Ledger)
    replayer: Replayer | None = None
    replays: object = None
    kept: dict[str, Kept] = field(default_factory=dict)

    def close(self) -> None:
        for one in (self.journal, self.replayer):
            if one is not None:
                one.close()
        self.journal = self.replayer = None


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
        found, until = [], time.monotonic() + PATIENCE
        for name, directory in self.shelf.runs().items():
            try:
                _refuse_links(directory)
                summary = listing.summary(directory.root)
                spent = self._spent(directory, summary.state == "running", until)
                found.append({"id": name, **asdict(summary), **spent, "error": None})
            except (MetagenError, OSError, ValueError, KeyError) as error:
                found.append({"id": name, "name": name, "error": str(error), "age": float("inf")})
        found.sort(key=lambda one: (one["age"], one["id"]))
        return [_clean(one) for one in found]

    def _spent(self, directory: RunDirectory, running: bool, until: float) -> dict[str, float | None]:
        """Problems begun, and amounts spent, as far as they are known by then: the next look goes on."""
        opened, stamp = self._at(directory), _stamp(directory.journal)
        with opened.lock:
            if (running or opened.counted != stamp) and time.monotonic() < until and stamp is not None:
                with suppress(MetagenError), self._journal(directory) as (_, ledger):
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
        """What the configurations solve and cost, and every problem in a line; of a run without an end so far."""
        directory = self._find(name)
        found: dict[str, Any] = self._keep(directory, "results", lambda: self._results(directory))
        return found

    def _results(self, directory: RunDirectory) -> dict[str, Any]:
        try:
            with self._tables(directory) as (found, state):
                results = derive(found, state.lines)
                with Examiner(found, state.lines) as examiner:
                    rows = {n: _row(one) for n, one in examiner.each() if one.pools or one.outcomes}
                so_far = state.status in GOING
                # So far each configuration has finished other problems: none of them is the best yet.
                known = bool(results.configurations) and not so_far
                headline = run_page.headline(found, results) if known else []
                return {
                    "why": None,
                    "so_far": so_far,
                    "delivered": state.samples,
                    "headline": headline,
                    "few": FEW if any(one.problems < FEW for one in results.configurations) else 0,
                    **_results_data(results),
                    "filters": {key: list(said) for key, said in browser.FILTERS.items()},
                    "problems": [rows[number] for number in sorted(rows)],
                }
        except InputError as error:
            nothing: dict[str, Any] = {"configurations": [], "levels": [], "problems": [], "headline": []}
            return {"why": str(error), "so_far": True, "delivered": 0, "few": 0, "filters": {}, **nothing}

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
    def _journal(self, directory: RunDirectory) -> Iterator[tuple[SQLiteJournal, Ledger]]:
        """The journal of a run, and what is recorded so far; opened anew where it has been replaced."""
        opened, inode = self._at(directory), _inode(directory.journal)
        with opened.lock:
            if opened.inode != inode:
                if opened.journal is not None:
                    opened.journal.close()
                opened.journal, opened.ledger, opened.inode = None, Ledger(), inode
            if opened.journal is None:
                opened.journal = SQLiteJournal(directory.journal, read_only=True)
            opened.ledger.read(opened.journal)
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
        stamp = tuple(map(_stamp, (directory.root / "state.json", directory.table("candidates"))))
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
            while len(opened.kept) > 64:
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


def _results_data(results: Results) -> dict[str, Any]:
    return {
        "configurations": [one.row() for one in results.configurations],
        "levels": [one.row() for one in results.levels],
    }


def _row(one: Examined) -> dict[str, Any]:
    """A problem in the list."""
    generated = [o["generated"] for o in one.outcomes]
    pooled = [s["generated"] for pool in one.pools for s in pool.spent]
    amounts = [*generated, *pooled]
    solved = any(pool.right for pool in one.pools) or any(o["correct"] for o in one.outcomes)
    return {
        "id": one.problem,
        "level": one.level,
        "head": browser.cut(one.prompt.strip(), HEAD),
        "pools": [
            {
                "name": p.name,
                "generator": p.generator,
                "right": p.right,
                "size": p.size,
                "marks": browser.marks(p),
            }
            for p in one.pools
        ],
        "outcomes": {o["configuration"]: bool(o["correct"]) for o in one.outcomes},
        "generated": None if None in amounts else sum(amounts),
        "solved": solved,
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


def _stamp(path: Path) -> object:
    with suppress(OSError):
        found = path.stat()
        return found.st_mtime_ns, found.st_size, found.st_ino
    return None
