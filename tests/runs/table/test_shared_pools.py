"""Figures that were published of whole pools: they come out of grading the very files, where these are at hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from metagen.analysis.estimators import pass_at_k
from metagen.cli import app
from metagen.generators.pool import read_pool
from metagen.runs.curves.measured import Pool
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.work import build, runner

SHARED = Path(__file__).parents[4] / "shared" / "data" / "pools"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the public pools are not at {SHARED}")


def graded(name: str, out: Path, *options: str) -> dict[str, float]:
    result = CliRunner().invoke(app, ["grade", str(SHARED / name), *options, "--out", str(out)])
    assert result.exit_code == 0, result.output
    table = pq.read_table(out / "configurations.parquet", columns=["configuration", "accuracy"]).to_pylist()
    return {row["configuration"].removeprefix("recorded/"): row["accuracy"] for row in table}


@pytest.mark.parametrize("epochs", [8, 16])
def test_logs_of_models_have_their_stored_accuracies_and_clustered_errors(
    tmp_path: Path, epochs: int
) -> None:
    """Nulls of every kind: failed calls are left out, abstentions are right where the log says so."""
    lines = (SHARED / "otis_mock_aime_12_logs.jsonl").read_text("utf-8").splitlines()
    logs = [log for line in lines if (log := json.loads(line))["epochs"] == epochs]
    fields = {"texts": "answers", "correct": "correct", "generated": "output_tokens"}
    generators: dict[str, Any] = {}
    for log in logs:
        path = tmp_path / f"{log['log']}.jsonl"
        path.write_text("".join(json.dumps(problem) + "\n" for problem in log["problems"]), "utf-8")
        generators[log["log"]] = {"kind": "replay", "path": str(path), "fields": fields}
    experiment = {
        "name": "logs", "task": {"kind": "recorded", "path": str(path)}, "generators": generators,
        "strategies": {"single": {"kind": "sample"}, "majority": {"kind": "majority"}}, "grid": {"n": [epochs]},
    }  # fmt: skip
    (tmp_path / "it.yaml").write_text(yaml.safe_dump(experiment), "utf-8")
    with build.open_setup(schema.load(tmp_path / "it.yaml")) as setup:
        state = runner.run(setup, RunDirectory.at(tmp_path / "run"))
    for log in logs:
        rates = Pool.of(RunDirectory(tmp_path / "run"), log["log"]).accuracy("sample", 1)[0]
        assert rates.mean() == pytest.approx(log["stored_accuracy"], abs=1e-9), log["model"]
        error = rates.std(ddof=1) / len(rates) ** 0.5
        assert error == pytest.approx(log["stored_stderr"], abs=1e-9), log["model"]
    said = {log["model"]: [text for name, text in state.notes if name == log["log"]] for log in logs}
    if epochs == 8:
        (lost,) = (text for text in said["openai/gpt-5.4-2026-03-05"] if "failed" in text)
        assert "43 failed calls among 360 samples: left out" in lost and "in 87.8% if they are wrong" in lost
        one = said["openai/gpt-5-2025-08-07"]
        assert one[0] == "no sample has a text: none has a vote"
        assert "1 of 360 samples have no generated (null)" in one[1]
    else:
        (silent,) = said["anthropic/claude-3-sonnet-20240229"]
        assert silent == "67 of 720 samples are null: they abstain, and have no vote"


@pytest.mark.slow
@pytest.mark.parametrize(("prompt", "single", "best"), [("standard", 0.0734, 0.33), ("cot", 0.0403, 0.49)])
def test_the_game_of_24(tmp_path: Path, prompt: str, single: float, best: float) -> None:
    name = f"game24_gpt4_tot_naive_{prompt}_sample_100.jsonl"
    found = graded(name, tmp_path / "run", "--samples", "texts", "--correct", "correct", "-n", "100")
    assert found["single"] == pytest.approx(single, abs=5e-5) and found["pass@100"] == pytest.approx(best)


@pytest.mark.slow
def test_cruxeval(tmp_path: Path) -> None:
    name = "cruxeval_input_codellama7b_t02_n10.jsonl"
    found = graded(name, tmp_path / "run", "--correct", "correct", "-n", "1", "-n", "5")
    assert (100 * found["pass@1"], 100 * found["pass@5"]) == pytest.approx((35.95, 44.99), abs=5e-3)


@pytest.mark.slow
def test_svamp(tmp_path: Path) -> None:
    """Published is 88.19; the ties of its vote allow 87.69 to 88.39, and here each class that ties has its share."""
    options = ("--samples", "answers", "--correct", "correct", "-n", "30")
    found = graded("svamp_codex_pot_n30.jsonl", tmp_path / "run", *options)
    assert 0.8769 <= found["majority@30"] <= 0.8839


@pytest.mark.parametrize("prompt", ["short", "med", "long"])
def test_programming_puzzles_are_counts_of_right_samples(prompt: str) -> None:
    path = SHARED / "p3_397_codex_cushman_n1000_successes.json"
    (stored,) = (one for one in json.loads(path.read_text("utf-8")) if one["experiment"] == prompt)
    pool = read_pool(path, {"id": "experiment", "successes": "successes"}, {"experiment": prompt})
    right = np.array([sum(bool(s.correct) for s in samples) for samples in pool.values()])
    assert len(pool) == 397 and {len(samples) for samples in pool.values()} == {1000}
    for k, value in stored["stored_pass_at_k"].items():
        assert pass_at_k(1000, right, int(k)).mean() == pytest.approx(value, abs=1e-9)
