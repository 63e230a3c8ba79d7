"""Grammars on the torch engine: every row stays in its own, beside rows that are free."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from metagen.errors import EngineError, InputError
from metagen.generators.decoding.constraint import Matcher
from metagen.generators.decoding.draft import Draft
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.search import BeamSearch, SearchSpec, StochasticBeamSearch
from metagen.generators.engine import Generated, GenerateRequest, SamplingParams
from metagen.generators.primitive import EngineGenerator
from metagen.generators.torch import TorchEngine
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence, Step
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


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "ok": {"type": "boolean"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("most", [20, 21, 24, 40, 90])
def test_a_document_that_closes_is_never_cut(engine: TorchEngine, most: int) -> None:
    """From the shortest there is on: '{"name":"","age":0}' and its end, one token a character in both vocabularies."""

    async def ask(close: bool) -> list[Sequence]:
        held = engine.generator(max_tokens=most, grammar=Grammar.json(SCHEMA, close=close), temperature=2.0)
        return await held.generate(Sequence.of(PROMPTS[0]), n=12, scope=Scope.root("p"))

    for sample in asyncio.run(ask(close=True)):
        document = json.loads(sample.text)
        assert (
            sample.finish == "eos" and isinstance(document["name"], str) and isinstance(document["age"], int)
        )
    if most < 30:
        assert any(s.finish == "length" for s in asyncio.run(ask(close=False))), "without it, some are cut"


def test_forced_tokens_are_what_would_be_drawn_and_are_counted(engine: TorchEngine) -> None:
    """Names of properties: no row decodes them one by one, and the samples are those of one token at a time."""
    grammar = Grammar.regex(r'\{"name":"[a-h]{1,3}","value":[0-9]\}')

    async def ask() -> Generated:
        params = SamplingParams(max_tokens=64, grammar=grammar, logprobs=True)
        return await engine.generate(
            GenerateRequest(Sequence.of(PROMPTS[0]), tuple(range(6)), params, max_tokens=64)
        )

    steps = engine.stats.extra["steps"]
    samples = asyncio.run(ask()).samples
    steps = engine.stats.extra["steps"] - steps
    constraints = engine._tokenizer.constraints()
    for sample in samples:
        assert re.fullmatch(grammar.source, sample.text) and sample.finish == "eos"
        assert sample.generated is not None and sample.ids is not None
        assert 10 <= sample.forced < sample.generated
        # Wherever the mask leaves a choice, a token was drawn.
        matcher, drawn = constraints.matcher(grammar), 0
        for token in sample.ids:
            drawn += int(matcher.allowed_tokens().sum() > 1)
            assert matcher.consume([token])
        assert sample.generated - sample.forced >= drawn
    assert steps < min(s.generated or 0 for s in samples), "forced tokens take no steps of their own"


@pytest.mark.parametrize("search", [BeamSearch(width=4), StochasticBeamSearch(width=4)], ids=lambda s: s.kind)
def test_beams_write_whole_documents(engine: TorchEngine, search: SearchSpec) -> None:
    """Beams take the places of their parents in the grammar with them, and its end is within reach of all."""
    held = engine.generator(max_tokens=24, grammar=Grammar.json(SCHEMA, close=True), search=search)

    async def ask() -> list[Sequence]:
        return await held.generate(Sequence.of(PROMPTS[0]), n=4, scope=Scope.root("p"))

    samples = asyncio.run(ask())
    assert len({s.text for s in samples}) == 4
    assert all(s.finish == "eos" and isinstance(json.loads(s.text)["age"], int) for s in samples)


@pytest.mark.parametrize("draft", [Draft(None, ngram=3), Draft("tiny-0.1m")], ids=["lookup", "drafted"])
def test_drafts_stay_in_the_grammar_and_greedy_ones_change_nothing(draft: Draft) -> None:
    held = {"temperature": 0.0, "grammar": Grammar.regex(LINES, close=True), "max_tokens": 40}

    async def ask(engine: TorchEngine, **params: Any) -> list[Sequence]:
        generator = engine.generator(**params)
        return await asyncio.gather(
            *(one_of(generator, prompt, i) for i, prompt in enumerate(PROMPTS)),
        )

    async def one_of(generator: EngineGenerator, prompt: Prompt, i: int) -> Sequence:
        (sample,) = await generator.generate(Sequence.of(prompt), scope=Scope.root(str(i)))
        return sample

    with (
        TorchEngine("tiny-0.5m", threads=1) as plain,
        TorchEngine("tiny-0.5m", threads=1, draft=draft) as drafting,
    ):
        expected = asyncio.run(ask(plain, **held))
        assert [s.text for s in asyncio.run(ask(drafting, **held))] == [s.text for s in expected]
        warm = asyncio.run(ask(drafting, **{**held, "temperature": 1.5}))
    assert all(re.fullmatch(LINES, s.text) and s.finish == "eos" for s in [*expected, *warm])


def test_a_whole_tail_of_forced_text_behind_a_short_prompt(steps: str) -> None:
    text = "".join(random.Random(0).choices("abcdefgh ", k=300))
    params = SamplingParams(max_tokens=400, grammar=Grammar.regex(text))
    with TorchEngine("tiny-2m", threads=1, max_batch=4) as engine:
        assert engine._parts()[0].chunk < len(text), "it comes in more goes than one"
        found = asyncio.run(engine.generate(GenerateRequest(Sequence.of(PROMPTS[0]), (0, 1), params, 400)))
    assert [sample.text for sample in found.samples] == [text, text]
    assert all((sample.forced or 0) > 250 for sample in found.samples)


def test_a_wrong_grammar_harms_nobody(engine: TorchEngine) -> None:
    good = engine.generator(max_tokens=8)
    bad = SamplingParams(max_tokens=8, grammar=Grammar.regex("("))
    request = GenerateRequest(Sequence.of(PROMPTS[0]), (0,), bad, 8)

    async def ask() -> list[object]:
        return await asyncio.gather(
            good.generate(Sequence.of(PROMPTS[0]), scope=Scope.root("a")),
            engine.generate(request),
            return_exceptions=True,
        )

    first, second = asyncio.run(ask())
    assert isinstance(first, list) and isinstance(second, InputError)


@pytest.mark.parametrize("grammar", [Grammar.regex("("), Grammar.regex("a=\u2208")])
def test_a_wrong_grammar_is_an_error_when_a_generator_is_made(grammar: Grammar) -> None:
    with pytest.raises(InputError, match="regex grammar"):
        TorchEngine("tiny-0.1m", threads=1, max_batch=2).generator(grammar=grammar)


def test_a_grammar_that_is_lost_at_the_last_token_fails_the_request(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was drawn then was drawn from all tokens: it is no sample, though it ends there."""
    allowed, calls = Matcher.allowed_tokens, 0

    def lost(self: Matcher, left: int | None = None) -> NDArray[np.bool_]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise EngineError("the grammar cannot be matched any further")
        return allowed(self, left)

    monkeypatch.setattr(Matcher, "allowed_tokens", lost)
    generator = engine.generator(max_tokens=2, grammar=Grammar.regex(LINES))
    with pytest.raises(EngineError, match="cannot be matched any further"):
        asyncio.run(generator.generate(Sequence.of(PROMPTS[0]), scope=Scope.root("p")))


def test_a_budget_cuts_what_closes_and_shapes_nothing(engine: TorchEngine) -> None:
    """What is drawn under a cap is the beginning of what is drawn without, so that records serve both.

    Under some of these caps a closed text would fit, and it would be another one.
    """

    async def ask(params: SamplingParams, most: int) -> Generated:
        return await engine.generate(
            GenerateRequest(Sequence.of(PROMPTS[0]), tuple(range(8)), params, max_tokens=most)
        )

    for grammar in (Grammar.json(SCHEMA, close=True), Grammar.regex(LINES, close=True)):
        params = SamplingParams(max_tokens=60, grammar=grammar)
        complete = asyncio.run(ask(params, 60)).samples
        assert all(whole.finish == "eos" for whole in complete)
        for cap in (6, 12, 16, 20, 24):
            for whole, cut in zip(complete, asyncio.run(ask(params, cap)).samples, strict=True):
                assert cut.finish == ("eos" if (whole.generated or 0) <= cap else "length")
                assert whole.text.startswith(cut.text)
