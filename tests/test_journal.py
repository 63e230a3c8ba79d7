"""The journal: what is acknowledged is on disk, what is on disk is not paid for again, and faults are said aloud."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import metagen
from metagen.cost import Usage
from metagen.errors import InputError, JournalCorrupt, JournalError, JournalLocked, JournalMismatch
from metagen.generators.function import FunctionGenerator
from metagen.journal import Limit, MemoryJournal, Row, RowKeys, SQLiteJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.strategies.parallel import MajorityVote
from metagen.verifiers.function import FunctionRule

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(metagen.__file__).parents[1])}


def make(number: int, problem: str = "p", text: str = "x = 1", **more: object) -> Row:
    key = RowKeys("g", problem, "0/sample")(b"content", number)
    usage = Usage(prefilled=7, generated=number, calls=1, flops=3e17 + number, flops_2n=None, money=0.1)
    payload = {"text": text, "ids": [1, 2, number], "logprob": -0.1 * number, "finish": "eos"}
    return Row(
        key, problem, "0/sample", "generate", "g", b"content", number, payload, usage, Usage(generated=None), **more
    )  # type: ignore[arg-type]  # fmt: skip


def write(path: Path, rows: list[Row], seed: int | None = 0, **options: str) -> None:
    with SQLiteJournal(path, seed=seed, **options) as journal:
        asyncio.run(journal.record(rows))


def read(path: Path) -> dict[bytes, Row]:
    """All rows, found one way and the other."""
    with SQLiteJournal(path, read_only=True) as journal:
        listed = {row.key: row for problem in journal.problems() for row in journal.of_problem(problem)}
        assert journal.count() == len(listed)
        assert journal.find(list(listed)) == listed
        return listed


def folder(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.iterdir() if p.suffix != ".lock"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "journal.sqlite"


# -- rows ---------------------------------------------------------------------------------------------


def test_rows_come_back_as_they_were(path: Path) -> None:
    limit = Limit("label:0/sample", "flops", 1e15)
    rows = [
        make(0),
        make(1, text='"\\ \n\0 é 𝄞 \ud800'),
        make(2, status="truncated", limit=limit, started=1763700000.123),
        Row(b"k" * 16, "é/2", "", "score", "v", b"", 3, None, status="refused", limit=limit),
    ]
    write(path, rows)
    assert list(read(path).values()) == sorted(rows, key=lambda r: r.problem)


def test_a_row_with_the_same_key_is_replaced_and_unknown_keys_are_absent(path: Path) -> None:
    write(path, [make(0, text="old"), make(1)])
    write(path, [make(0, text="new")])
    with SQLiteJournal(path) as journal:
        found = journal.find([make(n).key for n in range(1200)])
    assert found == {make(0).key: make(0, text="new"), make(1).key: make(1)}


def test_the_order_of_a_problem_is_the_order_of_recording(path: Path) -> None:
    write(path, [make(n) for n in (3, 1, 2)])
    write(path, [make(0)])
    with SQLiteJournal(path) as journal:
        assert [row.index for row in journal.of_problem("p")] == [3, 1, 2, 0]


def test_keys_tell_apart_what_was_asked_and_the_limit_that_bound() -> None:
    limit = Limit("a", "generated", 10.0)
    keys = [
        RowKeys("g", "p", "0")(b"c", 0), RowKeys("h", "p", "0")(b"c", 0), RowKeys("g", "q", "0")(b"c", 0),
        RowKeys("g", "p", "1")(b"c", 0), RowKeys("g", "p", "0")(b"d", 0), RowKeys("g", "p", "0")(b"c", 1),
        RowKeys("g", "p", "0")(b"c", 0, limit), RowKeys("g", "p", "0")(b"c", 0, Limit("b", "generated", 10.0)),
        RowKeys("g", "p", "0")(b"c", 0, Limit("a", "prefilled", 10.0)),
        RowKeys("g", "p", "0")(b"c", 0, Limit("a", "generated", 11.0)),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)


def test_a_payload_that_is_no_json_fails_alone(path: Path) -> None:
    async def main() -> list[object]:
        with SQLiteJournal(path) as journal:
            bad = make(9)
            object.__setattr__(bad, "payload", {"text": object()})
            return await asyncio.gather(
                journal.record([make(0)]),
                journal.record([bad]),
                journal.record([make(1)]),
                return_exceptions=True,
            )

    good, fault, also_good = asyncio.run(main())
    assert good is also_good is None and isinstance(fault, TypeError)
    assert set(read(path)) == {make(0).key, make(1).key}


@pytest.mark.parametrize("steps", range(5))
def test_what_was_handed_over_is_on_disk_though_its_event_loop_ends(steps: int, path: Path) -> None:
    """As with asyncio.run after a cancellation or Ctrl-C, which cancels all that is left."""

    async def main(journal: SQLiteJournal) -> None:
        for number in range(3):
            _ = asyncio.ensure_future(journal.record([make(number)]))
            for _ in range(1 + steps):
                await asyncio.sleep(0)

    with SQLiteJournal(path) as journal:
        asyncio.run(main(journal))
    assert set(read(path)) == {make(number).key for number in range(3)}


# -- kill -9 ------------------------------------------------------------------------------------------

#: Problems in flocks of eight; the log says which sample is being made ("x"), and which is acknowledged ("a").
WORK = textwrap.dedent(
    """
    import asyncio, json, os, sys
    from metagen.generators.function import FunctionGenerator
    from metagen.journal import SQLiteJournal
    from metagen.scope import Scope
    from metagen.sequence import Prompt, Sequence

    folder, problems, n, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    log = os.open(f"{folder}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def sample(prefix, seed, index):
        os.write(log, f"x {prefix.prompt.problem_id}/{index}\\n".encode())
        await asyncio.sleep(pause)
        return f"{prefix.prompt.problem_id}: {seed % 1000}"

    async def solve(name, journal):
        prefix = Sequence(Prompt(name, text=name))
        scope, generator = Scope.root(name, seed=0, journal=journal).child("sample"), FunctionGenerator(sample)
        texts = []
        for start in range(0, n, 4):
            part = await generator.generate(prefix, n=min(4, n - start), start=start, scope=scope)
            os.write(log, "".join(f"a {name}/{start + i}\\n" for i in range(len(part))).encode())
            texts += [s.text for s in part]
        return texts

    async def main(journal):
        names = iter([f"p{i}" for i in range(problems)])
        answers = {}
        async def worker():
            for name in names:
                answers[name] = await solve(name, journal)
        await asyncio.gather(*(worker() for _ in range(8)))
        return answers

    print("started", flush=True)
    with SQLiteJournal(f"{folder}/journal.sqlite", seed=0) as journal:
        print(json.dumps(asyncio.run(main(journal)), sort_keys=True))
    """
)


def start_work(folder: Path, problems: int, n: int, pause: float = 0.0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORK, str(folder), str(problems), str(n), str(pause)]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)


def finish_work(folder: Path, problems: int, n: int) -> tuple[str, list[str]]:
    """The answers, and what was executed for them."""
    log = folder / "log"
    before = len(log.read_text().splitlines()) if log.exists() else 0
    out, _ = start_work(folder, problems, n).communicate(timeout=600)
    return out.splitlines()[-1], [line for line in log.read_text().splitlines()[before:] if line[0] == "x"]


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_kill_9_at_any_moment_loses_no_acknowledged_call(tmp_path: Path) -> None:
    rng = random.Random(0)
    problems, n, kills, log = 500, 12, 0, tmp_path / "log"
    while kills < 32:
        process = start_work(tmp_path, problems, n, pause=0.001)
        assert process.stdout is not None
        if rng.random() < 0.8:  # most in the middle of the work, some while it starts
            process.stdout.readline()
            target = size(log) + rng.randrange(3000)
            while size(log) < target and process.poll() is None:
                time.sleep(0.001)
        else:
            time.sleep(rng.uniform(0.0, 0.25))
        kills += process.poll() is None
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "the work ended before it was killed; give it more"
        if rng.random() < 0.3 and (tmp_path / "journal.sqlite").exists():
            acknowledged = {x[2:] for x in log.read_text().splitlines() if x.startswith("a ")}
            assert acknowledged <= {
                f"{r.problem}/{r.index}" for r in read(tmp_path / "journal.sqlite").values()
            }

    answers, executed = finish_work(tmp_path, problems, n)
    lines = log.read_text().splitlines()
    assert 0 < len(executed) < problems * n - 200, "the kills left nothing to resume, or nothing to do"
    seen: set[str] = set()
    for line in lines:
        kind, name = line.split()
        assert kind == "a" or name not in seen, f"{name} was acknowledged, and paid for again"
        if kind == "a":
            seen.add(name)
    assert len(seen) == problems * n

    # Once more: nothing is executed, and the answers are those of a run that was never interrupted.
    assert finish_work(tmp_path, problems, n) == (answers, [])
    (tmp_path / "fresh").mkdir()
    assert finish_work(tmp_path / "fresh", problems, n)[0] == answers


def test_extending_n_pays_only_for_the_new_samples(tmp_path: Path) -> None:
    shorter, _ = finish_work(tmp_path, 10, 16)
    longer, executed = finish_work(tmp_path, 10, 20)
    assert sorted(executed) == sorted(f"x p{p}/{i}" for p in range(10) for i in range(16, 20))
    assert {k: v[:16] for k, v in json.loads(longer).items()} == json.loads(shorter)


# -- one writer ---------------------------------------------------------------------------------------


def test_a_second_writer_is_told_and_a_reader_is_let_in(tmp_path: Path, path: Path) -> None:
    hold = (
        "import sys; from metagen.journal import SQLiteJournal; journal = SQLiteJournal(sys.argv[1], seed=0); "
        "print('open', flush=True); sys.stdin.read()"
    )
    write(path, [make(0)])
    other = subprocess.Popen(
        [sys.executable, "-c", hold, str(path)],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert other.stdout is not None and other.stdout.readline() == b"open\n"
        with pytest.raises(JournalLocked, match=r"journal\.sqlite.*another process.*another directory"):
            SQLiteJournal(path, seed=0)
        assert set(read(path)) == {make(0).key}
    finally:
        other.kill()
        other.communicate()
    write(path, [make(1)])  # the lock died with its holder
    assert len(read(path)) == 2


def test_a_reader_follows_a_writer(path: Path) -> None:
    async def main() -> None:
        with SQLiteJournal(path, seed=0) as writer, SQLiteJournal(path, read_only=True) as reader:
            for n in range(20):
                await writer.record([make(n)])
                assert reader.count() == n + 1 and reader.find([make(n).key])
            with pytest.raises(JournalError, match="for reading only"):
                await reader.record([make(99)])

    asyncio.run(main())


def test_the_lock_is_released_by_whatever_thread_closes(path: Path) -> None:
    journal = SQLiteJournal(path)
    asyncio.run(asyncio.to_thread(journal.close))
    SQLiteJournal(path).close()


def test_a_journal_that_is_not_there_is_not_read(path: Path) -> None:
    with pytest.raises(JournalCorrupt, match="no journal at"):
        SQLiteJournal(path, read_only=True)
    assert not path.parent.exists()


def test_a_place_where_no_file_can_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(JournalError, match=r"cannot create .*file/journal\.sqlite"):
        SQLiteJournal(tmp_path / "file" / "journal.sqlite")
    with pytest.raises(JournalError, match="cannot read"):
        SQLiteJournal(tmp_path)


def test_a_closed_journal_says_so(path: Path) -> None:
    journal = SQLiteJournal(path)
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        asyncio.run(journal.record([make(0)]))
    with pytest.raises(JournalError, match="closed"):
        journal.find([make(0).key])


# -- torn, foreign, of another run --------------------------------------------------------------------


def refused(path: Path) -> pytest.ExceptionInfo[JournalCorrupt]:
    """Opening fails, or reading at the latest, for writers too, and nothing in the folder is changed by it."""
    before = folder(path.parent)
    for read_only in (True, False):
        with (
            pytest.raises(JournalCorrupt) as caught,
            SQLiteJournal(path, seed=0, read_only=read_only) as journal,
        ):
            journal.of_problem("p")
        assert folder(path.parent) == before
    assert str(path) in str(caught.value) and isinstance(caught.value, InputError)
    return caught


def test_a_reader_of_some_problems_reads_what_was_written_or_is_told_of_damage(path: Path) -> None:
    """Also where it does not look through the whole file, and reads no payloads."""
    with SQLiteJournal(path, seed=0) as journal:
        journal.bind_all([("p", b"1"), ("q", b"2")])
        asyncio.run(journal.record([make(n, "pq"[n % 2], "x" * n) for n in range(300)]))
    sound, rng, told = path.read_bytes(), random.Random(0), 0

    def look() -> list[tuple[Usage, Usage]]:
        with SQLiteJournal(path, read_only=True, some=True) as journal:
            rows = sorted(journal.of_problem("p", payload=False), key=lambda row: row.index)
        assert not any(row.payload for row in rows)
        return [(row.usage, row.physical) for row in rows]

    rows = look()
    assert rows == [(row.usage, row.physical) for row in (make(n) for n in range(0, 300, 2))]
    for at in rng.sample(range(len(sound)), 400):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << rng.randrange(8)]) + sound[at + 1 :])
        try:
            assert look() == rows, at
        except (JournalCorrupt, JournalError):
            told += 1
    assert told > 20


def test_a_reader_of_some_problems_misses_no_row_that_an_index_has_lost(path: Path) -> None:
    write(path, [make(1)])
    with SQLiteJournal(path) as journal:
        journal.bind("p", b"1")
    entry = "type = 'index' AND name = 'rows_of_problem'"
    with sqlite3.connect(path, isolation_level=None) as database:
        index = database.execute(f"SELECT * FROM sqlite_master WHERE {entry}").fetchone()
        database.execute("PRAGMA writable_schema = 1")
        database.execute(f"DELETE FROM sqlite_master WHERE {entry}")
    with sqlite3.connect(path, isolation_level=None) as database:  # the index does not learn of this row
        database.execute(f"INSERT INTO rows VALUES ({', '.join('?' * 10)})", make(2).columns())
        database.execute("UPDATE facts SET value = '2' WHERE name = 'written'")
    with sqlite3.connect(path, isolation_level=None) as database:
        database.execute("PRAGMA writable_schema = 1")
        database.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", index)
    with pytest.raises(JournalCorrupt, match="missing from index"):
        SQLiteJournal(path, read_only=True, some=True)


def test_a_truncated_journal_is_refused_and_left_as_it_is(path: Path) -> None:
    write(path, [make(n) for n in range(300)])
    whole = path.read_bytes()
    rng = random.Random(0)
    for length in [
        0,
        1,
        15,
        16,
        99,
        100,
        4096,
        len(whole) - 4096,
        len(whole) - 1,
        *rng.sample(range(len(whole)), 20),
    ]:
        path.write_bytes(whole[:length])
        assert "start a new run directory" in str(refused(path).value)


def test_no_flipped_byte_is_read_as_something_else(path: Path) -> None:
    rows = {row.key: row for row in (make(n) for n in range(150))}
    write(path, list(rows.values()))
    whole = path.read_bytes()
    rng = random.Random(0)
    places = [*range(0, 100, 3), *rng.sample(range(100, len(whole)), 250)]
    caught = 0
    for place in places:
        data = bytearray(whole)
        data[place] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        try:
            assert read(path) == rows, f"byte {place} of {len(whole)}"  # it held nothing that counts
        except JournalCorrupt as error:
            assert str(path) in str(error)  # noqa: PT017
            caught += 1
        assert path.read_bytes() == data
    assert caught > 150


def test_a_foreign_file_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("These are notes, and no journal.\n" * 99)
    assert "its header is not SQLite's" in str(refused(path).value)
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    assert "of another program" in str(refused(path).value)


def test_another_schema_is_refused(path: Path) -> None:
    write(path, [make(0)])
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    assert "schema 99, this version writes 2" in str(refused(path).value)


def test_a_changed_run_seed_is_refused(path: Path) -> None:
    write(path, [make(0)], seed=1)
    with pytest.raises(JournalMismatch, match=r"written with seed 1, this run has 2.*seed=1"):
        SQLiteJournal(path, seed=2)
    write(path, [make(1)], seed=1)
    assert len(read(path)) == 2


@pytest.mark.parametrize("given", [None, 0])
def test_the_samples_of_one_seed_never_answer_for_another(path: Path, given: int | None) -> None:
    vote = MajorityVote(
        FunctionGenerator(lambda prefix, seed, index: str(seed % 7)), n=3, answer=FunctionRule(str)
    )
    with SQLiteJournal(path, seed=given) as journal:
        first = vote.solve("x", journal=journal)
        assert vote.solve("x", journal=journal, seed=0).text == first.text
        with pytest.raises(JournalMismatch, match=r"seed 0, and is asked with seed 1: give seed=0, or"):
            vote.solve("x", seed=1, journal=journal)
    with SQLiteJournal(path) as journal, pytest.raises(JournalMismatch, match="give seed=0, or"):
        vote.solve("x", seed=1, journal=journal)
    with SQLiteJournal(path, read_only=True) as journal:
        assert vote.solve("x", journal=journal).text == first.text
        with pytest.raises(JournalMismatch, match="give seed=0, or"):
            vote.solve("x", seed=1, journal=journal)
    with pytest.raises(JournalMismatch, match="written with seed 0, this run has 2: go on with metagen"):
        SQLiteJournal(path, seed=2)
    memory = MemoryJournal()
    vote.solve("x", seed=5, journal=memory)
    with pytest.raises(JournalMismatch, match=r"seed 5, and is asked with seed 6: give seed=5, or"):
        vote.solve("x", seed=6, journal=memory)


def test_equal_data_have_one_name_however_they_came(tmp_path: Path) -> None:
    names = []
    for number, problems in enumerate(
        ({"a": b"1", "b": b"2"}, {"b": b"2", "a": b"1"}, {"a": b"1", "b": b"3"})
    ):
        with SQLiteJournal(tmp_path / f"{number}.sqlite") as journal:
            journal.bind_all(problems.items())
            names.append(journal.data())
    assert names[0] == names[1] != names[2]


def test_changed_data_is_refused_and_added_data_is_not(path: Path) -> None:
    with SQLiteJournal(path) as journal:
        journal.bind_all([("p1", b"1"), ("p2", b"2")])
    with SQLiteJournal(path) as journal:
        journal.bind_all((f"p{i}", str(i).encode()) for i in range(1, 1200))
        journal.bind("p2", b"2")
        with pytest.raises(JournalMismatch, match="problem 'p2' was another one"):
            journal.bind("p2", b"other")
        with pytest.raises(JournalMismatch, match="problem 'p1199'"):
            journal.bind_all([("new", b"new"), ("p1199", b"other")])
        journal.bind("new", b"whatever")  # what was refused together with p1199 left no trace


# -- file systems -------------------------------------------------------------------------------------


@pytest.mark.parametrize("vfs", ["", "unix-none"])
def test_commits_are_durable_with_and_without_a_write_ahead_log(path: Path, vfs: str) -> None:
    """A process writes, acknowledges on its output, and is killed; what it acknowledged is there."""
    script = textwrap.dedent(
        """
        import asyncio, sys
        from metagen.journal import Row, SQLiteJournal
        async def main(journal):
            async def one(n):
                await journal.record([Row(n.to_bytes(16, "big"), "p", "0", "generate", "g", b"", n, {"text": "y"})])
                assert journal.find([n.to_bytes(16, "big")])
                print(n, flush=True)
            for start in range(0, 1_000_000, 4):
                await asyncio.gather(*(one(start + i) for i in range(4)))
        journal = SQLiteJournal(sys.argv[1], seed=0, vfs=sys.argv[2])
        print(journal.wal, flush=True)
        asyncio.run(main(journal))
        """
    )
    command = [sys.executable, "-c", script, str(path), vfs]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == ("True\n" if not vfs else "False\n")
    lines = [process.stdout.readline() for _ in range(40)]
    process.kill()
    acknowledged = {int(n) for n in lines + process.stdout.readlines() if n.endswith("\n")}
    process.communicate()
    with SQLiteJournal(path, seed=0, vfs=vfs) as journal:
        assert {row.index for row in journal.of_problem("p")} >= acknowledged
    assert len(acknowledged) >= 40


def test_a_full_disk_is_said_and_loses_nothing(path: Path) -> None:
    """The process may write files of 200 kB only; it is told, frees itself, and goes on."""
    script = textwrap.dedent(
        """
        import asyncio, resource, signal, sys
        from metagen.errors import JournalError
        from metagen.journal import Row, SQLiteJournal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        def row(n):
            return Row(n.to_bytes(16, "big"), "p", "0", "generate", "g", b"", n, {"text": "y" * 5000})
        async def main(journal):
            free = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, free[1]))
            recorded = 0
            try:
                for n in range(1000):
                    await journal.record([row(n)])
                    recorded += 1
            except JournalError as error:
                print(error)
            assert journal.count() == recorded
            try:
                await asyncio.gather(*(journal.record([row(2000 + n)]) for n in range(9)))
            except JournalError:
                pass
            resource.setrlimit(resource.RLIMIT_FSIZE, free)
            await journal.record([row(recorded)])
            print(recorded + 1)
        with SQLiteJournal(sys.argv[1], seed=0) as journal:
            asyncio.run(main(journal))
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    message, count = done.stdout.splitlines()
    assert (
        message.startswith(f"cannot write {str(path)!r}") and "free space" in message and "resume" in message
    )
    with SQLiteJournal(path, seed=0) as journal:
        assert {row.index for row in journal.of_problem("p")} >= set(range(int(count)))
    assert int(count) > 5


