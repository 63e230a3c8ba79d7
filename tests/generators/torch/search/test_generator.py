"""A generator that searches: its samples are ranks of one search, whatever is asked for first."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from metagen.errors import InputError
from metagen.generators.decoding.search import BeamSearch, ContrastiveSearch, SearchSpec, StochasticBeamSearch
from metagen.generators.torch import TorchEngine
from metagen.scope import Scope
from metagen.sequence import Sequence

PROMPT = Sequence.of("Q:a=12+7;b=a*3;c=b-8;c?\nS:\n")
SEARCHES = [BeamSearch(4), StochasticBeamSearch(4)]


@pytest.fixture(scope="module")
def engine() -> Iterator[TorchEngine]:
    with TorchEngine("tiny-0.1m", threads=1, max_batch=16) as opened:
        yield opened


def ask(engine: TorchEngine, search: SearchSpec, n: int, start: int, scope: Scope) -> list[Sequence]:
    generator = engine.generator(max_tokens=40, search=search)
    return asyncio.run(generator.generate(PROMPT, n=n, start=start, scope=scope))


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.kind)
def test_samples_are_ranks(engine: TorchEngine, search: SearchSpec) -> None:
    """In one call, one after another, and the last ones alone: the same sequences, the best first."""
    together = ask(engine, search, 4, 0, Scope.root("p", seed=3))
    scope = Scope.root("p", seed=3)
    one_by_one = ask(engine, search, 1, 0, scope) + ask(engine, search, 3, 1, scope)
    last = ask(engine, search, 2, 2, Scope.root("p", seed=3))
    assert [s.text for s in together] == [s.text for s in one_by_one]
    assert [s.text for s in together[2:]] == [s.text for s in last]
    raw = [s.scores[search.kind].raw for s in together]
    assert raw == sorted(raw, reverse=True)  # type: ignore[type-var]
    assert len({s.text for s in together}) == 4


def test_beams_are_no_independent_samples(engine: TorchEngine) -> None:
    assert engine.generator().independent
    assert not any(engine.generator(search=search).independent for search in SEARCHES)


@pytest.mark.parametrize("params", [{"search": BeamSearch(4)}, {"healing": True}])
def test_what_is_all_thought_has_the_tokens_of_its_own_ids(params: dict[str, Any]) -> None:
    """Not those of the whole search, which the first result pays for, nor those that write the prompt's end anew."""
    prompt = Sequence.of("Q:a=12+7;b=a*3;b?\nS:\na=1")
    with TorchEngine("tiny-bpe", threads=1) as pieces:
        generator = pieces.generator(max_tokens=6, thought_end="</think>", **params)
        found = asyncio.run(generator.generate(prompt, n=4, scope=Scope.root("p", seed=3)))
    seen = [(s.thought.tokens, len(s.tokens.ids)) for s in found if s.thought and s.tokens]
    assert seen and all(tokens == ids > 0 for tokens, ids in seen)


@pytest.mark.parametrize(("search", "n"), [(BeamSearch(4), 5), (ContrastiveSearch(), 2)])
def test_no_more_is_asked_for_than_is_found(engine: TorchEngine, search: SearchSpec, n: int) -> None:
    with pytest.raises(InputError, match=f"n={n}"):
        ask(engine, search, n, 0, Scope.root("p"))
