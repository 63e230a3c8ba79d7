"""Blocks one after another, with the random numbers that engines use."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from metagen.generators.randomness import Purpose, seed_array, uniform
from metagen.generators.torch.sampling import pick
from metagen.generators.torch.speculation.block import numbers
from metagen.generators.torch.speculation.verify import Drafted, Rule, verify

N, LENGTH, GAMMA = 40_000, 6, 4
#: The next token behind each token, of target and draft; texts begin behind a 0.
P, Q = torch.tensor([[0.2, 0.8], [0.7, 0.3]]), torch.tensor([[0.8, 0.2], [0.3, 0.7]])


def by_place_alone(seeds: Any, positions: Any, index: Any, purpose: Purpose, candidates: Any = 0) -> Any:
    """The trap: a place that is drafted again meets the numbers that have decided on it before."""
    return uniform(seeds, positions + index - 1, purpose, 0 * np.asarray(index) + candidates)


def texts(keyed: Callable[..., NDArray[np.float64]], rule: Rule) -> NDArray[np.int64]:
    """[N, LENGTH] tokens, block after block."""
    seeds, text = seed_array(range(N)), np.zeros((N, LENGTH + GAMMA + 1), np.int64)
    at = np.zeros(N, np.int64)
    while len(live := np.flatnonzero(at < LENGTH)):
        here, n = at[live], len(live)
        tokens, q, p = np.zeros((n, GAMMA), np.int64), torch.zeros(n, GAMMA, 2), torch.zeros(n, GAMMA + 1, 2)
        before = np.where(here > 0, text[live, here - 1], 0)
        for i in range(GAMMA):
            p[:, i], q[:, i] = P[before], Q[before]
            u = keyed(seeds[live], here, np.array([i + 1]), Purpose.SAMPLE)
            before = tokens[:, i] = pick(q[:, i], u)[0][:, 0].numpy()
        p[:, GAMMA] = P[before]
        u = keyed(seeds[live][:, None], here[:, None], np.arange(1, GAMMA + 1), Purpose.ACCEPT)
        drafted = Drafted(torch.from_numpy(tokens), torch.full((n,), GAMMA), q)
        kept = verify(p, drafted, torch.from_numpy(u), rule)
        counts = kept.counts.numpy()
        for i in range(GAMMA):
            text[live, here + i] = tokens[:, i]
        last = pick(kept.rest, keyed(seeds[live], here, counts + 1, Purpose.RESIDUAL))[0][:, 0]
        text[live, here + counts] = last.numpy()
        at[live] = here + counts + 1
    return text[:, :LENGTH]


def fit(found: NDArray[np.int64]) -> float:
    """p-value of the texts being the target's."""
    expected = [
        np.prod([float(P[a, b]) for a, b in zip((0, *text), text, strict=False)])
        for text in product(range(2), repeat=LENGTH)
    ]
    seen = np.bincount(found @ (1 << np.arange(LENGTH)[::-1]), minlength=1 << LENGTH)
    return float(stats.chisquare(seen, N * np.array(expected), sum_check=False).pvalue)


@pytest.mark.parametrize("rule", ["token", "block"])
def test_blocks_one_after_another_have_the_targets_distribution(rule: Rule) -> None:
    assert fit(texts(numbers, rule)) > 1e-6


def test_numbers_keyed_by_place_alone_would_not_do() -> None:
    assert fit(texts(by_place_alone, "block")) < 1e-12


def test_no_number_is_used_twice() -> None:
    """Of one seed, over all blocks that can occur, purposes, and drafts of a place."""
    blocks = [(start, index) for start in range(6) for index in range(1, 6)]
    found = [
        float(numbers(seed_array([7]), np.array([start]), np.array([index]), purpose, candidate)[0])
        for start, index in blocks
        for purpose in (Purpose.SAMPLE, Purpose.ACCEPT, Purpose.RESIDUAL)
        for candidate in range(4)
    ]
    plain = uniform(seed_array([7]), np.arange(12)).tolist()
    assert len({*found, *plain}) == len(found) + len(plain)
