"""Generators that search: what they record, what they are charged, and what they refuse."""

import asyncio
from collections.abc import Iterator

import pytest

from metagen.budget import Budget
from metagen.errors import BudgetExhausted, EngineError, InputError, UnsupportedError
from metagen.generators.decoding.adapters import Mirostat
from metagen.generators.decoding.constraint import Matcher
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.search import BeamSearch, ContrastiveSearch, StochasticBeamSearch
from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.models.recipes import Table
from metagen.generators.primitive import EngineGenerator
from metagen.generators.torch import TorchEngine
from metagen.journal import MemoryJournal
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence, Tokens
from metagen.strategies.parallel import MajorityVote
from metagen.verifiers.numbers import NumberRule

START = Sequence(Prompt("p", text="Q:17+25-9\n"))
LIMIT = 24


@pytest.fixture(scope="module")
def engine() -> Iterator[TorchEngine]:
    with TorchEngine("tiny-0.1m", threads=1, max_batch=8) as opened:
        yield opened


def scope(journal: MemoryJournal | None = None, budget: Budget | None = None, seed: int = 0) -> Scope:
    return Scope.root("p", journal=journal, budget=budget, seed=seed)


def test_it_is_charged_for_every_row_and_its_samples_are_the_first_of_one_search(engine: TorchEngine) -> None:
    beams = engine.generator(max_tokens=LIMIT, search=BeamSearch(4))

    async def work() -> None:
        whole, one = scope(), scope()
        four = await beams.generate(START, n=4, scope=whole)
        first = await beams.generate(START, scope=one)
        assert first[0].text == four[0].text
        assert len({y.text for y in four}) == 4
        spent = whole.usage.generated
        longest = max(len(y.tokens.ids) for y in four if y.tokens is not None)
        assert spent is not None
        assert longest < spent <= 4 * LIMIT
        # The search is paid for once, whatever is taken from it.
        assert one.usage.generated == spent

    asyncio.run(work())


def test_more_of_a_search_come_from_the_journal_and_from_the_same_search(engine: TorchEngine) -> None:
    drawn = engine.generator(max_tokens=LIMIT, search=StochasticBeamSearch(4))
    journal = MemoryJournal()

    async def work() -> None:
        two = await drawn.generate(START, n=2, scope=scope(journal))
        before = engine.stats.requests
        assert await drawn.generate(START, n=2, scope=scope(journal)) == two
        assert engine.stats.requests == before
        four = await drawn.generate(START, n=4, scope=scope(journal))
        assert engine.stats.requests == before + 1
        assert four[:2] == two
        assert len({y.text for y in four}) == 4
        other = await drawn.generate(START, n=4, scope=scope(seed=1))
        assert other != four

    asyncio.run(work())


def test_a_budget_is_never_overshot_and_what_it_cut_is_not_the_answer_to_more(engine: TorchEngine) -> None:
    beams = engine.generator(max_tokens=LIMIT, search=BeamSearch(4))
    journal = MemoryJournal()

    async def work() -> None:
        for tokens in (40, 64, 95):
            limited = scope(journal, Budget(generated=tokens))
            found = (await beams.generate(START, scope=limited))[0]
            spent = limited.usage.generated
            assert spent is not None
            assert spent <= tokens
            assert found.finish == "length" or not found.exhausted
        free = scope(journal)
        assert await beams.generate(START, scope=free) == await beams.generate(START, scope=scope())
        with pytest.raises(BudgetExhausted):
            await beams.generate(START, scope=scope(budget=Budget(generated=3)))

    asyncio.run(work())


def test_searches_and_samples_share_a_batch_that_is_smaller_than_they_are(engine: TorchEngine) -> None:
    beams = engine.generator(max_tokens=LIMIT, search=BeamSearch(6))
    plain = engine.generator(max_tokens=LIMIT)
    prompts = [Sequence(Prompt(f"p{i}", text=f"Q:{10 + i}+25\n")) for i in range(5)]

    async def alone() -> list[list[Sequence]]:
        return [await g.generate(x, n=2, scope=scope()) for g in (beams, plain) for x in prompts]

    async def together() -> list[list[Sequence]]:
        return list(
            await asyncio.gather(
                *(g.generate(x, n=2, scope=scope()) for g in (beams, plain) for x in prompts)
            )
        )

    one_by_one, at_once = asyncio.run(alone()), asyncio.run(together())
    assert [[y.text for y in ys] for ys in at_once] == [[y.text for y in ys] for ys in one_by_one]


def test_what_is_cancelled_leaves_its_rows(engine: TorchEngine) -> None:
    beams = engine.generator(max_tokens=200, ignore_eos=True, search=BeamSearch(8))

    async def work() -> None:
        before = engine.stats.extra["decoded"]
        task = asyncio.create_task(beams.generate(START, scope=scope()))
        while engine.stats.extra["decoded"] == before:  # noqa: ASYNC110 - an engine's counts tell nobody
            await asyncio.sleep(0.001)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # All rows of the engine are wanted again.
        short = beams.replace(max_tokens=8)
        assert await asyncio.wait_for(short.generate(START, n=8, scope=scope()), 60)

    asyncio.run(work())


