"""Drafts in experiment files: read, checked, written, and run."""

from __future__ import annotations

from pathlib import Path

import pytest

from metagen.errors import ConfigError
from metagen.generators.decoding.draft import Draft
from metagen.generators.models.recipes import Ensemble
from metagen.generators.models.sources import resolve
from metagen.runs.declare import schema
from metagen.runs.declare.specs import LocalSpec
from metagen.runs.work import build, offline

FILE = """
name: drafts
task: {{kind: arithmetic, split: validation, levels: [1], per_level: 2}}
engines:
  large: {{kind: torch, model: tiny-0.5m, max_batch: 4, draft: {draft}}}
generators: {{large: {{kind: engine, engine: large, max_tokens: 60}}}}
strategies: {{single: {{kind: sample}}}}
seed: 1
"""


def load(tmp_path: Path, draft: str) -> schema.Experiment:
    file = tmp_path / "drafts.yaml"
    file.write_text(FILE.format(draft=draft), encoding="utf-8")
    return schema.load(file)


DRAFTS = {
    "{model: tiny-0.1m}": Draft(resolve("tiny-0.1m")),
    "{model: tiny-0.1m, tokens: 6, verify: token, adapt: true}": Draft(
        resolve("tiny-0.1m"), 6, "token", adapt=True
    ),
    "{model: tiny-0.1m, drafts: 2}": Draft(resolve("tiny-0.1m"), drafts=2),
    "{model: {ensemble: {models: [tiny-0.1m]}}}": Draft(Ensemble(("tiny-0.1m",))),
    "{ngram: 3, tokens: 8}": Draft.lookup(),
}


@pytest.mark.parametrize("text", DRAFTS)
def test_drafts_are_read_and_written(text: str, tmp_path: Path) -> None:
    experiment = load(tmp_path, text)
    spec = experiment.engines["large"]
    assert isinstance(spec, LocalSpec)
    assert spec.options()["draft"] == DRAFTS[text]
    copy = tmp_path / "copy.yaml"
    copy.write_text(schema.dump(experiment), encoding="utf-8")
    assert schema.load(copy) == experiment


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        ("{tokens: 4}", "give one of them"),
        ("{model: tiny-0.1m, ngram: 3}", "give one of them"),
        ("{model: tiny-0.1m, tokens: 0}", "draft.tokens = 0: expected an integer ≥ 1"),
        ("{model: tiny-0.1m, drafts: 65}", "draft.drafts = 65: expected an integer from 1 to 64"),
        ("{model: tiny-0.1m, drafts: 2, verify: block}", "leave verify out"),
        ("{model: tiny-0.2m}", "there is no such file or directory"),
        ("{model: tiny-0.1m, token: 3}", "did you mean 'tokens'"),
    ],
)
def test_what_is_wrong_is_named(draft: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, draft)
    assert said in str(error.value) and "drafts.yaml" in str(error.value)


@pytest.mark.parametrize("draft", ["{model: tiny-0.1m, tokens: 3}", "{ngram: 2}"])
def test_a_closed_engine_has_the_fingerprint_and_shape_of_the_open_one(draft: str, tmp_path: Path) -> None:
    experiment = load(tmp_path, draft)
    closed = offline.with_stand_ins(experiment, fingerprints=True)
    with build.open_setup(experiment, cores=1) as there, build.open_setup(closed) as here:
        engine, stand_in = there.engines["large"], here.engines["large"]
        assert stand_in.fingerprint == engine.fingerprint
        assert stand_in.shape is not None and engine.shape is not None
        assert stand_in.shape.parameters == engine.shape.parameters
