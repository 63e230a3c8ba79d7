"""Likelihoods of given sequences: against the exact table, against transformers, and under limits."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from metagen.budget import Budget
from metagen.errors import BudgetExhausted, InputError, PromptError, UnsupportedError
from metagen.generators.engine import EvaluateRequest
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.likelihood import Likelihood, alikelihoods, likelihoods
from metagen.generators.models import sources
from metagen.generators.openai import OpenAIEngine
from metagen.generators.torch import TorchEngine
from metagen.generators.vllm import refusals
from metagen.journal import MemoryJournal
from metagen.scope import Scope
from metagen.sequence import Sequence, TokenIds

TABLE = {
    (): (0.5, 0.3, 0.2),
    ("a",): (0.1, 0.6, 0.3),
    ("b",): (0.0, 0.25, 0.75),
    ("a", "b"): (0.2, 0.3, 0.5),
    ("b", "a"): (0.1, 0.1, 0.8),
    ("b", "b"): (0.0, 0.0, 1.0),
}
PROMPT = "Q:a=12+7;b=a*3;b?\nS:\n"


@pytest.fixture
def table() -> Iterator[EnumerableEngine]:
    with EnumerableEngine("ab$", TABLE) as engine:
        yield engine


@pytest.fixture(scope="module")
def tiny_engine() -> Iterator[TorchEngine]:
    with TorchEngine("tiny-0.1m", threads=1) as engine:
        yield engine


def entropy(p: tuple[float, ...]) -> float:
    return -sum(x * math.log(x) for x in p if x)


def test_the_table_is_read_exactly(table: EnumerableEngine) -> None:
    start = Sequence.of("?")
    empty, ab, impossible = likelihoods(table, [start, start.extend("ab"), start.extend("ba")])
    assert empty == Likelihood((), (), (), pytest.approx(math.log(0.2)))
    assert (empty.logprob, empty.perplexity) == (0.0, 1.0)
    assert ab.logprobs == pytest.approx([math.log(0.5), math.log(0.6)])
    assert ab.entropies == pytest.approx([entropy(TABLE[()]), entropy(TABLE["a",])])
    assert ab.surprises == pytest.approx([1.0, -math.log2(0.6)])
    assert ab.perplexity == pytest.approx(0.3**-0.5)
    assert ab.end == pytest.approx(math.log(0.5))
    assert (impossible.logprob, impossible.surprises[1]) == (-math.inf, math.inf)


def test_entropies_only_where_they_are_asked_for(table: EnumerableEngine) -> None:
    start = Sequence.of("?")
    plain = likelihoods(table, [start, start.extend("a")], entropies=False)
    assert [one.entropies for one in plain] == [None, None]
    assert likelihoods(table, []) == []


def test_sequences_of_the_whole_table_have_the_probability_that_enumeration_gives(
    table: EnumerableEngine,
) -> None:
    exact = table.sequences(max_tokens=2)
    ended = [y for y in exact if y[-1] == "$"]
    found = likelihoods(table, [Sequence.of("?").extend("".join(y[:-1])) for y in ended])
    assert [math.exp(one.logprob + (one.end or 0)) for one in found] == pytest.approx(
        [exact[y] for y in ended]
    )


def test_a_text_in_other_tokens_is_another_reading(table: EnumerableEngine) -> None:
    engine = EnumerableEngine(["a", "aa", "$"], lambda prompt, done: (0.5, 0.25, 0.25), name="two ways")
    with engine:
        two = TokenIds((0, 0), engine.tokenizer_fingerprint)
        start = Sequence.of("?")
        longest, single = likelihoods(engine, [start.extend("aa"), start.extend("aa", tokens=two)])
    assert (longest.ids, single.ids) == ((1,), (0, 0))
    assert longest.logprob == pytest.approx(single.logprob)
    assert longest.perplexity == pytest.approx(4) != single.perplexity


def test_it_agrees_with_transformers(tiny_engine: TorchEngine) -> None:
    model = AutoModelForCausalLM.from_pretrained(sources.resolve("tiny-0.1m"), dtype=torch.float32).eval()
    texts = ["a=12+7=19\nb=19*3=57\nA:57", "a=12+7=18\n", "zzz", ""]
    sequences = [Sequence.of(PROMPT).extend(text) for text in texts]
    start = len(tiny_engine.render(Sequence.of(PROMPT)))
    for sequence, found in zip(sequences, likelihoods(tiny_engine, sequences), strict=True):
        ids = tiny_engine.render(sequence)
        with torch.no_grad():
            logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
        p = logprobs.exp()
        places = torch.arange(start - 1, len(ids) - 1)
        assert found.ids == ids[start:]
        assert found.logprobs == pytest.approx(logprobs[places, list(ids[start:])].tolist(), abs=1e-4)
        assert found.entropies == pytest.approx((-(p * logprobs).sum(-1))[places].tolist(), abs=1e-4)
        assert found.end == pytest.approx(logprobs[-1, list(tiny_engine.ends)].logsumexp(0).item(), abs=1e-4)


def test_what_sequences_share_is_read_once(tiny_engine: TorchEngine) -> None:
    steps = Sequence.of("Q:a=50+7;b=a*3;b?\nS:\n").extend("a=50+7=57\n")
    before = tiny_engine.stats.prefilled
    likelihoods(tiny_engine, [steps.extend(end) for end in ("b=57*3=171\nA:171", "b=57*3=170\nA:170")])
    length = len(tiny_engine.render(steps)) - 1
    assert tiny_engine.stats.prefilled - before < 2 * length + 2 * 20


def test_it_is_recorded_and_charged(table: EnumerableEngine) -> None:
    journal, start = MemoryJournal(), Sequence.of("??")

    async def read(texts: list[str], budget: Budget | None = None) -> tuple[list[Likelihood], Scope]:
        scope = Scope.root("p", journal=journal, budget=budget)
        return await alikelihoods(table, [start.extend(text) for text in texts], scope=scope), scope

    found, scope = asyncio.run(read(["ab", "a", "ab"]))
    assert found[0] == found[2]
    # Two bytes of a prompt and two tokens; the shorter text was read with the longer.
    assert (scope.usage.prefilled, scope.usage.calls) == (4, 2)
    read_so_far = table.stats.requests
    again, scope = asyncio.run(read(["ab", "a"]))
    assert (again, table.stats.requests) == (found[:2], read_so_far)
    few, scope = asyncio.run(read(["b", "ba"], Budget(prefilled=3)))
    assert len(few) == 1 and scope.exhausted
    with pytest.raises(BudgetExhausted):
        asyncio.run(read(["bb"], Budget(prefilled=3)))


def test_what_cannot_be_read_is_said(table: EnumerableEngine, tiny_engine: TorchEngine) -> None:
    with (
        OpenAIEngine("m", base_url="http://localhost:1") as server,
        pytest.raises(UnsupportedError, match="no token ids"),
    ):
        likelihoods(server, [Sequence.of("?")])
    with pytest.raises(
        PromptError, match=r"the tokens cannot write the completion 'a=é'.*leave it out, or give ids"
    ):
        likelihoods(tiny_engine, [Sequence.of(PROMPT).extend("a=é")])
    with pytest.raises(PromptError, match=r"'ab\?' cannot be written in the tokens"):
        likelihoods(table, [Sequence.of("?").extend("ab?")])
    with pytest.raises(PromptError, match="exceed the context"):
        likelihoods(tiny_engine, [Sequence.of(PROMPT).extend("1" * tiny_engine.max_context)])
    with pytest.raises(InputError, match="no distribution"):
        asyncio.run(tiny_engine.evaluate([EvaluateRequest((1, 2), (0,), outputs=True, entropies=True)]))
    with pytest.raises(UnsupportedError, match="no entropies"):
        refusals.reads(EvaluateRequest((1, 2), (0,), entropies=True), "m")


def test_ids_of_an_unknown_token_are_read_as_they_are(tiny_engine: TorchEngine) -> None:
    unknown = tiny_engine.encode("é")
    given = Sequence.of(PROMPT).extend("<unk>", tokens=TokenIds(unknown, tiny_engine.tokenizer_fingerprint))
    (found,) = likelihoods(tiny_engine, [given])
    assert found.ids == unknown and found.logprob < -10


def test_entropies_come_by_position_as_they_were_asked_for(tiny_engine: TorchEngine) -> None:
    ids = tiny_engine.render(Sequence.of(PROMPT))
    forth, back = asyncio.run(
        tiny_engine.evaluate(
            [EvaluateRequest(ids, places, (5, 6), entropies=True) for places in ((3, 4, 9), (9, 4, 3))]
        )
    )
    assert forth.entropies == pytest.approx((back.entropies or ())[::-1], abs=1e-5)
    (everything,) = asyncio.run(
        tiny_engine.evaluate([EvaluateRequest(ids, (9,), tuple(range(tiny_engine.vocabulary)))])
    )
    p = np.exp(np.array(everything.values[0]))
    assert (forth.entropies or ())[2] == pytest.approx(float(-(p * np.log(p)).sum()), abs=1e-5)
