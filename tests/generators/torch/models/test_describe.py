"""What is told of a model before it is loaded is what its engine says; costs of several models are sums."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from metagen.cost import (
    Beside,
    Hardware,
    ModelShape,
    decode_flops,
    flops_2n,
    prefill_flops,
    roofline_seconds,
    token_flops,
)
from metagen.errors import InputError
from metagen.generators.decoding.draft import Draft
from metagen.generators.models.describe import drafted_shape, fingerprint_of, shape_of, tokenizer_of
from metagen.generators.models.recipes import Contrastive, Ensemble, Function, Model, Table, Tilted
from metagen.generators.torch import TorchEngine
from metagen.generators.torch.models.kgram import train

SMALL = ModelShape(layers=2, width=8, heads=2, kv_heads=1, head_dim=4, ff=16, vocab=11, dtype_bytes=4)
LARGE = ModelShape(layers=3, width=16, heads=4, kv_heads=2, head_dim=4, ff=40, vocab=11, dtype_bytes=4)
CARD = Hardware("card", 1e9, 1e8)

MODELS: dict[str, Callable[[Path], Model]] = {
    "embedded": lambda _: "tiny-0.1m",
    "counts": lambda path: train(["a=1\n"], path / "counts", tokenizer="tiny-0.1m", k=2),
    "contrastive": lambda _: Contrastive("tiny-0.5m", "tiny-0.1m", window=5),
    "nested": lambda _: Ensemble(("tiny-0.1m", Contrastive("tiny-0.5m", "tiny-0.1m"))),
    "tilted": lambda _: Tilted("tiny-0.1m", (Function("tiny-0.1m", lambda ids: [0.0], "v"),), (1.0,)),
    "table": lambda _: Table(("a", "$"), lambda prompt, done: [0.5, 0.5], "t"),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_told_before_loading_is_what_the_engine_says(name: str, tmp_path: Path) -> None:
    model = MODELS[name](tmp_path)
    engine = TorchEngine(model, threads=1, max_batch=2, dtype="float32")
    assert fingerprint_of(model, "torch.float32") == engine.fingerprint
    assert shape_of(model, 4) == engine.shape
    assert tokenizer_of(model).fingerprint == engine.tokenizer_fingerprint
    assert tokenizer_of(model).vocab_size == engine._tokenizer.vocab_size


def test_models_side_by_side_cost_their_sum() -> None:
    both = replace(LARGE, beside=(Beside(SMALL),))
    for cost in (
        lambda s: s.parameters,
        lambda s: s.parameters_total,
        lambda s: s.kv_bytes_per_token,
        lambda s: flops_2n(s, 9),
        lambda s: token_flops(s, 12),
        lambda s: prefill_flops(s, 20, 4, 3),
        lambda s: decode_flops(s, 6, 20),
    ):
        assert cost(both) == cost(LARGE) + cost(SMALL)
    nested = replace(LARGE, beside=(Beside(both),))
    assert nested.parameters == 2 * LARGE.parameters + SMALL.parameters
    assert roofline_seconds(both, CARD, 8, 4, 8) > roofline_seconds(LARGE, CARD, 8, 4, 8)


def test_a_window_is_read_for_each_set_of_logits() -> None:
    windowed = replace(LARGE, beside=(Beside(SMALL, window=5),))
    assert prefill_flops(windowed, 20, 4) - prefill_flops(LARGE, 20, 4) == prefill_flops(SMALL, 5)
    assert decode_flops(windowed, 4, 20) - decode_flops(LARGE, 4, 20) == 3 * prefill_flops(SMALL, 5)
    # It keeps no state, and is never longer than the text.
    assert windowed.kv_bytes_per_token == LARGE.kv_bytes_per_token
    assert prefill_flops(windowed, 3) - prefill_flops(LARGE, 3) == prefill_flops(SMALL, 3)
    assert windowed.parameters == LARGE.parameters + 5 * SMALL.parameters
    assert windowed.parameters_total == LARGE.parameters_total + SMALL.parameters_total


def test_candidates_are_tried_behind_each_place_with_logits() -> None:
    tried = replace(LARGE, beside=(Beside(SMALL, tries=7),))
    each = token_flops(SMALL, 21, logits=False)
    assert (
        prefill_flops(tried, 20) - prefill_flops(LARGE, 20) == prefill_flops(SMALL, 20, logits=0) + 7 * each
    )
    assert tried.parameters == LARGE.parameters + 8 * SMALL.parameters


def test_memory_is_shared_by_the_bytes_of_a_token() -> None:
    """All models of a recipe hold about as many tokens, and together no more than was given."""
    given = 64 << 20
    with TorchEngine(
        Contrastive("tiny-0.5m", "tiny-0.1m"), threads=1, max_batch=4, kv_memory_bytes=given
    ) as engine:
        sizes = [model.segment_tokens for model in engine._model.models]  # type: ignore[attr-defined]  # a Combined
        assert engine._tree.capacity == min(sizes)
        assert max(sizes) - min(sizes) <= 1
        assert engine._tree.capacity * engine._model.token_bytes < given
    with pytest.raises(InputError, match=r"kv_memory_bytes=.*rows at once need at least"):
        TorchEngine(Contrastive("tiny-0.5m", "tiny-0.1m"), threads=1, kv_memory_bytes=1 << 16)


def test_where_sizes_are_not_read_flops_are_unknown(tmp_path: Path) -> None:
    """Of the model, of a recipe with such a part, and of a model whose draft is one."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "brand-new", "vocab_size": 9}))
    assert shape_of(tmp_path) is None
    assert shape_of(Contrastive("tiny-0.5m", tmp_path)) is None
    assert shape_of(Contrastive("tiny-0.5m", "tiny-0.1m")) is not None
    assert drafted_shape("tiny-0.5m", Draft(tmp_path)) is None
