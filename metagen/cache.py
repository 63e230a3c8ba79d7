"""Records that runs share: one SQLite file for each run seed, in a directory that the user names.

A run looks into its own journal first, then here. What it finds here it copies into its journal, so that its directory
stays whole, charges as it was charged when it was made, and notes as computed by nobody: physically nothing, `started`
at 0. What it computes goes to both. Keys are the journal's own, beside the digest of the problem's data, since another
problem may have the same id; samples are drawn at a seed, so seeds share nothing. Only what is complete is kept: no
record that a limit cut short or refused.

A torn or foreign file is an error: going on without it would cost what it is there to save. A kill may lose the last
records here, never those of the journal; a run that goes on brings them.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

import filelock

from metagen.cost import Usage
from metagen.errors import JournalCorrupt, JournalError
from metagen.journal import Columns, Limit, Row, SQLiteJournal

APPLICATION_ID: Final = 0x6D657463  # "metc"
SCHEMA: Final = 1
#: Seconds that a process waits while others write.
PATIENCE: Final = 30.0
#: Records that are read or written at a time.
MANY: Final = 500
REMEDY: Final = "delete it, with what lies beside it under that name, or give another cache"
TABLES: Final = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE rows (key BLOB, data BLOB, problem TEXT, path TEXT, kind TEXT, maker TEXT, content BLOB, "
    "number INTEGER, bound TEXT, text TEXT, seal BLOB, PRIMARY KEY (key, data))",
)


class Cache:
    """The file of one run seed. Several processes may use it at a time.

    Raises JournalCorrupt for a torn or foreign file, and JournalError where it cannot be read or written; both name it.
    """

    def __init__(self, directory: str | Path, seed: int) -> None:
        self.path = Path(directory) / f"seed-{seed}.sqlite"
        with self._errors("open"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # For a moment: of two processes one makes the file.
            with filelock.FileLock(f"{self.path}.lock", timeout=PATIENCE):
                self._writer = self._connect()
                try:
                    self._prepare(seed)
                except BaseException:
                    self._writer.close()
                    raise
            self._reader = self._connect()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="metagen-cache")
        self._waiting: deque[Columns] = deque()
        self._write: Future[None] | None = None

    def find(self, keys: Sequence[bytes], data: Mapping[str, bytes]) -> dict[bytes, Row]:
        """Records by key, in the order of the keys, of problems with these data, by id."""
        found: dict[bytes, Row] = {}
        for at in range(0, len(keys), MANY):
            part = keys[at : at + MANY]
            query = f"SELECT * FROM rows WHERE key IN ({','.join('?' * len(part))})"
            with self._errors("read"):
                rows = self._reader.execute(query, part).fetchall()
            for key, of, problem, *rest in rows:
                if data.get(problem) == of:
                    found[key] = self._row((key, problem, *rest))
        return {key: found[key] for key in keys if key in found}

    def _row(self, columns: Columns) -> Row:
        try:
            row = Row.of(columns)
        except JournalCorrupt as error:
            raise JournalCorrupt(f"{str(self.path)!r}: {error}; {REMEDY}") from None
        # Nobody computes it now.
        return replace(row, physical=Usage(), started=0.0)

    def add(self, rows: Iterable[Row], data: Mapping[str, bytes]) -> None:
        """Keep what is complete; of equal keys the first stays. Returns before it is written.

        Raises what an earlier write raised.
        """
        kept = [row.columns() for row in rows if _whole(row) and row.problem in data]
        self._waiting += [(key, data[problem], problem, *rest) for key, problem, *rest in kept]
        if self._write is None or self._write.done():
            self.flush()
            self._write = self._threads.submit(self._commit)

    def flush(self) -> None:
        """Returns when the write under way is done; raises what it raised."""
        if self._write is not None:
            done, self._write = self._write, None
            done.result()

    def close(self) -> None:
        """Write what waits, and let go of the file."""
        try:
            self.flush()
            self._commit()
        finally:
            self._threads.shutdown(wait=True)
            self._reader.close()
            self._writer.close()

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _commit(self) -> None:
        while self._waiting:
            rows = [self._waiting.popleft() for _ in range(min(MANY, len(self._waiting)))]
            with self._errors("write"), self._writer:
                marks = ",".join("?" * len(rows[0]))
                self._writer.executemany(f"INSERT OR IGNORE INTO rows VALUES ({marks})", rows)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=PATIENCE, check_same_thread=False)
        # Text that is no UTF-8 is torn: its seal says so.
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        return connection

    def _prepare(self, seed: int) -> None:
        """Make the tables in an empty file; check those of another."""
        name = repr(str(self.path))
        try:
            application = self._writer.execute("PRAGMA application_id").fetchone()[0]
            version = self._writer.execute("PRAGMA user_version").fetchone()[0]
            empty = not self._writer.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
            if application == 0 and empty:
                self._writer.execute("PRAGMA journal_mode = WAL")
                with self._writer:
                    self._writer.execute("BEGIN IMMEDIATE")
                    for table in TABLES:
                        self._writer.execute(table)
                    self._writer.execute("INSERT INTO facts VALUES ('seed', ?)", (str(seed),))
                    self._writer.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    self._writer.execute(f"PRAGMA user_version = {SCHEMA}")
                application, version = APPLICATION_ID, SCHEMA
            if application != APPLICATION_ID:
                raise JournalCorrupt(f"{name} is a SQLite file of another program, not a cache; {REMEDY}")
            if version != SCHEMA:
                raise JournalCorrupt(f"{name} has schema {version}, this version writes {SCHEMA}; {REMEDY}")
            own = self._writer.execute("SELECT value FROM facts WHERE name = 'seed'").fetchone()
            if own != (str(seed),):
                raise JournalCorrupt(f"{name} is the cache of another seed, not {seed}; {REMEDY}")
            self._writer.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.OperationalError:  # busy, or the disk
            raise
        except sqlite3.DatabaseError as error:
            raise JournalCorrupt(f"{name} is torn, or no cache ({error}); {REMEDY}") from error

    @contextlib.contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, filelock.Timeout) as error:
            raise JournalError(
                f"cannot {doing} the cache {str(self.path)!r}: {error}; what the run has recorded is kept: mend that, "
                "or leave out cache, then resume the run"
            ) from error


class Count(Protocol):
    """cached: how many records came from a cache."""

    cached: int


class CachedJournal:
    """The journal of a run beside a cache. count: of it, what came from there is counted, earlier calls included."""

    def __init__(self, own: SQLiteJournal, cache: Cache, count: Count) -> None:
        self._own, self._cache = own, cache
        self._data = own.bound_digests()
        self._copying: dict[bytes, Row] = {}
        self._copies: set[asyncio.Task[None]] = set()
        self.inflight = own.inflight
        self._count = count
        mark, records = own.since(0, MANY)
        while records:
            rows = [Row.of(columns) for columns in records]
            count.cached += sum(row.cached for row in rows)
            cache.add(rows, self._data)
            cache.flush()
            mark, records = own.since(mark, MANY)

    @property
    def version(self) -> int:
        return self._own.version

    @property
    def limits(self) -> set[Limit]:
        return self._own.limits

    def keep_to(self, seed: int) -> None:
        self._own.keep_to(seed)

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Row]:
        found = self._own.find(keys)
        found |= {key: self._copying[key] for key in keys if key not in found and key in self._copying}
        if missing := [key for key in keys if key not in found]:
            new = self._cache.find(missing, self._data)
            found |= new
            if new:
                self._count.cached += len(new)
                self._copying |= new
                copy = asyncio.get_running_loop().create_task(self._copy(list(new.values())))
                self._copies.add(copy)
        return found

    async def record(self, rows: Sequence[Row]) -> None:
        # Whoever is cancelled has handed these over.
        await asyncio.shield(asyncio.ensure_future(self._record(rows)))

    async def _record(self, rows: Sequence[Row]) -> None:
        # In order: what a record was made of is on disk before it.
        await self.settle()
        await self._own.record(rows)
        self._cache.add(rows, self._data)

    async def settle(self) -> None:
        """Returns when all that was taken from the cache is in the journal; raises the first error."""
        while self._copies:
            # Whoever waits may be cancelled; the copies are not.
            done, _ = await asyncio.wait(self._copies)
            self._copies -= done
            for copy in done:
                copy.result()

    def of_problem(self, problem: str) -> list[Row]:
        return [
            *self._own.of_problem(problem),
            *(row for row in self._copying.values() if row.problem == problem),
        ]

    def attempts(self, problem: str) -> list[Row]:
        return self._own.attempts(problem)

    async def _copy(self, rows: list[Row]) -> None:
        await self._own.record(rows)
        for row in rows:
            del self._copying[row.key]


def _whole(row: Row) -> bool:
    return row.limit is None and row.status == "complete" and row.payload is not None and not row.cached
