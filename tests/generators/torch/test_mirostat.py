"""Mirostat 2.0 against a plain reading of the paper's algorithm (Basu et al. 2021), and what it promises."""

import asyncio
import math

import numpy as np
import pytest
import torch

from metagen.generators.decoding.adapters import Mirostat
from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.randomness import seed_array, uniform
from metagen.generators.torch.parameters import Parameters
from metagen.generators.torch.sampling import draw
from metagen.sequence import Sequence

SIZE = 300


def plain(logits: np.ndarray, u: float, mu: float, tau: float, eta: float) -> tuple[int, float]:
    """One step: cut what surprises by more than mu bits, draw from the rest, move mu by the error."""
    p = np.exp(logits - logits.max())
    p /= p.sum()
    surprise = -np.log2(p)
    kept = [i for i in range(len(p)) if surprise[i] <= mu] or [int(p.argmax())]
    mass, goal = 0.0, u * sum(p[i] for i in kept)
    for token in kept:
        mass += p[token]
        if mass > goal:
            break
    return token, mu - eta * (surprise[token] - tau)


def test_it_draws_what_the_algorithm_says_in_each_row_by_itself() -> None:
    settings = [(3.0, 0.1), (1.0, 0.5), (6.5, 0.02), (0.05, 1.0)]
    table = Parameters(8, torch.device("cpu"))
    every = np.arange(len(settings))
    for i, (tau, eta) in enumerate(settings):
        table.add(np.array([i]), SamplingParams(mirostat=Mirostat(tau, eta)))
    table.add(np.array([4]), SamplingParams())
    mine, generator = [2 * tau for tau, _ in settings], torch.Generator().manual_seed(1)
    for step in range(60):
        logits = torch.randn(5, SIZE, generator=generator, dtype=torch.float64) * 2
        u = uniform(seed_array(range(5)), step)
        drawn = draw(logits, u, table.rows)
        for i, (tau, eta) in enumerate(settings):
            token, mine[i] = plain(logits[i].numpy(), u[i], mine[i], tau, eta)
            assert drawn.tokens[i] == token
        assert drawn.mu is not None
        table.follow(np.arange(5), drawn.mu)
        assert table.rows.own("mu")[every] == pytest.approx(mine)


@pytest.mark.parametrize("tau", [3.0, 4.0, 5.0])
def test_the_mean_surprise_approaches_its_target(tau: float) -> None:
    """And what is missing is what the cut has moved: Σ (S − τ) = (μ₀ − μ_T) / η."""
    eta, rows, steps = 0.2, 16, 250
    table = Parameters(rows, torch.device("cpu"))
    table.add(np.arange(rows), SamplingParams(mirostat=Mirostat(tau, eta)))
    generator, total = torch.Generator().manual_seed(2), np.zeros(rows)
    for step in range(steps):
        logits = torch.randn(rows, SIZE, generator=generator) * 2
        drawn = draw(logits, uniform(seed_array(range(rows)), step), table.rows)
        total += -drawn.logprobs / math.log(2)
        table.follow(np.arange(rows), drawn.mu)
    assert total / steps == pytest.approx(np.full(rows, tau), abs=0.25)
    assert total - tau * steps == pytest.approx((2 * tau - table.rows.own("mu")) / eta, abs=1e-2)


def test_an_enumerable_model_knows_its_sequences_exactly() -> None:
    """The cut after each token depends on all of them; draws have the distribution that `sequences` gives."""
    params = SamplingParams(mirostat=Mirostat(0.9, 0.8))
    row = (0.55, 0.3, 0.1, 0.05)
    with EnumerableEngine("abc$", lambda prompt, done: row, name="row") as engine:
        exact = engine.sequences("?", params, max_tokens=3)
        assert sum(exact.values()) == pytest.approx(1)
        # By hand: μ = 1.8 bits lets a (0.86 bits) and b (1.74) in; after b it is 1.8 − 0.8·(1.74 − 0.9) = 1.13: only a.
        assert {first for first, *_ in exact} == {"a", "b"}
        assert {second for first, second, *_ in exact if first == "b"} == {"a"}
        request = GenerateRequest(Sequence.of("?"), tuple(range(4000)), params, 3)
        answer = asyncio.run(engine.generate(request))
    seen = dict.fromkeys(exact, 0)
    for sample in answer.samples:
        seen[(*sample.text, *(["$"] if sample.finish == "eos" else []))] += 1
    for key, p in exact.items():
        assert abs(seen[key] - 4000 * p) < 6 * math.sqrt(4000 * p * (1 - p)) + 1e-9
