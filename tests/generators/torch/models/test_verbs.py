"""Whatever is opened, extended, forked, moved, cut and saved: a row's logits are those of its tokens read at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from metagen.generators.torch.models.combined import Combined
from metagen.generators.torch.models.guided import Guided as GuidedModel
from metagen.generators.torch.models.ids import FunctionModel, Windowed
from metagen.generators.torch.models.kgram import Counts, KGram
from metagen.generators.torch.models.language_model import LanguageModel
from metagen.generators.torch.models.llama import LlamaModel

V = 17
Make = Callable[[Callable[..., Path]], LanguageModel[Any]]


def mixed(ids: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Numbers that depend on all ids and their order."""
    return np.random.default_rng([len(ids), *ids]).normal(size=V)


def function(rows: int = 12, outputs: int = V) -> FunctionModel:
    return FunctionModel(outputs, lambda ids: mixed(ids)[:outputs], rows=rows)


def kgram() -> KGram:
    rng = np.random.default_rng(3)
    return KGram(Counts.of([rng.integers(0, V, 40) for _ in range(20)], vocab_size=V, k=3), 0.3, rows=12)


def llama(model_dir: Callable[..., Path], *, batch: int = 6, seed: int = 0) -> LlamaModel:
    directory = model_dir("llama", seed=seed)
    return LlamaModel(
        directory, dtype=torch.float32, device=torch.device("cpu"), batch=batch, kv_bytes=1 << 24
    )


def product(logits: Any) -> torch.Tensor:
    total: torch.Tensor = torch.stack([torch.log_softmax(z, -1) for z in logits]).sum(0)
    return total


MODELS: dict[str, Make] = {
    "function": lambda _: function(),
    "kgram": lambda _: kgram(),
    "windowed": lambda _: Windowed(function(rows=3), 4, rows=12),
    "combined": lambda _: Combined([function(), kgram()], product),
    "nested": lambda _: Combined([Combined([function(), kgram()], product), function()], product),
    "guided": lambda _: GuidedModel(
        function(), function(rows=17, outputs=2), value=lambda x: x[:, 1], weight=2.0, candidates=6
    ),
    "llamas": lambda make: Combined([llama(make), llama(make, seed=1)], product),
    "windowed llama": lambda make: Windowed(llama(make, batch=2), 5, rows=12),
    "guided llama": lambda make: GuidedModel(
        llama(make), llama(make, batch=12, seed=1), value=lambda x: x[:, 3], weight=1.0, candidates=4
    ),
}


@pytest.fixture(params=MODELS)
def make(request: pytest.FixtureRequest, model_dir: Any) -> Callable[[], LanguageModel[Any]]:
    return lambda: MODELS[request.param](model_dir)


def ints(*values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, np.int64)


def test_rows_read_what_they_hold(make: Callable[[], LanguageModel[Any]]) -> None:
    model, fresh = make(), make()
    assert model.vocab_size >= V
    rng = np.random.default_rng(0)
    held: dict[int, list[int]] = {}

    def draw(n: int) -> Any:
        return rng.integers(0, V, n)

    def check(logits: torch.Tensor, texts: list[list[int]]) -> None:
        assert logits.shape == (len(texts), model.vocab_size)
        for row, ids in zip(logits, texts, strict=True):
            fresh.open(ints(0), [])
            (want,) = fresh.extend(ints(0), np.array(ids), ints(len(ids)))
            fresh.close(ints(0))
            torch.testing.assert_close(row, want, atol=2e-4, rtol=1e-4)

    def extend(rows: list[int], counts: list[int]) -> None:
        """Ragged, with logits everywhere."""
        tokens = [draw(n).tolist() for n in counts]
        logits = model.extend(
            ints(*rows), np.concatenate(tokens).astype(np.int64), ints(*counts), np.arange(sum(counts))
        )
        texts = []
        for row, new in zip(rows, tokens, strict=True):
            texts += [held[row] + new[: i + 1] for i in range(len(new))]
            held[row] = held[row] + new
        check(logits, texts)

    model.open(ints(0, 1), [])
    held |= {0: [], 1: []}
    extend([0, 1], [7, 3])
    model.fork(ints(0, 0), ints(2, 3))
    held |= {2: held[0], 3: held[0]}
    extend([3, 1], [2, 5])
    model.truncate(3, 4)
    held[3] = held[3][:4]
    model.move(ints(1), ints(4))
    held[4] = held.pop(1)
    extend([4, 0, 3], [1, 1, 1])
    segment = model.save(4, 2, 7)
    assert len(segment) == 5
    head, tail = segment.split(2)
    model.open(ints(1), [model.save(4, 0, 2), head, tail])
    held[1] = held[4][:7]
    model.close(ints(2))
    extend([1, 3], [2, 2])
    model.truncate(1, 3)
    held[1] = held[1][:3]
    extend([1], [3])
    # One token each, of dense rows and of some that are not.
    model.close(ints(0, 1, 3, 4))
    model.open(ints(0, 1, 2), [])
    held |= {0: [], 1: [], 2: []}
    for rows in ([0, 1, 2], [0, 1, 2], [2, 0]):
        tokens = draw(len(rows))
        logits = model.extend(ints(*rows), tokens)
        for row, token in zip(rows, tokens.tolist(), strict=True):
            held[row] = [*held[row], token]
        check(logits, [held[row] for row in rows])


