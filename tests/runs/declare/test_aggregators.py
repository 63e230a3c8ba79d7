"""Aggregators in files: of `parallel`, and of searches."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from metagen.errors import ConfigError
from metagen.runs.declare import schema
from metagen.runs.declare.nested import name_of
from metagen.runs.directory import RunDirectory
from metagen.runs.work import build, runner
from metagen.strategies.aggregators import Best, Borda, Majority, MinimumBayesRisk
from metagen.strategies.parallel import Parallel
from metagen.strategies.tree.search import TreeSearch
from metagen.verifiers.numbers import NumberRule
from metagen.verifiers.text import TextRule

PRM = {"kind": "prm", "engine": "reward"}
FILE = """\
name: aggregated
task: {kind: arithmetic, split: validation, levels: [1], per_level: 2}
engines: {model: {kind: torch, model: tiny-0.1m}, reward: {kind: torch, model: tiny-prm}}
generators: {small: {engine: model, max_tokens: 40}}
verifiers: {whole: {kind: orm, engine: reward}}
strategies:
  pair: {kind: parallel, n: 2, aggregator: {kind: borda, verifier: {kind: prm, engine: reward}, power: 2}}
  texts: {kind: parallel, n: 2, aggregator: {kind: majority, answer: text}}
  risk: {kind: parallel, n: 2, aggregator: {kind: mbr, utility: {kind: edit}}}
  beam: {kind: beam, verifier: {kind: prm, engine: reward}, m: 2, n: 2, aggregator: {kind: best, verifier: whole}}
grid: {}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "aggregated.yaml"
    path.write_text(FILE, "utf-8")
    return path


def test_they_are_made_of_what_they_name(file: Path, tmp_path: Path) -> None:
    experiment = schema.load(file)
    with build.open_setup(experiment) as setup:
        made = {cell.strategy: setup.strategy(cell) for cell in setup.configurations}
        pair, texts, risk, beam = (made[name] for name in ("pair", "texts", "risk", "beam"))
        assert (
            isinstance(pair, Parallel) and isinstance(pair.aggregator, Borda) and pair.aggregator.power == 2
        )
        assert pair.aggregator.verifier is setup.verifiers[name_of(PRM)]
        assert isinstance(pair.aggregator.answer, NumberRule)
        assert isinstance(texts, Parallel) and isinstance(texts.aggregator, Majority)
        assert isinstance(texts.aggregator.answer, TextRule)
        assert isinstance(risk, Parallel) and isinstance(risk.aggregator, MinimumBayesRisk)
        assert isinstance(beam, TreeSearch) and isinstance(beam.aggregator, Best)
        assert beam.aggregator.verifier is setup.verifiers["whole"]
        state = runner.run(setup, RunDirectory.at(tmp_path / "run"))
    assert state.status == "complete" and not any(line.pooled for line in state.lines)
    rows = pq.read_table(tmp_path / "run" / "outcomes.parquet").to_pylist()
    assert {row["configuration"].partition("@")[0] for row in rows} == {
        "small/pair", "small/texts", "small/risk", "small/beam",
    }  # fmt: skip
    again = tmp_path / "again.yaml"
    again.write_text(schema.dump(experiment), "utf-8")
    assert schema.load(again) == experiment


@pytest.mark.parametrize(
    ("sets", "fault"),
    [
        ("strategies.pair.aggregator.kind=brda", r"strategies.pair.aggregator.*did you mean 'borda'"),
        (
            "strategies.pair.aggregator.power=-1",
            r"strategies.pair.aggregator.power = -1: expected a number ≥ 0",
        ),
        ("strategies.pair.aggregator.verifier.engin=1", r"strategies.pair.aggregator.verifier.engin"),
        ("strategies.texts.aggregator.answer=txt", r"strategies.texts.aggregator.answer = 'txt'.*'text'"),
    ],
)
def test_faults_have_their_places(sets: str, fault: str, file: Path) -> None:
    with pytest.raises(ConfigError, match=fault):
        schema.load(file, sets=[sets])
