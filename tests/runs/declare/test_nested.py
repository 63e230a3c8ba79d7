"""Verifiers that are defined where a name is expected: in strategies, in steps of chains, and in other verifiers."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from metagen.cli import app
from metagen.errors import ConfigError
from metagen.runs.declare import schema
from metagen.runs.declare.editor import json_schema
from metagen.runs.declare.nested import name_of
from metagen.runs.work import build

FILE = """\
name: nested
task: {kind: arithmetic, split: validation, levels: [1], per_level: 2}
engines: {model: {kind: torch, model: tiny-0.1m}, reward: {kind: torch, model: tiny-prm}}
generators: {small: {engine: model, max_tokens: 40}}
verifiers:
  cool: {kind: calibrated, verifier: {kind: prm, engine: reward, aggregation: mean}, temperature: 2.0}
strategies:
  best: {kind: best_of_n, verifier: {kind: prm, engine: reward}}
  voted: {kind: weighted, verifier: {kind: ensemble, members: [cool, {engine: reward, kind: prm}]}}
  checked:
    kind: chain
    steps:
      say: {kind: ask, template: '{prompt}'}
      check: {kind: verify, of: say, verifier: {kind: prm, engine: reward, aggregation: min}}
    output: say
grid: {n: [2]}
"""
PRM = name_of({"kind": "prm", "engine": "reward"})
MEAN, LEAST = (name_of({"kind": "prm", "engine": "reward", "aggregation": how}) for how in ("mean", "min"))
BOTH = name_of({"kind": "ensemble", "members": ["cool", PRM]})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "nested.yaml"
    path.write_text(FILE, "utf-8")
    return path


def test_a_definition_has_the_same_name_wherever_it_stands(file: Path, tmp_path: Path) -> None:
    experiment = schema.load(file)
    assert set(experiment.verifiers) == {"cool", PRM, MEAN, LEAST, BOTH}
    assert PRM == "prm-9cbeee", "names stand in the tables and journals of runs"
    named = {name: spec.names_in("verifiers") for name, spec in experiment.strategies.items()}
    assert named == {"best": (PRM,), "voted": (BOTH,), "checked": (LEAST,)}
    assert experiment.verifiers[BOTH].names_in("verifiers") == ("cool", PRM)
    # What a run writes down names them all.
    again = tmp_path / "again.yaml"
    again.write_text(schema.dump(experiment), "utf-8")
    assert schema.load(again) == experiment


def test_they_are_made_estimated_and_run_like_those_with_names(file: Path, tmp_path: Path) -> None:
    with build.open_setup(schema.load(file)) as setup:
        assert set(setup.verifiers) == {PRM, LEAST, BOTH}
        assert setup.verifiers[BOTH].members[1].fingerprint == setup.verifiers[PRM].fingerprint
    estimate = CliRunner().invoke(app, ["run", str(file), "--dry-run", "--json"])
    assert estimate.exit_code == 0 and PRM in estimate.output, estimate.output
    result = CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    rows = pq.read_table(tmp_path / "run" / "candidates.parquet").to_pylist()
    assert rows and all(0 <= row[f"score.{name}"] <= 1 for row in rows for name in (PRM, BOTH))
    makers = json.loads((tmp_path / "run" / "environment.json").read_text("utf-8"))["makers"]
    assert any(PRM in name for name in makers.values())


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        (
            "engine: reward}}\n  voted",
            "engine: rewart}}\n  voted",
            8,
            "strategies.best.verifier.engine = 'rewart': expected one of the engines model, reward; did you mean",
        ),
        (
            "aggregation: mean",
            "aggregate: mean",
            6,
            "verifiers.cool.verifier.aggregate = 'mean': no such field",
        ),
        (
            "aggregation: min",
            "aggregation: max",
            14,
            "steps.check.verifier.aggregation = 'max': expected one of",
        ),
        (
            "[cool, {engine",
            "[cool, {kinds: x, engine",
            9,
            "voted.verifier.members.1.kinds = 'x': no such field",
        ),
        (
            "kind: prm, engine: reward}}\n  v",
            "kinds: prm}}\n  v",
            8,
            "strategies.best.verifier.kind: missing",
        ),
        ("kind: prm, engine: reward}}\n  v", "kind: prm, engine: model}}\n  v", 8, "is no reward model"),
        (
            "verifier: {kind: prm, engine: reward}}\n  v",
            "verifier: 7}\n  v",
            8,
            "expected the name of a verifier, or",
        ),
    ],
)
def test_faults_have_the_place_at_which_they_were_written(
    file: Path, old: str, new: str, line: int, message: str
) -> None:
    assert FILE.count(old) == 1
    file.write_text(FILE.replace(old, new), "utf-8")
    with pytest.raises(ConfigError) as error:
        schema.load(file)
    assert f"nested.yaml:{line}: " in str(error.value) and message in str(error.value)


def test_a_part_of_a_definition_may_be_set(file: Path) -> None:
    least = schema.load(file, sets=["strategies.best.verifier.aggregation=min"])
    assert least.strategies["best"].names_in("verifiers") == (LEAST,)


def test_editors_complete_a_definition_where_a_name_may_stand() -> None:
    found = json.dumps(json_schema())
    assert '{"$ref": "#/$defs/verifiers"}' in found and "x-defined" not in found
