"""The engine on a device that is not there: nothing lies on the wrong one, and the CPU waits once a step."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from metagen.generators.decoding.adapters import XTC, Dry, Mirostat
from metagen.generators.decoding.draft import Draft
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.search import (
    BeamSearch,
    ConstrainedBeamSearch,
    ContrastiveSearch,
    DiverseBeamSearch,
    StochasticBeamSearch,
)
from metagen.generators.engine import Engine, EvaluateRequest, GenerateRequest, SamplingParams
from metagen.generators.local import key_value_bytes
from metagen.generators.models.describe import shape_of
from metagen.generators.models.recipes import Contrastive, Ensemble, Experts, Guided, Tilted
from metagen.generators.torch import TorchEngine
from metagen.generators.torch.adapted import AdaptedEngine
from metagen.generators.torch.kv import slots
from metagen.generators.torch.kv.chains import FEW, Chains
from metagen.generators.torch.kv.segments import KVLayout, KVSegment
from metagen.generators.torch.kv.store import KVStore, store_tokens
from metagen.generators.torch.models.llama import _capacities
from metagen.generators.torch.models.loading import memory_for
from metagen.generators.torch.send import send
from metagen.sequence import Prompt, Sequence
from metagen.testing import EngineLaws
from tests.generators.torch.far import CUDA, Elsewhere, Far, FarEngine
from tests.generators.torch.lora_adapters import make_adapter
from tests.generators.torch.scored_models import make_language_model, make_value_head, save_tokenizer

PROMPTS = ("Q:12+7", "Q:a=12+7;b=a*3;b?\nS:\na=12+7=19\nb=19*3=")
#: Each operation of the device that is not there takes its time, however small.
TOKENS = 14


def ask(engine: TorchEngine, seeds: int = 4, **params: Any) -> list[list[tuple[int, ...] | None]]:
    """Ids of the samples of each prompt, all asked at once."""
    chosen = SamplingParams(max_tokens=TOKENS, **params)
    requests = [
        GenerateRequest(
            Sequence(Prompt(str(i), text=text)),
            tuple(range(seeds)),
            chosen,
            TOKENS,
            ranks=tuple(range(seeds)),
        )
        for i, text in enumerate(PROMPTS)
    ]

    async def together() -> list[Any]:
        return list(await asyncio.gather(*map(engine.generate, requests)))

    return [[sample.ids for sample in answer.samples] for answer in asyncio.run(together())]


def compare(params: dict[str, Any], model: Any = "tiny-0.1m", seeds: int = 4, **options: Any) -> None:
    """The samples are those of a CPU."""
    with (
        FarEngine(model, threads=1, **options) as far,
        TorchEngine(model, threads=1, device="cpu", **options) as near,
    ):
        assert ask(far, seeds, **params) == ask(near, seeds, **params)


#: Decoding that looks at logits, at what came before, and at what a grammar allows.
DECODING: dict[str, dict[str, Any]] = {
    "plain": {},
    "greedy": {"temperature": 0.0},
    "cold": {"temperature": 0.3, "top_k": 5, "top_p": 0.9, "min_tokens_to_keep": 2},
    "cuts": {"min_p": 0.02, "typical_p": 0.95, "eta_cutoff": 1e-3, "epsilon_cutoff": 1e-4, "top_logprobs": 3},
    "more cuts": {"top_n_sigma": 2.0, "top_h": 0.9, "xtc": XTC(0.5, 0.1)},
    "mirostat": {"mirostat": Mirostat(3.0, 0.1)},
    "penalties": {"repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.2},
    "bans": {"no_repeat_ngram": 4, "banned": ((5,), (6, 7)), "min_tokens": 4, "logit_bias": {3: -2.0}},
    "sequences": {"sequence_bias": {(3, 4): 1.0}, "dry": Dry(breakers=())},
    "grammar": {"grammar": Grammar.regex(r"[0-9a-f]{1,8}=[0-9]{1,3}\n"), "log_mass": True},
    "healing": {"healing": True},
}
SEARCHES = {
    "beam": BeamSearch(3),
    "diverse beam": DiverseBeamSearch(4, groups=2),
    "constrained beam": ConstrainedBeamSearch(3, phrases=("=", "1")),
    "stochastic beam": StochasticBeamSearch(4),
    "contrastive": ContrastiveSearch(3),
}
MODELS: dict[str, Any] = {
    "contrastive": Contrastive("tiny-0.5m", "tiny-0.1m"),
    "contrastive with a window": Contrastive("tiny-0.5m", "tiny-0.1m", window=16),
    "experts": Experts("tiny-0.5m", expert="tiny-2m", anti="tiny-0.1m"),
    "ensemble": Ensemble(("tiny-0.5m", "tiny-0.1m"), how="product"),
    "tilted": Tilted("tiny-0.5m", ("tiny-0.1m",), (0.1,)),
}


class TestLaws(EngineLaws):
    """All that an engine promises."""

    prompts = (
        "Q:a=81/9;b=a+7;b?\nS:\na=81/9=",
        "Q:a=12+7;b=a*3;b?\nS:\na=12+7=19\nb=19*3=",
        "Q:a=5",
        "Q:",
    )
    flips = 0.02
    most = 32
    many = 400

    def make(self) -> Engine:
        return FarEngine("tiny-0.1m", threads=1)


@pytest.mark.parametrize("name", DECODING)
def test_samples_are_those_of_a_cpu(name: str) -> None:
    compare(DECODING[name], "tiny-bpe" if name == "healing" else "tiny-0.1m")


def test_rows_of_adapters_are_those_of_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAGEN_CACHE", str(tmp_path / "cache"))
    writes, scores = (
        make_adapter(tmp_path / str(outputs), "tiny-0.1m", 1, outputs=outputs) for outputs in (None, 2)
    )

    def found(engine: TorchEngine, solver: AdaptedEngine, judge: AdaptedEngine) -> tuple[Any, ...]:
        ids = engine.encode(PROMPTS[1])

        async def together() -> list[Any]:
            asked = [
                GenerateRequest(Sequence.of(text), (0, 1, 2), SamplingParams(), TOKENS) for text in PROMPTS
            ]
            calls = [one.generate(request) for one in (engine, solver) for request in asked]
            read = judge.evaluate([EvaluateRequest(ids, tuple(range(len(ids))), outputs=True)])
            return list(await asyncio.gather(*calls, read))

        *drawn, (read,) = asyncio.run(together())
        return [[sample.ids for sample in answer.samples] for answer in drawn], read.values

    far, near = FarEngine("tiny-0.1m", threads=1), TorchEngine("tiny-0.1m", threads=1, device="cpu")
    with far.elsewhere:
        views = [far.adapted(path) for path in (writes, scores)]
    with far, near:
        samples, values = found(far, *views)
        expected, near_values = found(near, near.adapted(writes), near.adapted(scores))
    assert samples == expected
    np.testing.assert_allclose(values, near_values, atol=1e-3)


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_find_what_they_find_on_a_cpu(name: str) -> None:
    seeds = 1 if name == "contrastive" else 3
    compare({"search": SEARCHES[name]}, seeds=seeds)


@pytest.mark.parametrize(
    "draft",
    [
        Draft("tiny-0.1m"),
        Draft("tiny-0.1m", verify="token", adapt=True),
        Draft("tiny-0.1m", drafts=3),
        Draft.lookup(),
    ],
    ids=["block", "token", "several", "lookup"],
)
@pytest.mark.parametrize("params", [{}, {"temperature": 0.0}, DECODING["penalties"], DECODING["grammar"]])
def test_drafts_are_kept_as_on_a_cpu(draft: Draft, params: dict[str, Any]) -> None:
    compare(params, "tiny-0.5m", draft=draft, max_batch=16)


@pytest.mark.parametrize("name", MODELS)
def test_models_of_models_give_what_they_give_on_a_cpu(name: str) -> None:
    compare({}, MODELS[name], max_batch=16)


def test_a_scorer_guides_as_on_a_cpu(tmp_path: Path) -> None:
    make_value_head(tmp_path / "scorer")
    make_language_model(tmp_path / "base", save_tokenizer(tmp_path / "base"))
    compare({}, Guided(tmp_path / "base", tmp_path / "scorer", candidates=5), max_batch=16)


def test_scores_are_those_of_a_cpu(tmp_path: Path) -> None:
    make_value_head(tmp_path)
    read(tmp_path, EvaluateRequest((3, 4, 5, 6), (1, 3), outputs=True))


def test_log_probabilities_are_those_of_a_cpu() -> None:
    ids, adapted = (20, 21, 22, 23, 24, 25), SamplingParams(temperature=0.5, top_p=0.9, max_tokens=9)
    read(
        "tiny-0.1m",
        EvaluateRequest(ids, (2, 4)),
        EvaluateRequest(ids, (2, 4), labels=(1, 2), entropies=True),
        EvaluateRequest(ids, (4,), params=adapted, start=4),
    )


def read(model: Any, *requests: EvaluateRequest) -> None:
    with FarEngine(model, threads=1) as far, TorchEngine(model, threads=1, device="cpu") as near:
        for found, expected in zip(
            *(asyncio.run(one.evaluate(list(requests))) for one in (far, near)), strict=True
        ):
            assert np.allclose(found.values, expected.values, atol=1e-5)
            assert (found.entropies is None) == (expected.entropies is None)
            assert np.allclose(found.entropies or 0, expected.entropies or 0, atol=1e-5)


@pytest.mark.parametrize("name", ["plain", "greedy", "cold", "cuts", "more cuts", "mirostat"])
def test_the_cpu_waits_once_a_step(name: str) -> None:
    """For what was drawn; and once for each prefix, to see that its logits are numbers."""
    with FarEngine("tiny-0.1m", threads=1) as engine:
        ask(engine, **DECODING[name])
        engine.elsewhere.waits.clear()
        before = engine.stats.extra["steps"]
        ask(engine, **DECODING[name])
        steps = engine.stats.extra["steps"] - before
    assert engine.elsewhere.waits["cpu"] <= steps + 1
    assert set(engine.elsewhere.waits) <= {"cpu", "tolist"}
    assert engine.elsewhere.waits["__bool__"] <= len(PROMPTS)


def test_half_of_what_is_free_beside_the_weights_is_for_keys_and_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shape = shape_of("tiny-2m")
    assert shape is not None
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 30, 1 << 34))
    assert memory_for(CUDA, shape) == ((1 << 30) - int(shape.bytes_total)) // 2
    assert memory_for(CUDA, None) == 1 << 29
    assert memory_for(torch.device("cpu"), shape) == key_value_bytes()
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 10, 1 << 34))
    assert memory_for(CUDA, shape) == 0


def test_tails_are_as_long_as_half_of_the_memory_allows() -> None:
    """On a GPU; a CPU keeps to short ones, and to three quarters."""
    half = 2 * store_tokens(20, 16, (1024,)) * 100
    assert _capacities(20, 16, 100, half, 4096, CUDA) == (1024,)
    assert _capacities(20, 16, 100, half - 1, 4096, CUDA) == (512,)
    assert _capacities(20, 16, 100, 1 << 40, 1 << 20, CUDA) == (4096,)
    assert _capacities(20, 16, 100, 1 << 40, 700, CUDA) == (1024,)
    assert _capacities(20, 16, 100, 1 << 40, 4096, torch.device("cpu")) == (32, 96, 256)
    least = -(-store_tokens(20, 16, (256,)) * 100 * 4 // 3)
    assert _capacities(20, 16, 100, least, 4096, CUDA) == (256,)
    assert _capacities(20, 16, 100, least - 1, 4096, CUDA) == (128,)


#: Tokens that, behind a prompt that a row took into its tail, do not fit there any more.
FULL = 90


def write(engine: TorchEngine, texts: list[str], tokens: int) -> list[Any]:
    """Ids of the greedy completion of each."""
    chosen = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
    requests = [GenerateRequest(Sequence(Prompt(t, text=t)), (1,), chosen, tokens) for t in texts]

    async def together() -> list[Any]:
        return [a.samples[0].ids for a in await asyncio.gather(*map(engine.generate, requests))]

    return asyncio.run(together())


@pytest.mark.parametrize("common", ["", "Q:a=5;" * 10], ids=["alone", "behind what all share"])
@pytest.mark.parametrize(("tokens", "draft"), [(8, None), (FULL, None), (40, Draft.lookup())])
def test_long_prompts_of_many_rows_are_read_side_by_side(
    common: str, tokens: int, draft: Draft | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would cost a product of its own. Of a few it stays where it is; and where a tail is full, it goes back.

    A prompt is long from 32 tokens on here, and tails hold 128: rows take at most half of that into them.
    """
    monkeypatch.setattr(slots, "IN_PLACE", 32)
    texts = [f"{common}Q:a={i}+7;" + "b=a*3;c=b-40;" * 3 for i in range(10, 24)]
    most, returned = [0], [0]

    class Watched(Chains):
        def prefixes(self, rows: Any, owner: Any) -> Any:
            found = super().prefixes(rows, owner)
            most.append(len(found.shared) if rows.max() < 32 else 0)
            return found

    def put_back(store: KVStore, row: int) -> None:
        returned[0] += 1
        KVStore._put_back(store, row)

    with TorchEngine("tiny-0.1m", threads=1, device="cpu", max_batch=32, draft=draft) as near:
        expected = write(near, texts, tokens)
        memory = 2 * store_tokens(64, 32, (128,)) * near._model.token_bytes  # type: ignore[attr-defined]
    with FarEngine("tiny-0.1m", threads=1, max_batch=32, kv_memory_bytes=memory, draft=draft) as far:
        kv = far._model._kv  # type: ignore[attr-defined]
        assert kv._regions.capacity == 128 and kv._chains.slots.capacity == 32
        assert 32 < len(far.encode(texts[0])) - len(common) <= 64
        kv._chains.__class__ = Watched
        kv._put_back = partial(put_back, kv)
        assert write(far, texts, tokens) == expected
        assert all(not taken for taken in kv._taken[:32]), "nothing is held once nothing runs"
    full = tokens == FULL
    assert bool(returned[0]) == full
    assert full or FEW <= max(most) <= FEW + 1 + bool(common)


