"""Engines that stay closed: they bear the fingerprints of the open ones, on other hardware too."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from metagen.cli import app
from metagen.cost import ModelShape
from metagen.errors import InputError, ModelError
from metagen.experiments import build, offline, runner, schema, unfinished
from metagen.experiments.directory import RunDirectory
from metagen.experiments.makers import Makers
from metagen.generators import tiny
from metagen.generators.models import describe
from metagen.generators.torch.checkpoint import Weights

TINY = """\
name: tiny
task: {kind: arithmetic, split: test, limit: 2}
engines:
  writer: {kind: torch, model: tiny-0.1m}
  reader: {kind: torch, model: tiny-prm, device: cpu}
generators: {writer: {kind: engine, engine: writer, max_tokens: 16}}
verifiers: {last: {kind: prm, engine: reader, aggregation: last}}
strategies: {best: {kind: best_of_n, verifier: last}}
grid: {n: [2]}
executor: {concurrency: 2}
"""


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run on a machine without a GPU that has all records and no end, on a machine that has one."""
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY)
    directory = RunDirectory.at(tmp_path / "run")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with build.opened(schema.load(file)) as setup:
        state = runner.run(setup, directory)
        engines = {name: engine.fingerprint for name, engine in setup.engines.items()}
    assert Makers.recorded(directory).engines == engines
    directory.save(replace(state, status="running"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return directory


def test_a_run_of_other_hardware_is_reported(stopped: RunDirectory) -> None:
    with unfinished.tables(stopped) as (_, state):
        assert state.samples == 4


def test_without_notes_this_machine_is_asked(stopped: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    known = json.loads(stopped.environment.read_text())
    stopped.environment.write_text(json.dumps({"versions": known["versions"]}))
    with pytest.raises(InputError, match="has not finished any part"), unfinished.tables(stopped):
        pass
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    # The weights' files are read, and no tensor is made of them.
    monkeypatch.setattr(Weights, "__init__", lambda *_: pytest.fail("the weights were loaded"))
    with unfinished.tables(stopped) as (_, state):
        assert state.samples == 4


def test_shards_are_digested_as_the_engine_does(tmp_path: Path) -> None:
    source = tiny.resolve("tiny-0.1m")
    (weights,) = source.glob("*.safetensors")
    for name in ("b.safetensors", "a.safetensors", "stray.safetensors"):
        shutil.copy(weights, tmp_path / name)
    (tmp_path / "a.safetensors").write_bytes((tiny.resolve("tiny-prm") / weights.name).read_bytes())
    index = {"weight_map": {"x": "b.safetensors", "y": "a.safetensors", "z": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert describe.weights_digest(tmp_path) == Weights(tmp_path, torch.float32, torch.device("cpu")).digest()
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(ModelError, match=r"no b\.safetensors; copy the model whole"):
        describe.weights_digest(tmp_path)


def test_a_served_model_has_the_shape_that_the_file_gives(tmp_path: Path) -> None:
    """A budget in FLOPs can be kept without opening the engine, though nothing of the model but its shape lies here."""
    shape = tiny.resolve("tiny-0.1m") / "config.json"
    file = tmp_path / "served.yaml"
    file.write_text(
        "name: served\ntask: {kind: arithmetic, split: test, limit: 2}\n"
        f"engines: {{far: {{kind: openai, model: m, base_url: 'http://127.0.0.1:9/v1', shape: {shape}}}}}\n"
        "generators: {far: {engine: far, max_tokens: 16}}\nstrategies: {one: {kind: majority, n: 2}}\n"
        "budget: {flops: 1.0e+12}\ngrid: {}\n"
    )
    with build.opened(offline.closed(schema.load(file), fingerprints=False)) as setup:
        assert setup.engines["far"].shape == ModelShape.from_config(shape)


@pytest.mark.parametrize(
    "way", ["search={kind: beam}", "min_p=0.1", "grammar={regex: '[a-z]+', close: true}"]
)
def test_a_dry_run_takes_whatever_way_of_decoding_its_engines_take(tmp_path: Path, way: str) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY)
    sets = [f"generators.writer.{way}", "strategies.best={kind: sample}"]
    asked = [word for one in sets for word in ("--set", one)]
    result = CliRunner().invoke(app, ["run", str(file), "--dry-run", *asked])
    assert result.exit_code == 0, result.output
