"""Sequences of combined engines have the distribution that the formulas say, on models that can be enumerated."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.models.recipes import (
    Contrastive,
    Ensemble,
    Experts,
    Function,
    Model,
    ProxyTuned,
    Table,
    Tilted,
)
from metagen.generators.torch import TorchEngine
from metagen.sequence import Sequence
from tests.generators.torch.models.tables import (
    LONGEST,
    TOKENS,
    Floats,
    next_of,
    normed,
    probabilities,
    row,
    table,
    uniform,
)

OPEN = len(TOKENS)


def log(name: str, done: tuple[str, ...]) -> Floats:
    with np.errstate(divide="ignore"):
        found: Floats = np.log(row(name, done))
    return found


def contrastive(done: tuple[str, ...]) -> Floats:
    expert, amateur = log("x", done), log("y", done)
    head = row("x", done) >= 0.3 * row("x", done).max()
    score = np.full(OPEN, -np.inf)
    score[head] = expert[head] - amateur[head]
    return normed(score)


def experts(done: tuple[str, ...]) -> Floats:
    if len(done) == LONGEST:
        return row("x", done)
    return normed(log("x", done) + 0.7 * (log("y", done) - log("z", done)))


def mean(done: tuple[str, ...]) -> Floats:
    return 0.25 * row("x", done) + 0.75 * row("y", done)


def product(done: tuple[str, ...]) -> Floats:
    return normed(2.0 * log("x", done) + 0.5 * log("y", done))


def value(ids: tuple[int, ...]) -> list[float]:
    """Of each next token: how many tokens a text has, and whether the next is the first."""
    length = sum(i < OPEN for i in ids)
    return [float(length), 1.0, -0.5 * length, 0.25] + [0.0] * 256


def tilted(done: tuple[str, ...]) -> Floats:
    values = np.array(value(tuple(range(len(done))))[:OPEN])
    return normed(log("x", done) + 1.5 * values - 0.5 * log("y", done).clip(min=-1e30))


def tilt() -> Tilted:
    return Tilted(table("x"), (Function(table("x"), value, "lengths"),), (1.5,))


RECIPES: dict[str, tuple[Callable[[], Model], Callable[[tuple[str, ...]], Floats]]] = {
    "contrastive": (lambda: Contrastive(table("x"), table("y"), alpha=0.3), contrastive),
    "experts": (lambda: Experts(table("x"), table("y"), table("z"), alpha=0.7), experts),
    "proxy tuned": (lambda: ProxyTuned(table("x"), table("y"), table("z"), alpha=0.7), experts),
    "mean": (lambda: Ensemble((table("x"), table("y")), weights=(1.0, 3.0)), mean),
    "product": (lambda: Ensemble((table("x"), table("y")), "product", (2.0, 0.5)), product),
    "tilted": (
        tilt,
        lambda done: normed(log("x", done) + 1.5 * np.array(value(tuple(range(len(done))))[:OPEN])),
    ),
    "nested": (
        lambda: Ensemble((Contrastive(table("x"), table("y"), alpha=0.3), table("z"))),
        lambda done: (contrastive(done) + row("z", done)) / 2,
    ),
}


@pytest.mark.parametrize("name", RECIPES)
def test_sequences_have_the_distribution_of_the_formula(name: str) -> None:
    """Every next-token distribution, and 3,000 samples: chi-square at a false-alarm rate of 1e-6, fixed seeds."""
    make, formula = RECIPES[name]
    n = 3000
    with TorchEngine(make(), threads=1, max_batch=64) as engine:
        exact = probabilities(formula)
        found = probabilities(
            lambda done: next_of(engine, done).clip(min=0) if len(done) < LONGEST else row("", done)
        )
        assert found.keys() >= exact.keys()
        assert sum(found.values()) == pytest.approx(1, abs=1e-4)
        for completion, p in found.items():
            assert p == pytest.approx(exact.get(completion, 0.0), abs=1e-5)
        request = GenerateRequest(Sequence.of("?"), tuple(range(n)), SamplingParams(), LONGEST + 1)
        samples = asyncio.run(engine.generate(request)).samples
    seen = Counter((*(TOKENS[i] for i in s.ids or ()), TOKENS[-1]) for s in samples)
    assert seen.keys() <= exact.keys()
    often = [c for c, p in exact.items() if n * p >= 5]
    expected = [n * exact[c] for c in often]
    counts = [seen[c] for c in often]
    rest = n - sum(expected)
    if rest > 1:
        counts, expected = [*counts, n - sum(counts)], [*expected, rest]
    assert stats.chisquare(counts, np.array(expected) * sum(counts) / sum(expected)).pvalue > 1e-6


def test_a_table_on_the_torch_engine_draws_what_the_enumerable_engine_draws() -> None:
    def rows(prompt: str, done: tuple[str, ...]) -> Floats:
        return row(f"{prompt}!", done)

    params = SamplingParams(temperature=0.8, top_p=0.95, logprobs=True)
    request = GenerateRequest(Sequence.of("?é"), tuple(range(200)), params, LONGEST + 1)
    with (
        TorchEngine(Table(TOKENS, rows, "t"), threads=1) as engine,
        EnumerableEngine(TOKENS, rows, name="t") as exact,
    ):
        ours, theirs = (asyncio.run(e.generate(request)) for e in (engine, exact))
        assert ours.prefix_tokens == theirs.prefix_tokens
    for a, b in zip(ours.samples, theirs.samples, strict=True):
        assert (a.text, a.ids, a.finish) == (b.text, b.ids, b.finish)
        assert a.logprob == pytest.approx(b.logprob, abs=1e-5)
    assert len({s.text for s in ours.samples}) > 10


def test_a_table_reads_longer_tokens_first_and_what_it_cannot_as_bytes() -> None:
    with TorchEngine(table("x"), threads=1) as engine:
        assert engine.encode("abba") == (2, 1, 0)
        assert engine.render(Sequence.of("?é")) == tuple(OPEN + b for b in "?é".encode())
        assert engine.max_context is not None
        assert engine.shape is None
        directory = engine.directory
        assert (directory / "tokenizer.json").exists()


IDENTITIES: dict[str, tuple[Callable[[], Model], Callable[[], Model]]] = {
    "the amateur is uniform and alpha goes to 0": (
        lambda: Contrastive(table("x"), uniform(), alpha=1e-30),
        lambda: table("x"),
    ),
    "experts of alpha 0": (
        lambda: Experts(table("x"), table("y"), table("z"), alpha=0.0),
        lambda: table("x"),
    ),
    "an expert without an anti-expert": (
        lambda: Experts(table("x"), table("y"), alpha=0.4),
        lambda: Experts(table("x"), table("y"), table("x"), alpha=0.4),
    ),
    "an anti-expert without an expert": (
        lambda: Experts(table("x"), anti=table("y"), alpha=0.4),
        lambda: Experts(table("x"), table("x"), table("y"), alpha=0.4),
    ),
    "tuned as untuned": (lambda: ProxyTuned(table("x"), table("y"), table("y")), lambda: table("x")),
    "proxy tuning is an expert": (
        lambda: ProxyTuned(table("x"), table("y"), table("z")),
        lambda: Experts(table("x"), table("y"), table("z")),
    ),
    "a mean of one": (lambda: Ensemble((table("x"),)), lambda: table("x")),
    "a product of one": (lambda: Ensemble((table("x"),), "product"), lambda: table("x")),
    "a mean of a model with itself": (lambda: Ensemble((table("x"), table("x"))), lambda: table("x")),
    "a tilt of weight 0": (lambda: replace(tilt(), weights=(0.0,)), lambda: table("x")),
    "a tilt by a model's log-probabilities is a product": (
        lambda: Tilted(table("x"), (table("y"),), (0.5,)),
        lambda: Ensemble((table("x"), table("y")), "product", (1.0, 0.5)),
    ),
    "a window as long as the text": (
        lambda: Contrastive(table("x"), table("y"), window=16),
        lambda: Contrastive(table("x"), table("y")),
    ),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identities_between_methods(name: str) -> None:
    one, other = (make() for make in IDENTITIES[name])
    with TorchEngine(one, threads=1) as first, TorchEngine(other, threads=1) as second:
        for done in ((), ("a",), ("b", "ab")):
            assert next_of(first, done) == pytest.approx(next_of(second, done), abs=1e-5)


def test_what_differs_differs() -> None:
    def of(recipe: Model) -> Floats:
        with TorchEngine(recipe, threads=1) as engine:
            return next_of(engine, ("b", "a"))

    both = (table("x"), table("y"))
    assert np.abs(of(Ensemble(both)) - of(Ensemble(both, "product"))).max() > 0.01
    # To an amateur that sees the last token alone, the text begins there.
    narrow, wide = (Contrastive(*both, window=w) for w in (1, None))
    assert np.abs(of(narrow) - of(wide)).max() > 0.01


def reward(completion: tuple[str, ...]) -> float:
    """Of a whole text: how many of its tokens hold a "b"."""
    return float(sum("b" in token for token in completion))


def valued(done: tuple[str, ...], mean: Callable[[Floats, Floats], float]) -> float:
    """What a text is worth so far: the mean, of some kind, over what the model would go on with."""
    if done and done[-1] == TOKENS[-1]:
        return reward(done)
    p = row("x", done)
    values = np.array([valued((*done, t), mean) if q > 0 else 0.0 for t, q in zip(TOKENS, p, strict=True)])
    return mean(p, values)


@pytest.mark.parametrize("soft", [True, False])
def test_only_the_soft_value_tilts_whole_sequences(soft: bool) -> None:
    """V = (1/λ) log E_p e^(λr) gives p e^(λr) / Z of whole sequences; V = E_p[r] does not."""
    weight = 3.0

    def soft_mean(p: Floats, values: Floats) -> float:
        return float(np.log((p * np.exp(weight * values)).sum()) / weight)

    def plain_mean(p: Floats, values: Floats) -> float:
        return float((p * values).sum())

    def values(ids: tuple[int, ...]) -> list[float]:
        done = tuple(TOKENS[i] for i in ids if i < OPEN)
        mean = soft_mean if soft else plain_mean
        return [
            valued((*done, token), mean) if len(done) < LONGEST or i == OPEN - 1 else 0.0
            for i, token in enumerate(TOKENS)
        ] + [0.0] * 256

    plain = probabilities(lambda done: row("x", done))
    tilted = {c: p * np.exp(weight * reward(c)) for c, p in plain.items()}
    total = sum(tilted.values())
    with TorchEngine(
        Tilted(table("x"), (Function(table("x"), values, f"soft={soft}"),), (weight,)), threads=1
    ) as engine:
        found = probabilities(lambda done: next_of(engine, done) if len(done) < LONGEST else row("x", done))
    off = max(abs(found[c] - p / total) for c, p in tilted.items())
    assert off < 1e-5 if soft else off > 0.005
    # Both win reward.
    expected = sum(p * reward(c) for c, p in plain.items())
    assert sum(p * reward(c) for c, p in found.items()) > expected + 0.1
