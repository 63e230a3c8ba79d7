"""Stopping by a function of what has been written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from metagen.budget import Budget
from metagen.errors import InputError, UnsupportedError
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.function import FunctionGenerator
from metagen.sequence import Prompt, Sequence, Step, Tokens
from metagen.strategies.base import Strategy
from metagen.strategies.stop_when import Steps, StopWhen
from metagen.testing import CountingJournal, StrategyLaws


def engine() -> EnumerableEngine:
    return EnumerableEngine("ab\n$", lambda prompt, done: (0.4, 0.4, 0.15, 0.05), name="letters")


def several(sequence: Sequence) -> bool:
    return sequence.text.count("b") >= 3


class TestLaws(StrategyLaws):
    prompt, begun = Prompt("law", text="?"), "ab"

    @pytest.fixture(autouse=True)
    def _opened_model(self) -> Iterator[None]:
        with engine() as self.model:
            yield

    def make(self) -> Strategy:
        return StopWhen(self.model.generator(max_tokens=24), several, name="three bs", every=Tokens(4))


@pytest.mark.parametrize("every", [Tokens(1), Tokens(5), Step("\n", max_tokens=6)])
def test_it_stops_at_the_end_of_the_block_that_is_enough(every: Any) -> None:
    with engine() as model:
        for seed in range(12):
            strategy = StopWhen(
                model.generator(max_tokens=64, ignore_eos=True), several, name="3b", every=every
            )
            done = strategy.solve("?", seed=seed).sequence
            blocks = done.text.count("b")
            assert done.finish == "stop" and blocks >= 3
            if every == Tokens(1):
                assert blocks == 3 and done.text.endswith("b")
            if isinstance(every, Tokens):
                assert len(done.text) % every.count == 0
                assert not several(Sequence.of("?").extend(done.text[: -every.count]))


def test_what_ends_by_itself_has_its_own_end_and_a_limit_is_kept() -> None:
    with engine() as model:
        never = StopWhen(model.generator(max_tokens=9), lambda s: False, name="never", every=Tokens(2))
        ends = {never.solve("?", seed=seed).sequence.finish for seed in range(30)}
        assert ends == {"eos", "length"}
        cut = never.solve("?", seed=1, budget=Budget(generated=3))
        assert cut.exhausted and cut.usage.generated is not None and cut.usage.generated <= 3


def test_where_a_budget_ends_it_all_that_was_written_is_returned() -> None:
    with engine() as model:
        writer = model.generator(max_tokens=64, ignore_eos=True)
        never = StopWhen(writer, lambda s: False, name="never", every=Tokens(4))
        for budget in ({"calls": 3}, {"generated": 12}):
            result = never.solve("?", budget=budget)
            assert len(result.text) == result.usage.generated == 12 and result.exhausted


def test_the_function_is_asked_again_of_what_was_recorded_and_nothing_is_drawn_twice() -> None:
    journal, asked = CountingJournal(), list[str]()

    async def enough(sequence: Sequence) -> bool:
        asked.append(sequence.text)
        return several(sequence)

    with engine() as model:
        strategy = StopWhen(
            model.generator(max_tokens=64, ignore_eos=True), enough, name="3b", every=Tokens(3)
        )
        first = strategy.solve("?", journal=journal)
        drawn, times = journal.recorded, len(asked)
        again = strategy.solve("?", journal=journal)
    assert again.text == first.text and journal.recorded == drawn
    assert asked[:times] == asked[times:]


def test_a_number_of_steps() -> None:
    with engine() as model:
        generator = model.generator(max_tokens=64, ignore_eos=True)
        three = StopWhen(generator, Steps(3), every=Step("\n"))
        done = three.solve("?", seed=2).sequence
        assert done.finish == "stop" and done.text.count("\n") == 3 and done.text.endswith("\n")
        assert three.fingerprint != StopWhen(generator, Steps(2), every=Step("\n")).fingerprint
        named = (StopWhen(generator, Steps(count), name="x", every=Step("\n")) for count in (2, 3))
        assert len({one.fingerprint for one in named}) == 2
        with pytest.raises(InputError, match="every=None"):
            StopWhen(generator, Steps(3))
    with pytest.raises(InputError, match="count=0; expected an integer ≥ 1"):
        Steps(0)


def test_its_name_is_what_tells_functions_apart() -> None:
    with engine() as model:
        generator = model.generator()
        prints = {
            StopWhen(generator, several, name=name, every=every).fingerprint
            for name in ("a", "b")
            for every in (None, Tokens(5), Step("\n"))
        }
        assert len(prints) == 6
        with pytest.raises(InputError, match="name=''"):
            StopWhen(generator, several, name="")
    written = FunctionGenerator(lambda prefix, seed, index: "x")
    written.accepts_until = False
    with pytest.raises(UnsupportedError, match="cannot be stopped"):
        StopWhen(written, several, name="a")
