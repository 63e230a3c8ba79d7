"""The enumerable model: its exact distribution, and draws from it."""

import asyncio
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from metagen.cost import Price
from metagen.errors import EngineError, InputError, NumericsError, PromptError, UnsupportedError
from metagen.generators.decoding.exact import adapt
from metagen.generators.engine import EvaluateRequest, Generated, GenerateRequest, SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.primitive import EngineGenerator
from metagen.journal import MemoryJournal, Row
from metagen.scope import Scope
from metagen.sequence import Sequence, Step, TokenIds, Tokens

TABLE = {
    (): (0.5, 0.3, 0.2),
    ("a",): (0.1, 0.6, 0.3),
    ("b",): (0.0, 0.25, 0.75),
    ("a", "a"): (0.0, 0.0, 1.0),
    ("a", "b"): (0.2, 0.3, 0.5),
    ("b", "b"): (0.4, 0.4, 0.2),
}
EXACT = {
    ("$",): 0.2,
    ("a", "$"): 0.15,
    ("b", "$"): 0.225,
    ("a", "a"): 0.05,
    ("a", "b"): 0.3,
    ("b", "b"): 0.075,
}


def ask(
    engine: EnumerableEngine, prefix: Sequence, n: int = 1, first: int = 0, **options: object
) -> Generated:
    until, most = options.pop("until", None), options.pop("max_tokens", 2)
    params = SamplingParams(**options)  # type: ignore[arg-type]
    request = GenerateRequest(prefix, tuple(range(first, first + n)), params, most, until)  # type: ignore[arg-type]
    return asyncio.run(engine.generate(request))


def test_enumeration_is_exact() -> None:
    engine = EnumerableEngine("ab$", TABLE)
    found = engine.sequences(max_tokens=2)
    assert found == pytest.approx(EXACT)
    assert sum(engine.sequences(max_tokens=3).values()) == pytest.approx(1.0)
    greedy = engine.sequences(params=SamplingParams(temperature=0), max_tokens=3)
    assert greedy == {("a", "b", "$"): 1.0}


def test_a_generator_with_another_parameter_keeps_the_rest_its_engine_and_its_price() -> None:
    engine = EnumerableEngine("ab$", TABLE)
    generator = EngineGenerator(engine, SamplingParams(temperature=0.5, top_k=2), price=Price(1.0, 2.0))
    other = generator.replace(top_k=1)
    assert other.params == SamplingParams(temperature=0.5, top_k=1)
    assert other.engine is engine and other.price == generator.price


def test_a_thought_has_the_tokens_up_to_its_end() -> None:
    with EnumerableEngine("ab$", TABLE) as engine:
        generator = engine.generator(max_tokens=3, thought_end="b")
        samples = asyncio.run(generator.generate(Sequence.of("?"), n=60, scope=Scope.root("p")))
    told = {(s.thought and s.thought.written, s.thought and s.thought.tokens) for s in samples}
    assert {(None, None), ("b", 1), ("ab", 2)} <= told


def test_the_tokens_of_a_prefix_are_part_of_max_tokens() -> None:
    engine = EnumerableEngine("ab$", TABLE)
    generator, empty = engine.generator(max_tokens=5), Sequence.of("?")
    known = empty.extend("ab", tokens=TokenIds((0, 1), engine.tokenizer_fingerprint))
    assert [generator.most(prefix, None) for prefix in (empty, empty.extend("ab"), known)] == [5, 3, 3]


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.5}, {"top_k": 2}, {"top_p": 0.6, "temperature": 2.0}]
)
def test_draws_have_the_exact_distribution(options: dict[str, float]) -> None:
    """Chi-square at a false-alarm rate of 1e-6, over fixed seeds."""
    n = 4_000
    with EnumerableEngine("ab$", TABLE) as engine:
        answer = ask(engine, Sequence.of("?"), n, **options)
        exact = engine.sequences(params=SamplingParams(**options), max_tokens=2)  # type: ignore[arg-type]
    seen = Counter(s.text + ("$" if s.finish == "eos" else "") for s in answer.samples)
    keys = ["".join(k) for k in exact]
    assert set(seen) <= set(keys)
    p = np.array(list(exact.values()))
    assert stats.chisquare([seen[k] for k in keys], n * p / p.sum()).pvalue > 1e-6
    for sample in answer.samples[:50]:
        tokens = tuple(sample.text) + (("$",) if sample.finish == "eos" else ())
        assert sample.logprob == pytest.approx(math.log(EXACT[tokens]))
        assert sample.generated == len(tokens)


def test_a_seed_gives_the_same_sample_alone_and_continued() -> None:
    with EnumerableEngine("ab$", TABLE) as engine:
        prefix = Sequence.of("?")
        crowd = ask(engine, prefix, 40, max_tokens=3)
        for i, whole in enumerate(crowd.samples):
            assert ask(engine, prefix, 1, i, max_tokens=3).samples == (whole,)
            first = ask(engine, prefix, 1, i, max_tokens=3, until=Tokens(1)).samples[0]
            if first.finish is None:
                assert first.ids is not None
                longer = prefix.extend(first.text, tokens=TokenIds(first.ids, engine.tokenizer_fingerprint))
                rest = ask(engine, longer, 1, i, max_tokens=2).samples[0]
                assert first.text + rest.text == whole.text


