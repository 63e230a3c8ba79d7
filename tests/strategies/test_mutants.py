"""The laws of strategies are tried on strategies that break them: a law that cannot fail is worse than none."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from metagen import batch
from metagen.budget import Budget
from metagen.call import Ended, Item, Outcome, Request
from metagen.cost import Usage
from metagen.errors import MetagenError, UnsupportedError
from metagen.generators.function import FunctionGenerator
from metagen.scope import Scope
from metagen.sequence import Sequence, Step, Tokens, Until
from metagen.strategies.base import Strategy
from metagen.strategies.parallel import MBR, MajorityVote
from metagen.strategies.tree.rebase import Rebase
from metagen.testing import StrategyLaws, first_word, last_word, numbers
from metagen.verifiers.generative.question import Question
from metagen.verifiers.generative.respondent import WritingRespondent
from metagen.verifiers.utility.judge import JudgeUtility
from tests.strategies import test_mixture
from tests.strategies.chain import test_chain
from tests.strategies.tree import test_interleaving

Run = Callable[[Sequence, Scope], Coroutine[Any, Any, Sequence]]


class Mutant(Strategy):
    """A strategy made of a `run`, which may be faulty."""

    fingerprint = "mutant"

    def __init__(self, run: Run) -> None:
        self._run = run

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        return await self._run(prefix, scope)


async def one(prefix: Sequence, scope: Scope, name: str) -> Sequence:
    (drawn,) = await numbers().generate(prefix, scope=scope.child(name))
    return drawn


async def two(prefix: Sequence, scope: Scope, name: str) -> Sequence:
    first = await one(prefix, scope, f"{name}/a")
    second = await one(prefix, scope, f"{name}/b")
    return max(first, second, key=lambda s: s.text)


async def takes_the_fastest(prefix: Sequence, scope: Scope) -> Sequence:
    tasks = [asyncio.create_task(one(prefix, scope, str(i))) for i in range(3)]
    try:
        return await next(asyncio.as_completed(tasks))
    finally:
        await asyncio.gather(*tasks, return_exceptions=True)


async def spends_side_by_side(prefix: Sequence, scope: Scope) -> Sequence:
    return max(await scope.gather(*(two(prefix, scope, str(i)) for i in range(4))), key=lambda s: s.text)


async def numbers_by_arrival(prefix: Sequence, scope: Scope) -> Sequence:
    arrived = count()

    async def both(i: int) -> Sequence:
        await one(prefix, scope, f"first/{i}")
        return await one(prefix, scope, f"second/{next(arrived)}/of/{i}")

    return max(await scope.gather(*(both(i) for i in range(3))), key=lambda s: s.text)


async def overshoots(prefix: Sequence, scope: Scope) -> Sequence:
    drawn = await one(prefix, scope, "one")

    async def execute(positions: object, cap: int | None, ended: Ended) -> list[Outcome]:
        return [Outcome({}, Usage(generated=50))]

    # Says that it writes nothing, and writes 50 tokens.
    asked = Request("tool", "mutant", (Item(b"asked"),))
    await scope.child("tool").call(asked, execute, lambda positions, cap: Usage())
    return drawn


async def spends_elsewhere(prefix: Sequence, scope: Scope) -> Sequence:
    """Asks another strategy under a root scope of its own, where nothing binds."""
    return (await MajorityVote(numbers(), 2, answer=last_word).asolve(prefix.prompt)).sequence


async def swallows_cancellation(prefix: Sequence, scope: Scope) -> Sequence:
    try:
        return await one(prefix, scope, "one")
    except asyncio.CancelledError:
        return prefix


async def leaves_work_behind(prefix: Sequence, scope: Scope) -> Sequence:
    task = asyncio.create_task(one(prefix, scope, "one"))
    await asyncio.wait([task])
    return await task


async def ignores_the_prefix(prefix: Sequence, scope: Scope) -> Sequence:
    return await one(Sequence.of(prefix.prompt), scope, "one")


async def draws_by_itself(prefix: Sequence, scope: Scope) -> Sequence:
    drawn = await one(prefix, scope, "one")
    return drawn if random.random() < 0.5 else prefix.extend(drawn.text + "!", finish="eos")


RUNS = count()


async def draws_anew(prefix: Sequence, scope: Scope) -> Sequence:
    """What it returns is the same each time; what it has paid for is lost."""
    with suppress(MetagenError):
        await one(prefix, scope, f"try/{next(RUNS)}")
    return await one(prefix, scope, "one")


async def side_by_side(
    self: Strategy, prefix: Sequence, n: int, start: int, until: Until, scope: Scope
) -> list[tuple[Sequence, tuple[Any, ...]]]:
    found = await scope.gather(
        *(self._anytime(prefix, until, scope.child(str(i))) for i in range(start, start + n))
    )
    return [(one, ()) for one in found]


#: Each law that has to fail, with its arguments, by the fault that it has to find.
FAULTS: list[tuple[Run, str, dict[str, Any]]] = [
    (takes_the_fastest, "test_it_ends_alike_whoever_is_faster", {"runs": 1}),
    (spends_side_by_side, "test_it_ends_alike_whoever_is_faster", {"runs": 1}),
    (numbers_by_arrival, "test_it_ends_alike_whoever_is_faster", {"runs": 1}),
    (numbers_by_arrival, "test_whatever_is_recorded_already_it_comes_to_the_same_end", {}),
    (
        overshoots,
        "test_a_token_budget_is_never_overshot_and_something_is_always_returned",
        {"tokens": 40},
    ),
    (spends_elsewhere, "test_alone_it_spends_and_ends_as_it_does_in_a_scope", {}),
    (swallows_cancellation, "test_it_is_cancelled_cleanly_and_goes_on_from_its_records", {"runs": 1}),
    (leaves_work_behind, "test_it_is_cancelled_cleanly_and_goes_on_from_its_records", {"runs": 1}),
    (ignores_the_prefix, "test_a_text_that_was_begun_is_gone_on_with", {}),
    (draws_by_itself, "test_same_seed_same_samples_and_more_samples_begin_with_the_fewer", {}),
    (draws_by_itself, "test_it_ends_alike_whoever_is_faster", {"runs": 2}),
    (draws_anew, "test_a_recorded_sample_is_never_run_again", {}),
]


def laws(make: Callable[[], Strategy]) -> StrategyLaws:
    class Laws(StrategyLaws):
        def make(self) -> Strategy:
            return make()

    return Laws()


def broken() -> Any:
    return pytest.raises((AssertionError, MetagenError, pytest.fail.Exception))


@pytest.mark.parametrize(("run", "law", "given"), FAULTS)
def test_a_law_finds_the_fault(run: Run, law: str, given: dict[str, Any]) -> None:
    random.seed(0)
    with broken():
        getattr(laws(lambda: Mutant(run)), law)(**given)


@pytest.mark.parametrize("law", sorted({law for _, law, _ in FAULTS}))
def test_the_same_law_holds_without_it(law: str) -> None:
    async def sound(prefix: Sequence, scope: Scope) -> Sequence:
        return await one(prefix, scope, "one")

    given = next(given for _, name, given in FAULTS if name == law)
    getattr(laws(lambda: Mutant(sound)), law)(**given)


class Remembers(Strategy):
    """What it has met is kept in place, and would tell one problem about another."""

    fingerprint = "remembers"

    def __init__(self) -> None:
        self.met: list[str] = []

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        drawn = await one(prefix, scope, "one")
        self.met.append(drawn.text)
        return drawn


class Learns(Strategy):
    """Its first problem decides for all that follow."""

    fingerprint = "learns"

    def __init__(self) -> None:
        self._first: dict[str, str] = {}

    def __repr__(self) -> str:
        return "Learns()"

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        drawn = await one(prefix, scope, str(len(self._first)))
        self._first[prefix.prompt.problem_id] = drawn.text
        return drawn


@pytest.mark.parametrize("make", [Remembers, Learns])
def test_a_strategy_that_remembers_is_found(make: Callable[[], Strategy]) -> None:
    with broken():
        laws(make).test_it_holds_no_state()


class Pieces(Strategy):
    """Says that it can write pieces, and asks its generator for them as `piece` does."""

    fingerprint = "pieces"
    accepts_until = True

    def __init__(self, piece: Callable[[Until], Until], cut: Callable[[str], str] = str) -> None:
        self._piece, self._cut = piece, cut

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        place = scope.child("sample")
        (drawn,) = await numbers().generate(prefix, until=self._piece(until), scope=place)
        short = self._cut(drawn.text[len(prefix.text) :])
        if prefix.text + short == drawn.text:
            return drawn
        return prefix.extend(short, step_end=len(short) if isinstance(until, Step) else None)


PIECES = "test_it_stops_where_it_is_asked_to_or_says_before_it_pays_that_it_cannot"


@pytest.mark.parametrize(
    ("strategy", "until"),
    [
        (lambda: Pieces(lambda until: None), Step("\n")),
        (lambda: Pieces(lambda until: None), Tokens(1)),
        (lambda: Pieces(lambda until: Tokens(3)), Step("\n")),
        (lambda: Pieces(lambda until: Tokens(4)), Tokens(3)),
        # Whole texts are paid for, and cut afterwards.
        (lambda: Pieces(lambda until: None, lambda text: text[: text.find("\n") + 1] or text), Step("\n")),
    ],
)
def test_a_strategy_that_goes_on_beyond_what_it_was_asked_for_is_found(
    strategy: Callable[[], Strategy], until: Until
) -> None:
    with broken():
        getattr(laws(strategy), PIECES)(until)


def test_a_strategy_that_passes_on_what_it_is_asked_for_keeps_the_laws_of_pieces() -> None:
    sound = laws(lambda: Pieces(lambda until: until))
    for until in (Step("\n"), Step("\n", max_tokens=3), Tokens(1), Tokens(3)):
        getattr(sound, PIECES)(until)
    sound.test_steps_join_into_a_longer_sequence()
    with broken():
        laws(lambda: Pieces(lambda until: Tokens(2))).test_steps_join_into_a_longer_sequence()


def test_a_strategy_that_takes_no_pieces_and_does_not_say_so_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It refuses too late: what it drew before is paid for."""
    monkeypatch.setattr(Strategy, "check", lambda self, prefix, n, start, until: None)

    async def late(prefix: Sequence, scope: Scope) -> Sequence:
        await one(prefix, scope, "one")
        raise UnsupportedError("no pieces")

    with broken():
        getattr(laws(lambda: Mutant(late)), PIECES)(Step("\n"))


