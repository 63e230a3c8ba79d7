"""The report on a run's verifiers: its figures, its files, and what it says where there is nothing to report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from metagen.analysis.verifier_quality import verifier_quality
from metagen.cli import app
from metagen.errors import InputError
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.questions import quality
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.tasks.base import Problem

FILE = """\
name: judged
task: {kind: arithmetic, split: validation, levels: [1, 2], per_level: 6}
engines: {model: {kind: torch, model: tiny-0.5m}, reward: {kind: torch, model: tiny-prm}}
generators: {mid: {engine: model, max_tokens: 80}}
verifiers: {prm: {kind: prm, engine: reward, aggregation: min}, truth: {kind: oracle}}
strategies: {best: {kind: best_of_n, verifier: prm}, bound: {kind: best_of_n, verifier: truth}, vote: {kind: majority}}
grid: {n: [1, 4]}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("quality")
    (place / "judged.yaml").write_text(FILE, "utf-8")
    result = CliRunner().invoke(app, ["run", str(place / "judged.yaml"), "--out", str(place / "run")])
    assert result.exit_code == 0, result.output
    return place / "run"


def test_every_verifier_is_reported_with_first_errors_where_the_task_can_tell(run: Path) -> None:
    found = RunDirectory.find(run)
    asked = quality.examine(found, found, ["prm", "truth"])
    reports = {report.verifier: report.quality for report in asked}
    prm, truth = reports["prm"], reports["truth"]
    assert prm is not None and truth is not None
    assert prm.problems == truth.problems == 12 and prm.samples == 48
    assert truth.pooled_auc == 1.0 and all(at.regret.value == pytest.approx(0.0) for at in truth.curve)
    assert prm.pooled_auc > 0.7 and [at.n for at in prm.curve] == [1, 2, 4]
    assert prm.first_error is not None and sum(prm.first_error.counts) == 48 and prm.first_error.f1 > 0.5
    assert truth.first_error is None and prm.length is not None
    (own,) = quality.examine(found, found)
    assert own.verifier == "prm", "an oracle is no verifier to report on, unless it is asked for"


def test_predictions_are_told_within_levels(run: Path) -> None:
    found = RunDirectory.find(run)
    (report,) = quality.examine(found, found)
    assert report.quality is not None
    pooled = verifier_quality(report.scores, report.correct)
    levels = np.tile([1, 2], 6)
    by_level = verifier_quality(report.scores, report.correct, groups=levels)
    assert [at.predicted for at in report.quality.curve] == [at.predicted for at in by_level.curve]
    assert [at.predicted for at in report.quality.curve] != [at.predicted for at in pooled.curve]


def test_only_first_errors_need_the_data(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    rows = [{"id": str(i), "question": f"Q:a={i}+7;a?", "answer": str(i + 7)} for i in range(2, 6)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    task = 'task: {kind: jsonl, path: data.jsonl, prompt: "{question}\\nS:\\n"}'
    file = tmp_path / "judged.yaml"
    file.write_text(re.sub("task: .*", lambda _: task, FILE), "utf-8")
    assert CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "run")]).exit_code == 0
    data.unlink()
    result = CliRunner().invoke(app, ["quality", str(tmp_path / "run"), "--verifier", "prm"])
    assert result.exit_code == 0, result.output
    assert "First errors are not known" in (tmp_path / "run" / "quality.md").read_text("utf-8")


def test_a_map_is_fitted_for_an_experiment_file(run: Path) -> None:
    result = CliRunner().invoke(app, ["quality", str(run), "--verifier", "prm", "--calibrate"])
    assert result.exit_code == 0, result.output
    text = (run / "quality.md").read_text("utf-8")
    found = re.search(r"prm-calibrated: (\{kind: calibrated, verifier: prm, .*\})", text)
    assert found is not None and "bias: 0}" not in found[1], "temperature alone leaves it at 0"
    file = run.parent / "calibrated.yaml"
    file.write_text(FILE.replace("verifiers: {", f"verifiers: {{fitted: {found[1]}, "), "utf-8")
    assert "fitted" in schema.load(file).verifiers


