"""The journal: one durable record per sample, score or tool result.

What is recorded is never paid for again: a second run answers from here, in the middle of a search
as well. A record is acknowledged only when it is on disk (SQLite, group commit), so that kill -9 at
any moment loses no acknowledged call.

How many records were acknowledged stands beside the file as well: SQLite takes a damaged write-ahead log for one that
ends before the damage, and what it held would be paid for again, in silence.

Keys name *what was asked* (fingerprint, problem, path, content, index), never how many were asked
for or under which budget. Rows made under a limit (cut short, or refused) are kept apart from the
complete ones, under that limit's owner and amount, and answer only under the very same limit: then
a rerun takes the same branches, whatever other budgets were run on the same journal in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sqlite3
import struct
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol

import filelock

from metagen.border import checked
from metagen.cost import Usage
from metagen.errors import JournalCorrupt, JournalError, JournalLocked, JournalMismatch
from metagen.logs import logger
from metagen.sequence import digest, digest_of_many, digests

_LOG = logger(__name__)

#: Of records; of what was lost (`metagen.attempts`); of attempts, as they are kept.
Status = Literal["complete", "truncated", "refused", "lost", "open", "free", "answered"]
APPLICATION_ID = 0x6D657461  # "meta"
SCHEMA = 2
REMEDY = "restore it from a copy, or start a new run directory; nothing was changed in it"
TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE problems (id TEXT PRIMARY KEY, digest BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE rows (
    key BLOB PRIMARY KEY, problem TEXT NOT NULL, path TEXT NOT NULL, kind TEXT NOT NULL,
    maker TEXT NOT NULL, content BLOB NOT NULL, number INTEGER NOT NULL, bound TEXT NOT NULL,
    data TEXT NOT NULL, seal BLOB NOT NULL
);
CREATE INDEX rows_of_problem ON rows (problem);
CREATE INDEX bounds ON rows (bound) WHERE bound != '';
"""


