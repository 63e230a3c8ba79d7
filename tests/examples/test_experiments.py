"""Every experiment file in examples/ runs, on one problem of each kind and few candidates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from metagen.cli import app

FILES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
#: Engines that another suite runs the examples of: with a server, and in an environment that has vLLM.
ELSEWHERE = {"openai": "tests/generators/openai", "vllm": "tests/generators/vllm"}


def examples() -> Iterator[Any]:
    """All of them; who needs a cluster shares the one of its suite's process."""
    for file in FILES:
        ray = yaml.safe_load(file.read_text("utf-8")).get("executor", {}).get("kind") == "ray"
        yield pytest.param(file, id=file.stem, marks=[pytest.mark.xdist_group("ray")] if ray else [])


@pytest.mark.parametrize("file", examples())
def test_an_example_runs(file: Path, tmp_path: Path) -> None:
    experiment = yaml.safe_load(file.read_text("utf-8"))
    kinds = {engine["kind"] for engine in experiment.get("engines", {}).values()}
    for kind in kinds & ELSEWHERE.keys():
        pytest.skip(f"{file.name} is run by {ELSEWHERE[kind]}")
    asked = ["run", str(file), "--out", str(tmp_path / "run"), "--limit", "2"]
    for name, spec in experiment["strategies"].items():
        if "n" in spec:
            asked += ["--set", f"strategies.{name}.n=2"]
    if experiment.get("grid", {}).get("n"):
        asked += ["--set", "grid.n=[2]"]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "run" / "report.html").exists()
    said = file.read_text("utf-8")
    assert f"metagen run examples/{file.name}" in said or "#" in said.splitlines()[0]
