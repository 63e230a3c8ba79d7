"""Grammars on the torch engine: every row stays in its own, beside rows that are free."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from metagen.errors import EngineError, InputError
from metagen.generators.constraint import Matcher
from metagen.generators.grammar import Grammar
from metagen.generators.primitive import EngineGenerator
from metagen.generators.torch import TorchEngine
from metagen.scope import Scope
from metagen.sequence import Sequence, Step
from metagen.tasks.arithmetic.task import ArithmeticTask

LINES = r"([a-h]=-?\d{1,3}[-+*/]-?\d{1,3}=-?\d{1,3}\n){1,3}A:-?\d{1,3}\n"


@pytest.fixture(scope="module", params=["tiny-0.1m", "tiny-bpe"])
def engine(request: pytest.FixtureRequest) -> Iterator[TorchEngine]:
    with TorchEngine(request.param) as engine:
        yield engine


PROMPTS = [p.prompt for p in ArithmeticTask("validation", per_level=2, levels=[1, 3]).problems()]


def test_all_samples_are_in_the_grammar_and_neighbours_are_as_they_were(engine: TorchEngine) -> None:
    free, held = (
        engine.generator(max_tokens=64),
        engine.generator(max_tokens=64, grammar=Grammar.regex(LINES)),
    )

    async def ask(*generators: EngineGenerator) -> list[list[Sequence]]:
        return await asyncio.gather(
            *(
                g.generate(Sequence.of(prompt), n=8, scope=Scope.root(f"{prompt.problem_id}{i}"))
                for prompt in PROMPTS
                for i, g in enumerate(generators)
            )
        )

    mixed = asyncio.run(ask(free, held))
    alone = asyncio.run(ask(free))
    assert [[s.text for s in one] for one in mixed[::2]] == [[s.text for s in one] for one in alone]
    samples = [s for one in mixed[1::2] for s in one]
    ended = [s for s in samples if s.finish == "eos"]
    assert ended and all(re.fullmatch(LINES, s.text) for s in ended)
    assert any(not re.fullmatch(LINES, s.text) for one in mixed[::2] for s in one)


def test_steps_of_a_search_stay_in_the_grammar(engine: TorchEngine) -> None:
    """Continued from prefixes with ids, and from one whose text has none."""
    held = engine.generator(max_tokens=96, grammar=Grammar.regex(LINES))

    async def climb() -> list[str]:
        scope, prefix, texts = Scope.root("p"), Sequence.of(PROMPTS[0]), []
        for depth in range(6):
            (prefix,) = await held.generate(prefix, until=Step("\n"), scope=scope.child(f"node/{depth}"))
            texts.append(prefix.text)
            if prefix.finish is not None:
                break
        return texts

    texts = asyncio.run(climb())
    assert re.fullmatch(LINES, texts[-1])

    async def once(text: str) -> Sequence:
        begun = Sequence.of(PROMPTS[0]).extend(text)
        (sample,) = await held.generate(begun, scope=Scope.root("q"))
        return sample

    assert re.match(LINES, asyncio.run(once("a=1+2=3\nA:")).text + "\n")
    with pytest.raises(InputError, match="the prefix does not begin a text of the grammar"):
        asyncio.run(once("A:"))


def test_greedy_within_a_grammar_is_the_best_that_is_allowed(engine: TorchEngine) -> None:
    yes_or_no = engine.generator(
        temperature=0.0, grammar=Grammar.choice(["A:1", "A:2", "A:33"]), logprobs=True
    )

    async def ask() -> Sequence:
        (sample,) = await yes_or_no.generate(Sequence.of(PROMPTS[0]), scope=Scope.root("p"))
        return sample

    sample = asyncio.run(ask())
    assert sample.text in ("A:1", "A:2", "A:33") and sample.finish == "eos"
    assert sample.token_logprobs is not None and all(value < 0 for value in sample.token_logprobs)


def test_a_wrong_grammar_harms_nobody(engine: TorchEngine) -> None:
    good = engine.generator(max_tokens=8)
    bad = engine.generator(max_tokens=8, grammar=Grammar.regex("("))

    async def ask() -> list[object]:
        return await asyncio.gather(
            good.generate(Sequence.of(PROMPTS[0]), scope=Scope.root("a")),
            bad.generate(Sequence.of(PROMPTS[0]), scope=Scope.root("b")),
            return_exceptions=True,
        )

    first, second = asyncio.run(ask())
    assert isinstance(first, list) and isinstance(second, InputError)


def test_a_grammar_that_is_lost_at_the_last_token_fails_the_request(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was drawn then was drawn from all tokens: it is no sample, though it ends there."""
    allowed, calls = Matcher.allowed, 0

    def lost(self: Matcher) -> NDArray[np.bool_]:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise EngineError("the grammar cannot be matched any further")
        return allowed(self)

    monkeypatch.setattr(Matcher, "allowed", lost)
    generator = engine.generator(max_tokens=3, grammar=Grammar.regex(LINES))
    with pytest.raises(EngineError, match="cannot be matched any further"):
        asyncio.run(generator.generate(Sequence.of(PROMPTS[0]), scope=Scope.root("p")))