def test_no_logits_are_read_where_none_are_wanted(make: Callable[[], LanguageModel[Any]]) -> None:
    model = make()
    model.open(ints(0), [])
    assert len(model.extend(ints(0), ints(1, 2, 3), ints(3), ints())) == 0
    assert model.extend(ints(0), ints(4)).shape == (1, model.vocab_size)


def test_logits_of_one_model_that_are_no_numbers_are_seen_behind_any_mask() -> None:
    broken = FunctionModel(V, lambda ids: np.full(V, np.nan))
    model = Combined([function(), broken], lambda z: z[0])
    model.open(ints(0), [])
    assert model.extend(ints(0), ints(1)).isnan().all()


def test_hidden_states_are_those_of_the_first_model(model_dir: Any) -> None:
    whole, alone = Combined([llama(model_dir), llama(model_dir, seed=1)], product), llama(model_dir)
    for model in (whole, alone):
        model.keeps_hidden = True
        model.open(ints(0), [])
        model.extend(ints(0), ints(3, 1, 2), ints(3), ints(0, 2))
    assert whole.hidden is not None
    assert alone.hidden is not None
    assert whole.hidden.shape[0] == 2
    torch.testing.assert_close(whole.hidden, alone.hidden)
    assert not hasattr(Combined([kgram(), llama(model_dir)], product), "hidden")


@pytest.mark.parametrize("kind", ["windowed", "guided"])
def test_numbers_that_are_none_do_not_stay_in_rows_of_its_own(kind: str, model_dir: Any) -> None:
    """A token whose embedding is NaN breaks the text that it is in, or that it is tried in, and no later one."""

    def one() -> LanguageModel[Any]:
        if kind == "windowed":
            return Windowed(llama(model_dir, batch=2), 5, rows=2)
        # Token 5 is a candidate behind token 1 alone.
        base = FunctionModel(V, lambda ids: np.eye(V)[5] if ids[-1] == 1 else np.eye(V)[6], rows=2)
        return GuidedModel(base, llama(model_dir, batch=3), value=lambda x: x[:, 0], weight=1.0, candidates=1)

    def behind(model: LanguageModel[Any], *texts: list[int]) -> torch.Tensor:
        rows = np.arange(len(texts))
        model.open(rows, [])
        tokens, counts = np.concatenate(texts).astype(np.int64), np.array([len(text) for text in texts])
        logits = model.extend(rows, tokens, counts)
        model.close(rows, poisoned=bool(logits.isnan().any()))
        return logits

    model, sound = one(), one()
    inner = model.model if isinstance(model, Windowed) else model._scorer  # type: ignore[attr-defined]  # one of two
    inner._embedding[5] = torch.nan
    wrong = [3, 2, 3, 5] if kind == "windowed" else [3, 2, 3, 1]
    # Beside a longer text a shorter one has places that it does not read.
    texts = [2, 3, 2], [2, 3, 2, 4]
    for _ in range(4):
        assert behind(model, wrong, wrong).isnan().any()
        torch.testing.assert_close(behind(model, *texts), behind(sound, *texts))
