"""Compiled draws with top_k, top_p and min_p: what is left comes as often as it is probable, and as torch has it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.generators.compiled import build
from metagen.generators.decoding.parameters import SamplingParams
from metagen.generators.torch import compiled, sampling
from metagen.generators.torch.parameters import RowParams

pytestmark = pytest.mark.skipif(build.extension() is None, reason=f"no compiled steps: {build.state()[1]}")
DRAWS = 20_000


def left(z: np.ndarray, params: SamplingParams) -> np.ndarray:
    """[V]: the probabilities by the words of the adapters, token by token, in float64."""
    p = np.exp((z - z.max()) / params.temperature)
    p[z < z.max() - 5000] = 0
    if params.top_k:
        p[z < np.sort(z)[::-1][min(params.top_k, len(z)) - 1]] = 0
    if params.top_p < 1:
        gone, most = 0.0, (1 - params.top_p) * p.sum()
        for i in sorted(range(len(z)), key=lambda i: (z[i], -i))[:-1]:
            if (gone := gone + p[i]) > most:
                break
            p[i] = 0
    p[p < params.min_p * p.max() * (1 - 1e-6)] = 0
    return np.asarray(p / p.sum())


def drawn(z: torch.Tensor, params: SamplingParams) -> np.ndarray:
    """[V]: how often each token of a row comes, of numbers spread evenly over the unit interval."""
    rules = RowParams.of([params] * DRAWS)
    u = (np.arange(DRAWS) + 0.5) / DRAWS
    found = compiled.draw(z.expand(DRAWS, -1), u, rules.own("temperature"), rules.cuts, 0.0, 5000.0)
    assert found is not None
    assert not found[3].any()
    return np.bincount(found[0].astype(int), minlength=len(z))


def check(z: np.ndarray, params: SamplingParams) -> None:
    wanted = left(z.astype(np.float64), params)
    found = drawn(torch.from_numpy(z), params)
    np.testing.assert_allclose(found, wanted * DRAWS, atol=1.01 + 1e-5 * DRAWS)
    assert not found[wanted == 0].any()


@settings(max_examples=60, deadline=None)
@given(
    # Sixteenths: many are equal.
    st.lists(st.integers(-60, 60).map(lambda n: n / 16), min_size=1, max_size=80),
    st.sampled_from((0.3, 1.0, 1.7)),
    st.sampled_from((0, 1, 2, 3, 15, 16, 17, 79, 80)),
    st.sampled_from((1.0, 0.983, 0.9001, 0.517, 0.0713, 1e-9, 1e-17)),
    st.sampled_from((0.0, 0.05, 0.31, 1.0)),
    st.integers(0, 5),
)
def test_what_is_left_comes_as_often_as_it_is_probable(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float, out: int
) -> None:
    z = np.array(logits, np.float32)
    z[1 : 1 + out] = -np.inf
    check(z, SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p))


@pytest.mark.parametrize("vocab", [255, 256, 257, 1000])
@pytest.mark.parametrize(
    "cuts",
    [{"top_k": 200}, {"top_p": 0.7001}, {"top_p": 0.9901}, {"min_p": 0.02}, {"top_k": 150, "top_p": 0.8003}],
)
def test_the_same_across_the_edges_of_blocks(vocab: int, cuts: dict[str, float]) -> None:
    z = np.random.default_rng(vocab).integers(-40, 40, vocab).astype(np.float32) / 16
    check(z, SamplingParams(temperature=0.7, **cuts))  # type: ignore[arg-type]  # numbers of either kind


@pytest.mark.parametrize("share", [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.1])
def test_equals_of_which_some_have_the_share_to_the_last_digit(share: float) -> None:
    params = RowParams.of([SamplingParams(top_p=share)])
    found, by_torch = both(torch.zeros(1, 10), np.array([0.999999]), params)
    assert found.tokens.tolist() == by_torch.tokens.tolist()


@pytest.mark.parametrize("vocab", [15, 257, 5000, 49_153])
@pytest.mark.parametrize("spread", [0.01, 1.0, 8.0])
@pytest.mark.parametrize(
    "cuts",
    [
        {"top_p": 0.9}, {"top_p": 0.999}, {"top_p": 0.05}, {"top_k": 20}, {"top_k": 4000}, {"min_p": 0.1},
        {"top_k": 20, "top_p": 0.8}, {"top_k": 300, "top_p": 0.95, "min_p": 0.02},
    ],
)  # fmt: skip
def test_cut_draws_are_those_of_torch(vocab: int, spread: float, cuts: dict[str, float]) -> None:
    z = spread * torch.randn(48, vocab, generator=torch.Generator().manual_seed(vocab))
    z[::3, ::2] = -torch.inf
    u = np.random.default_rng(vocab).random(48)
    params = RowParams.of(
        SamplingParams(temperature=t, **cuts)  # type: ignore[arg-type]  # numbers of either kind
        for t in (1.0, 0.0, 0.7, 2.5)
        for _ in range(12)
    )
    found, by_torch = both(z, u, params)
    sure = ~(found.near | by_torch.near)
    assert sure.sum() > (20 if vocab < 4096 else 8)
    assert (found.tokens == by_torch.tokens)[sure].all()
    same = found.tokens == by_torch.tokens
    np.testing.assert_allclose(found.logprobs[same], by_torch.logprobs[same], atol=2e-5)


def both(z: torch.Tensor, u: np.ndarray, params: RowParams) -> tuple[sampling.Draw, sampling.Draw]:
    """What the compiled draw finds, and torch's."""
    with pytest.MonkeyPatch.context() as patch:
        found = sampling.draw(z, u, params)
        patch.setattr(compiled, "draw", lambda *_: None)
        return found, sampling.draw(z, u, params)


def test_rows_are_cut_by_their_own_numbers() -> None:
    z = torch.tensor([[0.0, 3.0, 1.0, 2.0]] * 4)
    params = RowParams.of(
        [SamplingParams(), SamplingParams(top_k=1), SamplingParams(top_p=0.7), SamplingParams(min_p=0.2)]
    )
    first, last = (sampling.draw(z, np.full(4, u), params).tokens.tolist() for u in (0.0, 0.999999))
    assert first == [0, 1, 1, 1]
    assert last == [3, 1, 3, 3]


def test_cold_rows_and_rows_that_are_no_distribution() -> None:
    z = torch.tensor([[1.0, 1.0 - 1e-6, -np.inf], [np.nan, 0.0, 1.0], [-np.inf] * 3, [0.0, np.inf, 1.0]])
    params = RowParams.of([SamplingParams(temperature=1e-37, top_k=2, top_p=0.9, min_p=0.1)] * 4)
    found = sampling.draw(z, np.full(4, 0.99), params)
    assert found.tokens[0] == 0
    z[0, 1] = z[0, 0]
    assert sampling.draw(z, np.full(4, 0.99), params).tokens[0] == 1, "equals are both left"
    assert found.bad.tolist() == [False, True, True, True]


def test_a_flat_vocabulary_is_cut_by_number() -> None:
    params = RowParams.of([SamplingParams(top_p=0.25)] * 2)
    found = sampling.draw(torch.zeros(2, 40_000), np.array([0.0, 0.999999]), params)
    assert found.tokens.tolist() == [0, 9_999]


def test_min_p_of_one_keeps_all_that_are_best_whatever_top_p_left_below_them() -> None:
    params = RowParams.of([SamplingParams(top_p=0.95, min_p=1.0)] * 2)
    found = sampling.draw(torch.tensor([[1.0, 3.0, 3.0]] * 2), np.array([0.1, 0.9]), params)
    assert found.tokens.tolist() == [1, 2]
