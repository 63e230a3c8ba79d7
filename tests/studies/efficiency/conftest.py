"""A small run of embedded models with its table of calls, made once."""

from pathlib import Path

import pytest

from metagen.experiments import build, runner, schema
from metagen.experiments.directory import RunDirectory

YAML = """\
name: small
seed: 0
task: {kind: arithmetic, split: test, seed: 0, levels: [1, 3], per_level: 2}
engines:
  small: {kind: torch, model: tiny-0.1m, device: cpu}
  prm: {kind: torch, model: tiny-prm, device: cpu}
  critic: {kind: torch, model: tiny-critic, device: cpu}
generators:
  mid: {engine: small, temperature: 1.0, max_tokens: 80}
verifiers:
  last: {kind: prm, engine: prm, aggregation: last}
  critic: {kind: judge, engine: critic, critiques: 2}
strategies:
  majority: {kind: majority}
  weighted: {kind: weighted, verifier: last}
  judged: {kind: weighted, verifier: critic}
  adaptive: {kind: adaptive_consistency, n: 4, batch: 2}
  rebase: {kind: rebase, verifier: last, n: 4}
  blockwise: {kind: blockwise, verifier: last, n: 2}
  mcts: {kind: mcts, verifier: last, n: 3}
grid: {n: [1, 2, 4]}
executor: {concurrency: 4}
"""


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Four problems of two levels."""
    folder = tmp_path_factory.mktemp("small")
    file: Path = folder / "small.yaml"
    file.write_text(YAML)
    directory = RunDirectory.at(folder / "run")
    with build.opened(schema.load(file)) as setup:
        assert runner.run(setup, directory, calls=True).status == "complete"
    return directory
