"""One run directory and several processes, or none that may write to it."""

import asyncio
import ctypes
import os
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from metagen import journal as journals
from metagen.errors import JournalError
from metagen.journal import Row, SQLiteJournal
from tests.test_cli import METAGEN, PATIENCE, TOY, YAML, calls, results

#: Of Linux: PR_CAPBSET_DROP, CAP_DAC_OVERRIDE. Without it the superuser keeps to permissions, too.
DROP, OVERRIDE = 24, 1


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sums.yaml").write_text(YAML)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOY_LOG", str(tmp_path / "calls.log"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TOY), str(Path(__file__).parents[1])]))
    return tmp_path


def without_rights() -> None:
    ctypes.CDLL(None).prctl(DROP, OVERRIDE, 0, 0, 0)


def metagen(*arguments: str, rights: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*METAGEN, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        preexec_fn=None if rights else without_rights,
    )


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.skipif(sys.platform != "linux", reason="the superuser's rights are dropped as on Linux")
def test_a_report_on_a_read_only_directory_shows_all_and_says_that_it_wrote_nothing(place: Path) -> None:
    done = metagen("run", "sums.yaml")
    assert done.returncode == 0, done.stderr
    shown = metagen("report", "runs/sums").stdout
    root = place / "runs/sums"
    before = files(root)
    for folder in (root, root / "figures"):
        folder.chmod(0o555)
    try:
        done = metagen("report", "runs/sums", rights=False)
        assert files(root) == before
    finally:
        for folder in (root, root / "figures"):
            folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert "runs/sums cannot be written: no page, tables or figures were made" in " ".join(
        done.stdout.split()
    )
    first = shown.partition("page ")[0].rstrip()
    assert done.stdout.startswith(first[: first.index("Best:")])


@pytest.mark.skipif(sys.platform != "linux", reason="the superuser's rights are dropped as on Linux")
def test_a_journal_with_a_log_is_read_where_nothing_can_be_made_beside_it(place: Path) -> None:
    assert metagen("run", "sums.yaml").returncode == 0
    root = place / "runs/sums"
    with SQLiteJournal(root / "journal.sqlite") as journal:
        journal.bind("another", b"x" * 16)  # so that there is a log
        shutil.copytree(root, place / "copy")
        count = journal.count()
    (place / "copy").chmod(0o555)
    program = (
        "import sys; from metagen.journal import *; print(SQLiteJournal(sys.argv[1], read_only=True).count())"
    )
    try:
        for journal_root in ("copy", "runs/sums"):
            (place / journal_root).chmod(0o555)
            done = subprocess.run(
                [sys.executable, "-c", program, f"{journal_root}/journal.sqlite"],
                capture_output=True, text=True, timeout=PATIENCE, preexec_fn=without_rights,
            )  # fmt: skip
            assert done.stdout.strip() == str(count), done.stderr
    finally:
        for journal_root in ("copy", "runs/sums"):
            (place / journal_root).chmod(0o755)


def test_a_journal_that_is_written_faster_than_it_is_copied_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, heads = tmp_path / "journal.sqlite", count()
    with SQLiteJournal(path) as writer:
        asyncio.run(writer.record([Row(b"1", "p", "", "generate", "m", b"", 0, {"text": "x"})]))
        monkeypatch.setattr(os, "access", lambda place, mode: mode != os.W_OK)
        # Each copy ends with another log than it began with.
        monkeypatch.setattr(SQLiteJournal, "_log_head", lambda self: b"%d" % next(heads))
        with pytest.raises(JournalError, match="written faster than it can be copied"):
            SQLiteJournal(path, read_only=True)


def test_a_copy_that_takes_long_is_not_made_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.sqlite"
    with SQLiteJournal(path) as writer:
        rows = [Row(b"%d" % i, "p", "", "generate", "m", b"", i, {"text": "x"}) for i in range(3)]
        asyncio.run(writer.record(rows[:1]))
        monkeypatch.setattr(os, "access", lambda place, mode: mode != os.W_OK)
        monkeypatch.setattr(journals, "SOON", -1.0)
        with SQLiteJournal(path, read_only=True) as journal:
            journal._due += 3600.0
            asyncio.run(writer.record(rows[1:2]))
            journal.follow()
            assert journal.count() == 1
            journal._due = 0.0
            journal.follow()
            assert journal.count() == 2


def test_a_copy_of_a_journal_that_grows_is_whole_and_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer goes on while the copy is made, so far that the log begins anew, and afterwards."""
    path, copyfile = tmp_path / "journal.sqlite", shutil.copyfile
    writer, made, meanwhile = SQLiteJournal(path), 0, [2, 2000]

    def record(count: int) -> None:
        nonlocal made
        numbers = range(made, made + count)
        rows = [Row(b"%d" % i, "p", "", "generate", "m", b"", i, {"text": "x" * 4000}) for i in numbers]
        asyncio.run(writer.record(rows))
        made += count

    def overtaken(one: Path, to: Path) -> None:
        copyfile(one, to)
        while one == path and meanwhile:
            record(meanwhile.pop())

    record(5)
    monkeypatch.setattr(os, "access", lambda place, mode: mode != os.W_OK)
    monkeypatch.setattr(shutil, "copyfile", overtaken)
    with SQLiteJournal(path, read_only=True) as journal:
        assert not meanwhile and made == 2007
        assert journal.count() == len(journal.of_problem("p")) == made
        record(1)
        journal.look()
        assert journal.count() == made
        meanwhile += [2, 2000]
        record(1)
        journal.follow()
        assert journal.count() == len(journal.of_problem("p")) == made == 4011
        writer.close()
        journal.look()
        assert journal.count() == made and not path.with_name("journal.sqlite-wal").exists()


def test_of_three_processes_on_one_directory_each_does_its_work_or_says_who_is_there(place: Path) -> None:
    started = [
        subprocess.Popen(
            [*METAGEN, "run", "sums.yaml", "--out", "here"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TOY_DELAY": "0.05"},
        )
        for _ in range(3)
    ]
    ended = [(process.communicate(timeout=PATIENCE), process.returncode) for process in started]
    assert 0 in [code for _, code in ended], ended
    for (_, error), code in ended:
        if code:
            assert "is being written by another process (process " in " ".join(error.split()), error
    # Whoever ran had all to itself, and what was recorded was not paid for again.
    assert len(calls(place)) == len(set(calls(place))) == 8 * 8
    assert (place / "here/report.html").is_file() and results(place / "here")
    assert not (place / "here/run.holder").exists()
