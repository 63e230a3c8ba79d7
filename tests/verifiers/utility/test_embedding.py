"""Embeddings: cosines, records and charges, and the mean of hidden states of a real model."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from metagen.budget import Budget
from metagen.cost import ModelShape, prefill_flops
from metagen.errors import BudgetExhausted, InputError, ModelError
from metagen.generators.models import sources
from metagen.journal import MemoryJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.testing.generators import CountingJournal
from metagen.verifiers.utility.base import Matrix
from metagen.verifiers.utility.embedding import EmbeddingCosine, FunctionEmbedder

PLANE = {"east": [2, 0], "north": [0, 0.5], "west": [-3, 0], "north-east": [1, 1], "nowhere": [0, 0]}


def matrix(
    utility: EmbeddingCosine,
    texts: list[str],
    budget: Budget | None = None,
    journal: MemoryJournal | None = None,
) -> Matrix:
    async def main() -> Matrix:
        scope = Scope.root("p", budget=budget, journal=journal)
        candidates = [Sequence(Prompt("p", text="?"), text, finish="eos") for text in texts]
        return await utility.matrix(candidates, scope=scope)

    return asyncio.run(main())


def test_cosines_of_directions() -> None:
    calls: list[list[str]] = []

    def embed(texts: list[str]) -> list[list[float]]:
        calls.append(texts)
        return [PLANE[text] for text in texts]

    values = matrix(EmbeddingCosine(FunctionEmbedder(embed)), [*PLANE, "east"])
    half = 0.5**0.5
    expected = [[1, 0, -1, half, 0, 1], [0, 1, 0, half, 0, 0], [-1, 0, 1, -half, 0, -1],
                [half, half, -half, 1, 0, half], [0] * 6, [1, 0, -1, half, 0, 1]]  # fmt: skip
    assert np.allclose(values, expected, atol=1e-7)
    assert calls == [sorted(PLANE)], "each distinct text is embedded once, all in one call"


def test_embeddings_are_recorded_and_charged() -> None:
    async def embed(texts: list[str]) -> np.ndarray:
        return np.array([PLANE[text] for text in texts])

    journal, utility = CountingJournal(), EmbeddingCosine(FunctionEmbedder(embed))
    first = matrix(utility, ["east", "north"], journal=journal)
    again = matrix(utility, ["north", "east", "west"], journal=journal)
    assert journal.recorded == 3
    assert (again[:2, :2] == first[::-1, ::-1]).all()
    short = matrix(utility, ["east", "north", "west"], budget=Budget(calls=2))
    assert np.isnan(short).sum() == 5
    with pytest.raises(BudgetExhausted):
        matrix(utility, ["east"], budget=Budget(calls=0))


@pytest.mark.parametrize("wrong", [[[1.0]], [1.0, 2.0], [[1.0], [float("nan")]]])
def test_what_is_no_embedding_is_an_error(wrong: list[object]) -> None:
    with pytest.raises(InputError, match="an embedding of 2 texts has the shape"):
        matrix(EmbeddingCosine(FunctionEmbedder(lambda texts: wrong)), ["a", "b"])


def test_the_mean_of_hidden_states() -> None:
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    from transformers import AutoModel, AutoTokenizer

    from metagen.verifiers.utility.pooling import MeanPooling

    directory = Path(sources.resolve("tiny-0.1m"))
    texts = ["a=12+7=19\n", "a=1\n", "a=12+7=19\nb=19*3=57\nA:57\n"]
    embedder = MeanPooling(directory, batch=2)
    found = asyncio.run(embedder.embed(texts))
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModel.from_pretrained(directory, dtype=torch.float32).eval()
    for text, vector in zip(texts, found, strict=True):
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        with torch.inference_mode():
            alone = model(input_ids=ids).last_hidden_state[0].float().mean(0)
        assert np.allclose(vector, alone, atol=1e-4), "padding must not count"
    shape, tokens = ModelShape.from_config(directory), len(tokenizer(texts[0])["input_ids"])
    usage = embedder.usage(texts[0])
    assert (usage.prefilled, usage.flops) == (tokens, prefill_flops(shape, tokens, logits=0))
    values = matrix(EmbeddingCosine(embedder), texts)
    assert np.allclose(np.diag(values), 1) and (values[~np.eye(3, dtype=bool)] < 1).all()
    assert embedder.fingerprint != MeanPooling(directory, prefix="query: ").fingerprint
    with pytest.raises(ModelError, match="cannot load an embedding model"):
        MeanPooling(directory / "nothing")
    with pytest.raises(InputError, match="batch=0"):
        MeanPooling(directory, batch=0)


def test_texts_longer_than_the_places_of_a_roberta_are_cut(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra torch is not installed")
    from transformers import AutoTokenizer, RobertaConfig, RobertaModel

    from metagen.verifiers.utility.pooling import MeanPooling

    tokenizer = AutoTokenizer.from_pretrained(sources.resolve("tiny-0.1m"), model_max_length=16)
    tokenizer.save_pretrained(tmp_path)
    # Places are counted from behind the padding's, so that two of them are for no token.
    config = RobertaConfig(vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
                           intermediate_size=8, max_position_embeddings=18, pad_token_id=1)  # fmt: skip
    RobertaModel(config).save_pretrained(tmp_path)
    embedder = MeanPooling(tmp_path)
    (found,) = asyncio.run(embedder.embed(["12+7=19\n" * 9]))
    assert np.isfinite(found).all() and embedder.usage("12+7=19\n" * 9).prefilled == 16
