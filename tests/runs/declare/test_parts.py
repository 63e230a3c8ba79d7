"""What the parts of an experiment are made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from metagen.runs.declare import schema
from metagen.runs.declare.parts import definitions_of, of_cells
from metagen.runs.declare.specs import SECTIONS, Experiment

FILE = """\
name: parts
task: {kind: arithmetic, levels: [1], per_level: 2}
engines:
  small: {kind: torch, model: tiny-0.1m}
  prm: {kind: torch, model: tiny-prm}
generators:
  small: {engine: small, max_tokens: 8}
verifiers:
  both: {kind: ensemble, members: [prm, bound]}
  prm: {kind: prm, engine: prm}
  bound: {kind: oracle}
strategies:
  best: {kind: best_of_n, verifier: both, n: 2, over: vote}
  vote: {kind: majority, n: 3}
  single: {kind: sample}
grid: {generators: [small], strategies: [best, single]}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    path = tmp_path / "parts.yaml"
    path.write_text(FILE, "utf-8")
    return schema.load(path)


def test_whatever_a_part_names_stands_before_it(experiment: Experiment) -> None:
    order = list(made := definitions_of(experiment, *of_cells(experiment.grid.cells)))
    for place, part in enumerate(order):
        for section in SECTIONS:
            assert all((section, name) in order[:place] for name in made[part].names_in(section))
    assert {name for _, name in order} == {"small", "prm", "bound", "both", "vote", "best", "single"}


def test_a_part_by_itself_brings_nothing_else(experiment: Experiment) -> None:
    assert list(definitions_of(experiment, *of_cells([("small", "single")]))) == [
        ("engines", "small"), ("generators", "small"), ("strategies", "single"),
    ]  # fmt: skip
    assert definitions_of(experiment, ("strategies", "vote")) == {
        ("strategies", "vote"): experiment.strategies["vote"]
    }
