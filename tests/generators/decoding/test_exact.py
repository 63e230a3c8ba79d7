"""Adapters on enumerable models: sequences by hand, and draws that have their distribution."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy import stats

from metagen.errors import InputError
from metagen.generators.decoding.adapters import Adapter
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.engine import EvaluateRequest, GenerateRequest, SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.parts import part
from metagen.sequence import Sequence

pytest.importorskip("torch")

ROW = (0.5, 0.3, 0.2)


def coin() -> EnumerableEngine:
    return EnumerableEngine("ht$", lambda prompt, done: ROW, name="coin")


def texts(found: dict[tuple[str, ...], float]) -> dict[str, float]:
    return {"".join(tokens): p for tokens, p in found.items()}


@pytest.mark.parametrize(
    ("params", "by_hand"),
    [
        # What has come is out; the end may come at any time.
        ({"no_repeat_ngram": 1}, {"$": 0.2, "h$": 0.2, "ht$": 0.3, "t$": 0.3 * 2 / 7, "th$": 0.3 * 5 / 7}),
        ({"min_tokens": 2}, {"hh": 25 / 64, "ht": 15 / 64, "th": 15 / 64, "tt": 9 / 64}),
        ({"banned": ("h", "t")}, {"$": 1.0}),
        ({"banned": ((0, 0),)}, {"$": 0.2, "h$": 0.5 * 2 / 5, "ht": 0.5 * 3 / 5, "t$": 0.06, "th": 0.15, "tt": 0.09}),
        ({"forced": "th"}, {"th": 1.0}),
        ({"forced": (0,)}, {"h$": 0.2, "hh": 0.5, "ht": 0.3}),
        # Odds of t are doubled: 5 : 6 : 2.
        ({"logit_bias": {"t": math.log(2)}, "top_k": 2, "max": 1}, {"h": 5 / 11, "t": 6 / 11}),
        ({"min_p": 0.5, "max": 1}, {"h": 5 / 8, "t": 3 / 8}),
        ({"epsilon_cutoff": 0.25, "max": 1}, {"h": 5 / 8, "t": 3 / 8}),
        # Surprise nearest to the entropy of 1.03 nats: t (1.20), then h (0.69), then the end (1.61).
        ({"typical_p": 0.2, "max": 1}, {"t": 1.0}),
        ({"typical_p": 0.7, "max": 1}, {"t": 3 / 8, "h": 5 / 8}),
        # Terms of the entropy: 0.347, 0.361, 0.322.
        ({"top_h": 0.7, "max": 1}, {"h": 5 / 8, "t": 3 / 8}),
        ({"top_h": 0.1, "max": 1}, {"h": 1.0}),
        # Behind h its logit ln 0.5 is multiplied by 2: 1/4 : 3/10 : 1/5.
        ({"repetition_penalty": 2.0}, {
            "$": 0.2, "hh": 0.5 / 3, "ht": 0.2, "h$": 0.5 * 4 / 15,
            "th": 0.3 * 0.5 / 0.79, "tt": 0.3 * 0.09 / 0.79, "t$": 0.3 * 0.2 / 0.79,
        }),
        ({"presence_penalty": math.log(5), "max": 2}, {
            "$": 0.2, "hh": 0.5 * 0.1 / 0.6, "ht": 0.25, "h$": 0.5 / 3,
            "th": 0.3 * 0.5 / 0.76, "tt": 0.3 * 0.06 / 0.76, "t$": 0.3 * 0.2 / 0.76,
        }),
    ],
)  # fmt: skip
def test_sequences_by_hand(params: dict[str, Any], by_hand: dict[str, float]) -> None:
    most = params.pop("max", 3 if "no_repeat_ngram" in params else 2)
    found = texts(coin().sequences("?", SamplingParams(**params), max_tokens=most))
    assert found == pytest.approx(by_hand)


MANY: list[dict[str, Any]] = [
    {"no_repeat_ngram": 2, "temperature": 1.5}, {"frequency_penalty": 0.8, "min_tokens": 2},
    {"repetition_penalty": 1.4, "eta_cutoff": 0.4}, {"banned": ((1, 1), (0, 1)), "logit_bias": {2: -1.0}},
    {"forced": "h", "min_p": 0.45}, {"no_repeat_ngram": 1, "grammar": Grammar.regex("[ht]{1,2}")},
]  # fmt: skip


@pytest.mark.parametrize("params", MANY)
def test_draws_have_the_distribution_of_sequences(params: dict[str, Any]) -> None:
    """Chi-square at a false-alarm rate of 1e-6, over fixed seeds."""
    n, made = 800, SamplingParams(**params)
    with coin() as engine:
        exact = texts(engine.sequences("?", made, max_tokens=4))
        answer = asyncio.run(engine.generate(GenerateRequest(Sequence.of("?"), tuple(range(n)), made, 4)))
    assert sum(exact.values()) == pytest.approx(1)
    seen = Counter(s.text + ("$" if s.finish == "eos" else "") for s in answer.samples)
    assert set(seen) <= set(exact)
    p = np.array(list(exact.values()))
    if len(p) > 1:
        assert stats.chisquare([seen[text] for text in exact], n * p / p.sum()).pvalue > 1e-6


@part
class Centred(Adapter):
    """Differences from the mean, none below −1: tokens that cannot come would show in both."""

    def adapt(self, logits: Any, ids: Any, start: Any) -> Any:
        return (logits - logits.mean(-1, keepdim=True)).clamp(min=-1.0)


def test_adapters_of_other_packages_see_what_the_grammar_does_not_allow() -> None:
    """Of log-probabilities that are below their mean by less than 1, the allowed ones keep their odds."""
    params = SamplingParams(adapters=(Centred(),), grammar=Grammar.choice(["h", "t"]), log_mass=True)
    with coin() as engine:
        assert texts(engine.sequences("?", params, max_tokens=1)) == pytest.approx({"h": 5 / 8, "t": 3 / 8})
        answer = asyncio.run(engine.generate(GenerateRequest(Sequence.of("?"), (1,), params, 4)))
        (sample,) = answer.samples
        assert sample.text in ("h", "t") and sample.log_mass is not None
        # The first token is one of two of three; then only the end may come.
        assert sample.log_mass == pytest.approx(math.log(0.8) + math.log(0.2))
        ids = engine.render(Sequence.of("?"))
        asked = EvaluateRequest(ids, (len(ids) - 1,), (0, 1, 2), params=params, start=len(ids))
        (read,) = asyncio.run(engine.evaluate([asked]))
        assert read.values[0] == pytest.approx((math.log(5 / 8), math.log(3 / 8), -math.inf))


def test_what_leaves_no_token_names_problem_place_and_cause() -> None:
    with coin() as engine:
        params = SamplingParams(banned=("h", "t"), min_tokens=1)
        with pytest.raises(InputError, match=r"after 0 tokens .* banned=\('h', 't'\) and min_tokens=1 allow"):
            engine.sequences("?", params)
        request = GenerateRequest(Sequence.of("?"), (1,), params, 4)
        with pytest.raises(InputError, match=f"problem '{request.prefix.prompt.problem_id}'"):
            asyncio.run(engine.generate(request))


def test_however_cold_a_row_is_it_has_a_distribution() -> None:
    for temperature in (1e-38, 1e-308):
        for params in (
            SamplingParams(temperature=temperature),
            SamplingParams(temperature=temperature, top_h=0.9),
        ):
            assert texts(coin().sequences("?", params, max_tokens=1)) == {"h": 1.0}


def test_where_no_problem_has_a_name_none_is_told() -> None:
    with pytest.raises(InputError, match=r"^after 0 tokens of the completion no token is left"):
        coin().sequences("?", SamplingParams(banned=("h", "t"), min_tokens=1))
