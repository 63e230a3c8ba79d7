"""A toy experiment and a toy study of sums, made of parts that another package would bring."""

from collections.abc import Callable
from pathlib import Path

import pytest

TOY = Path(__file__).parent.parent / "experiments" / "toy"
EXPERIMENT = """\
name: sums
seed: 3
task: {{kind: "metagen_toy:ToyTask", count: {count}}}
generators:
  small: {{kind: "metagen_toy:generator", skill: 0.5, name: small}}
  large: {{kind: "metagen_toy:generator", skill: 0.75, name: large}}
verifiers:
  judge: {{kind: "metagen_toy:verifier"}}
  weak: {{kind: "metagen_toy:verifier", quality: 0.2, name: weak}}
  oracle: {{kind: oracle}}
strategies:
  single: {{kind: sample}}
  majority: {{kind: majority}}
  best: {{kind: best_of_n, verifier: judge}}
  weighted: {{kind: weighted, verifier: judge}}
  pass: {{kind: best_of_n, verifier: oracle}}
  soft: {{kind: soft_best_of_n, verifier: judge, beta: 0.2, n: [2, 4]}}
grid: {{n: {n}}}
executor: {{concurrency: 3}}
"""
STUDY = """\
study:
  budgets: {samples: [2, 8]}
  development:
    task: {seed: 70, count: 4, label: dev}
    trials: 2
    n: 4
    settings:
      majority: [{}, {generator.skill: 0.9}]
      best: [{}, {verifier: weak}]
      soft: [{}, {beta: 1.0}]
  limit: {n: 16, seed: 1}
  temperature: {models: [small], values: [0.5, 1.0], n: 4, task: {seed: 71, count: 3, label: warm}}
  splitting: {models: [small], aggregate: weighted, critiques: {1: weak, 2: judge}, n: [1, 2, 4]}
"""


@pytest.fixture
def experiment_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes the toy experiment; more lines of YAML may be appended."""
    monkeypatch.syspath_prepend(str(TOY))

    def write(*, count: int = 6, n: str = "[1, 2, 8]", more: str = "") -> Path:
        path = tmp_path / "sums.yaml"
        path.write_text(EXPERIMENT.format(count=count, n=n) + more)
        return path

    return write


@pytest.fixture
def study_file(experiment_file: Callable[..., Path]) -> Callable[..., Path]:
    """Writes the toy study: other models and strategies may be set as in `metagen study --set`."""

    def write(*, count: int = 6, n: str = "[1, 2, 8]", study: str = STUDY) -> Path:
        return experiment_file(count=count, n=n, more=study)

    return write


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Samples that generators have really made so far, as `generator problem index`."""
    log = tmp_path / "calls.log"
    monkeypatch.setenv("TOY_LOG", str(log))
    return lambda: log.read_text().splitlines() if log.exists() else []