def test_evaluate_reads_the_table() -> None:
    with EnumerableEngine("ab$", TABLE) as engine:
        ids = engine.render(Sequence.of("?").extend("ab"))
        request = EvaluateRequest(ids, (0, 1, 2), (0, 1, 2))
        following = EvaluateRequest(ids, (0, 1))
        both = asyncio.run(engine.evaluate([request, following]))
    assert np.exp(both[0].values) == pytest.approx(np.array([TABLE[()], TABLE["a",], TABLE["a", "b"]]))
    assert np.exp(both[1].values) == pytest.approx(np.array([[0.5], [0.6]]))


def test_no_prefix_is_computed_twice() -> None:
    with EnumerableEngine("ab$", TABLE) as engine:
        prefix = Sequence.of("????")
        p = len(engine.render(prefix))
        first = ask(engine, prefix, 20, until=Tokens(1))
        assert (first.prefix_tokens, first.prefilled, first.cached) == (p, p, 19 * p)
        again = ask(engine, prefix, 2)
        assert (again.prefilled, again.cached) == (1, 2 * p - 1), (
            "the last token is read again, to draw what follows"
        )
        below = ask(engine, prefix.extend("a"), 3, max_tokens=1)
        assert (below.prefilled, below.cached) == (1, 3 * (p + 1) - 1)
        ids = engine.render(prefix.extend("ab"))
        (read,) = asyncio.run(engine.evaluate([EvaluateRequest(ids, (p - 1, p), (0, 1))]))
        assert (read.prefilled, read.cached) == (2, p - 1), "what is read there has to be computed"
        other = ask(engine, Sequence.of("???!"))
        assert (other.prefilled, other.cached) == (1, p - 1)
        counted = [first, again, below, other]
        assert engine.stats.prefilled == sum(a.prefilled or 0 for a in counted) + 2
        assert engine.stats.cached == sum(a.cached or 0 for a in counted) + p - 1
        assert engine.stats.generated == sum(s.generated or 0 for a in counted for s in a.samples)
        assert (engine.stats.requests, engine.stats.samples) == (5, 26)


def slowly(prompt: str, completion: tuple[str, ...]) -> tuple[float, ...]:
    return (0.5, 0.4, 0.1)


def test_a_request_that_is_cut_off_leaves_what_had_ended() -> None:
    async def cut(engine: EnumerableEngine, request: GenerateRequest) -> None:
        task = asyncio.create_task(engine.generate(request))
        while engine.stats.generated < 8 * 40:  # noqa: ASYNC110 - it is on its way, and tells nobody
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    def request() -> GenerateRequest:
        return GenerateRequest(Sequence.of("?"), tuple(range(40)), SamplingParams(), 400)

    with EnumerableEngine("ab$", slowly, name="slowly", delay=0.002) as engine:
        asyncio.run(cut(engine, off := request()))
        assert 0 < len(off.ended) < 40
        done = sum(sample.generated or 0 for sample in off.ended.values())
        assert engine.stats.aborted_tokens == engine.stats.generated - done > 0
        whole = asyncio.run(engine.generate(request())).samples
        assert off.ended == {i: whole[i] for i in off.ended}


def test_closing_ends_what_is_on_its_way() -> None:
    async def closed(engine: EnumerableEngine) -> list[object]:
        request = GenerateRequest(Sequence.of("?"), (1, 2), SamplingParams(ignore_eos=True), 400)
        tasks = [asyncio.create_task(engine.generate(request)) for _ in range(3)]
        await asyncio.sleep(0.02)
        engine.close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    with EnumerableEngine("ab$", slowly, name="slowly", delay=0.01) as engine:
        assert all(isinstance(one, EngineError) for one in asyncio.run(closed(engine)))
    for delay in (-1.0, math.inf, math.nan):
        with pytest.raises(InputError, match="delay="):
            EnumerableEngine("ab$", TABLE, delay=delay)


def test_functions_of_prompt_and_completion() -> None:
    def table(prompt: str, completion: tuple[str, ...]) -> list[float]:
        return [0.0, 0.0, 1.0] if len(completion) == len(prompt) else [1.0, 0.0, 0.0]

    with pytest.raises(InputError, match="name="):
        EnumerableEngine("ab$", table)
    with EnumerableEngine("ab$", table, name="as long as the prompt") as engine:
        sample = ask(engine, Sequence.of("éxy"), max_tokens=10, until=Step("aa")).samples[0]
        assert (sample.text, sample.step_end) == ("aa", 2)
        assert ask(engine, Sequence.of("éxy"), max_tokens=10).samples[0].text == "aaa"