#: Counts the rows that are found by the problems of a run.
REACHED = "SELECT COUNT(*) FROM rows INDEXED BY rows_of_problem WHERE problem IN (SELECT id FROM problems)"
#: The problems that were bound, with their digests.
BOUND = "SELECT id, digest FROM problems ORDER BY id"
#: How the number of acknowledged records is kept beside a journal: it, and its complement.
TALLY = struct.Struct("<QQ")
#: Times that a file is copied, which may change meanwhile; and seconds after which a copy took long.
COPIES, SOON = 5, 0.5
_ENCODER = json.JSONEncoder(separators=(",", ":"))
#: A row as SQLite holds it, in the order of the table's columns.
Columns = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit in force when a call was cut short or refused."""

    owner: str
    dimension: str
    amount: float

    @property
    def text(self) -> str:
        """As it is stored."""
        return _ENCODER.encode((self.owner, self.dimension, self.amount))

    @classmethod
    def of(cls, text: str) -> Limit:
        """Inverse of `text`."""
        return cls(*json.loads(text))


@dataclass(frozen=True, slots=True)
class Row:
    """One record, and one leaf span of the trace.

    by: fingerprint of the generator or verifier. content: digest of the prefix or of what was
    scored. payload: the result as JSON; None if refused. usage: logical, what a later hit is
    charged. physical: what was really computed. started, seconds: wall clock of the call.
    """

    key: bytes
    problem: str
    path: str
    kind: str
    by: str
    content: bytes
    index: int
    payload: Mapping[str, Any] | None
    usage: Usage = field(default_factory=Usage)
    physical: Usage = field(default_factory=Usage)
    status: Status = "complete"
    limit: Limit | None = None
    started: float = 0.0

    @property
    def cached(self) -> bool:
        """Whether it was taken from a cache, and computed by nobody here."""
        return self.started == 0.0

    def columns(self) -> Columns:
        """As it is stored, sealed by a digest: SQLite itself does not notice a flipped bit."""
        data: dict[str, Any] = {"p": self.payload, "u": self.usage.to_dict(), "x": self.physical.to_dict()}
        if self.limit is not None:
            data["s"] = self.status
        data["t"] = self.started
        text, bound = _ENCODER.encode(data), self.limit.text if self.limit else ""
        made = (self.key, self.problem, self.path, self.kind, self.by, self.content, self.index, bound, text)
        return (*made, _seal(made))

    @classmethod
    def of(cls, columns: Columns, *, payload: bool = True) -> Row:
        """Inverse of `columns`, with or without the payload; raises JournalCorrupt if the seal does not fit."""
        *made, seal = columns
        if seal != _seal(made) or not isinstance(made[-1], str):
            raise JournalCorrupt(
                f"a record of problem {columns[1]!r} is torn: its seal does not fit its content"
            )
        key, problem, path, kind, by, content, index, bound, text = made
        # Behind the payload stand numbers alone.
        data = json.loads(text if payload else '{"p":null' + text[text.rindex(',"u":{') :])
        usage, physical = Usage.from_dict(data["u"]), Usage.from_dict(data["x"])
        limit = Limit.of(bound) if bound else None
        made_of = (key, problem, path, kind, by, content, index, data["p"], usage, physical)
        return cls(*made_of, status=data.get("s", "complete"), limit=limit, started=data["t"])


def _seal(made: Sequence[Any]) -> bytes:
    key, problem, path, kind, by, content, index, bound, text = made
    return digest(key, problem, path, kind, by, content, str(index), bound, text)[:8]


#: Stands in the place of a limit in the records of attempts, which are no results.
ATTEMPT = Limit("attempt", "", 0.0)


class RowKeys:
    """The keys of the records that one maker leaves at one place of a problem."""

    def __init__(self, by: str, problem: str, path: str) -> None:
        self._digest = digests(by, problem, path)

    def __call__(self, content: bytes, index: int, limit: Limit | None = None) -> bytes:
        """limit: the one that cut the record short or refused it."""
        bound = () if limit is None else (limit.owner, limit.dimension, repr(limit.amount))
        return self._digest(content, str(index), *bound)


class Journal(Protocol):
    """Where rows are kept.

    inflight: coalesces identical requests; like `record`, it belongs to one event loop. version: grows with every
    record. limits: those under which something is recorded; no key under another limit needs to be looked up.
    """

    inflight: dict[bytes, asyncio.Future[None]]

    @property
    def version(self) -> int: ...

    @property
    def limits(self) -> set[Limit]: ...

    def keep_to(self, seed: int) -> None:
        """Raises JournalMismatch if its records were made at another run seed. The first seed is noted.

        No key names the seed, so that another one's samples would be taken for these.
        """
        ...

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Row]:
        """The rows that exist, by key."""
        ...

    async def record(self, rows: Sequence[Row]) -> None:
        """Returns when the rows are durable; a row with the same key is replaced."""
        ...

    def of_problem(self, problem: str) -> list[Row]:
        """All rows of one problem, in the order in which they were recorded; attempts are none."""
        ...

    def attempts(self, problem: str) -> list[Row]:
        """The attempts at one problem that were recorded (`limit` is ATTEMPT): usage is what limits are charged for one
        that is lost, physical its worst case. There are none unless ATTEMPT is among `limits`.
        """
        ...


class MemoryJournal:
    """Rows in a dictionary: for single calls and tests. Nothing survives the process."""

    def __init__(self) -> None:
        self.inflight: dict[bytes, asyncio.Future[None]] = {}
        self.version = 0
        self.limits: set[Limit] = set()
        self._rows: dict[bytes, Row] = {}
        self._seed: int | None = None

    def keep_to(self, seed: int) -> None:
        if self._seed is None:
            self._seed = seed
        if self._seed != seed:
            raise JournalMismatch(
                f"this journal was begun with seed {self._seed}, and is asked with seed {seed}: "
                f"give seed={self._seed}, or a journal of its own"
            )

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Row]:
        return {key: self._rows[key] for key in keys if key in self._rows}

    async def record(self, rows: Sequence[Row]) -> None:
        self._rows.update((row.key, row) for row in rows)
        self.limits.update(row.limit for row in rows if row.limit)
        self.version += 1

    def of_problem(self, problem: str) -> list[Row]:
        return [row for row in self._rows.values() if row.problem == problem and row.limit != ATTEMPT]

    def attempts(self, problem: str) -> list[Row]:
        return [row for row in self._rows.values() if row.problem == problem and row.limit == ATTEMPT]


@checked
class SQLiteJournal:
    """Rows in one SQLite file, with one writer.

    Raises JournalLocked if another process has it open for writing, JournalCorrupt if the file is
    torn, foreign or of another schema, JournalMismatch if it belongs to another run seed.
    seed: of the run; without it, that of the first scope that records here.
    vfs: a SQLite VFS to use instead of the platform's own. some: for readers of some problems: if all rows that were
    recorded are found by their problems, the file is not read as a whole; damage to a row shows when it is read.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        seed: int | None = None,
        read_only: bool = False,
        vfs: str = "",
        some: bool = False,
    ) -> None:
        self.path = Path(path)
        self.inflight: dict[bytes, asyncio.Future[None]] = {}
        self.version = 0
        self.limits: set[Limit] = set()
        self._vfs = vfs
        #: What is opened in place of the file, and how, where SQLite cannot write beside it.
        self._file, self._fixed = self.path, ""
        self._copied: tempfile.TemporaryDirectory[str] | None = None
        #: Sizes and times of what is read so, when it was opened.
        self._stamps: list[tuple[int, int]] = []
        #: When the next copy may be made, by the monotonic clock.
        self._due = 0.0
        self._lock: filelock.FileLock | None = None
        self._writer: sqlite3.Connection | None = None
        self._tally: int | None = None
        self._written = 0
        self._seed: int | None = None
        #: Of the write-ahead log.
        self._inode: int | None = None
        self._pending: list[tuple[list[Columns], set[Limit], asyncio.Future[None]]] = []
        self._flushing = False
        self._process = os.getpid()
        #: Several event loops may record at a time: around what they share.
        self._handing = threading.Lock()
        # One transaction at a time; without WAL, readers take turns with it.
        self._writing = threading.Lock()
        if read_only and not self.path.exists():
            raise JournalCorrupt(f"no journal at {str(self.path)!r}; give the directory of a run")
        if not read_only:
            self._acquire()
        try:
            if not self.path.exists():
                self._create()
            # Before a copy is made: what is acknowledged meanwhile need not be in it.
            told = self._count_acknowledged()
            if read_only:
                self._readable()
            self._check(told, some=some)
            self._reader = self._connect(read_only=True)
            self.limits = self._limits()
            self.wal = False
            if not read_only:
                self._writer = self._connect()
                self.wal = self._use_wal(self._writer)
                # A journal is none the worse where there is no room for it.
                with contextlib.suppress(OSError):
                    self._tally = os.open(self._count, os.O_RDWR | os.O_CREAT, 0o644)
                if seed is not None:
                    go_on = f"go on with metagen run FILE --out {self.path.parent} --set seed={{}}"
                    self._keep_to(seed, f"this run has {{}}: {go_on}, or start a new run directory")
        except BaseException:
            self.close()
            raise
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="metagen-journal")
        self._reading: contextlib.AbstractContextManager[Any] = (
            contextlib.nullcontext() if self.wal or read_only else self._writing
        )

    def keep_to(self, seed: int) -> None:
        self._keep_to(seed, "and is asked with seed {}: give seed={}, or a journal of its own")

    def _keep_to(self, seed: int, remedy: str) -> None:
        if self._seed is None:
            self._seed = seed if self._writer is None else int(self.keep("seed", str(seed)))
        if self._seed != seed:
            said = remedy.format(seed, self._seed)
            raise JournalMismatch(f"{str(self.path)!r} was written with seed {self._seed}, {said}")

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Row]:
        found: dict[bytes, Row] = {}
        for at in range(0, len(keys), 500):
            part = keys[at : at + 500]
            marks = ",".join("?" * len(part))
            found.update((row.key, row) for row in self._select(f"key IN ({marks})", part))
        return found

    def of_problem(self, problem: str, *, payload: bool = True) -> list[Row]:
        """All rows of one problem, in the order in which they were recorded; attempts are none.

        payload: whether rows have theirs; usages are read in less time without.
        """
        rows = self._select("problem = ? AND bound != ? ORDER BY rowid", [problem, ATTEMPT.text], payload)
        if len({row.key for row in rows if row.problem == problem}) < len(rows):
            raise JournalCorrupt(f"{str(self.path)!r} is torn (its index names other rows): {REMEDY}")
        return rows

    def attempts(self, problem: str) -> list[Row]:
        return self._select("problem = ? AND bound = ? ORDER BY rowid", [problem, ATTEMPT.text])

    def look(self) -> None:
        """Learn the limits that another process has recorded since this was opened; `follow`, too."""
        self.follow()
        self.limits = self._limits()

    def follow(self) -> None:
        """Read on where only a copy can be read, and another process has recorded more since it was made.

        A copy that takes long is not made again soon.
        """
        if not self._stamps or time.monotonic() < self._due or self._stamps == self._stamps_now():
            return
        old = self._reader
        try:
            self._readable()
            self._reader = self._connect(read_only=True)
        except BaseException:
            self._stamps = [(-1, -1)]  # tried again at the next look
            raise
        old.close()

    def problems(self) -> list[str]:
        """Ids of the problems that have rows."""
        return [name for (name,) in self._read("SELECT DISTINCT problem FROM rows ORDER BY problem")]

    def bound_digests(self) -> dict[str, bytes]:
        """The digests of the problems that were bound, by id, in the order of ids."""
        return dict(self._read(BOUND))

    def data(self) -> bytes:
        """16 bytes that name all problems that were bound, with their data: equal for runs over equal data."""
        with self._reading, self._errors("read"):
            bound = self._reader.execute(BOUND)
            return digest_of_many(part for pair in bound for part in pair)

    def since(self, mark: int, most: int) -> tuple[int, list[Columns]]:
        """Records as they are stored, for `copy`: up to `most` of those after a mark, and the mark behind them.

        They come in the order in which they were recorded; 0 is before the first.
        """
        query = "SELECT rowid, * FROM rows WHERE rowid > ? ORDER BY rowid LIMIT ?"
        found = self._read(query, (mark, most))
        return (found[-1][0] if found else mark), [tuple(columns) for _, *columns in found]

    def stored_rows(self, problem: str) -> list[Columns]:
        """The rows of one problem as they are stored, for `copy`."""
        return self._read("SELECT * FROM rows WHERE problem = ? ORDER BY rowid", [problem])

    def counts(self) -> dict[str, int]:
        """Rows by problem, with attempts."""
        return dict(self._read("SELECT problem, COUNT(*) FROM rows GROUP BY problem"))

    def count(self) -> int:
        """Rows of all problems, without attempts."""
        ((count,),) = self._read("SELECT COUNT(*) FROM rows WHERE bound != ?", [ATTEMPT.text])
        return int(count)

    async def record(self, rows: Sequence[Row]) -> None:
        await self._record([row.columns() for row in rows], {row.limit for row in rows if row.limit})

    async def copy(self, records: Sequence[Columns], *, replace: bool = True) -> None:
        """`record` for what another journal of the same run gave by `since`; JournalCorrupt for what is torn.

        replace: whether they take the place of rows with the same keys, as newer ones do. If not, only the end of an
        attempt takes the place of one that is open here.
        """
        rows = [Row.of(record) for record in records]
        limits = {row.limit for row in rows if row.limit}
        if not replace:
            known = self.find([row.key for row in rows])
            pairs = zip(records, rows, strict=True)
            records = [record for record, row in pairs if _is_news(row, known.get(row.key))]
        if records:
            await self._record(list(records), limits)

    async def _record(self, columns: list[Columns], limits: set[Limit]) -> None:
        if self._writer is None:
            raise JournalError(f"{str(self.path)!r} is closed, or open for reading only; open it to record")
        self._at_home()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._handing:
            self._pending.append((columns, limits, done))
            if not self._flushing:
                self._flushing = True
                self._threads.submit(self._flush)
        await done

    def _at_home(self) -> None:
        """JournalError in a process that was forked off: its threads and connections stayed with the other one."""
        if self._process != os.getpid():
            raise JournalError(
                f"{str(self.path)!r} was opened in process {self._process}, off which this one, {os.getpid()}, was "
                "forked; give the child a journal of its own, or open it after the fork"
            )

    def bind(self, problem: str, content: bytes) -> None:
        """Note the digest of a problem's data; JournalMismatch if it was another one before."""
        self.bind_all([(problem, content)])

    def bind_all(self, problems: Iterable[tuple[str, bytes]]) -> None:
        """`bind` for many problems in one commit."""
        assert self._writer is not None
        waiting = iter(problems)
        with self._writing, self._errors("write"), self._writer:
            while part := dict(islice(waiting, 500)):
                marks = ",".join("?" * len(part))
                query = f"SELECT id, digest FROM problems WHERE id IN ({marks})"
                for name, old in self._writer.execute(query, list(part)):
                    if old != part[name]:
                        raise JournalMismatch(
                            f"problem {name!r} was another one when {str(self.path)!r} was written "
                            f"(digest {old.hex()[:12]}, now {part[name].hex()[:12]}); "
                            "start a new run directory for changed data"
                        )
                self._writer.executemany("INSERT OR IGNORE INTO problems VALUES (?, ?)", part.items())

    def keep(self, name: str, value: str) -> str:
        """A fact that never changes: the value that it was first given, which is this one if it has none yet."""
        self._at_home()
        assert self._writer is not None
        with self._writing, self._errors("write"), self._writer:
            self._writer.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, value))
            query = "SELECT value FROM facts WHERE name = ?"
            return str(self._writer.execute(query, (name,)).fetchone()[0])

    def close(self) -> None:
        """Flush and let go of the file. May be called twice."""
        threads = getattr(self, "_threads", None)
        if threads is not None:
            threads.shutdown(wait=self._process == os.getpid())
        reader, writer, self._writer = getattr(self, "_reader", None), self._writer, None
        for connection in (reader, writer):
            if connection is not None:
                connection.close()
        if self._copied is not None:
            self._copied.cleanup()
        if self._tally is not None:
            os.close(self._tally)
            self._tally = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> SQLiteJournal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- writing ---------------------------------------------------------------------------------

    def _flush(self) -> None:
        """In the writer's thread: commit groups for as long as rows are waiting; each takes all that came meanwhile."""
        while True:
            with self._handing:
                group, self._pending = self._pending, []
                self._flushing = bool(group)
            if not group:
                return
            error: Exception | None = None
            try:
                self._commit([row for columns, _, _ in group for row in columns])
            except Exception as fault:  # noqa: BLE001 - it belongs to whoever waits
                error = fault
            else:
                self.limits = self.limits.union(*(limits for _, limits, _ in group))
                self.version += 1
            waiting: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
            for *_, done in group:
                waiting.setdefault(done.get_loop(), []).append(done)
            for loop, futures in waiting.items():
                with contextlib.suppress(RuntimeError):  # that loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(_settle, futures, error)

    def _commit(self, rows: list[Columns]) -> None:
        assert self._writer is not None
        marks = ", ".join("?" * len(rows[0]))
        written = self._written + len(rows)
        with self._writing, self._errors("write"), self._writer:
            self._writer.executemany(f"INSERT OR REPLACE INTO rows VALUES ({marks})", rows)
            self._writer.execute("INSERT OR REPLACE INTO facts VALUES ('written', ?)", (str(written),))
        self._written = written
        self._keep_log()
        if self._tally is not None:
            with contextlib.suppress(OSError):
                os.pwrite(self._tally, TALLY.pack(written, ~written & 0xFFFFFFFFFFFFFFFF), 0)

    def _keep_log(self) -> None:
        """Write through what stands in a log that somebody has taken away: it would be gone with this process."""
        if not self.wal:
            return
        try:
            inode = self._log.stat().st_ino
        except OSError:
            inode = None
        if self._inode is None:
            self._inode = inode
        elif inode != self._inode:
            _LOG.warning(
                "write-ahead log is gone; records are written through", extra={"journal": str(self.path)}
            )
            assert self._writer is not None
            with self._writing, self._errors("write"):
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # -- opening ---------------------------------------------------------------------------------

    def _acquire(self) -> None:
        # Whoever closes the journal releases the lock, on whatever thread.
        lock = filelock.FileLock(f"{self.path}.lock", thread_local=False)
        with self._errors("create"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=0)
            except filelock.Timeout:
                raise JournalLocked(
                    f"{str(self.path)!r} is being written by another process; "
                    "wait until that run has ended, or give this one another directory"
                ) from None
        self._lock = lock

    def _create(self) -> None:
        """Make the file beside its place and rename it: a journal under its own name is never half made."""
        new = self.path.with_name(self.path.name + ".new")
        with self._errors("create"):
            new.unlink(missing_ok=True)
            with contextlib.closing(sqlite3.connect(new)) as connection:
                connection.executescript(TABLES)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {SCHEMA}")
                connection.commit()
            new.replace(self.path)

    def _readable(self) -> None:
        """Where nothing can be made beside the file, it is read as it is, or a copy of it and of its log."""
        if os.access(self.path.parent, os.W_OK):
            return
        if self._copied is not None:
            self._copied.cleanup()
        self._file, self._fixed, self._copied = self.path, "&immutable=1", None
        self._stamps = self._stamps_now()
        if not self._log.exists():
            return
        self._fixed, self._copied = "", tempfile.TemporaryDirectory(prefix="metagen-")
        self._file = Path(self._copied.name) / self.path.name
        with self._errors("copy"):
            # A log that ends, or begins anew, has lost what an earlier copy of the file does not hold yet.
            for _ in range(COPIES):
                head, began = self._log_head(), time.monotonic()
                for one in (self.path, self._log):
                    copy = self._file.with_name(one.name)
                    copy.unlink(missing_ok=True)
                    with contextlib.suppress(FileNotFoundError):
                        shutil.copyfile(one, copy)
                if head == self._log_head():
                    took = time.monotonic() - began
                    self._due = time.monotonic() + 10 * took if took > SOON else 0.0
                    return
        raise JournalError(
            f"{str(self.path)!r} is written faster than it can be copied, and cannot be read where it is, since its "
            "directory is not writable; read it when the run has ended"
        )

    def _stamps_now(self) -> list[tuple[int, int]]:
        """Sizes and times of the file and of its log, where they are."""
        found = []
        for one in (self.path, self._log):
            with contextlib.suppress(FileNotFoundError):
                stat = one.stat()
                found.append((stat.st_size, stat.st_mtime_ns))
        return found

    def _check(self, told: int, *, some: bool) -> None:
        """told: records that were acknowledged."""
        # Nobody but SQLite opens the file: whoever closes a file drops all locks that its process has on it, and the
        # next process that reads it takes the log away from under a writer.
        name = repr(str(self.path))
        with self._errors("read"):
            if not self.path.is_file():
                raise IsADirectoryError("it is no file")
            if not os.access(self.path, os.R_OK):
                raise PermissionError("permission denied")
            empty = not self.path.stat().st_size
        log = self._log
        self._check_log()
        # Where there is a log, by one that cannot write: the last one that can throws a damaged log away at its end.
        mode = "ro" if self._fixed or (log.exists() and log.stat().st_size) else "rw"
        try:
            if empty:
                raise sqlite3.DatabaseError("file is not a database")
            with contextlib.closing(self._connect(read_only=True, mode=mode)) as connection:
                application = connection.execute("PRAGMA application_id").fetchone()[0]
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                found, fault = -1, "ok"
                if application == APPLICATION_ID:
                    facts = dict(connection.execute("SELECT name, value FROM facts"))
                    self._written = int(facts.get("written", 0))
                    self._seed = int(facts["seed"]) if "seed" in facts else None
                    found = connection.execute(REACHED).fetchone()[0] if some else -1
                if found != self._written:
                    fault = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        except (sqlite3.DatabaseError, ValueError) as error:
            if "not a database" in str(error):
                raise JournalCorrupt(
                    f"{name} is not a journal (its header is not SQLite's): {REMEDY}"
                ) from error
            raise JournalCorrupt(f"{name} is torn ({error}): {REMEDY}") from error
        if application != APPLICATION_ID:
            raise JournalCorrupt(
                f"{name} is a SQLite file of another program (id {application:#x}): {REMEDY}"
            )
        if version != SCHEMA:
            raise JournalCorrupt(
                f"{name} has schema {version}, this version writes {SCHEMA}: "
                "read it with the version that wrote it, or start a new run directory"
            )
        if fault != "ok":
            raise JournalCorrupt(f"{name} is torn ({fault}): {REMEDY}")
        if self._written < told:
            raise JournalCorrupt(
                f"{name} lacks {told - self._written} of {told} records that were acknowledged: its write-ahead log is "
                f"damaged or was left behind; restore it from a copy (with {self.path.name}-wal), or delete "
                f"{str(self._count)!r}, and they are paid for again; nothing was changed in it"
            )

    @property
    def _log(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")

    @property
    def _count(self) -> Path:
        return self.path.with_name(self.path.name + ".count")

    def _count_acknowledged(self) -> int:
        """Count the acknowledged records by the file beside the journal; 0 where that says nothing."""
        try:
            written, complement = TALLY.unpack(self._count.read_bytes())
        except (OSError, struct.error):
            return 0
        return int(written) if written ^ complement == 0xFFFFFFFFFFFFFFFF else 0

    def _log_head(self) -> bytes:
        """The head of the write-ahead log, which changes when it begins anew; empty where there is no log."""
        with self._errors("read"), contextlib.suppress(FileNotFoundError), self._log.open("rb") as file:
            return file.read(32)
        return b""

    def _check_log(self) -> None:
        """SQLite takes a write-ahead log with a damaged head for an empty one: its records would be gone in silence."""
        head = self._log_head()
        if len(head) < 32:
            return
        order: Literal["big", "little"] = "big" if head[3] & 1 else "little"
        a = b = 0
        for at in range(0, 24, 8):
            a = (a + int.from_bytes(head[at : at + 4], order) + b) & 0xFFFFFFFF
            b = (b + int.from_bytes(head[at + 4 : at + 8], order) + a) & 0xFFFFFFFF
        if head[:3] != b"\x37\x7f\x06" or head[24:] != a.to_bytes(4, "big") + b.to_bytes(4, "big"):
            raise JournalCorrupt(f"{str(self._log)!r} is torn (its head is damaged): {REMEDY}")

    def _connect(self, *, read_only: bool = False, mode: str = "rw") -> sqlite3.Connection:
        options = f"?mode={'ro' if self._fixed else mode}{self._fixed}" + (
            f"&vfs={self._vfs}" if self._vfs else ""
        )
        uri = self._file.resolve().as_uri() + options
        connection = sqlite3.connect(uri, uri=True, timeout=30.0, check_same_thread=False)
        if read_only:
            connection.execute("PRAGMA query_only = 1")
            # Text that is no UTF-8 is torn: its seal says so.
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
        return connection

    @staticmethod
    def _use_wal(connection: sqlite3.Connection) -> bool:
        """Write-ahead logging where the file system has it; else the rollback journal. Durable both ways."""
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError:
            mode = "none"
        if mode != "wal":
            connection.execute("PRAGMA journal_mode = TRUNCATE")
        connection.execute("PRAGMA synchronous = FULL")
        return bool(mode == "wal")

    def _limits(self) -> set[Limit]:
        with self._errors("read"):
            found = self._reader.execute("SELECT DISTINCT bound FROM rows WHERE bound != ''").fetchall()
        try:
            return {Limit.of(bound) for (bound,) in found}
        except (TypeError, ValueError) as error:
            raise JournalCorrupt(f"{str(self.path)!r} is torn (a limit is {error}): {REMEDY}") from error

    def _select(self, where: str, values: Sequence[Any], payload: bool = True) -> list[Row]:
        self._at_home()
        found = self._read(f"SELECT * FROM rows WHERE {where}", values)
        try:
            return [Row.of(columns, payload=payload) for columns in found]
        except JournalCorrupt as error:
            raise JournalCorrupt(f"{str(self.path)!r}: {error}; {REMEDY}") from None

    def _read(self, query: str, values: Sequence[Any] = ()) -> list[Columns]:
        with self._reading, self._errors("read"):
            return self._reader.execute(query, values).fetchall()

    def _errors(self, doing: str) -> _Errors:
        return _Errors(doing, self.path)


class _Errors:
    """What SQLite or the file system refuses is an error with a remedy."""

    __slots__ = ("_doing", "_path")

    def __init__(self, doing: str, path: Path) -> None:
        self._doing, self._path = doing, path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        if isinstance(error, sqlite3.Error | OSError | UnicodeDecodeError):  # a torn name of a column
            raise JournalError(
                f"cannot {self._doing} {str(self._path)!r}: {error}; what was recorded before is kept: "
                "free space or mend the file system, then resume the run"
            ) from error


def _is_news(row: Row, known: Row | None) -> bool:
    """Whether a row says more than the one that is known by its key: an attempt is open first, and then ends."""
    return known is None or (known.status == "open" and row.status != "open")


def _settle(futures: list[asyncio.Future[None]], error: Exception | None) -> None:
    """End what somebody waits for, in the loop in which that is."""
    for done in futures:
        if done.done():  # a caller that was cancelled never looks at it
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