def test_pools_of_unequal_size_are_calibrated(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "question": "1?", "gold": "1", "texts": ["1", "2"], "v": [0.9, 0.2]},
        {"id": "b", "question": "2?", "gold": "2", "texts": ["2", "3", "2"], "v": [0.8, 0.7, 0.6]},
    ]
    (tmp_path / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (tmp_path / "pool.yaml").write_text(
        "name: pool\n"
        "task: {kind: jsonl, path: pool.jsonl, fields: {id: id, question: question, answer: gold}, answer: math}\n"
        "generators: {m: {kind: replay, path: pool.jsonl, fields: {texts: texts, scores.v: v}}}\n"
        "verifiers: {v: {kind: recorded, score: v}}\n"
        "strategies: {best: {kind: best_of_n, verifier: v}}\n"
        "grid: {n: [1, 2, 3]}\n"
    )
    root = tmp_path / "run"
    assert CliRunner().invoke(app, ["run", str(tmp_path / "pool.yaml"), "--out", str(root)]).exit_code == 0
    result = CliRunner().invoke(app, ["quality", str(root), "--calibrate"])
    assert result.exit_code == 0, result.output
    assert "v-calibrated: {kind: calibrated" in (root / "quality.md").read_text("utf-8")


class Finished(ArithmeticTask):
    """Notes which solutions were said to be finished."""

    def __init__(self) -> None:
        super().__init__(per_level=1, levels=[1])
        self.noted: list[bool] = []

    def check_steps(self, problem: Problem, text: str, *, finished: bool) -> list[bool]:
        self.noted.append(finished)
        return super().check_steps(problem, text, finished=finished)


def test_a_task_is_told_whether_a_solution_is_finished() -> None:
    task = Finished()
    (problem,) = task.problems()
    rows = [
        {"problem": problem.id, "sample": i, "text": "x\n", "finish": finish, "steps.v": [0.5]}
        for i, finish in enumerate(("eos", "stop", "length"))
    ]
    quality.StepChecker(task).first_errors(pa.Table.from_pylist(rows), "v")
    assert task.noted == [True, True, False]


@pytest.mark.usefixtures("whole_figures")
def test_the_report_is_shown_and_written(run: Path) -> None:
    result = CliRunner().invoke(app, ["quality", str(run), "--verifier", "prm"])
    assert result.exit_code == 0, result.output
    assert "mid, prm" in result.output and "mid, truth" not in result.output
    text = (run / "quality.md").read_text("utf-8")
    assert "AUC within problems" in text and "first error at threshold" in text
    for name in ("reliability", "verifiers"):
        assert all((run / "figures" / f"{name}{suffix}").stat().st_size > 1000 for suffix in (".png", ".svg"))


def test_a_verifier_that_is_not_there_is_named_with_the_nearest(run: Path) -> None:
    found = RunDirectory.find(run)
    with pytest.raises(InputError, match=r"'prn' scored no pool of .* did you mean 'prm'"):
        list(quality.examine(found, found, ["prn"]))


def test_a_run_without_scores_or_with_one_outcome_only_says_so(tmp_path: Path) -> None:
    little = FILE.replace("levels: [1, 2], per_level: 6", "levels: [1], per_level: 1")
    file = tmp_path / "plain.yaml"
    file.write_text(little.replace("grid: {", "grid: {strategies: [vote], "), "utf-8")
    assert CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "a")]).exit_code == 0
    found = RunDirectory.find(tmp_path / "a")
    with pytest.raises(
        InputError, match=r"no verifier of .* scored a pool; run it with a strategy that has one"
    ):
        list(quality.examine(found, found))
    file.write_text(little.replace("grid: {", "budget: {calls: 100}\ngrid: {strategies: [best], "), "utf-8")
    assert CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "c")]).exit_code == 0
    found = RunDirectory.find(tmp_path / "c")
    with pytest.raises(
        InputError, match="under a budget, and in a search, every configuration runs by itself"
    ):
        list(quality.examine(found, found))
    file.write_text(little.replace("grid: {", "grid: {strategies: [bound, vote], "), "utf-8")
    assert CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "d")]).exit_code == 0
    found = RunDirectory.find(tmp_path / "d")
    with pytest.raises(
        InputError, match="'truth': whoever knows the right answer is no verifier to report on"
    ):
        list(quality.examine(found, found))
    hopeless = FILE.replace("tiny-0.5m", "tiny-0.1m").replace("levels: [1, 2]", "levels: [6]")
    file.write_text(hopeless.replace("per_level: 6", "per_level: 2"), "utf-8")
    assert CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "b")]).exit_code == 0
    found = RunDirectory.find(tmp_path / "b")
    assert all(report.quality is None and report.wanting for report in quality.examine(found, found))
    assert "No report: " in quality.markdown(quality.examine(found, found))
