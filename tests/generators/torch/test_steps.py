"""Compiled steps against torch's: blocks in every shape that is compiled, and draws."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from metagen.generators.compiled import build
from metagen.generators.decoding.parameters import SamplingParams
from metagen.generators.engine import GenerateRequest
from metagen.generators.torch import TorchEngine, compiled, sampling
from metagen.generators.torch.models.llama import LlamaModel
from metagen.generators.torch.parameters import RowParams
from metagen.sequence import Prompt, Sequence
from tests.generators.torch.conftest import COMPILED, make_model

pytestmark = pytest.mark.skipif(build.extension() is None, reason=f"no compiled steps: {build.state()[1]}")
CPU = torch.device("cpu")


def ids(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@torch.inference_mode()
def logits(directory: Path, dtype: torch.dtype, setting: str) -> torch.Tensor:
    """Of rows with and without a common prefix that take several tokens, and then one each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(build.SETTING, setting)
        model = LlamaModel(directory, dtype=dtype, device=CPU, batch=8, kv_bytes=1 << 28)
        rng = np.random.default_rng(0)
        model.open(ids(0), [])
        found = [model.extend(ids(0), rng.integers(5, 300, 150), ids(150), np.arange(150))]
        model.open(ids(1, 2, 3), [model.save(0, 0, 140)])
        model.open(ids(4), [])
        found.append(model.extend(ids(1, 2, 3, 4), rng.integers(5, 300, 24), ids(1, 20, 2, 1), np.arange(24)))
        found += [model.extend(np.arange(5), rng.integers(5, 300, 5)) for _ in range(40)]
        assert (model._blocks.ready() is not None) == (setting == "ready")
    return torch.cat(found)


