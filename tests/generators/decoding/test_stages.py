"""Adapted distributions that are read, and the pipeline that they make."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

from metagen.errors import InputError, UnsupportedError
from metagen.generators.checks import adapts
from metagen.generators.decoding.adapters import Mirostat
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.parameters import ADAPTERS, ORDER
from metagen.generators.decoding.stages import pipeline
from metagen.generators.engine import EvaluateRequest, SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.likelihood import likelihoods
from metagen.generators.torch import TorchEngine
from metagen.scope import Scope
from metagen.sequence import Sequence

PROMPT, BEGUN = "Q:a=12/7;b=a*3;c=b-8;c?\nS:\n", "a=12/7=12/7\nb=12/7*3="
CASES: list[dict[str, Any]] = [
    {"temperature": 2.0, "top_p": 0.9},
    {"temperature": 1.5, "min_p": 0.05, "repetition_penalty": 1.2},
    {"temperature": 2.0, "grammar": Grammar.regex(r"[\s\S]*=[1-4][0-9/]*")},
    {"temperature": 1.7, "banned": ("3", "2"), "typical_p": 0.8},
]


@pytest.fixture(scope="module")
def engine() -> Iterator[TorchEngine]:
    with TorchEngine("tiny-0.1m", threads=1) as opened:
        yield opened


def test_every_adapter_has_its_place() -> None:
    assert sorted(ORDER) == sorted([*ADAPTERS, "temperature", "top_k", "top_p", "grammar"])
    assert [name for name in ORDER if name in ADAPTERS] == list(ADAPTERS)


def test_what_each_stage_adds_is_seen_behind_those_before_it(engine: TorchEngine) -> None:
    """A bias is added before a penalty divides: 2 / 1.5 and not 2."""
    seen = engine.encode("1")[0]
    params = SamplingParams(repetition_penalty=1.5, logit_bias={"1": 40.0, "@": 40.0})
    _, biased, penalised = pipeline(engine, Sequence.of(PROMPT), params).stages
    assert biased.adapter.startswith("logit_bias") and penalised.adapter == "repetition_penalty=1.5"
    odds = np.log(penalised.p[engine.encode("@")[0]] / penalised.p[seen])
    fresh = np.log(biased.p[engine.encode("@")[0]] / biased.p[seen])
    # "@" does not occur: its score stays; that of "1", which does, is a third less.
    assert odds > fresh + 10


@pytest.mark.parametrize("params", CASES, ids=lambda case: ", ".join(case))
def test_tokens_are_drawn_from_the_distribution_that_is_read(
    engine: TorchEngine, params: dict[str, Any]
) -> None:
    """Chi-square at a false-alarm rate of 1e-6, over fixed seeds."""
    n, prefix = 2_000, Sequence.of(PROMPT).extend(BEGUN)
    found = pipeline(engine, prefix, SamplingParams(**params))
    p = found.stages[-1].p
    generator = engine.generator(max_tokens=len(BEGUN) + 1, ignore_eos="grammar" not in params, **params)
    drawn = asyncio.run(generator.generate(prefix, n=n, scope=Scope.root("draws")))
    new = [one.text.removeprefix(BEGUN) for one in drawn]
    seen = Counter(engine.encode(text)[0] if text else engine.ends[0] for text in new)
    counts = np.array([seen[i] for i in range(len(p))], np.float64)
    assert not counts[p == 0].any()
    often = p * n >= 5
    counts = np.append(counts[often], counts[~often].sum())
    expected = np.append(p[often], p[~often].sum()) * n
    keep = expected > 0
    assert keep.sum() > 1
    assert stats.chisquare(counts[keep], expected[keep] * counts.sum() / expected[keep].sum()).pvalue > 1e-6


def test_stages_follow_the_order_of_adapters_not_of_their_names(engine: TorchEngine) -> None:
    params = SamplingParams(top_p=0.8, temperature=2.0, repetition_penalty=1.3)
    found = pipeline(engine, Sequence.of(PROMPT).extend(BEGUN), params)
    assert [stage.adapter for stage in found.stages] == [
        "", "repetition_penalty=1.3", "temperature=2", "top_p=0.8",
    ]  # fmt: skip
    raw, _, warm, cut = found.stages
    assert all(stage.p.sum() == pytest.approx(1, abs=1e-5) for stage in found.stages)
    assert cut.left < warm.left == raw.left == engine.vocabulary
    assert cut.cut(warm) == pytest.approx(warm.p[cut.p == 0].sum())
    kept = cut.p > 0
    assert cut.p[kept] == pytest.approx(warm.p[kept] / warm.p[kept].sum(), rel=1e-4)
    assert found.tokens[engine.encode("7")[0]] == "7"


def test_each_stage_has_as_much_room_as_the_text(engine: TorchEngine) -> None:
    params = SamplingParams(min_tokens=300, max_tokens=512)
    raw, held = pipeline(engine, Sequence.of(PROMPT), params).stages
    assert held.adapter == "min_tokens=300" and not held.p[list(engine.ends)].any() and raw.p.all()


def test_greedy_is_one_token(engine: TorchEngine) -> None:
    found = pipeline(engine, Sequence.of(PROMPT), SamplingParams(temperature=0.0))
    raw, greedy = found.stages
    assert (greedy.left, greedy.entropy) == (1, 0.0)
    assert greedy.p.argmax() == raw.p.argmax()


def test_the_shown_tokens_are_the_models_best_and_those_that_rise() -> None:
    table = EnumerableEngine(
        "abcdef$", lambda prompt, done: (0.4, 0.3, 0.1, 0.1, 0.04, 0.03, 0.03), name="six"
    )
    with table:
        found = pipeline(table, Sequence.of("?"), SamplingParams(banned=("a", "b"), temperature=0.9))
        raised = pipeline(table, Sequence.of("?"), SamplingParams(logit_bias={"f": 9.0}))
    assert found.best(3) == [0, 1, 2]
    assert raised.best(3) == [0, 1, 5]
    exact = np.array([0, 0, 0.1, 0.1, 0.04, 0.03, 0.03]) ** (1 / 0.9)
    assert found.stages[-1].p == pytest.approx(exact / exact.sum())


def test_likelihoods_under_adapters_multiply_to_the_exact_distribution() -> None:
    params = SamplingParams(temperature=0.7, top_k=2)
    table = {
        (): (0.5, 0.3, 0.2), ("a",): (0.1, 0.6, 0.3), ("b",): (0.0, 0.25, 0.75), ("a", "a"): (0.0, 0.0, 1.0),
        ("a", "b"): (0.2, 0.3, 0.5), ("b", "b"): (0.4, 0.4, 0.2), ("b", "a"): (0.4, 0.4, 0.2),
    }  # fmt: skip
    with EnumerableEngine("ab$", table) as engine:
        exact = engine.sequences(params=params, max_tokens=2)
        ended = {y[:-1]: p for y, p in exact.items() if y[-1] == "$"}
        found = likelihoods(engine, [Sequence.of("?").extend("".join(y)) for y in ended], params=params)
        assert [np.exp(one.logprob + (one.end or 0)) for one in found] == pytest.approx(list(ended.values()))
        for sequence, p in exact.items():
            ids = (*engine.render(Sequence.of("?")), *map("ab$".index, sequence))
            places = tuple(range(len(ids) - len(sequence) - 1, len(ids) - 1))
            (read,) = asyncio.run(
                engine.evaluate([EvaluateRequest(ids, places, params=params, start=places[0] + 1)])
            )
            assert np.exp(sum(v for (v,) in read.values)) == pytest.approx(p)


def test_what_cannot_be_adapted_is_refused(engine: TorchEngine) -> None:
    def ask(**options: Any) -> None:
        ids = engine.render(Sequence.of(PROMPT))
        asyncio.run(engine.evaluate([EvaluateRequest(ids, (2, 3), (5,), **options)]))

    with pytest.raises(InputError, match="from 0 to 3"):
        ask(params=SamplingParams(), start=4)
    with pytest.raises(UnsupportedError, match="mirostat"):
        ask(params=SamplingParams(mirostat=Mirostat()), start=3)
    every = tuple((i,) for i in range(engine.vocabulary))
    with pytest.raises(InputError, match=r"^after \d+ tokens of the completion no token is left"):
        ask(params=SamplingParams(banned=every))
    with pytest.raises(InputError, match="no distribution to adapt"):
        adapts(EvaluateRequest((1,), (0,), outputs=True, params=SamplingParams()))
    ask(params=SamplingParams(top_k=3), start=3)  # the engine goes on
