"""The weights that take the bias of masks out: exact on an enumerable model."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Any

import pytest

from metagen.errors import DataError, InputError, UnsupportedError
from metagen.generators.decoding.adapters import Mirostat
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.engine import SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.primitive import EngineGenerator
from metagen.generators.torch import TorchEngine
from metagen.journal import MemoryJournal
from metagen.scope import Scope
from metagen.sequence import Sequence, TokenIds
from metagen.trace import Trace
from metagen.verifiers.mass import ConstraintMass, GrammarMass

TOKENS = ("a", "b", "ab", "1", "<end>")
GRAMMAR = Grammar.regex("a(a|b)|b1", canonical=False)


def coin() -> EnumerableEngine:
    def row(prompt: str, done: tuple[str, ...]) -> list[float]:
        return [0.4, 0.2, 0.1, 0.1, 0.2] if len(done) % 2 == 0 else [0.1, 0.5, 0.05, 0.05, 0.3]

    return EnumerableEngine(TOKENS, row, name="alternating")


@pytest.mark.parametrize(
    "params", [{}, {"temperature": 0.7}, {"temperature": 2.0, "repetition_penalty": 1.5}]
)
def test_weights_turn_what_is_drawn_into_the_model_given_its_text(params: dict[str, Any]) -> None:
    """p(y | y in the grammar) = q(y) w(y) / Σ q w, for every text, and Σ q w is the probability of the grammar."""
    engine = coin()
    free = engine.sequences("?", SamplingParams(**params))
    held = engine.sequences("?", SamplingParams(grammar=GRAMMAR, **params))
    texts = {"aa", "ab", "b1"}
    given = {ids: p for ids, p in free.items() if ids[-1] == "<end>" and "".join(ids[:-1]) in texts}
    with engine:
        mass = GrammarMass(engine.generator(grammar=GRAMMAR, **params))
        drawn = {ids: finished(engine, ids[:-1]) for ids in held}

        async def ask() -> list[Any]:
            return await mass.score(list(drawn.values()), scope=Scope.root("p"))

        scores = dict(zip(drawn, asyncio.run(ask()), strict=True))
    assert set(given) <= set(held)
    weighed = {ids: held[ids] * math.exp(scores[ids].raw) for ids in held if scores[ids].value}
    assert weighed == pytest.approx(given)
    biased = max(abs(held[ids] - given[ids] / sum(given.values())) for ids in given)
    assert biased > 0.02, "without the weights it is another distribution"


def finished(engine: EnumerableEngine, tokens: tuple[str, ...]) -> Sequence:
    ids = tuple(map(TOKENS.index, tokens))
    return Sequence.of("?").extend(
        "".join(tokens), tokens=TokenIds(ids, engine.tokenizer_fingerprint), finish="eos"
    )


def test_a_beginning_weighs_what_its_tokens_weigh() -> None:
    with coin() as engine:
        mass = GrammarMass(engine.generator(grammar=GRAMMAR))

        async def ask() -> list[Any]:
            begun = Sequence.of("?").extend("a")
            return await mass.score([Sequence.of("?"), begun], scope=Scope.root("p"))

        empty, begun = asyncio.run(ask())
    assert empty.value == 1.0 and begun.value == pytest.approx(0.4 + 0.2 + 0.1)


def test_a_recorded_beginning_counts_as_read_and_each_score_is_one_call() -> None:
    with coin() as engine:
        mass = GrammarMass(engine.generator(grammar=GRAMMAR))

        async def ask(texts: list[str], journal: MemoryJournal) -> Trace:
            scope = Scope.root("p", journal=journal)
            for text in texts:
                await mass.score([Sequence.of("?").extend(text)], scope=scope)
            return scope.trace

        journal = MemoryJournal()
        fresh = asyncio.run(ask(["a", "aa"], MemoryJournal()))
        asyncio.run(ask(["a"], journal))
        resumed = asyncio.run(ask(["a", "aa"], journal))
    assert replace(resumed.usage, seconds=0) == replace(fresh.usage, seconds=0)
    assert fresh.usage.cached and fresh.physical.calls == 2


def test_what_was_kept_is_what_is_read_again_and_weighs_a_vote() -> None:
    """Self-normalised, over 3,000 fixed seeds: shares of p given the grammar, at no cost."""
    with coin() as engine:
        free = engine.sequences("?", SamplingParams())
        given = {"".join(y[:-1]): 0.0 for y in free if y[-1] == "<end>"}
        for y, p in free.items():
            if y[-1] == "<end>":
                given["".join(y[:-1])] += p
        total = sum(given[text] for text in ("aa", "ab", "b1"))
        held = engine.generator(grammar=GRAMMAR, log_mass=True)
        read, kept = GrammarMass(engine.generator(grammar=GRAMMAR)), ConstraintMass()

        async def ask() -> tuple[list[Sequence], list[Any], list[Any]]:
            scope = Scope.root("p")
            drawn = await held.generate(Sequence.of("?"), n=3000, scope=scope.child("draw"))
            scores = await kept.score(drawn, scope=scope.child("kept"))
            assert all(row.kind == "generate" for row in scope.trace.rows), "nothing is asked of a model"
            again = await read.score(drawn[:40], scope=scope.child("read"))
            return drawn, scores, again

        drawn, scores, again = asyncio.run(ask())
    assert [s.raw for s in scores[:40]] == pytest.approx([s.raw for s in again])
    assert math.fsum(s.value for s in scores) / len(scores) == pytest.approx(total, abs=0.01)
    for text in ("aa", "ab", "b1"):
        share = math.fsum(w.value for s, w in zip(drawn, scores, strict=True) if s.text == text)
        share /= math.fsum(w.value for w in scores)
        assert share == pytest.approx(given[text] / total, abs=0.03)


def test_what_was_not_kept_cannot_be_read() -> None:
    with coin() as engine:
        generator = engine.generator(grammar=GRAMMAR)

        async def ask() -> list[Any]:
            drawn = await generator.generate(Sequence.of("?"), scope=Scope.root("p"))
            return await ConstraintMass().score(drawn, scope=Scope.root("p"))

        with pytest.raises(DataError, match="log_mass=True and a temperature above 0"):
            asyncio.run(ask())


def test_weights_of_a_real_model_are_masses() -> None:
    with TorchEngine("tiny-bpe", threads=1) as engine:
        generator = engine.generator(grammar=Grammar.regex("a=[0-9+]{1,8}=[0-9]{1,3}\n"), max_tokens=24)
        mass = GrammarMass(generator)

        async def ask() -> list[Any]:
            scope = Scope.root("p")
            drawn = await generator.generate(Sequence.of("Q:a=12+7;a?\nS:\n"), n=4, scope=scope.child("draw"))
            return await mass.score(drawn, scope=scope.child("weigh"))

        for score in asyncio.run(ask()):
            assert (
                score.raw < 0 and 0 < score.value <= 1 and score.value == pytest.approx(math.exp(score.raw))
            )


def test_what_cannot_be_weighed_is_refused() -> None:
    with pytest.raises(InputError, match="held to no grammar"):
        GrammarMass(coin().generator())
    for cut in ({"top_k": 2}, {"top_p": 0.9}, {"min_p": 0.1}, {"typical_p": 0.9}, {"mirostat": Mirostat()}):
        with pytest.raises(InputError, match=rf"{next(iter(cut))}=.*cuts tokens off behind .*; leave it out"):
            GrammarMass(coin().generator(grammar=GRAMMAR, **cut))
    plain = type("Plain", (EnumerableEngine,), {"ends": ()})(TOKENS, {}, name="plain")
    with pytest.raises(UnsupportedError, match="does not say which of them end a text"):
        GrammarMass(EngineGenerator(plain, SamplingParams(grammar=GRAMMAR)))
