"""Heads that score, against transformers and torch; and what a model with such a head refuses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from metagen.errors import InputError, ModelError, UnsupportedError
from metagen.generators.engine import EvaluateRequest, GenerateRequest, SamplingParams
from metagen.generators.torch import TorchEngine
from metagen.sequence import Sequence
from tests.generators.torch.scored_models import (
    TRANSFORMERS,
    Reference,
    make_language_model,
    make_mlp,
    make_transformers,
    make_value_head,
    save_tokenizer,
)

KINDS = (*TRANSFORMERS, "process MLP", "reward MLP", "value head", "value head beside a language head")


def make(path: Path, kind: str) -> tuple[Reference, int]:
    """A directory of that kind; its reference, and how many numbers its head gives."""
    if kind in TRANSFORMERS:
        return make_transformers(path, kind), TRANSFORMERS[kind][2]
    if kind.endswith("MLP"):
        outputs = 2 if kind == "process MLP" else 1
        return make_mlp(path, outputs), outputs
    # TRL saves the value head beside the model that it was put on, under that model's architecture.
    return make_value_head(path, "Qwen2ForPrmModel" if kind == "value head" else "Qwen2ForCausalLM"), 1


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_those_of_the_reference_however_they_are_asked_for(kind: str, tmp_path: Path) -> None:
    reference, outputs = make(tmp_path, kind)
    ids = tuple(torch.randint(5, 300, (120,), generator=torch.Generator().manual_seed(1)).tolist())
    want = reference(ids)
    with TorchEngine(tmp_path, threads=1, max_batch=4) as engine:
        requests = [
            EvaluateRequest(ids[:80], (79, 3, 40), outputs=True),
            EvaluateRequest(ids, (119, 100), outputs=True),
        ]
        first, second = asyncio.run(engine.evaluate(requests))
    assert {len(row) for row in (*first.values, *second.values)} == {outputs}
    found = torch.tensor([*first.values, *second.values])
    torch.testing.assert_close(found, want[[79, 3, 40, 119, 100]], atol=1e-4, rtol=1e-4)
    # The second continues the first, and reads it from the cache.
    assert (second.prefilled, second.cached) == (40, 80)


def test_a_model_that_scores_refuses_to_generate_and_to_give_log_probabilities(tmp_path: Path) -> None:
    make_value_head(tmp_path)
    with TorchEngine(tmp_path, threads=1, max_batch=4) as engine:
        request = GenerateRequest(Sequence.of("x"), (1,), SamplingParams(), 5)
        with pytest.raises(UnsupportedError, match=r"does not generate: its head 'v_head\.summary' gives 1"):
            asyncio.run(engine.generate(request))
        with pytest.raises(UnsupportedError, match="does not generate"):
            engine.generator(temperature=1.0)
        for labels in (None, (5,)):
            with pytest.raises(UnsupportedError, match=r"no log-probabilities.*outputs=True"):
                asyncio.run(engine.evaluate([EvaluateRequest((5, 6), (0,), labels)]))
        with pytest.raises(InputError, match=r"labels=\(5,\) with outputs=True"):
            asyncio.run(engine.evaluate([EvaluateRequest((5, 6), (0,), (5,), outputs=True)]))
        (found,) = asyncio.run(engine.evaluate([EvaluateRequest((5, 6), (1,), outputs=True)]))
        assert len(found.values) == 1, "the last token is followed by none, and scored all the same"


def test_a_language_model_has_no_outputs_that_score(tmp_path: Path) -> None:
    make_language_model(tmp_path, save_tokenizer(tmp_path))
    with (
        TorchEngine(tmp_path, threads=1, max_batch=4) as engine,
        pytest.raises(UnsupportedError, match="is a language model and has no outputs that score"),
    ):
        asyncio.run(engine.evaluate([EvaluateRequest((5, 6), (0,), outputs=True)]))


def test_heads_that_do_not_fit_the_config(tmp_path: Path) -> None:
    make_mlp(tmp_path, 2)
    weights = load_file(tmp_path / "model.safetensors")

    def rewritten(**changes: torch.Tensor | None) -> None:
        kept = {name: t for name, t in {**weights, **changes}.items() if t is not None}
        save_file(kept, tmp_path / "model.safetensors", {"format": "pt"})

    rewritten(**{name: None for name in weights if name.startswith("score.")})
    with pytest.raises(ModelError, match=r"Qwen2ForProcessRewardModel has a head that scores.*score\.weight"):
        TorchEngine(tmp_path)
    rewritten(**{"score.0.weight": None})
    with pytest.raises(ModelError, match=r"lack 'score\.0\.weight' of shape \(48, 48\)"):
        TorchEngine(tmp_path)
    rewritten(**{"score.2.weight": torch.zeros(2, 47)})
    with pytest.raises(ModelError, match=r"'score\.2\.weight' has shape \(2, 47\)"):
        TorchEngine(tmp_path)
    rewritten(**{"score.1.weight": torch.zeros(2, 48)})
    with pytest.raises(ModelError, match=r"no place for the weights \['score\.1\.weight'\]"):
        TorchEngine(tmp_path)
    rewritten()
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": "Qwen2"}))
    with pytest.raises(ModelError, match="architectures='Qwen2', expected a list"):
        TorchEngine(tmp_path)
