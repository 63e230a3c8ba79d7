"""A study whose strategies define their verifiers in place of names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from metagen.errors import ConfigError
from metagen.runs import study as run
from metagen.runs.declare import study_schema as schema
from metagen.runs.declare.nested import name_of
from metagen.runs.directory import StudyDirectory

OWN = {"kind": "metagen_toy:verifier", "quality": 0.4, "name": "own"}
NAME = name_of(OWN)
STUDY = """\
study:
  budgets: {samples: [2]}
  development:
    task: {seed: 70, count: 3, label: dev}
    trials: 3
    n: 2
    settings:
      best: [{}, {verifier: weak}]
      weighted: [{}, {verifier: NAME}]
  limit: {n: 4, seed: 1}
  splitting: {models: [small], critiques: {1: weak, 2: NAME}, n: [1, 2]}
""".replace("NAME", NAME)


@pytest.fixture
def file(study_file: Callable[..., Path]) -> Path:
    path = study_file(study=STUDY, n="[1, 2]", count=3)
    text = path.read_text("utf-8")
    named = "best: {kind: best_of_n, verifier: judge}"
    assert named in text
    path.write_text(text.replace(named, f"best: {{kind: best_of_n, verifier: {json.dumps(OWN)}}}"), "utf-8")
    return path


def test_it_is_read_and_written(file: Path, tmp_path: Path) -> None:
    study = schema.load(file)
    assert study.experiment.strategies["best"].names_in("verifiers") == (NAME,)
    again = tmp_path / "again.yaml"
    again.write_text(schema.dump(study), "utf-8")
    assert schema.load(again).experiment == study.experiment


def test_it_runs_in_every_role(file: Path, tmp_path: Path) -> None:
    root = tmp_path / "study"
    result = run.run(schema.load(file), root)
    best = [curve for curve in result.curves if curve.strategy == "best"]
    assert {curve.model for curve in best} == {"small", "large"}
    tried = (root / "study.yaml").read_text("utf-8")
    assert f"verifier: {NAME}" in tried and f"  {NAME}:" in tried
    again = run.collect_results(StudyDirectory(root), schema.load(root / "study.yaml"))
    assert [curve.accuracy.tolist() for curve in again.curves] == [c.accuracy.tolist() for c in result.curves]


def test_a_fault_within_has_its_place(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"strategies.best.verifier.qualty"):
        schema.load(file, sets=["strategies.best.verifier.qualty=1"])
