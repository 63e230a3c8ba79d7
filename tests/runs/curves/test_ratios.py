"""KL by log-likelihood ratios, against its exact value."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator

import numpy as np
import pytest

from metagen.analysis.alignment import kl
from metagen.errors import InputError
from metagen.generators.engine import SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.runs.curves.ratios import Law, kl_by_problem, log_ratios
from metagen.scope import Scope
from metagen.sequence import Sequence

TOKENS = ("a", "b", "$")


def after(prompt: str, done: tuple[str, ...]) -> tuple[float, float, float]:
    if len(done) == 3:
        return 0.0, 0.0, 1.0
    return {(): (0.5, 0.3, 0.2), ("a",): (0.2, 0.6, 0.2), ("b",): (0.5, 0.25, 0.25)}[done[-1:]]


@pytest.fixture
def letters() -> Iterator[EnumerableEngine]:
    with EnumerableEngine(TOKENS, after, name="letters") as engine:
        yield engine


def drawn(engine: EnumerableEngine, params: SamplingParams, n: int, prompt: str) -> list[Sequence]:
    generator = engine.generator(
        temperature=params.temperature, top_k=params.top_k, max_tokens=params.max_tokens
    )
    return list(asyncio.run(generator.generate(Sequence.of(prompt), n=n, scope=Scope.root(prompt))))


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.6, max_tokens=8),
        SamplingParams(top_k=2, max_tokens=8),
        SamplingParams(max_tokens=2),
    ],
    ids=["temperature", "top k", "cut"],
)
def test_it_is_the_divergence(letters: EnumerableEngine, params: SamplingParams) -> None:
    groups = [drawn(letters, params, 1000, prompt) for prompt in ("x", "y")]
    found = log_ratios(Law(letters, params), Law(letters), groups)
    pi = letters.sequences("x", params, max_tokens=params.max_tokens)
    p = letters.sequences("x", max_tokens=params.max_tokens)
    exact = kl([pi.get(y, 0.0) for y in p], list(p.values()))
    every = np.concatenate(found)
    assert [len(one) for one in found] == [1000, 1000]
    # 4 standard errors: a false alarm in 16,000.
    assert every.mean() == pytest.approx(exact, abs=4 * every.std() / math.sqrt(len(every)) + 1e-12)
    means = kl_by_problem(Law(letters, params), Law(letters), groups)
    np.testing.assert_allclose(means, [one.mean() for one in found])
    np.testing.assert_allclose(kl_by_problem(Law(letters), Law(letters), groups), 0.0, atol=1e-12)


def test_what_the_model_rules_out_is_infinitely_far(letters: EnumerableEngine) -> None:
    groups = [drawn(letters, SamplingParams(max_tokens=8), 50, "x")]
    with EnumerableEngine(TOKENS, lambda _, done: (0.5, 0.0, 0.5), name="only a") as only:
        assert kl_by_problem(Law(letters), Law(only), groups).tolist() == [math.inf]
        with pytest.raises(InputError, match="no probability under the policy"):
            log_ratios(Law(only), Law(letters), groups)
    with pytest.raises(InputError, match="at least one of each"):
        log_ratios(Law(letters), Law(letters), [groups[0], []])
