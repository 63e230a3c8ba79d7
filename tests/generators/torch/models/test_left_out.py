"""What a formula leaves out: no search finds it, no temperature draws it, and its likelihood is 0."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from metagen.errors import MetagenError
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.search import BeamSearch, SearchSpec, StochasticBeamSearch
from metagen.generators.engine import Generated, GenerateRequest, SamplingParams
from metagen.generators.likelihood import likelihoods
from metagen.generators.models.recipes import Contrastive
from metagen.generators.torch import TorchEngine
from metagen.sequence import Sequence
from tests.generators.torch.models.tables import LONGEST, TOKENS, Floats, row, table

RECIPE = Contrastive(table("x"), table("y"), alpha=0.3)


def head(done: tuple[str, ...]) -> Floats:
    p = row("x", done)
    return p >= 0.3 * p.max()


def possible(done: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Every text of which each token is in the head."""
    if done and done[-1] == TOKENS[-1]:
        return {done}
    return {text for t, ok in zip(TOKENS, head(done), strict=True) if ok for text in possible((*done, t))}


def texts(answer: Generated) -> list[tuple[str, ...]]:
    return [(*(TOKENS[i] for i in s.ids or ()), TOKENS[-1]) for s in answer.samples]


def ask(engine: TorchEngine, n: int, search: SearchSpec | None = None, **params: object) -> Generated:
    given = SamplingParams(search=search, max_tokens=LONGEST + 1, **params)  # type: ignore[arg-type]  # some of its fields
    ranks = tuple(range(n)) if search else ()
    seeds = (0,) * n if search else tuple(range(n))
    request = GenerateRequest(Sequence.of("?"), seeds, given, LONGEST + 1, ranks=ranks)
    return asyncio.run(engine.generate(request))


@pytest.mark.parametrize("kind", [BeamSearch, StochasticBeamSearch])
def test_searches_find_what_is_possible_and_no_more(kind: type[BeamSearch | StochasticBeamSearch]) -> None:
    there = possible()
    assert 2 < len(there) < 40
    with TorchEngine(RECIPE, threads=1, max_batch=64) as engine:
        found = ask(engine, len(there), kind(48))
        assert set(texts(found)) == there
        assert all(math.isfinite(s.logprob) and s.logprob > -50 for s in found.samples)
        with pytest.raises(MetagenError, match=f"a search has found {len(there)} sequences"):
            ask(engine, len(there) + 1, kind(48))


def test_no_temperature_draws_it() -> None:
    with TorchEngine(RECIPE, threads=1, max_batch=64) as engine:
        for temperature in (1.0, 1000.0, 1e6):
            assert set(texts(ask(engine, 400, temperature=temperature))) <= possible(), temperature


@pytest.mark.parametrize("params", [None, SamplingParams(), SamplingParams(temperature=0.5, top_p=0.9)])
def test_its_likelihood_is_0(params: SamplingParams | None) -> None:
    begins = head(())
    with TorchEngine(RECIPE, threads=1) as engine:
        each = [Sequence.of("?").extend(token) for token in TOKENS[:-1]]
        read = [one.logprobs[0] for one in likelihoods(engine, each, params=params)]
    assert not begins[:-1].all()
    for ok, value in zip(begins[:-1].tolist(), read, strict=True):
        assert value == -math.inf or (ok and value > -50)
        assert ok or value == -math.inf


def test_what_a_grammar_leaves_of_it_is_all_there_is() -> None:
    outside = int(np.flatnonzero(~head(())[:2])[0])
    for temperature in (1.0, 1000.0):
        with TorchEngine(RECIPE, threads=1) as engine:
            held = ask(engine, 3, temperature=temperature, grammar=Grammar.choice([TOKENS[outside]]))
            assert {s.text for s in held.samples} == {TOKENS[outside]}
