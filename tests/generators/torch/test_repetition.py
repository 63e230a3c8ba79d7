"""DRY, XTC and top-n-sigma: published vectors (llama.cpp's test-sampling.cpp, MIT), formulas, and what rows share."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.generators.decoding.adapters import XTC, Dry
from metagen.generators.decoding.words import Words
from metagen.generators.engine import SamplingParams
from metagen.generators.torch.history import History
from metagen.generators.torch.parameters import RowParams
from metagen.generators.torch.sampling import distribution, draw


def behind(
    p: list[float], ids: list[int] | None = None, size: int | None = None, **params: Any
) -> list[float]:
    made = SamplingParams(**params)
    words = Words.of(made, lambda text: [int(text)], lambda ids: str(*ids), size or len(p), [])
    history = History.of([ids or []], [0])
    logits = torch.log(torch.tensor([p], dtype=torch.float64))
    return [float(q) for q in distribution(logits, RowParams.of([made], [words]), history)[0]]


QUARTERS, FIFTHS = [0.25] * 4, [0.2] * 5


@pytest.mark.parametrize(
    ("p", "ids", "dry", "expected"),
    [
        (QUARTERS, [0, 1], Dry(1.0, 1.1, 2, ()), QUARTERS),
        (QUARTERS, [0, 1, 2, 0, 1], Dry(1.0, 1.1, 2, ()), [0.296923, 0.296923, 0.109232, 0.296923]),
        (FIFTHS, [0, 1, 3, 4, 0, 1], Dry(1.0, 1.1, 2, ("3",)), FIFTHS),
        (FIFTHS, [0, 1, 2, 0, 1], Dry(2.0, 1.1, 2, ()), [0.241818, 0.241818, 0.032727, 0.241818, 0.241818]),
        (FIFTHS, [0, 1, 2, 3, 4, 0, 1], Dry(1.0, 1.1, 4, ()), FIFTHS),
    ],
)
def test_dry_takes_off_what_was_published(
    p: list[float], ids: list[int], dry: Dry, expected: list[float]
) -> None:
    assert behind(p, ids, dry=dry) == pytest.approx(expected, abs=1e-6)


def repeated(ids: list[int], dry: Dry, breakers: set[int], size: int) -> list[float]:
    """What every token loses, token by token, as the method is described."""
    start = max(len(ids) - dry.last, 0) if dry.last else 0
    lost = [0.0] * size
    for token in range(size):
        longest = 0
        for place in range(start, len(ids) - 1):
            if ids[place + 1] != token or token in breakers:
                continue
            n = 0
            while n < 50 and place - n >= start and len(ids) - 1 - n >= start:
                if ids[place - n] != ids[-1 - n] or ids[-1 - n] in breakers:
                    break
                n += 1
            longest = max(longest, n)
        if longest >= dry.allowed_length:
            lost[token] = dry.multiplier * dry.base ** (longest - dry.allowed_length)
    return lost


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=24), min_size=1, max_size=4),
    st.floats(0.1, 2),
    st.integers(1, 4),
    st.sets(st.integers(0, 3), max_size=2),
    st.sampled_from([0, 1, 5, 12]),
)
def test_dry_follows_its_description_in_every_row(
    many: list[list[int]], multiplier: float, allowed: int, breakers: set[int], last: int
) -> None:
    dry = Dry(multiplier, 1.5, allowed, tuple(map(str, sorted(breakers))), last)
    params = SamplingParams(dry=dry)
    words = Words.of(params, lambda text: [int(text)], lambda ids: str(*ids), 4, [])
    plain = SamplingParams()
    rows = RowParams.of([params, plain] * len(many), [words, Words()] * len(many))
    history = History.of([ids for ids in many for _ in range(2)], [0] * (2 * len(many)))
    logits = torch.zeros(2 * len(many), 4, dtype=torch.float64)
    found = torch.log(distribution(logits, rows, history))
    for i, ids in enumerate(many):
        expected = torch.log_softmax(-torch.tensor(repeated(ids, dry, breakers, 4), dtype=torch.float64), -1)
        torch.testing.assert_close(found[2 * i], expected)
        torch.testing.assert_close(found[2 * i + 1], torch.full((4,), -math.log(4), dtype=torch.float64))


def test_greedy_decoding_is_held_back_from_a_loop() -> None:
    params = SamplingParams(temperature=0, dry=Dry(breakers=()))
    logits = torch.tensor([[0.0, 1.0, 1.2]])
    taken = draw(
        logits, np.array([0.5]), RowParams.of([params]), history=History.of([[2, 1, 2, 1, 2, 1]], [0])
    )
    assert taken.tokens.tolist() == [1]


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (0.09, [0, 0, 0, 1]),
        (0.19, [0, 0, 2 / 3, 1 / 3]),
        (0.29, [0, 1 / 2, 1 / 3, 1 / 6]),
        (0.39, [0.4, 0.3, 0.2, 0.1]),
    ],
)
def test_xtc_cuts_what_was_published(threshold: float, expected: list[float]) -> None:
    p = [0.4, 0.3, 0.2, 0.1]
    assert behind(p, xtc=XTC(1.0, threshold)) == pytest.approx(expected)
    mixed = [0.25 * q + 0.75 * e for q, e in zip(p, expected, strict=True)]
    assert behind(p, xtc=XTC(0.75, threshold)) == pytest.approx(mixed)


def test_a_mixture_is_drawn_as_often_as_a_coin_would_have_it() -> None:
    """Chi-square over three tokens, 20,000 draws; false alarms: one in a thousand seeds."""
    from scipy.stats import chisquare

    p, n = [0.5, 0.3, 0.2], 20_000
    params = RowParams.of([SamplingParams(xtc=XTC(0.4, 0.25))] * n)
    u = np.random.default_rng(2).random(n)
    drawn = draw(torch.log(torch.tensor([p])).repeat(n, 1), u, params).tokens
    coin = 0.6 * np.array(p) + 0.4 * np.array([0.0, 0.3, 0.2]) / 0.5
    assert chisquare(np.bincount(drawn, minlength=3), coin * n).pvalue > 0.001


@pytest.mark.parametrize(
    ("n", "expected"),
    [(1.0, [0, 0, 0.428571, 0.571429]), (0.0, [0.1, 0.2, 0.3, 0.4]), (3.0, [0.1, 0.2, 0.3, 0.4])],
)
def test_top_n_sigma_cuts_what_was_published(n: float, expected: list[float]) -> None:
    assert behind([0.1, 0.2, 0.3, 0.4], top_n_sigma=n) == pytest.approx(expected, abs=1e-6)


def test_temperature_changes_nothing_of_what_top_n_sigma_cuts() -> None:
    draws = torch.randn(1, 300, generator=torch.Generator().manual_seed(3), dtype=torch.float64).softmax(-1)[
        0
    ]
    masks = [[q > 0 for q in behind(draws.tolist(), top_n_sigma=1.2, temperature=t)] for t in (0.2, 1.0, 5.0)]
    assert masks[0] == masks[1] == masks[2] and 1 < sum(masks[0]) < 300


def test_what_cannot_come_does_not_widen_sigma() -> None:
    p = [0.1, 0.2, 0.3, 0.4]
    beside = behind([*p, 0.0, 0.0], top_n_sigma=1.0)
    assert beside[:4] == pytest.approx(behind(p, top_n_sigma=1.0)) and beside[4:] == [0.0, 0.0]


def test_some_tokens_stay_whatever_is_cut() -> None:
    p = [0.6, 0.25, 0.1, 0.05]
    for cut in (
        {"top_k": 1},
        {"top_p": 0.1},
        {"min_p": 1.0},
        {"epsilon_cutoff": 0.99},
        {"top_h": 0.01},
        {"top_n_sigma": 1e-3},
    ):
        assert sum(q > 0 for q in behind(p, **cut)) == 1
        assert behind(p, **cut, min_tokens_to_keep=3) == pytest.approx(
            [0.6 / 0.95, 0.25 / 0.95, 0.1 / 0.95, 0]
        )
    assert behind([1.0, 0.0], min_tokens_to_keep=2) == [1.0, 0.0], "what the model rules out stays out"


def test_a_sequence_is_biased_behind_its_beginning_alone() -> None:
    even = [1 / 3] * 3
    heavy = math.e / (math.e + 2)
    biased = {"sequence_bias": {(0, 1): 1.0}}
    assert behind(even, [0], **biased) == pytest.approx([1 / (math.e + 2), heavy, 1 / (math.e + 2)])
    assert behind(even, [1], **biased) == pytest.approx(even)
    assert behind(even, [], **biased) == pytest.approx(even)