def test_a_full_disk_stops_a_scope_with_the_journals_error_and_leaves_nothing_in_flight(path: Path) -> None:
    async def main() -> None:
        with SQLiteJournal(path, seed=0) as journal:
            assert journal._writer is not None
            pages = journal._writer.execute("PRAGMA page_count").fetchone()[0]
            journal._writer.execute(f"PRAGMA max_page_count = {pages + 8}")
            scope = Scope.root("p", journal=journal)
            generator = FunctionGenerator(lambda prefix, seed, index: "y" * 3000)
            prefix = Sequence(Prompt("p", text="p"))
            with pytest.raises(JournalError, match="full"):  # noqa: PT012
                for start in range(100):
                    await generator.generate(prefix, start=start, scope=scope)
            before = journal.count()
            assert before == len(scope.trace.rows) - scope.trace.lost > 0 and not journal.inflight
            journal._writer.execute("PRAGMA max_page_count = 1000000")
            await generator.generate(prefix, n=before + 5, scope=scope)
            assert journal.count() == before + 5

    asyncio.run(main())


# -- group commit -------------------------------------------------------------------------------------


def test_concurrent_callers_share_commits(path: Path) -> None:
    async def main() -> int:
        with SQLiteJournal(path, seed=0) as journal:
            commits = 0

            def commit(rows: list[object], inner: Callable[[list[object]], None] = journal._commit) -> None:
                nonlocal commits
                commits += 1
                inner(rows)

            journal._commit = commit  # type: ignore[method-assign, assignment]
            numbers = iter(range(2000))

            async def worker() -> None:
                for n in numbers:
                    await journal.record([make(n)])

            await asyncio.gather(*(worker() for _ in range(64)))
            return commits

    commits = asyncio.run(main())
    assert len(read(path)) == 2000
    assert commits <= 2000 / 16