def test_bad_input() -> None:
    table = {**TABLE, ("a",): (0.5, 0.6, 0.1), ("b",): (math.nan, 0.5, 0.5)}
    engine = EnumerableEngine("ab$", table, max_context=3)
    with pytest.raises(EngineError, match="not open"):
        ask(engine, Sequence.of("?"))
    with engine:
        with pytest.raises(InputError, match="sum to 1"):
            ask(engine, Sequence.of("?").extend("a"), max_tokens=1)
        with pytest.raises(NumericsError, match="NaN"):
            ask(engine, Sequence.of("?").extend("b"), max_tokens=1)
        with pytest.raises(InputError, match="no row"):
            engine.probabilities("?", ("b", "a"))
        with pytest.raises(PromptError, match="context of 3"):
            ask(engine, Sequence.of("???"))
        with pytest.raises(PromptError, match="cannot be written"):
            engine.render(Sequence.of("?").extend("é"))
    with pytest.raises(EngineError, match="closed"):
        ask(engine, Sequence.of("?"))


def test_adapters_agree_with_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    from metagen.generators.torch import sampling

    p = np.random.default_rng(0).dirichlet(np.ones(30))
    for t, k, top_p in ((0.7, 0, 1.0), (1.0, 7, 1.0), (1.5, 12, 0.8), (0.3, 0, 0.5)):
        mine = adapt(p, SamplingParams(temperature=t, top_k=k, top_p=top_p))
        rows = sampling.RowParams.of([SamplingParams(temperature=t, top_k=k, top_p=top_p)])
        logits = torch.from_numpy(np.log(p)).float()[None]
        assert mine == pytest.approx(torch.softmax(sampling.adapt(logits, rows), -1)[0].numpy(), abs=1e-6)


def test_confidences_by_hand() -> None:
    """−½ (ln p₁ + ln p₂) of the raw row, whatever is drawn and however; after `aa` the end is certain."""
    by_hand = {
        "": -(math.log(0.5) + math.log(0.3)) / 2,
        "a": -(math.log(0.6) + math.log(0.3)) / 2,
        "b": -(math.log(0.75) + math.log(0.25)) / 2,
        "aa": -(0.0 - 100.0) / 2,
        "ab": -(math.log(0.5) + math.log(0.3)) / 2,
        "bb": -(math.log(0.4) + math.log(0.4)) / 2,
    }
    with EnumerableEngine("ab$", TABLE) as engine:
        for options in ({}, {"temperature": 0.5, "top_k": 2}, {"temperature": 0.0}):
            plain = ask(engine, Sequence.of("?"), 60, max_tokens=3, **options).samples
            kept = ask(engine, Sequence.of("?"), 60, max_tokens=3, top_logprobs=2, **options).samples
            assert [replace(s, token_confidences=None) for s in kept] == list(plain)
            for sample in kept:
                assert sample.token_confidences == pytest.approx(
                    [by_hand[sample.text[:i]] for i in range(sample.generated or 0)]
                )
        assert len({s.text for s in kept}) == 1 and kept[0].token_confidences[2] == by_hand["ab"]  # type: ignore[index]
        (sample,) = ask(engine, Sequence.of("?"), 1, top_logprobs=3, max_tokens=1).samples
        assert sample.token_confidences == pytest.approx([-math.log(0.5 * 0.3 * 0.2) / 3])
        with pytest.raises(InputError, match=r"top_logprobs=4.*has 3 tokens"):
            ask(engine, Sequence.of("?"), top_logprobs=4)


def test_confidences_go_through_the_journal_and_an_old_one_reads_as_before() -> None:
    with EnumerableEngine("ab$", TABLE) as engine:
        plain, kept = engine.generator(max_tokens=3), engine.generator(max_tokens=3, top_logprobs=2)
        journal = MemoryJournal()

        def drawn(generator: EngineGenerator) -> list[Sequence]:
            scope = Scope.root("p", journal=journal)
            return asyncio.run(generator.generate(Sequence.of("?"), n=8, scope=scope.child("sample")))

        without, first = drawn(plain), drawn(kept)
        held = [(row.by, "token_confidences" in (row.payload or {})) for row in journal.of_problem("p")]
        assert sorted(held) == sorted([(plain.fingerprint, False), (kept.fingerprint, True)] * 8)
        counted = engine.stats.generated
        assert (drawn(plain), drawn(kept)) == (without, first) and engine.stats.generated == counted
        assert [replace(s, token_confidences=None) for s in first] == without
        assert all(len(s.token_confidences or ()) >= len(s.text) for s in first)
        copied = MemoryJournal()
        asyncio.run(copied.record([Row.of(row.columns()) for row in journal.of_problem("p")]))
        journal = copied
        assert (drawn(plain), drawn(kept)) == (without, first) and engine.stats.generated == counted


def test_an_engine_without_confidences_says_so_when_the_generator_is_made() -> None:
    plain = type("Plain", (EnumerableEngine,), {"supports": frozenset({"grammar"})})("ab$", TABLE)
    with pytest.raises(UnsupportedError, match="cannot keep top_logprobs=5"):
        EngineGenerator(plain, SamplingParams(top_logprobs=5))
    assert "top_logprobs" in EngineGenerator(EnumerableEngine("ab$", TABLE)).supports
