"""`rehearsal:` says what is otherwise in a small run of the same file; `--rehearse` runs that."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from metagen.cli import app
from metagen.errors import ConfigError
from metagen.runs.declare import schema, study_schema

FILE = """
name: large
task: {kind: arithmetic, split: test, per_level: 84}
engines:
  model: {kind: torch, model: no-such-model, max_batch: 256}
  prm: {kind: torch, model: tiny-prm}
generators:
  model: {engine: model, temperature: 0.8, max_tokens: 64}
verifiers:
  prm: {kind: prm, engine: prm}
strategies:
  majority: {kind: majority}
  weighted: {kind: weighted, verifier: prm}
grid: {n: [1, 64, 256]}
budget: {generated: 100000}
rehearsal:
  task: {kind: arithmetic, per_level: 1, levels: [1, 2]}
  engines:
    model: {kind: torch, model: tiny-0.1m}
  strategies: {weighted: null}
  grid: {n: [1, 2]}
  budget: null
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "large.yaml"
    path.write_text(FILE)
    return path


def test_what_is_otherwise_is_laid_over_the_file(file: Path) -> None:
    found = schema.load(file, rehearse=True)
    assert found.name == "large-rehearsal"
    assert found.task.model_dump(exclude_unset=True)["per_level"] == 1
    assert "split" not in found.task.model_fields_set, (
        "a mapping with a kind takes the place of what is there"
    )
    assert "max_batch" not in found.engines["model"].model_fields_set
    assert found.generators["model"].params.max_tokens == 64, "what is not named stays"
    assert list(found.strategies) == ["majority"]
    assert found.grid.n == (1, 2) or list(found.grid.n) == [1, 2]
    assert found.budget is None


def test_without_it_the_file_is_what_it_says(file: Path) -> None:
    with pytest.raises(ConfigError, match="no-such-model"):
        schema.load(file)
    file.write_text(FILE.replace("no-such-model", "tiny-0.5m"))
    found = schema.load(file)
    assert (found.name, found.grid.n[-1]) == ("large", 256)


def test_options_go_before_it(file: Path) -> None:
    found = schema.load(file, rehearse=True, sets=["grid.n=[4]", "name=mine"], limit=1)
    assert (found.name, list(found.grid.n), found.task.limit) == ("mine", [4], 1)


def test_faults_are_placed_where_the_section_has_them(file: Path) -> None:
    file.write_text(FILE.replace("grid: {n: [1, 2]}", "grid: {n: [0]}"))
    line = next(i for i, text in enumerate(file.read_text().splitlines(), 1) if "n: [0]" in text)
    with pytest.raises(ConfigError, match=rf"large\.yaml:{line}: rehearsal\.grid\.n"):
        schema.load(file, rehearse=True)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("budget: null", "allocation: null", "rehearsal.allocation: there is nothing to leave out"),
        ("rehearsal:\n", "rehearsal: 3\nother:\n", "expected a mapping"),
        ("rehearsal:\n", "x:\n", "there is no section rehearsal"),
    ],
)
def test_a_section_that_says_nothing_sensible_is_refused(file: Path, old: str, new: str, said: str) -> None:
    file.write_text(FILE.replace(old, new))
    with pytest.raises(ConfigError, match=said):
        schema.load(file, rehearse=True)


def test_a_study_has_one_too(file: Path) -> None:
    section = (
        "  study: {budgets: {flops: [1.0e+8]}}\nstudy: {baselines: false, budgets: {flops: [1.0e+15]}}\n"
    )
    file.write_text(FILE + section)
    study = study_schema.load(file, rehearse=True)
    assert study.spec.model_dump(mode="json")["budgets"] == {"flops": [1e8]}
    assert not study.spec.baselines and study.experiment.name == "large-rehearsal"


def test_the_command_runs_it_and_the_run_can_be_gone_on_with(file: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["run", str(file), "--rehearse", "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    kept = yaml.safe_load((tmp_path / "run" / "experiment.yaml").read_text())
    assert kept["name"] == "large-rehearsal" and "rehearsal" not in kept
    assert CliRunner().invoke(app, ["resume", str(tmp_path / "run")]).exit_code == 0
    estimated = CliRunner().invoke(app, ["run", str(file), "--rehearse", "--dry-run"])
    assert estimated.exit_code == 0, estimated.output
