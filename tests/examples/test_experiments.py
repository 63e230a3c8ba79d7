"""Every experiment file in examples/ runs, on one problem of each kind and few candidates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from metagen.cli import app
from metagen.generators.models import sources
from tests.fetched import fetch_or_skip

pytestmark = pytest.mark.usefixtures("lean_figures")


FILES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
#: Engines that another suite runs the examples of: with a server, and in an environment that has vLLM.
ELSEWHERE = {"openai": "tests/generators/openai", "vllm": "tests/generators/vllm"}
#: Tokens of a solution, at most, by the model that solves problems in words: nine of ten have come to their end. BRIEF:
#: where every strategy runs, which tests of its own look at. ALOUD: of the model that it comes from, which writes
#: critiques, programs and calls of tools, and seldom ends by itself.
SOLVER, BASE, LONGEST, BRIEF, ALOUD = "smollm2-135m-solver", "smollm2-135m", 45, 24, 60


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_example_runs(file: Path, tmp_path: Path) -> None:
    experiment = yaml.safe_load(file.read_text("utf-8"))
    if "study" in experiment:
        pytest.skip(f"{file.name} is run by tests/runs")
    said = file.read_text("utf-8")
    assert f"metagen run examples/{file.name}" in said or "#" in said.splitlines()[0]
    for engine in experiment.get("engines", {}).values():
        if isinstance(model := engine.get("model"), str) and sources.is_named(model):
            fetch_or_skip(model)
    kinds = {engine["kind"] for engine in experiment.get("engines", {}).values()}
    for kind in kinds & ELSEWHERE.keys():
        pytest.skip(f"{file.name} is run by {ELSEWHERE[kind]}")
    # A language model in words takes a minute for one problem by all strategies.
    few, longest = ("1", BRIEF) if file.stem == "words_strategies" else ("2", LONGEST)
    asked = ["run", str(file), "--out", str(tmp_path / "run"), "--limit", few]
    for name, spec in experiment["strategies"].items():
        if "n" in spec:
            asked += ["--set", f"strategies.{name}.n=2"]
    for name, spec in experiment["generators"].items():
        most = {SOLVER: longest, BASE: ALOUD}.get(experiment["engines"][spec["engine"]].get("model"))
        if most and spec["max_tokens"] > most:
            asked += ["--set", f"generators.{name}.max_tokens={most}"]
    if experiment.get("grid", {}).get("n"):
        asked += ["--set", "grid.n=[2]"]
    if experiment.get("executor", {}).get("kind") == "ray":
        # A process that was connected to one cluster keeps what it knows of it.
        command = [sys.executable, "-c", "from metagen.cli import app; app()", *asked]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    else:
        result = CliRunner().invoke(app, asked)
        assert result.exit_code == 0, result.output
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize(
    "file", [f for f in FILES if "\nstudy:" in f.read_text("utf-8")], ids=lambda f: f.stem
)
def test_a_study_is_planned(file: Path, tmp_path: Path) -> None:
    for engine in yaml.safe_load(file.read_text("utf-8")).get("engines", {}).values():
        if isinstance(model := engine.get("model"), str) and sources.is_named(model):
            fetch_or_skip(model)
    done = CliRunner().invoke(app, ["study", str(file), "--out", str(tmp_path / "study"), "--dry-run"])
    assert done.exit_code == 0, done.output
    assert "Nothing was run" in done.output


def test_programs_are_accepted_only_if_all_their_examples_pass() -> None:
    """A score of the public examples is the share that pass: half of them are not enough."""
    experiment = yaml.safe_load((FILES[0].parent / "programs.yaml").read_text("utf-8"))
    accepting = [s for s in experiment["strategies"].values() if s["kind"] == "rejection"]
    assert len(accepting) == 4 and all(s["threshold"] == 1.0 for s in accepting)
