"""A run takes nobody's place: neither that of a user's files nor that of a run whose journal is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from metagen.cli import app

FILE = """\
name: votes
task: {kind: jsonl, path: data.jsonl, pattern: '^(.*)$'}
generators: {recorded: {kind: replay, path: pool.jsonl}}
strategies: {vote: {kind: majority}}
grid: {n: [1, 2]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "data.jsonl").write_text('{"id": "a", "question": "1+1?", "answer": "2"}\n')
    (tmp_path / "pool.jsonl").write_text('{"id": "a", "texts": ["2", "3"]}\n')
    path = tmp_path / "votes.yaml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize("name", ["problems.csv", "experiment.yaml", "report.html", "levels.parquet"])
def test_files_that_are_not_of_a_run_stay_as_they_are(name: str, file: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / name).write_text("my own")
    result = CliRunner().invoke(app, ["run", str(file), "--out", str(mine)])
    assert result.exit_code != 0
    assert f"holds {name!r}, which is not of a run" in str(result.exception) + result.output
    assert (mine / name).read_text() == "my own" and [p.name for p in mine.iterdir()] == [name]


def test_a_run_whose_journal_is_gone_is_not_begun_anew(file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert CliRunner().invoke(app, ["run", str(file), "--out", str(run)]).exit_code == 0
    assert CliRunner().invoke(app, ["resume", str(run)]).exit_code == 0
    for path in run.glob("journal.sqlite*"):
        path.unlink()
    result = CliRunner().invoke(app, ["resume", str(run)])
    assert result.exit_code != 0 and not (run / "journal.sqlite").exists()
    assert "is missing: this run had delivered 2 samples" in str(result.exception) + result.output


def test_an_empty_directory_and_files_of_other_names_are_no_hindrance(file: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    assert CliRunner().invoke(app, ["run", str(file), "--out", str(place)]).exit_code == 0
    assert (place / "notes.txt").read_text() == "mine"
