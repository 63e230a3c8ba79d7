"""What grading a recorded pool takes: rows, texts that are read, bytes. No test here looks at a clock."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from benchmarks import grade
from metagen.cli import app
from metagen.errors import JournalMismatch
from metagen.generators.pool import PoolFile
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.work.build import open_setup
from metagen.runs.work.runner import run
from metagen.verifiers.math import rule

SAMPLES = 256


def pool(path: Path, problems: int, first: str = "p") -> Path:
    """Each problem has 256 samples of 16 texts, the first of which is right."""
    records = (
        {
            "id": f"{first}{number}",
            "question": "?",
            "answer": "0",
            "samples": [f"The answer is {i % 16}." for i in range(SAMPLES)],
        }
        for number in range(problems)
    )
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def graded(file: Path, out: Path) -> Path:
    result = CliRunner().invoke(app, ["grade", str(file), "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out


def test_samples_that_are_on_disk_are_not_copied_into_the_journal(tmp_path: Path) -> None:
    out = graded(pool(tmp_path / "pool.jsonl", 3), tmp_path / "run")
    with sqlite3.connect(out / "journal.sqlite") as journal:
        assert journal.execute("SELECT COUNT(*) FROM rows").fetchone() == (0,)
    table = pq.read_table(out / "candidates.parquet", columns=["text", "correct"])
    assert len(table) == 3 * SAMPLES and sum(table["correct"].to_pylist()) == 3 * SAMPLES // 16
    assert json.loads((out / "state.json").read_text("utf-8"))["samples"] == 3 * SAMPLES


def test_each_text_of_a_problem_is_read_once_by_whoever_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the answer rule for the vote, by the grader, and by the oracle: never once for each sample."""
    read: list[str] = []
    find = rule.find

    def counted(text: str, **options: object) -> str | None:
        read.append(text)
        return find(text, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(rule, "find", counted)
    graded(pool(tmp_path / "pool.jsonl", 2), tmp_path / "run")
    assert 2 * 16 <= len(read) <= 3 * 2 * 16


def test_a_problem_takes_little_room_beside_its_texts(tmp_path: Path) -> None:
    def size(problems: int) -> int:
        out = graded(pool(tmp_path / f"{problems}.jsonl", problems), tmp_path / str(problems))
        return sum(file.stat().st_size for file in out.rglob("*") if file.is_file())

    # The difference leaves out what every run has: figures, the page's own words.
    assert size(24) - size(12) < 12 * 20_000


def test_a_file_is_looked_through_once_for_a_grading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from metagen.generators import replay

    reads: list[object] = []

    class Counted(PoolFile):
        # Whatever it is given is passed on, so its types are of no matter here.
        def _index(self, *given: object) -> object:  # type: ignore[override]
            reads.append(given)
            return super()._index(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(replay, "PoolFile", Counted)
    file = pool(tmp_path / "pool.jsonl", 2)
    graded(file, tmp_path / "run")
    assert len(reads) == 1
    # A file that has changed is another one.
    pool(file, 3)
    graded(file, tmp_path / "other")
    assert len(reads) == 2
    assert len(pq.read_table(tmp_path / "other" / "candidates.parquet", columns=["text"])) == 3 * SAMPLES


def test_a_grading_goes_on_with_its_own_problems_only(tmp_path: Path) -> None:
    """Though the journal holds no rows of them."""
    out = graded(pool(tmp_path / "pool.jsonl", 2), tmp_path / "run")
    before = pq.read_table(out / "configurations.parquet", columns=["configuration", "accuracy"])
    directory = RunDirectory(out)
    with open_setup(schema.load(directory.experiment)) as setup:
        assert run(setup, directory).status == "complete"
    graded(tmp_path / "pool.jsonl", out)
    after = pq.read_table(out / "configurations.parquet", columns=["configuration", "accuracy"])
    assert after == before
    other = CliRunner().invoke(app, ["grade", str(pool(tmp_path / "b.jsonl", 2, "q")), "--out", str(out)])
    assert isinstance(other.exception, JournalMismatch) or "holds other problems" in other.output


def test_the_benchmark_of_grading_runs() -> None:
    rows = {row.name.rpartition(", ")[2]: row for row in grade.rows((10,), 8)}
    assert set(rows) == {"CPU", "disk", "peak memory"}
    assert all(row.value > 0 for row in rows.values())
