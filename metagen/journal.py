"""The journal: one durable record per sample, score or tool result.

What is recorded is never paid for again: a second run answers from here, in the middle of a search
as well. A record is acknowledged only when it is on disk (SQLite, group commit), so that kill -9 at
any moment loses no acknowledged call.

Keys name *what was asked* (fingerprint, problem, path, content, index), never how many were asked
for or under which budget. Rows made under a limit (cut short, or refused) are kept apart from the
complete ones, under the name of that limit, and answer only under the same limit or a tighter one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import filelock

from metagen.cost import Usage
from metagen.errors import JournalCorrupt, JournalError, JournalLocked, JournalMismatch
from metagen.sequence import digest

Status = Literal["complete", "truncated", "refused"]
APPLICATION_ID = 0x6D657461  # "meta"
SCHEMA = 1
TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE problems (id TEXT PRIMARY KEY, digest BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE rows (
    key BLOB PRIMARY KEY, problem TEXT NOT NULL, path TEXT NOT NULL, kind TEXT NOT NULL,
    maker TEXT NOT NULL, content BLOB NOT NULL, number INTEGER NOT NULL, data TEXT NOT NULL
);
CREATE INDEX rows_of_problem ON rows (problem);
"""


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit in force when a call was cut short or refused."""

    owner: str
    dimension: str
    amount: float


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

    def dumps(self) -> str:
        data: dict[str, Any] = {"p": self.payload, "u": self.usage.to_dict(), "x": self.physical.to_dict()}
        if self.limit is not None:
            data["s"] = self.status
            data["l"] = [self.limit.owner, self.limit.dimension, self.limit.amount]
        data["t"] = round(self.started, 3)
        return json.dumps(data, separators=(",", ":"), ensure_ascii=True)

    @classmethod
    def loads(cls, columns: Sequence[Any]) -> Row:
        key, problem, path, kind, by, content, index, text = columns
        data = json.loads(text)
        return cls(
            key, problem, path, kind, by, content, index, data["p"],
            Usage.from_dict(data["u"]), Usage.from_dict(data["x"]), data.get("s", "complete"),
            Limit(*data["l"]) if "l" in data else None, data["t"],
        )  # fmt: skip


def row_key(by: str, problem: str, path: str, content: bytes, index: int, limit: str = "") -> bytes:
    """The key of a record; `limit` is the owner of the limit that cut it short or refused it."""
    return digest(by, problem, path, content, str(index), limit)


class Journal(Protocol):
    """Where rows are kept. `inflight` coalesces identical requests; both belong to one event loop."""

    inflight: dict[bytes, asyncio.Future[None]]
    version: int

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Row]:
        """The rows that exist, by key."""
        ...

    async def record(self, rows: Sequence[Row]) -> None:
        """Returns when the rows are durable; a row with the same key is replaced."""
        ...

    def of_problem(self, problem: str) -> list[Row]:
        """All rows of one problem, in the order in which they were recorded."""
        ...


class MemoryJournal:
    """Rows in a dictionary: for single calls and tests. Nothing survives the process."""

    def __init__(self) -> None:
        self.inflight: dict[bytes, asyncio.Future[None]] = {}
        self.version = 0
        self._rows: dict[bytes, Row] = {}

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Row]:
        return {key: self._rows[key] for key in keys if key in self._rows}

    async def record(self, rows: Sequence[Row]) -> None:
        self._rows.update((row.key, row) for row in rows)
        self.version += 1

    def of_problem(self, problem: str) -> list[Row]:
        return [row for row in self._rows.values() if row.problem == problem]


class SQLiteJournal:
    """Rows in one SQLite file, with one writer.

    Raises JournalLocked if another process has it open for writing, JournalCorrupt if the file is
    torn, foreign or of another schema, JournalMismatch if it belongs to another run seed.
    vfs: a SQLite VFS to use instead of the platform's own.
    """

    def __init__(
        self, path: str | Path, *, seed: int | None = None, read_only: bool = False, vfs: str = ""
    ) -> None:
        self.path = Path(path)
        self.inflight: dict[bytes, asyncio.Future[None]] = {}
        self.version = 0
        self._vfs = vfs
        self._lock: filelock.FileLock | None = None
        self._writer: sqlite3.Connection | None = None
        self._pending: list[tuple[Sequence[Row], asyncio.Future[None]]] = []
        self._flusher: asyncio.Task[None] | None = None
        if read_only and not self.path.exists():
            raise JournalCorrupt(f"no journal at {str(self.path)!r}; give the directory of a run")
        if not read_only:
            self._acquire()
        try:
            if not self.path.exists():
                self._create()
            self._check()
            self._reader = self._connect(read_only=True)
            self.wal = False
            if not read_only:
                self._writer = self._connect()
                self.wal = self._use_wal(self._writer)
                if seed is not None:
                    self._match(
                        "seed", str(seed), f"metagen run --set seed={{}} in {str(self.path.parent)!r}"
                    )
        except BaseException:
            self.close()
            raise
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="metagen-journal")
        # Without WAL, readers and the writer take turns.
        self._turn: contextlib.AbstractContextManager[Any] = (
            contextlib.nullcontext() if self.wal or read_only else threading.Lock()
        )

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Row]:
        found: dict[bytes, Row] = {}
        for at in range(0, len(keys), 500):
            part = keys[at : at + 500]
            marks = ",".join("?" * len(part))
            found.update((row.key, row) for row in self._select(f"key IN ({marks})", part))
        return found

    def of_problem(self, problem: str) -> list[Row]:
        return list(self._select("problem = ? ORDER BY rowid", [problem]))

    def problems(self) -> list[str]:
        """Ids of the problems that have rows."""
        with self._turn, self._errors("read"):
            return [r[0] for r in self._reader.execute("SELECT DISTINCT problem FROM rows ORDER BY problem")]

    def count(self) -> int:
        with self._turn, self._errors("read"):
            return int(self._reader.execute("SELECT COUNT(*) FROM rows").fetchone()[0])

    async def record(self, rows: Sequence[Row]) -> None:
        if self._writer is None:
            raise JournalError(f"{str(self.path)!r} is open for reading only; open it for writing to record")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._pending.append((rows, done))
        if self._flusher is None or self._flusher.done():
            self._flusher = loop.create_task(self._flush())
        await asyncio.shield(done)

    def bind(self, problem: str, content: bytes) -> None:
        """Note the digest of a problem's data; JournalMismatch if it was another one before."""
        self.bind_all([(problem, content)])

    def bind_all(self, problems: Iterable[tuple[str, bytes]]) -> None:
        """`bind` for many problems in one commit."""
        assert self._writer is not None
        problems = list(problems)
        with self._turn, self._errors("write"), self._writer:
            for at in range(0, len(problems), 500):
                part = dict(problems[at : at + 500])
                marks = ",".join("?" * len(part))
                query = f"SELECT id, digest FROM problems WHERE id IN ({marks})"
                for name, old in self._writer.execute(query, list(part)):
                    if old != part[name]:
                        raise JournalMismatch(
                            f"problem {name!r} was another one when {str(self.path)!r} was written "
                            f"(digest {old.hex()[:12]}, now {part[name].hex()[:12]}); "
                            "start a new run directory for changed data"
                        )
            self._writer.executemany("INSERT OR IGNORE INTO problems VALUES (?, ?)", problems)

    def close(self) -> None:
        """Flush and let go of the file. May be called twice."""
        threads = getattr(self, "_threads", None)
        if threads is not None:
            threads.shutdown(wait=True)
        for name in ("_reader", "_writer"):
            connection = getattr(self, name, None)
            if connection is not None:
                connection.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> SQLiteJournal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- writing ---------------------------------------------------------------------------------

    async def _flush(self) -> None:
        """Commit groups for as long as rows are waiting; each commit takes all that came meanwhile."""
        loop = asyncio.get_running_loop()
        while self._pending:
            group, self._pending = self._pending, []
            try:
                await loop.run_in_executor(
                    self._threads, self._commit, [row for rows, _ in group for row in rows]
                )
            except BaseException as error:
                for _, done in group:
                    if not done.done():
                        done.set_exception(error)
                        done.exception()  # a caller that was cancelled never looks at it
                if not isinstance(error, Exception):
                    raise
            else:
                self.version += 1
                for _, done in group:
                    if not done.done():
                        done.set_result(None)

    def _commit(self, rows: list[Row]) -> None:
        assert self._writer is not None
        columns = ((r.key, r.problem, r.path, r.kind, r.by, r.content, r.index, r.dumps()) for r in rows)
        with self._turn, self._errors("write"), self._writer:
            self._writer.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?)", columns)

    # -- opening ---------------------------------------------------------------------------------

    def _acquire(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(str(self.path) + ".lock")
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
        new.unlink(missing_ok=True)
        connection = sqlite3.connect(new)
        with self._errors("create"), contextlib.closing(connection):
            connection.executescript(TABLES)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA}")
            connection.commit()
        new.replace(self.path)

    def _check(self) -> None:
        name = repr(str(self.path))
        remedy = "restore it from a copy, or start a new run directory; nothing was changed in it"
        with self.path.open("rb") as file:
            if file.read(16) != b"SQLite format 3\x00":
                raise JournalCorrupt(f"{name} is not a journal (its header is not SQLite's): {remedy}")
        try:
            with contextlib.closing(self._connect(read_only=True)) as connection:
                application = connection.execute("PRAGMA application_id").fetchone()[0]
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                fault = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.DatabaseError as error:
            raise JournalCorrupt(f"{name} is torn ({error}): {remedy}") from error
        if application != APPLICATION_ID:
            raise JournalCorrupt(
                f"{name} is a SQLite file of another program (id {application:#x}): {remedy}"
            )
        if version != SCHEMA:
            raise JournalCorrupt(
                f"{name} has schema {version}, this version writes {SCHEMA}: "
                "read it with the version that wrote it, or start a new run directory"
            )
        if fault != "ok":
            raise JournalCorrupt(f"{name} is torn ({fault}): {remedy}")

    def _connect(self, *, read_only: bool = False) -> sqlite3.Connection:
        options = "?mode=rw" + (f"&vfs={self._vfs}" if self._vfs else "")
        uri = self.path.resolve().as_uri() + options
        connection = sqlite3.connect(uri, uri=True, timeout=30.0, check_same_thread=False)
        if read_only:
            connection.execute("PRAGMA query_only = 1")
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

    def _match(self, name: str, value: str, remedy: str) -> None:
        assert self._writer is not None
        with self._errors("write"), self._writer:
            self._writer.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, value))
            old = self._writer.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()[0]
        if old != value:
            raise JournalMismatch(
                f"{str(self.path)!r} was written with {name} {old}, this run has {value}: "
                f"go on with {remedy.format(old)}, or start a new run directory"
            )

    def _select(self, where: str, values: Sequence[Any]) -> Iterator[Row]:
        query = f"SELECT key, problem, path, kind, maker, content, number, data FROM rows WHERE {where}"
        with self._turn, self._errors("read"):
            found = self._reader.execute(query, values).fetchall()
        return (Row.loads(columns) for columns in found)

    @contextlib.contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise JournalError(
                f"cannot {doing} {str(self.path)!r}: {error}; what was recorded before is kept: "
                "free space or mend the file system, then resume the run"
            ) from error
