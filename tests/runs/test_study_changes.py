"""What has changed beside a study is noticed: answers, levels, recorded samples, the study's own file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from metagen.cli import app
from metagen.errors import InputError
from metagen.runs import study as studies
from metagen.runs.curves.study import StudyResult
from metagen.runs.declare import study_schema as schema
from metagen.runs.directory import RunDirectory, StudyDirectory
from metagen.runs.page import study_report as report
from metagen.runs.questions import found
from metagen.runs.table.tables import read

Write = Callable[..., Path]
RECORDED = """\
name: recorded
seed: 0
task: {kind: jsonl, path: problems.jsonl, prompt: "{question}"}
generators: {theirs: {kind: replay, path: samples.jsonl, fields: {texts: answers}}}
strategies: {majority: {kind: majority}}
grid: {n: [1, 3]}
study: {}
"""


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


class Study:
    """A study of recorded samples, and the files that it is made of."""

    def __init__(self, root: Path) -> None:
        self.root, self.file = root / "study", root / "recorded.yaml"
        self.file.write_text(RECORDED)
        self.problems = [
            {"id": f"p{i}", "question": f"{i} + 1?", "answer": str(i + 1), "level": 1} for i in range(4)
        ]
        self.samples = [{"id": f"p{i}", "answers": [str(i + 1)] * 3} for i in range(4)]
        self.root_of_files = root

    def run(self) -> StudyResult:
        write(self.root_of_files / "problems.jsonl", self.problems)
        write(self.root_of_files / "samples.jsonl", self.samples)
        return studies.run(schema.load(self.file), self.root)

    def accuracy(self) -> float:
        return float(self.run().curves[0].accuracy.mean())


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path)


def test_samples_that_were_changed_are_read_again_even_back_to_what_they_were(study: Study) -> None:
    assert study.accuracy() == 1.0
    right = study.samples[0]
    study.samples[0] = right | {"answers": ["7"] * 3}
    assert study.accuracy() == 0.75
    study.samples[0] = right
    assert study.accuracy() == 1.0


def test_what_has_not_changed_is_not_run_again(study: Study) -> None:
    study.run()
    state = study.root / "test" / "state.json"
    os.utime(state, ns=(0, 0))
    study.run()
    assert state.stat().st_mtime_ns == 0


def test_another_answer_is_refused_and_another_level_is_taken(study: Study) -> None:
    study.run()
    study.problems[1]["level"] = 40_000
    study.run()
    levels = read(StudyDirectory(study.root).role("test").table("problems"), ["level"])["level"].to_pylist()
    assert sorted(levels) == [1, 1, 1, 40_000]
    study.problems[1]["answer"] = "99"
    with pytest.raises(InputError, match="holds a study of other data"):
        study.run()


def test_a_study_file_of_which_no_run_was_made_is_not_reported(study_file: Write, tmp_path: Path) -> None:
    file, root = study_file(study="", n="[1, 2]"), tmp_path / "study"
    studies.run(schema.load(file), root)
    directory = StudyDirectory(root)
    old = directory.study.read_text()

    def stop(role: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        studies.run(schema.load(file, sets=["grid.n=[1, 4]"]), root, begins=stop)
    for ask in (report.again, lambda one: found.find(one.root)):
        with pytest.raises(
            InputError, match=r"run by another study.yaml .*; go on with: metagen resume .*study, or"
        ):
            ask(directory)
    directory.study.write_text(old)
    assert report.again(directory)[0].curve("small", "majority").ns.tolist() == [1, 2]


def test_questions_are_asked_of_what_the_runs_hold_now(study: Study) -> None:
    study.run()
    study.samples[0]["answers"] = ["7"] * 3
    kept = {path: path.read_bytes() for path in study.root.iterdir() if path.is_file()}
    study.run()
    for path, old in kept.items():  # as if it had been killed before it collected anything
        path.write_bytes(old)
    assert found.find(study.root).result.curves[0].accuracy.mean() == 0.75


def test_a_role_goes_on_with_its_study_and_its_own_problems(study_file: Write, tmp_path: Path) -> None:
    sets = ["study.development.task=null", "study.development.share=0.4"]
    file, root = study_file(count=12), tmp_path / "study"
    studies.run(schema.load(file, sets=sets), root)
    directory = StudyDirectory(root)
    test = directory.role("test")
    own = read(test.table("problems"), ["problem"])["problem"].to_pylist()
    assert test.final_state().problems == len(own) < 12
    assert test.resume_hint == f"go on with: metagen resume {root}"
    assert RunDirectory(root).resume_hint == test.resume_hint
    test.table("candidates").unlink()
    done = CliRunner().invoke(app, ["resume", str(root / "test"), "--trust"])
    assert done.exit_code == 0, done.output
    assert "is a run of the study" in " ".join(done.stderr.split())
    assert read(test.table("problems"), ["problem"])["problem"].to_pylist() == own
    assert test.table("candidates").exists()
    done = CliRunner().invoke(app, ["run", str(test.experiment), "--out", str(test.root), "--trust"])
    assert done.exit_code == 2 and "is a run of the study" in " ".join(done.stderr.split())
