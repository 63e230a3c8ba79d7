"""The report on a run's verifiers: its figures, its files, and what it says where there is nothing to report."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from metagen.cli import app
from metagen.errors import InputError
from metagen.experiments import quality
from metagen.experiments.directory import RunDirectory

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
    reports = {report.verifier: report.quality for report in quality.examine(found, found)}
    prm, truth = reports["prm"], reports["truth"]
    assert prm is not None and truth is not None
    assert prm.problems == truth.problems == 12 and prm.samples == 48
    assert truth.pooled_auc == 1.0 and all(at.regret.value == pytest.approx(0.0) for at in truth.curve)
    assert prm.pooled_auc > 0.7 and [at.n for at in prm.curve] == [1, 2, 4]
    assert prm.first_error is not None and sum(prm.first_error.counts) == 48 and prm.first_error.f1 > 0.5
    assert truth.first_error is None


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
    file = tmp_path / "plain.yaml"
    file.write_text(FILE.replace("grid: {", "grid: {strategies: [vote], "), "utf-8")
    assert CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "a")]).exit_code == 0
    found = RunDirectory.find(tmp_path / "a")
    with pytest.raises(
        InputError, match=r"no verifier of .* scored a pool; run it with a strategy that has one"
    ):
        list(quality.examine(found, found))
    hopeless = FILE.replace("tiny-0.5m", "tiny-0.1m").replace("levels: [1, 2]", "levels: [6]")
    file.write_text(hopeless.replace("per_level: 6", "per_level: 2"), "utf-8")
    assert CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "b")]).exit_code == 0
    found = RunDirectory.find(tmp_path / "b")
    assert all(report.quality is None and report.wanting for report in quality.examine(found, found))
    assert "No report: " in quality.markdown(quality.examine(found, found))
