"""Every experiment file in examples/ runs, on one problem of each kind and few candidates."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from metagen.cli import app

FILES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_example_runs(file: Path, tmp_path: Path) -> None:
    experiment = yaml.safe_load(file.read_text("utf-8"))
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