@pytest.mark.parametrize("head_dim", sorted(compiled.HEADS))
def test_blocks_of_every_size_of_heads(tmp_path: Path, head_dim: int) -> None:
    make_model(tmp_path, head_dim=head_dim)
    by_torch, found = (logits(tmp_path, torch.float32, setting) for setting in ("off", "ready"))
    torch.testing.assert_close(found, by_torch, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["llama3", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("sizes", [{}, {"num_key_value_heads": 4}, {"num_key_value_heads": 1}])
def test_blocks_of_every_architecture(model_dir: Any, kind: str, sizes: dict[str, int]) -> None:
    directory = model_dir(kind, **sizes)
    by_torch, found = (logits(directory, torch.float32, setting) for setting in ("off", "ready"))
    torch.testing.assert_close(found, by_torch, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_bfloat16_is_no_further_from_the_truth_than_torch(model_dir: Any, kind: str) -> None:
    truth = logits(model_dir(kind), torch.float32, "off")
    by_torch, found = (
        (logits(model_dir(kind), torch.bfloat16, setting) - truth).square().mean().sqrt()
        for setting in ("off", "ready")
    )
    assert found <= 1.1 * by_torch


@torch.inference_mode()
def test_a_row_that_is_cut_to_its_prefix_reads_it_once(model_dir: Any, steps: str) -> None:
    """It takes the prefix into its tail only then, since another row has read it before."""
    rng = np.random.default_rng(0)
    prefix, newest = rng.integers(5, 300, 20), ids(9)
    model = LlamaModel(
        model_dir("llama", **COMPILED), dtype=torch.float32, device=CPU, batch=4, kv_bytes=1 << 26
    )
    model.open(ids(2), [])
    expected = model.extend(ids(2), np.append(prefix, newest), ids(21))
    segment = model.save(2, 0, 20)
    model.open(ids(0, 1), [segment])
    model.extend(ids(0, 1), ids(7, 8))
    model.close(ids(1))
    model.extend(ids(0), ids(7))
    model.truncate(0, 20)
    torch.testing.assert_close(model.extend(ids(0), newest), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "sizes", [{"head_dim": 12}, {"hidden_size": 40}, {"intermediate_size": 100}, {"dtype": torch.float16}]
)
def test_other_shapes_run_by_torch(tmp_path: Path, sizes: dict[str, Any]) -> None:
    dtype = sizes.pop("dtype", torch.float32)
    make_model(tmp_path, **sizes)
    with torch.inference_mode():
        model = LlamaModel(tmp_path, dtype=dtype, device=CPU, batch=4, kv_bytes=1 << 24)
        assert model._blocks.ready() is None
        model.open(ids(0), [])
        assert model.extend(ids(0), ids(7)).isfinite().all()


@pytest.mark.parametrize("setting", ["off", "ready"])
def test_no_row_goes_on_behind_its_context(
    tmp_path: Path, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines refuse such requests; a mistake of theirs reads no other memory."""
    make_model(tmp_path, max_position_embeddings=64)
    monkeypatch.setenv(build.SETTING, setting)
    with torch.inference_mode():
        model = LlamaModel(tmp_path, dtype=torch.float32, device=CPU, batch=2, kv_bytes=1 << 26)
        model.open(ids(0, 1), [])
        model.extend(ids(0), np.full(64, 7), ids(64))
        assert model.extend(ids(1), ids(7)).isfinite().all()
        with pytest.raises(IndexError):
            model.extend(ids(0), ids(7))


def test_an_engine_takes_the_steps_when_they_are_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model_dir: Any
) -> None:
    """It runs by torch until then, and is not opened anew."""
    module = build.extension()
    monkeypatch.setattr(build, "_load", lambda _: module)  # twice in one process is an error
    monkeypatch.setenv("METAGEN_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "_loaded", None)
    monkeypatch.setattr(build, "LOOK", 0.0)
    with TorchEngine(model_dir("llama"), threads=1, max_batch=4) as engine:
        greedy = SamplingParams(max_tokens=8, temperature=0.0)
        request = GenerateRequest(Sequence(Prompt("one", text="the quick")), (1,), greedy, 8)
        before = asyncio.run(engine.generate(request))
        assert build._loaded is None
        build.library().parent.mkdir()
        build.library().touch()
        after = asyncio.run(engine.generate(request))
        assert build._loaded is not None
        assert before.samples[0].ids == after.samples[0].ids


# -- draws ---------------------------------------------------------------------------------------------------


def rows(*temperatures: float) -> RowParams:
    return RowParams.of([SamplingParams(temperature=t) for t in temperatures])


def both(z: torch.Tensor, u: np.ndarray, params: RowParams) -> tuple[sampling.Draw, sampling.Draw]:
    """What the compiled draw finds, and torch's."""
    with pytest.MonkeyPatch.context() as patch:
        found = sampling.draw(z, u, params)
        patch.setattr(compiled, "draw", lambda *_: None)
        return found, sampling.draw(z, u, params)


@pytest.mark.parametrize("vocab", [1, 2, 15, 16, 17, 255, 256, 257, 5000, 49_153])
@pytest.mark.parametrize("spread", [0.01, 1.0, 8.0])
def test_draws_are_those_of_torch(vocab: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(vocab)
    z = spread * torch.randn(64, vocab, generator=generator)
    z[::3, ::2] = -torch.inf if vocab > 1 else z[::3, ::2]
    u = np.random.default_rng(vocab).random(64)
    params = rows(*(t for t in (1.0, 0.0, 0.7, 2.5) for _ in range(16)))
    found, by_torch = both(z, u, params)
    sure = ~(found.near | by_torch.near)
    assert sure.sum() > 40 or vocab < 3 or vocab > 4096
    assert (found.tokens == by_torch.tokens)[sure].all()
    same = found.tokens == by_torch.tokens
    np.testing.assert_allclose(found.logprobs[same], by_torch.logprobs[same], atol=2e-5)
    assert not found.bad.any() and not found.none.any()


def test_draws_follow_the_probabilities() -> None:
    """Numbers spread evenly over the unit interval fall on each token as often as it is probable."""
    z = torch.tensor([[0.0, math.log(2), -torch.inf, math.log(5), 0.0]])
    u = (np.arange(9000) + 0.5) / 9000
    found = compiled.draw(z.expand(9000, -1), u, np.ones(9000), None, 0.0, 5000.0)
    assert found is not None
    assert np.bincount(found[0].astype(int), minlength=5).tolist() == [1000, 2000, 0, 5000, 1000]
    np.testing.assert_allclose(np.unique(found[1]), np.log([1 / 9, 2 / 9, 5 / 9]), atol=1e-6)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("at", [0, 20, 299])
def test_what_is_no_distribution_is_bad(wrong: float, at: int) -> None:
    z = torch.zeros(4, 300)
    z[1, at] = wrong
    z[3] = -math.inf
    for temperature in (0.0, 1.0, 0.5):
        found, by_torch = both(z, np.full(4, 0.5), rows(*[temperature] * 4))
        assert found.bad.tolist() == by_torch.bad.tolist() == [False, True, False, True]


def test_equals_are_taken_in_order_and_noted() -> None:
    z = torch.zeros(2, 400)
    z[0, [37, 38, 390]] = 3.0
    z[1, 390] = 3.0
    found, by_torch = both(z, np.array([0.9, 0.9]), rows(0.0, 0.0))
    assert found.tokens.tolist() == by_torch.tokens.tolist() == [37, 390]
    assert found.near.tolist() == by_torch.near.tolist() == [True, False]


def test_the_ends_of_the_unit_interval() -> None:
    z = torch.randn(3, 700, generator=torch.Generator().manual_seed(1))
    z[:, 650:] = -torch.inf
    u = np.array([0.0, np.nextafter(1.0, 0.0), 1e-300])
    found, by_torch = both(z, u, rows(1.0, 1.0, 1.0))
    assert found.tokens.tolist() == by_torch.tokens.tolist() == [0, 649, 0]
    assert not found.near.any()


@pytest.mark.parametrize("temperature", [1e-37, 1e-8, 1e-3, 1e3, 1e30])
def test_extreme_temperatures(temperature: float) -> None:
    z = torch.tensor([[5.0, 4.0, -9000.0, 5.0 - 1e-6]] * 8)
    u = (np.arange(8) + 0.5) / 8
    found, by_torch = both(z, u, rows(*[temperature] * 8))
    assert found.tokens.tolist() == by_torch.tokens.tolist()
    assert 2 not in found.tokens  # a model has left it out
