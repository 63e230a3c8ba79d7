"""DeepConf: confidence by hand, the vote among the confident, and samples that are given up while they are written."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.errors import EngineError, InputError, UnsupportedError
from metagen.generators.engine import Sample as Drawn
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.function import FunctionGenerator
from metagen.generators.primitive import EngineGenerator
from metagen.generators.torch import TorchEngine
from metagen.journal import MemoryJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence, Tokens
from metagen.strategies.adaptive.confidence import Confidence, Source, groups
from metagen.strategies.adaptive.consistency import Beta
from metagen.strategies.adaptive.filtered import Confident, ConfidentVote, confident_vote, threshold
from metagen.strategies.adaptive.online import OnlineConfidence
from metagen.strategies.adaptive.stopping import Decided
from metagen.strategies.aggregate import weighted_vote
from metagen.strategies.base import Strategy
from metagen.strategies.parallel import BestOfN, MajorityVote
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.testing import CountingJournal, StrategyLaws, first_word, last_word, numbers
from metagen.verifiers.function import FunctionRule

PROMPT = Prompt("p", text="?")
CHOSEN, TOP = Confidence(), Confidence(of="top")
LAST = FunctionRule(lambda text: text[-1:] or None, name="last letter")


# ---------------------------------------------------------------------------------------------- measures


def test_measures_by_hand() -> None:
    values = [-1.0, -3.0, -2.0, 0.0, -0.5]  # pairs: −2, −2.5, −1, −0.25
    assert groups(np.array(values), 2).tolist() == [-2.0, -2.5, -1.0, -0.25]
    assert Confidence("mean")(values) == pytest.approx(math.exp(-1.3))
    assert Confidence("lowest", 2)(values) == pytest.approx(math.exp(-2.5))
    assert Confidence("tail", 2)(values) == pytest.approx(math.exp(-0.25))
    assert Confidence("bottom", 2)(values) == pytest.approx(math.exp(-2.5)), "a tenth of four is one"
    assert Confidence("bottom", 2, share=0.5)(values) == pytest.approx(math.exp(-2.25))
    assert Confidence("bottom", 2, share=1.0)(values) == pytest.approx(math.exp(-5.75 / 4))


@given(st.lists(st.floats(-20, 0), min_size=1, max_size=30), st.integers(1, 40))
def test_how_measures_relate(values: list[float], window: int) -> None:
    lowest, bottom, tail = (Confidence(m, window)(values) for m in ("lowest", "bottom", "tail"))  # type: ignore[arg-type]
    mean = Confidence("mean")(values)
    assert 0 <= lowest <= min(bottom, tail) * (1 + 1e-9) <= 1 + 1e-9
    if window >= len(values):
        assert lowest == bottom == pytest.approx(mean) == pytest.approx(tail)
    if window == 1:
        assert lowest == pytest.approx(math.exp(min(values))) and tail == pytest.approx(math.exp(values[-1]))


def test_no_tokens_and_impossible_tokens_are_no_confidence() -> None:
    assert Confidence()([]) == 0.0 and Confidence("lowest", 1)([-0.1, -math.inf]) == 0.0
    assert Confidence()([1e-9]) == 1.0, "rounding of a probability of 1"
    assert Confidence(of="top")([]) == 0.0 and Confidence(of="top")([100 + 1e-9]) == 100.0
    for wrong in ([0.5], [float("nan")], [[-1.0]]):
        with pytest.raises(InputError, match="expected one number for each token, from -inf to 0"):
            Confidence()(wrong)
    for wrong in ([-0.5], [float("nan")], [[1.0]], [101.0]):
        with pytest.raises(InputError, match="expected one number for each token, from 0 to 100"):
            Confidence(of="top")(wrong)
    with pytest.raises(InputError, match="of='topp'"):
        Confidence(of="topp")  # type: ignore[arg-type]  # what a user may type


def test_of_the_top_tokens_the_confidence_is_its_mean() -> None:
    values = [9.0, 3.0, 5.0, 7.0, 1.0]  # pairs: 6, 4, 6, 4
    assert Confidence("mean", of="top")(values) == 5.0
    assert Confidence("lowest", 3, of="top")(values) == pytest.approx(13 / 3)
    assert Confidence("tail", 2, of="top")(values) == 4.0
    assert Confidence("bottom", 2, share=0.75, of="top")(values) == pytest.approx(14 / 3)
    score = Confidence("mean", of="top").score(values)
    assert (score.raw, score.value) == (5.0, 0.05)
    score = Confidence("mean").score([math.log(0.5)])
    assert score.raw == score.value == pytest.approx(0.5)


def test_log_probabilities_of_what_was_added_to_a_prefix() -> None:
    start = Sequence(PROMPT)
    first = start.extend("ab", logprob=-3.0, token_logprobs=(-1.0, -2.0))
    second = first.extend("c", logprob=-0.5, token_logprobs=(-0.5,))
    assert CHOSEN.of_tokens(second) == (-1.0, -2.0, -0.5) and CHOSEN.of_tokens(second, first) == (-0.5,)
    with pytest.raises(UnsupportedError, match="sample with logprobs=True"):
        CHOSEN.of_tokens(start.extend("ab"))
    with pytest.raises(UnsupportedError, match="sample with logprobs=True"):
        CHOSEN.of_tokens(second, replace(first, token_logprobs=None))
    with pytest.raises(UnsupportedError, match="sample with top_logprobs=20"):
        TOP.of_tokens(second)
    sure = start.extend("ab", token_confidences=(3.0, 2.0)).extend("c", token_confidences=(1.0,))
    assert TOP.of_tokens(sure) == (3.0, 2.0, 1.0)
    assert TOP.of_tokens(sure, start.extend("ab", token_confidences=(3.0, 2.0))) == (1.0,)


# ------------------------------------------------------------------------------------------ the offline vote


def test_the_threshold_is_what_the_share_reaches() -> None:
    values = [0.5, 0.1, 0.4, 0.3, 0.2]
    reached = {0.01: 0.5, 0.2: 0.5, 0.21: 0.4, 0.4: 0.4, 0.9: 0.1, 1.0: 0.1}
    assert {keep: threshold(values, keep) for keep in reached} == reached
    assert 0.07 * 100 > 7, "which rounds up to eight"
    assert threshold([i / 100 for i in range(100)], 0.07) == 93 / 100
    for keep, values_ in ((0.0, [1.0]), (1.1, [1.0]), (0.5, [])):
        with pytest.raises(InputError, match="expected a share"):
            threshold(values_, keep)


def test_only_the_confident_vote_and_ties_stay_together() -> None:
    classes, confidences, members = ["1", "1", "1", "2", "2"], [0.2, 0.2, 0.2, 0.9, 0.8], list("abcde")
    assert classes[confident_vote(classes, confidences, members, "s", keep=0.4).index] == "2"
    assert confident_vote(classes, confidences, members, "s", keep=0.6).totals == pytest.approx(
        {"1": 0.6, "2": 1.7}
    )
    every = confident_vote(classes, confidences, members, "s", keep=1.0)
    assert every == weighted_vote(classes, confidences, members, "s")


def test_what_rounding_makes_less_confident_ties() -> None:
    """Equal tokens in another batch, or in blocks, have numbers that differ by the rounding of float32."""
    copy, less = 0.5 * (1 - 2e-6), 0.5 * (1 - 1e-4)
    for other, votes in ((copy, {"1": 0.5, "2": copy}), (less, {"1": 0.5})):
        assert confident_vote(["1", "2"], [0.5, other], ["a", "b"], "s", keep=0.5).totals == votes


@given(
    st.lists(st.tuples(st.sampled_from("12"), st.sampled_from([0.1, 0.5, 0.9])), min_size=1, max_size=8),
    st.randoms(),
)
def test_order_changes_nothing(pool: list[tuple[str, float]], rng: random.Random) -> None:
    named = [(key, value, f"{i}{key}") for i, (key, value) in enumerate(pool)]
    shuffled = list(named)
    rng.shuffle(shuffled)

    def choice(rows: list[tuple[str, float, str]]) -> str:
        keys, values, texts = (list(column) for column in zip(*rows, strict=True))
        return texts[confident_vote(keys, values, texts, "salt", keep=0.3).index]  # type: ignore[arg-type]

    assert choice(named) == choice(shuffled)


def said(*samples: tuple[str, tuple[float, ...]], name: str = "said") -> FunctionGenerator:
    """Sample i is the i-th text, with its log-probabilities."""

    def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        text, logprobs = samples[index]
        return Drawn(text, None, len(logprobs), sum(logprobs), logprobs, finish="eos")

    return FunctionGenerator(write, name=f"{name} {samples}", count=len, max_tokens=9)


def test_the_confident_minority_wins() -> None:
    generator = said(
        ("a1", (-2.0, -2.0)), ("b1", (-2.0, -1.0)), ("c1", (-3.0,)), ("d2", (-0.1, -0.1)), ("e3", (-0.5,))
    )
    assert MajorityVote(generator, 5, answer=LAST).solve(PROMPT).text[-1] == "1"
    assert ConfidentVote(generator, 5, answer=LAST, keep=0.2).solve(PROMPT).text == "d2"
    # Of two: exp(−0.1) against exp(−0.5).
    assert ConfidentVote(generator, 5, answer=LAST, keep=0.4).solve(PROMPT).text == "d2"
    assert Confident(LAST, keep=0.4).fingerprint != Confident(LAST).fingerprint
    names = {Confident(LAST, confidence=c).fingerprint for c in (Confidence("tail"), CHOSEN, TOP)}
    assert len(names) == 3 and Confident(LAST).fingerprint in names


def test_shares_are_those_of_the_votes_that_counted() -> None:
    generator = said(("a1", (-2.0, -2.0)), ("b1", (-2.0, -1.0)), ("d2", (-0.1, -0.1)), ("e3", (-0.5,)))
    one, two = (ConfidentVote(generator, 4, answer=LAST, keep=keep) for keep in (0.25, 0.5))
    assert one.solve(PROMPT).shares == {"2": 1.0}
    shares = two.solve(PROMPT).shares
    assert list(shares) == ["2", "3"] and sum(shares.values()) == pytest.approx(1.0)
    assert shares["2"] == pytest.approx(math.exp(-0.1) / (math.exp(-0.1) + math.exp(-0.5)))
    watched = OnlineConfidence(generator, 4, answer=LAST, warmup=4, keep=0.25)
    assert watched.solve(PROMPT).shares == {"2": 1.0}


def test_the_vote_is_weighted_by_raw_confidence() -> None:
    """Two of 2.0 outweigh one of 3.9 and not one of 4.1, which values or ranks would not tell."""
    for most, answer in ((3.9, "1"), (4.1, "2")):
        samples = [("a1", (1.0, 3.0)), ("b1", (2.0,)), ("c2", (most,))]

        def write(prefix: Sequence, seed: int, index: int, samples: list = samples) -> Drawn:  # type: ignore[type-arg]
            text, confidences = samples[index]
            return Drawn(text, None, 1, finish="eos", token_confidences=confidences)

        generator = FunctionGenerator(write, name=f"sure {most}")
        vote = ConfidentVote(generator, 3, answer=LAST, keep=1.0, measure="mean", of="top")
        assert vote.solve(PROMPT).text[-1] == answer
        there = OnlineConfidence(generator, 3, answer=LAST, warmup=3, keep=1.0, of="top")
        result = there.solve(PROMPT)
        assert result.text[-1] == answer
        assert [c.value for c in result.candidates] == pytest.approx([0.02, 0.02, most / 100])
    with pytest.raises(UnsupportedError, match="sample with logprobs=True"):
        ConfidentVote(generator, 3, answer=LAST).solve(PROMPT)


def test_without_log_probabilities_it_says_so() -> None:
    silent = FunctionGenerator(lambda p, s, i: "a1", name="silent")
    with pytest.raises(UnsupportedError, match="logprobs=True"):
        ConfidentVote(silent, 3, answer=LAST).solve(PROMPT)
    engine = EnumerableEngine(["a", "$"], {(): [0.5, 0.5], ("a",): [0.0, 1.0]})
    for make in (ConfidentVote, OnlineConfidence):
        with pytest.raises(UnsupportedError, match=r"generator\.replace\(logprobs=True\)"):
            make(engine.generator(), 3, answer=LAST)
        make(engine.generator(logprobs=True), 3, answer=LAST)
        for generator in (engine.generator(), engine.generator(logprobs=True)):
            with pytest.raises(
                UnsupportedError, match=r"replace\(top_logprobs=20\), in a file top_logprobs: 20"
            ):
                make(generator, 3, answer=LAST, of="top")
        make(engine.generator(top_logprobs=2), 3, answer=LAST, of="top")


# -------------------------------------------------------------------------------------------------- online


def waverer() -> EnumerableEngine:
    """Writes letters; after `u` the model is unsure (a coin among three), after `s` it is sure. Ends in 1 or 2."""

    def table(prompt: str, done: tuple[str, ...]) -> list[float]:
        if len(done) >= 12:
            return [0, 0, 0.2, 0.7, 0.1] if done[-1] in "su" else [0, 0, 0, 0, 1.0]
        if not done:
            return [0.5, 0.5, 0, 0, 0]
        return [0.9, 0.1, 0, 0, 0] if done[0] == "s" else [0.55, 0.45, 0, 0, 0]

    return EnumerableEngine(["s", "u", "1", "2", "$"], table, name="waverer")


@pytest.fixture(scope="module")
def unsure() -> Iterator[EngineGenerator]:
    with waverer() as engine:
        yield engine.generator(logprobs=True, top_logprobs=2, max_tokens=40)


def online(generator: EngineGenerator, n: int = 24, **options: object) -> OnlineConfidence:
    given_ = {"warmup": 8, "keep": 0.5, "window": 4, "block": 2} | options
    return OnlineConfidence(generator, n, answer=LAST, **given_)  # type: ignore[arg-type]


@pytest.mark.parametrize("of", ["chosen", "top"])
def test_what_is_given_up_is_what_the_threshold_filters_out(unsure: EngineGenerator, of: Source) -> None:
    """The same samples written to the end, and then filtered, give the same vote for more tokens."""
    saved = []
    for seed in range(5):
        journal = MemoryJournal()
        result = online(unsure, of=of).solve(PROMPT, seed=seed, journal=journal)
        assert len(result.candidates) == 24
        warm = [c for c in result.candidates[:8] if c.value is not None]
        least = threshold([c.value or 0.0 for c in warm], 0.5)
        whole = Watched(unsure, 24, answer=LAST, warmup=8, keep=0.5, window=4, block=2, of=of).solve(
            PROMPT, seed=seed
        )
        assert len(whole.candidates) == 24
        full = [c.sequence for c in whole.candidates]
        measure = Confidence("lowest", 4, of=of)
        lowest = [measure.score(measure.of_tokens(s)).value or 0.0 for s in full]
        for candidate, complete, low in zip(result.candidates, full, lowest, strict=True):
            assert complete.text.startswith(candidate.sequence.text)
            if low >= least:
                assert candidate.sequence == complete and candidate.value == low
            else:
                # One that ended before a look was whole, and is filtered by its value.
                assert candidate.value is None or candidate.value == low < least
        kept = [s for s, low in zip(full, lowest, strict=True) if low >= least]
        weights = [low for low in lowest if low >= least]
        texts = [s.text for s in kept]
        chosen = weighted_vote([t[-1] for t in texts], weights, texts, PROMPT.digest.hex())
        assert result.text == texts[chosen.index]
        assert result.usage.generated is not None and whole.usage.generated is not None
        saved.append(whole.usage.generated - result.usage.generated)
    # Of top tokens, all samples that begin with `u` are as confident as each other: all or none are given up.
    assert min(saved) >= (0 if of == "top" else 1) and sum(saved) > 0


def test_a_sample_is_given_up_for_a_whole_group_only() -> None:
    """Each begins with two tokens of a coin, and goes on sure: its groups of four are as good as the threshold."""

    def table(prompt: str, done: tuple[str, ...]) -> list[float]:
        if len(done) < 2:
            return [0.5, 0.5, 0.0]
        return [1.0, 0.0, 0.0] if len(done) < 8 else [0.0, 0.0, 1.0]

    with EnumerableEngine(["s", "u", "$"], table, name="begins unsure") as engine:
        generator = engine.generator(logprobs=True, max_tokens=20)
        result = online(generator, 12, warmup=4, keep=1.0, window=4, block=2).solve(PROMPT)
    assert [c.value for c in result.candidates] == pytest.approx([0.5**0.5] * 12)


class Rounding(EngineGenerator):
    """Blocks have numbers that differ from those of whole samples by the rounding of float32."""

    async def generate(self, prefix: Sequence, *, n: int = 1, **options: Any) -> list[Sequence]:
        found = await super().generate(prefix, n=n, **options)
        if not isinstance(options.get("until"), Tokens):
            return found
        changed = [tuple(value * (1 + 1e-6) for value in one.token_logprobs or ()) for one in found]
        return [replace(one, token_logprobs=new) for one, new in zip(found, changed, strict=True)]


def test_a_copy_of_the_sample_that_set_the_threshold_is_not_given_up() -> None:
    """All samples are as confident as each other, and those that are written in blocks a millionth less."""

    def table(prompt: str, done: tuple[str, ...]) -> list[float]:
        return [0.5, 0.5] if len(done) < 8 else [0.0, 1.0]

    with EnumerableEngine(["a", "$"], table, name="alike") as engine:
        generator = Rounding(engine, engine.generator(logprobs=True, max_tokens=20).params)
        result = online(generator, 32, warmup=4, keep=1.0, window=2, block=2).solve(PROMPT)
    assert len(result.candidates) == 32 and max(len(c.sequence.text) for c in result.candidates[4:]) > 3
    assert all(c.sequence.finish == "eos" for c in result.candidates)


class Watched(OnlineConfidence):
    """Gives nothing up."""

    def _has_fallen(self, sequence: Sequence, prefix: Sequence, least: float) -> bool:
        return False


def test_with_nothing_after_the_warm_up_it_is_the_vote_offline(unsure: EngineGenerator) -> None:
    for keep, of in product((0.1, 0.5, 1.0), get_args(Source)):
        options = {"keep": keep, "of": of}
        here = online(unsure, 12, warmup=30, **options).solve(PROMPT)
        there = ConfidentVote(unsure, 12, answer=LAST, measure="lowest", window=4, **options).solve(PROMPT)
        assert here.text == there.text and here.usage.generated == there.usage.generated
    assert online(unsure, 1).solve(PROMPT).text == ConfidentVote(unsure, 1, answer=LAST).solve(PROMPT).text


def test_blocks_run_under_places_of_their_own_and_the_warm_up_is_the_shared_pool(
    unsure: EngineGenerator,
) -> None:
    journal = CountingJournal()
    MajorityVote(unsure, 8, answer=LAST).solve(PROMPT, journal=journal)
    assert journal.recorded == 8
    result = online(unsure, 10).solve(PROMPT, journal=journal)
    paths = [row.path for row in result.trace.rows]
    assert set(paths) == {"0/sample", "0/block/8", "0/block/9"} and paths.count("0/sample") == 8
    assert journal.recorded == 8 + len(paths) - 8


def test_a_rule_stops_between_batches(unsure: EngineGenerator) -> None:
    free = online(unsure, 40).solve(PROMPT)
    ruled = online(unsure, 40, batch=4, rule=Beta(0.8) | Decided(40)).solve(PROMPT)
    assert len(free.candidates) == 40 and 8 <= len(ruled.candidates) < 40
    assert (len(ruled.candidates) - 8) % 4 == 0
    # Of confidences, a share of the largest: one sure sample counts a whole vote, not a hundredth of one.
    top = online(unsure, 40, batch=4, rule=Beta(0.8) | Decided(40), of="top").solve(PROMPT)
    assert 8 <= len(top.candidates) < 40
    texts = [c.sequence.text for c in free.candidates]
    assert [c.sequence.text for c in ruled.candidates] == texts[: len(ruled.candidates)]
    given_: list[dict[str, object]] = [{}, {"rule": Beta(0.8)}, {"rule": Beta(0.8), "batch": 5}]
    assert len({online(unsure, 40, **one).fingerprint for one in given_}) == 3


@pytest.mark.parametrize("tokens", [0, 3, 14, 40, 90, 130, 160, 200, 1000])
def test_a_budget_that_ends_anywhere_leaves_a_vote_over_what_there_is(
    unsure: EngineGenerator, tokens: int
) -> None:
    result = online(unsure).solve(PROMPT, budget=tokens)
    assert result.usage.generated is not None and result.usage.generated <= tokens
    assert result.exhausted == (tokens < 1000)
    complete = [c for c in result.candidates if c.value is not None]
    if complete:
        assert result.answer is not None and result.sequence.finish == "eos"


@pytest.mark.parametrize("of", ["chosen", "top"])
def test_it_goes_on_where_it_was_cut_off(unsure: EngineGenerator, of: Source) -> None:
    whole = MemoryJournal()
    first = online(unsure, 11, of=of).solve(PROMPT, journal=whole)
    rows = whole.of_problem(PROMPT.problem_id)
    for cut in range(0, len(rows) + 1, 3):
        journal = CountingJournal()
        asyncio.run(journal.record(rows[:cut]))
        journal.recorded = 0
        again = online(unsure, 11, of=of).solve(PROMPT, journal=journal)
        assert (again.text, again.candidates) == (first.text, first.candidates)
        assert journal.recorded == len(rows) - cut


def test_a_sample_of_which_nothing_more_comes_is_not_waited_for() -> None:
    """A generator that gives empty blocks, for ever."""

    def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        return Drawn("" if prefix.text else "a", None, 0, 0.0, (), finish=None)

    result = OnlineConfidence(FunctionGenerator(write, name="endless"), 4, answer=LAST, warmup=1).solve(
        PROMPT
    )
    assert result.text == "a" and len(result.candidates) == 4


def test_samples_that_a_budget_kept_from_beginning_are_no_candidates() -> None:
    def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        return Drawn("a1", None, 2, -0.2, (-0.1, -0.1), finish="eos")

    strategy = OnlineConfidence(FunctionGenerator(write, name="whole"), 9, answer=LAST, warmup=2)
    result = strategy.solve(PROMPT, budget={"calls": 4})
    assert result.exhausted and [c.sequence.text for c in result.candidates] == ["a1"] * 4


def test_an_engine_that_fails_in_the_middle_fails_the_call(unsure: EngineGenerator) -> None:
    calls: list[int] = []

    def write(prefix: Sequence, seed: int, index: int) -> Drawn:
        calls.append(index)
        if len(calls) > 3:
            raise EngineError("the engine is down")
        return Drawn("a1", None, 2, -0.2, (-0.1, -0.1), finish="eos")

    with pytest.raises(EngineError, match="down"):
        OnlineConfidence(FunctionGenerator(write, name="down"), 6, answer=LAST, warmup=2).solve(PROMPT)


def test_it_goes_on_from_a_prefix(unsure: EngineGenerator) -> None:
    async def main() -> tuple[Sequence, Sequence]:
        scope = Scope.root("p")
        (whole,) = await unsure.generate(Sequence(PROMPT), scope=scope.child("first"))
        prefix = Sequence(PROMPT).extend(
            whole.text[:3], tokens=None, logprob=-1.0, token_logprobs=(whole.token_logprobs or ())[:3]
        )
        (found,) = await online(unsure).generate(prefix, scope=scope.child("second"))
        return prefix, found

    prefix, found = asyncio.run(main())
    assert found.extends(prefix) and found.finish == "eos" and len(found.text) > 3


def test_what_cannot_be_is_refused_when_it_is_built(unsure: EngineGenerator) -> None:
    for name in ("n", "warmup", "block", "batch", "window"):
        with pytest.raises(InputError, match=f"{name}=0"):
            online(unsure, **({"n": 24} | {name: 0}))
    with pytest.raises(InputError, match=r"keep=0\.0"):
        online(unsure, keep=0.0)
    with pytest.raises(
        InputError, match="batch=4 is of samples between two questions to a rule, and there is none"
    ):
        online(unsure, batch=4)
    online(unsure, batch=4, confidence=0.9)
    with pytest.raises(UnsupportedError, match="not a strategy"):
        OnlineConfidence(MajorityVote(unsure, 2, answer=LAST), 4, answer=LAST)


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"measure": "mean", "window": 4}, "window=4 is of groups, and measure='mean' has none"),
        ({"measure": "tail", "share": 0.5}, "share=0.5 is of measure='bottom', and measure='tail'"),
    ],
)
def test_what_a_measure_does_not_look_at_is_refused(given_: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=f"^Confidence: {words}"):
        Confidence(**given_)
    with pytest.raises(InputError, match=f"^ConfidentVote: {words}"):
        ConfidentVote(numbers(), 4, answer=LAST, **given_)


def test_nested_in_another(unsure: EngineGenerator) -> None:
    outer = BestOfN(online(unsure, 9), 2, verifier=first_letter, answer=LAST).solve(PROMPT)
    assert {row.path.split("/")[2] for row in outer.trace.rows if row.kind == "generate"} == {"0", "1"}
    assert len(outer.candidates) == 2


first_letter = type(first_word)(lambda s: 0.5, name="half")


class KnowsWhatWasBegun(StrategyLaws):
    """A text that was begun without numbers of its tokens has no confidence; with them it is gone on with."""

    def test_a_text_that_was_begun_is_gone_on_with(self) -> None:
        start = Sequence.of(self.prompt)
        known = start.extend("some text", token_logprobs=(-0.5, -0.5))
        (drawn,) = asyncio.run(self.make().generate(known, scope=Scope.root("law")))
        assert drawn.extends(known) and drawn.text != known.text
        with pytest.raises(UnsupportedError, match="sample with logprobs=True"):
            asyncio.run(self.make().generate(start.extend("some text"), scope=Scope.root("law")))


class TestConfidentVoteLaws(KnowsWhatWasBegun):
    def make(self) -> Strategy:
        return ConfidentVote(numbers(), 6, answer=last_word, keep=0.5)


class TestOnlineConfidenceLaws(KnowsWhatWasBegun):
    def make(self) -> Strategy:
        return OnlineConfidence(numbers(), 8, answer=last_word, warmup=3, batch=2, block=2, rule=Beta())


def test_on_an_embedded_model_tokens_are_saved() -> None:
    task = ArithmeticTask("validation", levels=(5,), per_level=2)
    with TorchEngine("tiny-0.5m", threads=1) as engine:
        generator = engine.generator(max_tokens=200, logprobs=True, top_logprobs=5)
        for problem, of in zip(task.problems(), get_args(Source), strict=True):
            options = {"answer": task.answer, "warmup": 6, "keep": 0.3, "window": 8, "block": 8, "of": of}
            few = OnlineConfidence(generator, 14, **options).solve(problem.prompt)  # type: ignore[arg-type]
            all_ = Watched(generator, 14, **options).solve(problem.prompt)  # type: ignore[arg-type]
            assert few.sequence.finish == "eos" and len(few.candidates) == 14
            assert few.usage.generated is not None and all_.usage.generated is not None
            assert few.usage.generated < all_.usage.generated