def test_binding_data_in_the_middle_of_a_run_harms_no_commit(path: Path) -> None:
    """A mismatch rolls its own transaction back, never the one of rows that are being written."""

    async def main() -> None:
        with SQLiteJournal(path, seed=0) as journal:
            journal.bind("p", b"1")
            writes = [
                asyncio.create_task(journal.record([make(n) for n in range(k * 50, k * 50 + 50)]))
                for k in range(40)
            ]
            while not all(w.done() for w in writes):
                with pytest.raises(JournalMismatch):
                    journal.bind("p", b"2")
                await asyncio.sleep(0)
            await asyncio.gather(*writes)
            assert journal.count() == 2000

    asyncio.run(main())


def test_a_memory_journal_keeps_rows_while_it_lives() -> None:
    journal = MemoryJournal()
    asyncio.run(journal.record([make(0), make(1, problem="q")]))
    assert journal.find([make(0).key, make(5).key]) == {make(0).key: make(0)}
    assert journal.of_problem("q") == [make(1, problem="q")]


def test_a_write_ahead_log_with_a_damaged_head_is_refused_and_left_alone(path: Path) -> None:
    """SQLite itself would take it for an empty one, and what it holds would be paid for again."""
    code = (
        "import asyncio, os, sys; from metagen.journal import SQLiteJournal, Row, RowKeys\n"
        "j = SQLiteJournal(sys.argv[1], seed=0)\n"
        "key = RowKeys('g', 'p', '0')(b'c', 0)\n"
        "asyncio.run(j.record([Row(key, 'p', '0', 'generate', 'g', b'c', 0, {'text': 'x'})]))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    log = path.with_name(path.name + "-wal")
    kept = log.read_bytes()
    assert len(kept) > 32
    for at in (0, 9, 25):
        damaged = bytearray(kept)
        damaged[at] ^= 0x55
        log.write_bytes(damaged)
        with pytest.raises(JournalCorrupt, match="-wal' is torn"):
            SQLiteJournal(path, seed=0)
        assert log.read_bytes() == damaged
    log.write_bytes(kept)
    with SQLiteJournal(path, seed=0) as journal:
        assert journal.count() == 1


def test_no_damage_within_a_write_ahead_log_makes_records_vanish_in_silence(path: Path) -> None:
    """A journal of which the writer was killed, and every part of its log damaged, cut off, or left behind."""
    code = (
        "import asyncio, os, sys; from metagen.journal import SQLiteJournal, Row, RowKeys\n"
        "j = SQLiteJournal(sys.argv[1], seed=0)\n"
        "for n in range(40):\n"
        "    key = RowKeys('g', 'p', '0')(b'c', n)\n"
        "    asyncio.run(j.record([Row(key, 'p', '0', 'generate', 'g', b'c', n, {'text': 'x' * 99})]))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    log, shared = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    whole, kept, memory = (file.read_bytes() for file in (path, log, shared))
    rng = random.Random(0)
    cuts = [kept[:at] for at in (0, 32, *rng.sample(range(40, len(kept) - 1), 12))]
    flipped = []
    for at in rng.sample(range(32, len(kept)), 115):
        damaged = bytearray(kept)
        damaged[at] ^= 0x55
        flipped.append(bytes(damaged))
    told = 0
    for content in [*cuts, *flipped]:
        for read_only in (True, False):
            for file, old in ((path, whole), (log, content), (shared, memory)):
                file.write_bytes(old)
            said = ""
            try:
                with SQLiteJournal(path, seed=0, read_only=read_only) as journal:
                    assert journal.count() == 40, "all are there, or it is said how many are not"
            except JournalCorrupt as error:
                said = str(error)
            if said:
                told += 1
                assert "is torn" in said or re.search(r"lacks \d+ of 40 records.*-wal.*count", said)
                assert not content or log.read_bytes() == content
    assert told > 2 * 0.9 * len([*cuts, *flipped])


def test_records_that_are_lost_are_paid_for_again_where_that_is_said(path: Path) -> None:
    write(path, [make(n) for n in range(5)])
    older = path.read_bytes()
    write(path, [make(n) for n in range(5, 9)])
    path.write_bytes(older)
    with pytest.raises(JournalCorrupt, match="lacks 4 of 9 records"):
        SQLiteJournal(path, seed=0)
    path.with_name(path.name + ".count").unlink()
    write(path, [make(9)])
    assert len(read(path)) == 6
    path.with_name(path.name + ".count").write_bytes(b"nonsense")
    assert len(read(path)) == 6, "what says nothing is no count"


def test_a_journal_is_copied_as_it_grows(tmp_path: Path) -> None:
    one, other = tmp_path / "one.sqlite", tmp_path / "other.sqlite"
    rows = [make(i, problem=f"p{i % 3}") for i in range(10)]
    write(one, rows[:6])
    with SQLiteJournal(one, read_only=True) as source, SQLiteJournal(other, seed=0) as target:
        mark, first = source.since(0, 4)
        asyncio.run(target.copy(first))
        assert len(first) == 4 and target.count() == 4
        mark, rest = source.since(mark, 4)
        assert len(rest) == 2 and source.since(mark, 4) == (mark, [])
        cut = replace(rows[2], status="truncated", limit=Limit("0", "generated", 5))
        write(one, [*rows[6:], replace(rows[0], started=2.0), cut])
        _, new = source.since(mark, 100)
        assert len(new) == 6  # what is recorded anew comes again
        asyncio.run(target.copy([*rest, *new]))
        assert target.limits == {cut.limit}
    assert read(other) == read(one)


def test_a_torn_record_is_not_copied(tmp_path: Path) -> None:
    write(tmp_path / "one.sqlite", [make(1)])
    with SQLiteJournal(tmp_path / "one.sqlite") as journal:
        _, [record] = journal.since(0, 1)
        with pytest.raises(JournalCorrupt, match="is torn"):
            asyncio.run(journal.copy([(*record[:-2], record[-2] + " ", record[-1])]))
        asyncio.run(journal.copy([]))


def elsewhere(path: Path) -> int:
    """What another process reads, which opens and closes the journal."""
    program = "import sys, metagen.journal as m; print(m.SQLiteJournal(sys.argv[1], read_only=True).count())"
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("raw", [False, True], ids=["by metagen", "by something else"])
def test_reading_a_journal_that_is_being_written_takes_nothing_away(
    path: Path, tmp_path: Path, raw: bool
) -> None:
    """A process that closes a file loses its locks on it, and the next one who reads the file elsewhere takes its
    write-ahead log for one that nobody writes any more.
    """
    copies = tmp_path / "copies"

    async def main() -> None:
        with SQLiteJournal(path, seed=0) as journal:
            for i in range(4):
                await journal.record([make(i)])
                if raw:
                    await asyncio.to_thread(path.read_bytes)
                else:
                    with SQLiteJournal(path, read_only=True) as own:
                        assert own.count() == i + 1
                assert elsewhere(path) == i + 1
            # As a kill leaves it.
            shutil.copytree(path.parent, copies)

    asyncio.run(main())
    with SQLiteJournal(copies / "journal.sqlite", read_only=True) as kept:
        assert kept.count() == 4
