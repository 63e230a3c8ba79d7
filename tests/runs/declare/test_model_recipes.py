"""Recipes in experiment files: read, checked, written, and run."""

from __future__ import annotations

from pathlib import Path

import pytest

from metagen.errors import ConfigError
from metagen.generators.models.recipes import (
    Contrastive,
    Ensemble,
    Experts,
    Guided,
    ProxyTuned,
    Recipe,
    Tilted,
)
from metagen.generators.models.sources import resolve
from metagen.runs.declare import schema
from metagen.runs.declare.specs import LocalSpec
from metagen.runs.work import build, offline

FILE = """
name: recipes
task: {{kind: arithmetic, split: validation, levels: [1], per_level: 2}}
engines:
  pair: {{kind: {kind}, model: {model}}}
generators: {{pair: {{kind: engine, engine: pair, max_tokens: 40}}}}
strategies: {{single: {{kind: sample}}}}
seed: 1
"""


def load(tmp_path: Path, model: str, kind: str = "torch") -> schema.Experiment:
    file = tmp_path / "recipes.yaml"
    file.write_text(FILE.format(model=model, kind=kind), encoding="utf-8")
    return schema.load(file)


def recipe(experiment: schema.Experiment) -> Recipe:
    spec = experiment.engines["pair"]
    assert isinstance(spec, LocalSpec)
    found: Recipe = spec.options()["model"]
    return found


RECIPES: dict[str, Recipe] = {
    "{contrastive: {expert: tiny-2m, amateur: tiny-0.1m, alpha: 0.2, beta: 1, window: 8, sure: 0.9}}": Contrastive(
        "tiny-2m", "tiny-0.1m", alpha=0.2, beta=1, window=8, sure=0.9
    ),
    "{experts: {base: tiny-2m, anti: tiny-0.1m, alpha: -1}}": Experts("tiny-2m", anti="tiny-0.1m", alpha=-1),
    "{proxy_tuned: {large: tiny-2m, tuned: tiny-0.5m, untuned: tiny-0.1m}}": ProxyTuned(
        "tiny-2m", "tiny-0.5m", "tiny-0.1m"
    ),
    "{ensemble: {models: [tiny-2m, tiny-0.1m], how: product, weights: [1, 0.5]}}": Ensemble(
        ("tiny-2m", "tiny-0.1m"), "product", (1, 0.5)
    ),
    "{tilted: {base: tiny-2m, values: [tiny-0.1m], weights: [2], reading: sigmoid}}": Tilted(
        "tiny-2m", ("tiny-0.1m",), (2,), "sigmoid"
    ),
    "{guided: {base: tiny-2m, scorer: tiny-prm, weight: 3, candidates: 5, output: 1, reading: raw}}": Guided(
        "tiny-2m", "tiny-prm", 3, 5, 1, "raw"
    ),
    "{guided: {base: tiny-2m, scorer: tiny-prm, candidates: all}}": Guided(
        "tiny-2m", "tiny-prm", candidates=None
    ),
    "{ensemble: {models: [tiny-2m, {experts: {base: tiny-2m, expert: {ensemble: {models: [tiny-0.5m]}}}}]}}": Ensemble(
        ("tiny-2m", Experts("tiny-2m", Ensemble(("tiny-0.5m",))))
    ),
}


@pytest.mark.parametrize("text", RECIPES)
def test_recipes_are_read_and_written(text: str, tmp_path: Path) -> None:
    experiment = load(tmp_path, text)
    assert recipe(experiment) == RECIPES[text]
    copy = tmp_path / "elsewhere" / "copy.yaml"
    copy.parent.mkdir()
    copy.write_text(schema.dump(experiment), encoding="utf-8")
    assert schema.load(copy) == experiment


def test_directories_of_parts_begin_at_the_file(tmp_path: Path) -> None:
    (tmp_path / "models").symlink_to(resolve("tiny-0.1m").parent)
    found = recipe(load(tmp_path, "{contrastive: {expert: tiny-2m, amateur: models/tiny-0.1m}}"))
    assert found.parts == ("tiny-2m", str(resolve("tiny-0.1m").resolve()))


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        (
            "5",
            "engines.pair.model = 5: expected a model directory, or the name of an embedded model, or a mapping with",
        ),
        ("{}", "expected one of contrastive, experts, proxy_tuned, ensemble, tilted, guided; there are none"),
        (
            "{contrastve: {}}",
            "engines.pair.model.contrastve = {}: no such field; .* did you mean 'contrastive'?",
        ),
        (
            "{contrastive: {expert: tiny-2m}}",
            "model.contrastive.amateur: missing; expected a model directory, or",
        ),
        (
            "{contrastive: {expert: tiny-2m, amateur: tiny-0.9m}}",
            "engines.pair.model.contrastive.amateur = 'tiny-0.9m': there is no such file or directory",
        ),
        (
            "{contrastive: {expert: tiny-2m, amateur: tiny-0.1m, alpha: 2}}",
            r"engines.pair.model.contrastive.alpha = 2: expected a number in \(0, 1\]",
        ),
        (
            "{contrastive: {expert: tiny-2m, amateur: tiny-0.1m, gamma: 2}}",
            "model.contrastive.gamma = 2: no such field; expected one of expert, amateur, alpha, temperature",
        ),
        ("{experts: {base: tiny-2m}}", "model.experts = .*: expected an expert, an anti-expert, or both"),
        (
            "{ensemble: {models: [tiny-2m, {contrastive: {expert: tiny-2m, amateur: tiny-1m}}]}}",
            "model.ensemble.models.1.contrastive.amateur = 'tiny-1m': there is no such file or directory",
        ),
        (
            "{guided: {base: tiny-2m, scorer: tiny-prm, candidates: null}}",
            "model.guided.candidates = .*: expected an integer ≥ 1, or all",
        ),
        ("{ensemble: {models: tiny-2m}}", "model.ensemble.models = 'tiny-2m': expected a list"),
        (
            "{ensemble: {models: [tiny-2m, tiny-0.1m], weights: [1]}}",
            "expected 2 numbers > 0, one of each model",
        ),
    ],
)
def test_faults_have_their_places(model: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=fault) as found:
        load(tmp_path, model)
    assert "recipes.yaml:5: " in str(found.value)


def test_vllm_takes_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"engines.pair.model = .*: expected a model directory"):
        load(tmp_path, "{contrastive: {expert: tiny-2m, amateur: tiny-0.1m}}", "vllm")


def test_a_stand_in_counts_and_is_called_as_the_engine(tmp_path: Path) -> None:
    experiment = load(tmp_path, "{contrastive: {expert: tiny-0.5m, amateur: tiny-0.1m}}")
    closed = offline.with_stand_ins(experiment, fingerprints=True)
    with build.open_setup(experiment, cores=1) as there, build.open_setup(closed) as here:
        engine, stand_in = there.engines["pair"], here.engines["pair"]
        assert stand_in.tokenizer_fingerprint == engine.tokenizer_fingerprint
        assert stand_in.shape is not None
        assert engine.shape is not None
        assert stand_in.shape.parameters == engine.shape.parameters
        assert stand_in.fingerprint == engine.fingerprint
