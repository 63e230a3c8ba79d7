"""k-gram models: counts by hand, files, and the engine over them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from metagen.errors import DataError, InputError, ModelError
from metagen.generators.engine import EvaluateRequest, GenerateRequest, SamplingParams
from metagen.generators.models.recipes import Ensemble
from metagen.generators.torch import TorchEngine
from metagen.generators.torch.models.kgram import Counts, KGram, train
from metagen.sequence import Sequence

LINES = ["a=12+7=19\nA:19\n", "a=12-7=5\nA:5\n", "b=3*4=12\nA:12\n"] * 3


def after(model: KGram, *ids: int) -> list[float]:
    """Probabilities behind ids."""
    model.open(np.array([0]), [])
    logits = model.extend(np.array([0]), np.array(ids), np.array([len(ids)]))
    return torch.exp(logits[0].double()).tolist()


def test_the_textbook_example() -> None:
    """{I drink coffee $} with V = 7 and c = 1 gives p(I) = 2/11."""
    model = KGram(Counts.of([np.array([0, 1, 2, 3])], vocab_size=7, k=1), 1.0)
    assert after(model, 5) == pytest.approx([2 / 11] * 4 + [1 / 11] * 3)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_counts_are_those_of_counting(k: int) -> None:
    rng = np.random.default_rng(k)
    v, c = 6, 0.25
    texts = [rng.integers(0, v, rng.integers(1, 9)) for _ in range(30)]
    model = KGram(Counts.of(texts, vocab_size=v, k=k), c)
    seen: Counter[tuple[tuple[int, ...], int]] = Counter()
    for text in texts:
        padded = [-1] * (k - 1) + text.tolist()
        seen.update((tuple(padded[i : i + k - 1]), padded[i + k - 1]) for i in range(len(text)))
    for _ in range(200):
        ids = rng.integers(0, v, rng.integers(1, 7)).tolist()
        context = tuple(([-1] * k + ids)[len(ids) + 1 :]) if k > 1 else ()
        counts = [seen[context, x] for x in range(v)]
        want = [(n + c) / (sum(counts) + c * v) for n in counts]
        assert after(model, *ids) == pytest.approx(want, rel=1e-5)


def test_a_long_context_in_a_large_vocabulary_is_found() -> None:
    """Keys stay small: a context of 7 tokens of 200,000 would fit no integer of 64 bits."""
    v, text = 200_000, np.arange(199_980, 200_000)
    model = KGram(Counts.of([text], vocab_size=v, k=8), 1e-6)
    found = after(model, *range(199_985, 199_993))
    assert int(np.argmax(found)) == 199_993
    assert max(found) == pytest.approx(1 / (1 + 0.2), rel=1e-4)


def test_trained_saved_and_run(tmp_path: Path) -> None:
    directory = train(LINES, tmp_path / "counts", tokenizer="tiny-2m", k=7, constant=1e-6)
    assert json.loads((directory / "config.json").read_text())["model_type"] == "kgram"
    with TorchEngine(directory, threads=1, max_batch=4) as engine, TorchEngine("tiny-2m", threads=1) as llama:
        assert engine.tokenizer_fingerprint == llama.tokenizer_fingerprint
        assert engine.shape is None
        begun = GenerateRequest(Sequence.of("a=1"), tuple(range(20)), SamplingParams(), 40)
        samples = asyncio.run(engine.generate(begun)).samples
        assert {s.text for s in samples} <= {"2+7=19\nA:19\n", "2-7=5\nA:5\n"}
        assert {s.finish for s in samples} == {"eos"}
        assert len({s.text for s in samples}) == 2
        ids = engine.render(Sequence.of("a=12"))
        request = EvaluateRequest(ids, (len(ids) - 1,), engine.encode("+-=*"))
        (answer,) = asyncio.run(engine.evaluate([request]))
        assert np.exp(answer.values[0]) == pytest.approx([1 / 2, 1 / 2, 0, 0], abs=1e-4)
    again = train(LINES, tmp_path / "again", tokenizer="tiny-2m", k=7, constant=1e-6)
    other = train(LINES[:2], tmp_path / "other", tokenizer="tiny-2m", k=7, constant=1e-6)
    with TorchEngine(again, threads=1) as same, TorchEngine(other, threads=1) as new:
        assert same.fingerprint == engine.fingerprint != new.fingerprint


def test_beside_a_llama_only_the_llama_costs(tmp_path: Path) -> None:
    directory = train(LINES, tmp_path / "counts", tokenizer="tiny-0.1m", k=3)
    with TorchEngine("tiny-0.1m", threads=1) as alone:
        for order in ((directory, "tiny-0.1m"), ("tiny-0.1m", directory)):
            with TorchEngine(Ensemble(order), threads=1) as engine:
                assert engine.shape == alone.shape


def test_faults_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="at least one text"):
        train([], tmp_path / "none", tokenizer="tiny-2m")
    with pytest.raises(InputError, match=r"constant=0\.0: expected a number > 0"):
        train(LINES, tmp_path / "none", tokenizer="tiny-2m", constant=0.0)
    with pytest.raises(InputError, match="k=0: expected an integer ≥ 1"):
        train(LINES, tmp_path / "none", tokenizer="tiny-2m", k=0)
    assert not (tmp_path / "none").exists()
    directory = train(LINES, tmp_path / "counts", tokenizer="tiny-2m", k=3)
    (directory / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="holds no counts of a 3-gram model"):
        TorchEngine(directory)
    config = directory / "config.json"
    config.write_text(config.read_text().replace('"k": 3', '"k": 0'))
    with pytest.raises(ModelError, match="k=0"):
        TorchEngine(directory)
