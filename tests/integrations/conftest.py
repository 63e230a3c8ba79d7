"""A directory in which the command line runs an experiment of the toy task."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOY = ROOT / "tests" / "runs" / "toy"
YAML = """\
name: sums
task: {kind: "metagen_toy:ToyTask", count: 8}
generators:
  toy: {kind: "metagen_toy:generator", skill: 0.7}
verifiers:
  judge: {kind: "metagen_toy:verifier"}
strategies:
  single: {kind: sample}
  adaptive: {kind: adaptive_consistency, n: 4, batch: 2}
  majority: {kind: majority}
  weighted: {kind: weighted, verifier: judge}
grid: {n: [1, 2, 8]}
executor: {concurrency: 2}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with `sums.yaml`."""
    (tmp_path / "sums.yaml").write_text(YAML)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(TOY))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TOY), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return tmp_path


@pytest.fixture
def study_file(place: Path) -> Path:
    """A small study of it."""
    path = place / "study.yaml"
    kept = YAML.replace("[1, 2, 8]", "[1, 4]").replace("count: 8", "count: 6")
    path.write_text(kept + "study:\n  budgets: {samples: [2]}\n  limit: {n: 16, seed: 1}\n")
    return path