def test_a_row_takes_the_pieces_of_segments_that_were_split_since() -> None:
    """A short one in a slot, and a long one that is read in place."""
    with Elsewhere():
        layout = KVLayout(1, 1, 1, 4, torch.float32, CUDA)
        store, rows = KVStore(layout, 24, 12, (512,)), np.arange(12)

        def segment(tokens: int) -> KVSegment:
            return KVSegment(torch.ones(1, 2, 1, tokens, 4, device=CUDA))

        short, longs = segment(6), [segment(150) for _ in rows]
        for row, long in zip(rows, longs, strict=True):
            store.open(np.array([row]), [short, long])
        short.split(2)
        longs[0].split(140)
        batch = store.begin(rows, None)
        taken = [sum(map(len, chain)) for chain in store._taken[:12]]
        assert taken.count(156) == 12 - FEW and taken.count(0) == FEW
        assert batch.position.tolist() == [156] * 12
        store.begin(rows, np.full(12, 400))
        assert not any(store._taken), "they were put back"
        assert store._chains.length.tolist()[:12] == [156] * 12


# -- the device itself -------------------------------------------------------------------------------


def test_what_mixes_devices_is_an_error() -> None:
    with Elsewhere() as there:
        far = send(np.arange(4.0), CUDA)
        assert isinstance(far, Far) and far.device == CUDA and (far + 1).device == CUDA
        assert not there.waits
        with pytest.raises(RuntimeError, match="on one device"):
            far + torch.ones(4)
        with pytest.raises(RuntimeError, match="on one device"):
            far[torch.tensor([0, 1])]
        with pytest.raises(TypeError, match="numpy"):
            far.numpy()
        assert far.cpu().numpy().tolist() == [0, 1, 2, 3]
        assert bool(far[1] > 0) and len(far[far > 1]) == 2
        assert far.to("cpu").device.type == "cpu"
        torch.ones(4).to(CUDA)
        assert dict(there.waits) == {"cpu": 1, "__bool__": 1, "__getitem__": 1, "to": 1, "to the GPU": 1}


def test_on_a_cpu_what_is_sent_is_the_array_itself() -> None:
    numbers = np.arange(3)
    sent = send(numbers, torch.device("cpu"))
    numbers[0] = 7
    assert sent.tolist() == [7, 1, 2]
    assert send(np.arange(6).reshape(2, 3).T, torch.device("cpu")).tolist() == [[0, 3], [1, 4], [2, 5]]
