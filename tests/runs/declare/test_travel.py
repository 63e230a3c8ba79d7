"""Experiments go to other processes as they are: drivers of shards are given them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from ray import cloudpickle

from metagen.runs.declare import schema

ROOT = Path(__file__).parents[3]
RECIPE = """
name: recipe
task: {kind: arithmetic, per_level: 1}
engines:
  model: {kind: torch, model: {contrastive: {expert: tiny-2m, amateur: tiny-0.5m}}, draft: {model: tiny-0.1m}}
generators: {one: {engine: model}}
strategies: {vote: {kind: majority}}
grid: {n: [2]}
"""


def files(tmp_path: Path) -> list[Path]:
    own = tmp_path / "recipe.yaml"
    own.write_text(RECIPE)
    examples = sorted((ROOT / "examples").glob("*.yaml"))
    return [own, *(path for path in examples if "\nstudy:" not in path.read_text("utf-8"))]


@pytest.mark.parametrize("library", [pickle, cloudpickle], ids=["pickle", "cloudpickle"])
def test_every_example_arrives_as_it_left(tmp_path: Path, library: object) -> None:
    for file in files(tmp_path):
        experiment = schema.load(file)
        sent = library.dumps(experiment)  # type: ignore[attr-defined]
        assert library.loads(sent) == experiment, file.name  # type: ignore[attr-defined]
        assert len(sent) < 30_000, "no class travels with it"
