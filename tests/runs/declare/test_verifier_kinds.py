"""Judges, tournaments, ensembles and calibrated verifiers in an experiment: made, run, estimated, and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from metagen.cli import app
from metagen.errors import ConfigError
from metagen.runs.declare import schema
from metagen.runs.work import build
from metagen.verifiers.calibrated import Calibrated
from metagen.verifiers.ensemble import Ensemble
from metagen.verifiers.generative.pairwise import Tournament

TAGS = "labels: {'<+>': 1, '<->': 0}, cue: '<step>', join: '', chat: false"
FILE = f"""\
name: kinds
task: {{kind: arithmetic, split: validation, levels: [1], per_level: 3}}
engines: {{model: {{kind: torch, model: tiny-0.1m}}, reward: {{kind: torch, model: tiny-prm}}}}
generators: {{small: {{engine: model, max_tokens: 40}}}}
verifiers:
  both: {{kind: ensemble, members: [prm, judge], combine: worst}}
  prm: {{kind: prm, engine: reward, aggregation: last}}
  judge: {{kind: judge, engine: reward, template: '{{task}}{{candidate}}', {TAGS}}}
  duel: {{kind: tournament, engine: reward, strengths: bradley_terry, template: '{{task}}{{first}}{{second}}', {TAGS}}}
  cool: {{kind: calibrated, verifier: both, temperature: 2.0}}
strategies:
  worst: {{kind: best_of_n, verifier: both}}
  cooled: {{kind: weighted, verifier: cool}}
  duels: {{kind: best_of_n, verifier: duel}}
grid: {{n: [1, 4]}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kinds.yaml"
    path.write_text(FILE, "utf-8")
    return path


def test_verifiers_are_made_after_their_members_and_only_if_they_are_needed(file: Path) -> None:
    with build.open_setup(schema.load(file)) as setup:
        assert list(setup.verifiers) == ["both", "duel", "cool"]
        both, cool, duel = (setup.verifiers[name] for name in ("both", "cool", "duel"))
        assert isinstance(both, Ensemble) and [m.name for m in both.members] == ["prm", "judge"]
        assert isinstance(cool, Calibrated) and cool.verifier is both
        assert isinstance(duel, Tournament)
    with build.open_setup(schema.load(file, sets=["grid.strategies=[duels]"])) as setup:
        assert list(setup.verifiers) == ["duel"]


def test_they_run_and_their_scores_are_those_of_their_members(file: Path, tmp_path: Path) -> None:
    asked = ["run", str(file), "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    rows = pq.read_table(tmp_path / "run" / "candidates.parquet").to_pylist()
    assert len(rows) == 3 * 4
    for row in rows:
        assert 0.0 <= row["score.both"] <= 1.0 and "score.duel" not in row
        # A temperature above 1 draws scores towards one half.
        assert abs(row["score.cool"] - 0.5) <= abs(row["score.both"] - 0.5)
    # Whoever compares is asked about the candidates of one configuration at a time.
    duels = pq.read_table(tmp_path / "run" / "attempts.parquet").to_pylist()
    assert {row["configuration"] for row in duels} == {"small/duels@4"}
    assert all(0.0 <= row["score.duel"] <= 1.0 for row in duels)


def test_an_estimate_counts_the_members_and_says_what_it_cannot_count(file: Path) -> None:
    result = CliRunner().invoke(app, ["run", str(file), "--dry-run", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert "judge: what it asks is not known before it runs" in result.output
    assert "prm" in json.dumps(found)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("members: [prm, judge]", "members: [prm, cool]", "verifiers.both.members: 'both' is made of itself"),
        ("verifier: both, temp", "verifier: cool, temp", "verifiers.cool.verifier: 'cool' is made of itself"),
        ("members: [prm, judge]", "members: [prm, jugde]", "did you mean 'judge'"),
        ("combine: worst", "combine: wurst", "verifiers.both.combine = 'wurst'"),
        ("temperature: 2.0", "temperature: 0", "verifiers.cool.temperature = 0: expected a number > 0"),
        ("strengths: bradley_terry", "strengths: elo", "verifiers.duel.strengths = 'elo'"),
        ("kind: judge, engine: reward", "kind: judge, engine: rewart", "did you mean 'reward'"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(old: str, new: str, message: str, file: Path) -> None:
    file.write_text(FILE.replace(old, new), "utf-8")
    with pytest.raises(ConfigError) as error:
        schema.load(file)
    assert message in str(error.value) and "kinds.yaml:" in str(error.value)