class Judged(StrategyLaws):
    """Judges whose answers are several calls, one after the other, under limits of tokens alone."""

    def make(self) -> Strategy:
        def say(prefix: Sequence, seed: int, index: int) -> str:
            return "well " * (seed % 4) + f"verdict {seed % 3}"

        words = FunctionGenerator(say, name="judge", count=lambda text: len(text.split()), max_tokens=9)

        async def twice(prefix: Sequence, scope: Scope) -> Sequence:
            drawn = [await words.generate(prefix, scope=scope.child(str(i))) for i in range(2)]
            return max((one for (one,) in drawn), key=lambda s: s.text)

        question = Question("{task} {first} {second}", {"0": 0.0, "1": 0.5, "2": 1.0}, "verdict", chat=False)
        # All pairs are asked about at once.
        return MBR(numbers(), 4, utility=JudgeUtility(WritingRespondent(Mutant(twice), question)))

    def limits(self, strategy: Strategy) -> Iterator[Budget]:
        # Samples have half of them.
        return (Budget(generated=tokens) for tokens in range(40, 128, 8))


def test_judges_of_several_calls_end_alike_under_a_limit_of_tokens() -> None:
    Judged().test_it_ends_alike_whoever_is_faster(runs=1)


@pytest.mark.parametrize(
    "strategy", [Judged, test_chain.TestChainOfBranches, test_mixture.TestMixtureOfStrategies]
)
def test_pieces_of_several_stages_that_never_wait_are_found(
    monkeypatch: pytest.MonkeyPatch, strategy: type[StrategyLaws]
) -> None:
    monkeypatch.setattr(batch, "_is_limited", lambda scope, stage: False)
    with broken():
        strategy().test_it_ends_alike_whoever_is_faster(runs=1)


def search() -> Strategy:
    return Rebase(numbers(), 4, verifier=first_word, answer=last_word)


def test_a_search_that_draws_and_scores_side_by_side_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_is_limited", lambda scope, stage: False)
    with broken():
        laws(search).test_it_ends_alike_whoever_is_faster(runs=1)


def test_a_stage_that_runs_side_by_side_where_not_all_of_it_fits_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch, "_fit", lambda scope, worst: None not in worst)
    with broken():
        test_interleaving.test_what_draws_on_one_limit_does_not_depend_on_who_is_faster(
            "tokens kept for what may be written"
        )


def test_runs_that_spend_side_by_side_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Strategy, "_in_turn", side_by_side)
    with broken():
        laws(search).test_it_ends_alike_whoever_is_faster(runs=2)