def test_what_cannot_be_asked_for(engine: TorchEngine) -> None:
    beams = engine.generator(max_tokens=LIMIT, search=BeamSearch(4))
    assert not beams.independent

    async def ask(n: int, start: int = 0) -> None:
        await beams.generate(START, n=n, start=start, scope=scope())

    with pytest.raises(InputError, match="n=2 from start=3: a beam search finds 4 sequences at most"):
        asyncio.run(ask(2, 3))
    with pytest.raises(InputError, match="takes 9 rows, and the engine has max_batch=8"):
        engine.generator(max_tokens=LIMIT, search=BeamSearch(9))
    with pytest.raises(UnsupportedError, match="pools independent draws"):
        MajorityVote(beams, 4, answer=NumberRule())
    with pytest.raises(UnsupportedError, match="runs no beam search"):
        EnumerableEngine("ab", {(): [0.5, 0.5]}, max_context=4).generator(search=BeamSearch(2))
    with pytest.raises(InputError, match="search=4: expected a search"):
        engine.generator(search=4)
    with pytest.raises(InputError, match="temperature=0 is greedy"):
        engine.generator(search=StochasticBeamSearch(2), temperature=0)
    with pytest.raises(InputError, match="mirostat follows what is drawn"):
        engine.generator(search=BeamSearch(2), mirostat=Mirostat())


def test_a_search_that_finds_too_little_gives_back_all_that_it_held() -> None:
    words = Table("ab$", {(): [0.6, 0.4, 0.0], ("a",): [0, 0, 1], ("b",): [0, 0, 1]})
    with TorchEngine(words, threads=1, max_batch=4) as small:
        beams = small.generator(search=BeamSearch(3), grammar=Grammar.regex("b"), max_tokens=3)
        for _ in range(3):  # with anything left behind, the next one would wait for ever
            with pytest.raises(InputError, match="found 1 sequences"):
                asyncio.run(asyncio.wait_for(ask_for(beams, 3), 30))
        assert asyncio.run(asyncio.wait_for(ask_for(beams, 1), 30))[0].text == "b"


async def ask_for(generator: EngineGenerator, n: int) -> list[Sequence]:
    return await generator.generate(START, n=n, scope=scope())


def test_a_search_at_the_head_waits_for_memory_that_those_behind_it_do_not_hold(engine: TorchEngine) -> None:
    room = engine.shape.kv_bytes_per_token * 2400 if engine.shape else 0
    with TorchEngine("tiny-0.1m", threads=1, max_batch=8, kv_memory_bytes=room) as small:

        async def work() -> None:
            beams = small.generator(max_tokens=197, ignore_eos=True, search=BeamSearch(4))
            plain = small.generator(max_tokens=197, ignore_eos=True)
            prompts = [Sequence(Prompt(f"p{i}", text=f"Q:{10 + i}+25\n")) for i in range(6)]
            asked = [g.generate(x, scope=scope()) for x in prompts for g in (plain, beams)]
            assert all(await asyncio.wait_for(asyncio.gather(*asked), 120))

        asyncio.run(work())


def test_a_budget_bounds_a_search_with_hidden_states_and_several_at_once(engine: TorchEngine) -> None:
    lookahead = engine.generator(max_tokens=LIMIT, search=ContrastiveSearch(3))
    beams = engine.generator(max_tokens=LIMIT, search=BeamSearch(4))

    async def work() -> None:
        limited = scope(budget=Budget(generated=30))
        began = engine.stats.generated
        await asyncio.wait_for(lookahead.generate(START, scope=limited), 60)
        assert 0 < (limited.usage.generated or 0) <= 30
        assert engine.stats.generated - began == limited.usage.generated
        shared = scope(budget=Budget(generated=100))
        before = engine.stats.generated
        asked = [beams.generate(START, scope=shared.child(f"try/{i}")) for i in range(3)]
        found = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 60)
        assert any(isinstance(one, list) for one in found)
        assert engine.stats.generated - before == shared.usage.generated
        assert (shared.usage.generated or 0) <= 100

    asyncio.run(work())


def test_ranks_that_do_not_fit_are_refused(engine: TorchEngine) -> None:
    for ranks in ((), (0,)):
        request = GenerateRequest(START, (1, 2), SamplingParams(search=BeamSearch(2)), 4, ranks=ranks)
        with pytest.raises(InputError, match="a search needs one for each of its 2 seeds"):
            asyncio.run(engine.generate(request))


def test_a_grammar_that_cannot_be_followed_any_further_fails_alone(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(self: Matcher, left: int | None = None, most: int = 0) -> list[int]:
        raise EngineError("a grammar cannot be matched any further")

    monkeypatch.setattr(Matcher, "forced_tokens", lost)
    held = engine.generator(max_tokens=8, grammar=Grammar.regex("a=[0-9]+\n"))
    plain = engine.generator(max_tokens=8)

    async def work() -> None:
        one, other = await asyncio.gather(
            held.generate(START, scope=scope()), plain.generate(START, scope=scope()), return_exceptions=True
        )
        assert isinstance(one, EngineError) and "any further" in str(one)
        assert isinstance(other, list)

    asyncio.run(work())


def test_a_long_forced_text_does_not_hold_up_the_engine(engine: TorchEngine) -> None:
    held = engine.generator(max_tokens=60, grammar=Grammar.regex("a{5000}"))
    (text,) = asyncio.run(asyncio.wait_for(ask_for(held, 1), 30))
    assert text.text == "a" * 60 and text.finish == "length"


def test_healing_is_not_cut_into_blocks(engine: TorchEngine) -> None:
    healed = engine.generator(max_tokens=8, healing=True)
    with pytest.raises(UnsupportedError, match="generate to the end, or leave healing off"):
        asyncio.run(healed.generate(START, until=Tokens(2), scope=scope()))
