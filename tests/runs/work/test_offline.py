"""Engines that stay closed: they bear the fingerprints of the open ones, on other hardware too."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from metagen.cli import app
from metagen.cost import ModelShape
from metagen.errors import InputError, ModelError, UnsupportedError
from metagen.generators.models import describe, sources
from metagen.generators.torch.models.checkpoint import Weights
from metagen.runs.declare import registry, schema
from metagen.runs.declare.specs import Experiment
from metagen.runs.directory import RunDirectory
from metagen.runs.work import build, offline, runner, unfinished
from metagen.runs.work.makers import Makers

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
    with build.open_setup(schema.load(file)) as setup:
        state = runner.run(setup, directory)
        engines = {name: engine.fingerprint for name, engine in setup.engines.items()}
    assert Makers.of_run(directory).engines == engines
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


def test_shards_are_digested_in_the_order_of_their_names(tmp_path: Path) -> None:
    source = sources.resolve("tiny-0.1m")
    (weights,) = source.glob("*.safetensors")
    for name in ("b.safetensors", "a.safetensors", "stray.safetensors"):
        shutil.copy(weights, tmp_path / name)
    (tmp_path / "a.safetensors").write_bytes((sources.resolve("tiny-prm") / weights.name).read_bytes())
    index = {"weight_map": {"x": "b.safetensors", "y": "a.safetensors", "z": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    whole = hashlib.sha256()
    for name in ("a.safetensors", "b.safetensors"):
        whole.update(hashlib.sha256((tmp_path / name).read_bytes()).digest())
    assert describe.weights_digest(tmp_path) == whole.hexdigest()
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(ModelError, match=r"no b\.safetensors; copy the model whole"):
        describe.weights_digest(tmp_path)


def test_a_served_model_has_the_shape_that_the_file_gives(tmp_path: Path) -> None:
    """A budget in FLOPs can be kept without opening the engine, though nothing of the model but its shape lies here."""
    shape = sources.resolve("tiny-0.1m") / "config.json"
    file = tmp_path / "served.yaml"
    file.write_text(
        "name: served\ntask: {kind: arithmetic, split: test, limit: 2}\n"
        f"engines: {{far: {{kind: openai, model: m, base_url: 'http://127.0.0.1:9/v1', shape: {shape}}}}}\n"
        "generators: {far: {engine: far, max_tokens: 16}}\nstrategies: {one: {kind: majority, n: 2}}\n"
        "budget: {flops: 1.0e+12}\ngrid: {}\n"
    )
    with build.open_setup(offline.with_stand_ins(schema.load(file), fingerprints=False)) as setup:
        assert setup.engines["far"].shape == ModelShape.from_config(shape)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (
            "engines.writer.model={contrastive: {expert: tiny-0.5m, amateur: tiny-bpe}}",
            "engines.writer: 'tiny-0.5m' and 'tiny-bpe' have different vocabularies",
        ),
        (
            "engines.writer.model={ensemble: {models: [tiny-0.5m, {ensemble: {models: [tiny-0.1m, tiny-bpe]}}]}}",
            "'tiny-0.1m' and 'tiny-bpe' have different vocabularies",
        ),
        ("engines.writer.draft={model: tiny-bpe}", "have different vocabularies"),
        (
            "generators.writer.search={kind: beam, width: 500}",
            "generators.writer: beam search: width=500 is above",
        ),
        (
            "generators.writer.search={kind: constrained_beam, phrases: ['1234567890', 'abcdefghi']}",
            "need 19 tokens, and 16 are left of max_tokens; raise it by 3",
        ),
        (
            "generators.writer.search={kind: constrained_beam, phrases: [é]}",
            "the tokens cannot write the phrase 'é'",
        ),
        ("generators.writer.grammar={regex: '('}", "generators.writer: regex grammar '(': "),
        ("generators.writer.grammar={regex: é}", "tokens cannot write what it begins with"),
        ("generators.writer.banned=[é]", "banned: the tokens cannot write 'é'"),
        ("generators.writer.banned=[[200]]", "200 is no id of the vocabulary"),
    ],
)
def test_a_dry_run_finds_what_no_problem_would_make_good(tmp_path: Path, wrong: str, says: str) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY)
    asked = ["run", str(file), "--dry-run", "--set", wrong, "--set", "strategies.best={kind: sample}"]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 2 and says in " ".join(result.stderr.split()), result.stderr


def test_a_dry_run_knows_that_mirostat_goes_with_no_draft(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY)
    sets = ["engines.writer.draft={ngram: 3}", "generators.writer.mirostat={tau: 3}"]
    experiment = schema.load(file, sets=sets)
    with (
        pytest.raises(UnsupportedError, match=r"generators\.writer: .* has no mirostat.*leave out draft"),
        build.open_setup(offline.with_stand_ins(experiment, fingerprints=False)),
    ):
        pass


def test_what_a_run_has_noted_is_not_checked_again(tmp_path: Path) -> None:
    """A report of what ran does not fail by what is checked since."""
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY)
    search = "generators.writer.search={kind: beam, width: 500}"
    experiment = schema.load(file, sets=[search, "strategies.best={kind: sample}"])
    with build.open_setup(
        offline.with_stand_ins(experiment, fingerprints=False, noted={"writer": "a", "reader": "b"})
    ):
        pass
    with (
        pytest.raises(InputError, match="width=500"),
        build.open_setup(offline.with_stand_ins(experiment, fingerprints=False)),
    ):
        pass


def test_a_dry_run_of_plain_sampling_imports_neither_torch_nor_grammars(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY.replace("{kind: best_of_n, verifier: last}", "{kind: majority}"))
    code = (
        "import sys; from metagen.runs.declare import schema\n"
        "from metagen.runs.work.forecast.estimate import estimate\n"
        f"estimate(schema.load({str(file)!r})); print({{'torch', 'llguidance'}} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


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


SERVED = """\
name: served
task: {kind: arithmetic, split: test, limit: 1}
engines: {far: ENGINE}
generators: {far: {engine: far, max_tokens: 16, PARAMS}}
strategies: {one: {kind: sample}}
grid: {}
"""
#: No server: nothing answers there, and a dry run does not ask.
NOWHERE = "{kind: openai, model: m, base_url: 'http://127.0.0.1:9/v1', DIALECT}"
REFUSED = {
    "openai, dry": (NOWHERE, "dry: {}"),
    "openai, sequence_bias": (NOWHERE, "sequence_bias: [[no, -3]]"),
    "openai, healing": (NOWHERE, "healing: true"),
    "openai, min_p in the wrong dialect": (NOWHERE, "min_p: 0.1"),
    "openai, min_p with top_p": (NOWHERE.replace("DIALECT", "dialect: vllm"), "min_p: 0.1, top_p: 0.9"),
    "openai, a grammar that is not allowed": (NOWHERE, "grammar: {regex: a+}"),
    "openai, a grammar that the dialect lacks": (
        NOWHERE.replace("DIALECT", "structured_outputs: true"), "grammar: {regex: a+}",
    ),
    "openai, a bias of a text": (NOWHERE, "logit_bias: [[a, 2]]"),
    "openai, top_k in the wrong dialect": (NOWHERE, "top_k: 4"),
    "openai, a search": (NOWHERE, "search: {kind: beam}"),
    "torch, a search that is too wide": (
        "{kind: torch, model: tiny-0.1m, max_batch: 4}", "search: {kind: beam, width: 5}",
    ),
}  # fmt: skip


def written(tmp_path: Path, engine: str, params: str) -> Path:
    file = tmp_path / "served.yaml"
    file.write_text(SERVED.replace("ENGINE", engine.replace(", DIALECT", "")).replace("PARAMS", params))
    return file


SERVER = "kind: openai, model: far, base_url: 'http://127.0.0.1:9/v1', api: completions, dialect: vllm"
PLUGIN = "kind: 'benchmarks.kills.parts:Billed', ledger: unused"


@pytest.mark.parametrize(
    ("engine", "fits"),
    [(SERVER, False), (f"{SERVER}, tokenizer: tiny-0.5m", True), (PLUGIN, True)],
)
def test_steps_are_refused_where_there_will_be_no_ids(tmp_path: Path, engine: str, fits: bool) -> None:
    """Of an engine of another package nothing is known until it is open."""
    file = tmp_path / "far.yaml"
    file.write_text(
        "name: far\ntask: {kind: arithmetic, split: test, limit: 2}\n"
        f"engines: {{far: {{{engine}}}}}\ngenerators: {{far: {{engine: far, logprobs: true}}}}\n"
        "strategies: {online: {kind: deepconf, n: 20}}\ngrid: {}\n"
    )
    closed = offline.with_stand_ins(schema.load(file), fingerprints=False)
    refused = pytest.raises(UnsupportedError, match="writes independent samples in blocks")
    with nullcontext() if fits else refused, build.open_setup(closed):
        pass


def refusal(experiment: Experiment) -> str:
    """What it says, without the name that it has for the engine."""
    with pytest.raises(InputError) as caught, build.open_setup(experiment):
        pass
    return re.sub(
        r"(engines\.far|OpenAIEngine\([^)]*\)|VLLMEngine\([^)]*\)|RayPool\(.*\))", "ENGINE", str(caught.value)
    )


@pytest.mark.parametrize("case", REFUSED)
def test_a_dry_run_refuses_what_the_run_refuses_in_the_same_words(tmp_path: Path, case: str) -> None:
    file = written(tmp_path, *REFUSED[case])
    experiment = schema.load(file)
    said = refusal(experiment)
    assert refusal(offline.with_stand_ins(experiment, fingerprints=False)) == said
    dry = CliRunner().invoke(app, ["run", str(file), "--dry-run"])
    assert dry.exit_code == 2 and "generators.far" in dry.stderr, dry.output


def test_a_dry_run_takes_what_a_server_of_that_dialect_has(tmp_path: Path) -> None:
    engine = NOWHERE.replace("DIALECT", "dialect: vllm, structured_outputs: true, api_key_env: NOT_SET_HERE")
    file = written(tmp_path, engine, "min_p: 0.1, top_k: 4, grammar: {regex: a+}, logit_bias: [[3, 2]]")
    dry = CliRunner().invoke(app, ["run", str(file), "--dry-run"])
    assert dry.exit_code == 0, dry.output


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ("dry: {}", "has no dry, and dry=Dry("),
        ("xtc: {}", "has no xtc"),
        ("healing: true", "heals no prompts"),
        ("temperature: 3", "temperature=3.0: vLLM takes 0"),
        ("min_p: 0.1, top_p: 0.9", "vLLM cuts by min_p first"),
        ("grammar: {regex: a+}", "cannot hold completions to a grammar"),
        ("logit_bias: [[9999, 1]]", "9999 is no id of the vocabulary"),
        ("search: {kind: beam}", "runs no beam search"),
    ],
)
def test_a_dry_run_knows_what_vllm_refuses_without_vllm_or_torch(
    tmp_path: Path, params: str, says: str
) -> None:
    """Its own engine refuses the same, by the same declaration (`tests/generators/vllm`)."""
    file = written(tmp_path, "{kind: vllm, model: tiny-0.5m}", params)
    code = (
        "import sys; from metagen.runs.declare import schema\n"
        "from metagen.runs.work.forecast.estimate import estimate\n"
        "try:\n"
        f"    estimate(schema.load({str(file)!r}))\n"
        "except Exception as error:\n"
        "    print(error)\n"
        "print({'torch', 'vllm'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told, modules = done.stdout.strip().splitlines()
    assert told.startswith("generators.far: ") and says in told and modules == "set()"


def test_an_engine_in_a_pool_of_ray_actors_is_asked_too(tmp_path: Path) -> None:
    file = written(tmp_path, NOWHERE, "dry: {}")
    dry = CliRunner().invoke(
        app, ["run", str(file), "--dry-run", "--set", "executor={kind: ray, replicas: 2}"]
    )
    assert dry.exit_code == 2 and "has no dry" in dry.stderr, dry.output


def test_what_declares_for_a_kind_is_a_base_of_what_makes_it() -> None:
    for section, kind in registry.DECLARED:
        declared, made = registry.declaration(section, kind), registry.find(section, kind)
        assert issubclass(made, declared)
        assert getattr(made, "declares", None) is getattr(declared, "declares", None)
