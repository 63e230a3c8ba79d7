"""Chains under budgets, faults, journals that end, and cancellation."""

from __future__ import annotations

import asyncio

import pytest

from metagen.errors import PluginError
from metagen.generators.function import FunctionGenerator
from metagen.journal import MemoryJournal
from metagen.sequence import Sequence
from metagen.strategies.chain.chain import Chain
from metagen.strategies.chain.steps import Ask, Continue, Verify
from metagen.testing import CountingJournal, first_word, numbers
from metagen.verifiers.function import FunctionVerifier
from tests.strategies.chain.toys import ECHO, says


def thinking() -> Chain:
    """Two tokens of thought, three of an answer: five in all, and two calls."""

    def write(prefix: Sequence, seed: int, index: int) -> str:
        return "ab" if not prefix.text else "xyz"

    generator = FunctionGenerator(write, count=len, max_tokens=3)
    thinker = FunctionGenerator(write, count=len, max_tokens=2, name="thinker")
    return Chain({"thought": Continue(thinker), "answer": Continue(generator, ":", after="thought")})


@pytest.mark.parametrize(("tokens", "text"), [(0, ""), (1, ""), (2, "ab"), (4, "ab"), (5, "ab:xyz")])
def test_when_tokens_run_out_there_is_what_the_answer_would_have_gone_on_from(tokens: int, text: str) -> None:
    result = thinking().solve("q", budget=tokens)
    assert (result.text, result.exhausted) == (text, tokens < 5)
    assert result.usage.generated == min(tokens, 5) - (tokens in (1, 4)) - (tokens == 4)


@pytest.mark.parametrize("calls", range(3))
def test_when_calls_run_out_too(calls: int) -> None:
    result = thinking().solve("q", budget={"calls": calls})
    assert (result.text, result.exhausted, result.usage.calls) == (
        ["", "ab", "ab:xyz"][calls],
        calls < 2,
        calls,
    )


def test_an_output_that_cannot_be_scored_any_more_is_returned_all_the_same() -> None:
    chain = Chain({"a": Ask(ECHO, "x"), "v": Verify(first_word, of="a")}, output="a")
    result = chain.solve("q", budget={"calls": 1})
    assert result.text == "[x]" and result.exhausted and not result.sequence.scores


def test_a_finished_output_that_cannot_be_scored_any_more_stands_before_what_it_went_on_from() -> None:
    thought, answer = thinking().steps.values()
    checked = {"thought": thought, "answer": answer, "v": Verify(first_word, of="answer")}
    result = Chain(checked, output="answer").solve("q", budget={"calls": 2})
    assert result.text == "ab:xyz" and result.exhausted and not result.sequence.scores
    assert [offer.sequence.text for offer in result.candidates] == ["ab:xyz"]


def test_a_budget_that_ends_in_one_branch_lets_the_other_finish_and_nothing_hangs() -> None:
    chain = Chain({
        "a": Ask(says(lambda t: "aa", "a"), "x"), "b": Ask(says(lambda t: "bb", "b"), "x"),
        "c": Ask(ECHO, "{a}"), "d": Ask(ECHO, "{b}"), "answer": Ask(ECHO, "{c}{d}"),
    })  # fmt: skip
    for calls in range(5):
        result = chain.solve("q", budget={"calls": calls})
        assert result.exhausted and result.usage.calls == calls and result.text == ""
    assert chain.solve("q", budget={"calls": 5}).text == "[[aa][bb]]"


@pytest.mark.parametrize("calls", range(6))
def test_under_a_limit_the_result_is_the_same_whichever_branch_is_faster(calls: int) -> None:
    def solved(slow: str) -> tuple[str, bool, int]:
        async def write(prefix: Sequence, seed: int, index: int) -> str:
            await asyncio.sleep(0.03 if slow in (prefix.prompt.text or "") + prefix.text else 0)
            return f"<{(prefix.prompt.text or '')[-3:]}>"

        model = FunctionGenerator(write)
        result = Chain({
            "begin": Continue(model), "more": Continue(model, "m", after="begin"),
            "note": Ask(model, "n{begin}"), "other": Ask(model, "n{note}"),
            "answer": Continue(model, "{other}", after="more"),
        }).solve("q", budget={"calls": calls})  # fmt: skip
        return result.text, result.exhausted, result.usage.calls

    first, second = solved("m"), solved("n")
    assert first == second == (first[0], calls < 5, calls)
    assert (first[0] == "<q>") == (0 < calls < 5), "what was begun before the branches part"


def test_a_verifier_that_fails_ends_the_chain_with_its_error_and_a_resumed_run_pays_for_the_rest_only() -> (
    None
):
    broken = True

    def look(sequence: Sequence) -> float:
        if broken:
            raise ZeroDivisionError("the verifier broke")
        return 0.5

    chain = Chain(
        {"a": Ask(ECHO, "x"), "v": Verify(FunctionVerifier(look), of="a"), "b": Ask(ECHO, "{a}{v}")},
        output="b",
    )
    journal = CountingJournal()
    with pytest.raises(PluginError, match="raised ZeroDivisionError"):
        chain.solve("q", journal=journal)
    assert journal.recorded == 1
    broken = False
    result = chain.solve("q", journal=journal)
    assert result.text == "[[x]0.5]" and journal.recorded == 3
    again = chain.solve("q", journal=journal)
    assert (again.text, again.usage) == (result.text, result.usage) and journal.recorded == 3


def test_a_journal_that_ends_in_the_middle_is_gone_on_from() -> None:
    chain = Chain({"a": Ask(numbers(), "{prompt}"), "b": Ask(ECHO, "{a}"), "c": Ask(ECHO, "{b}{a}")})
    journal = MemoryJournal()
    whole = chain.solve("q", journal=journal)
    rows = list(whole.trace.rows)
    for kept in range(len(rows) + 1):
        cut = CountingJournal()
        asyncio.run(cut.record(rows[:kept]))
        again = chain.solve("q", journal=cut)
        assert again.text == whole.text and cut.recorded == len(rows)


def test_cancellation_stops_all_steps() -> None:
    stopped: list[str] = []

    def slow(name: str) -> FunctionGenerator:
        async def write(prefix: Sequence, seed: int, index: int) -> str:
            try:
                await asyncio.sleep(60)
            finally:
                stopped.append(name)
            return name

        return FunctionGenerator(write, name=name)

    chain = Chain({"a": Ask(slow("a"), "x"), "b": Ask(slow("b"), "x"), "c": Ask(ECHO, "{a}{b}")})

    async def main() -> None:
        task = asyncio.create_task(chain.asolve("q"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert sorted(stopped) == ["a", "b"]


def test_an_error_in_one_step_cancels_the_others() -> None:
    stopped: list[str] = []

    async def hang(prefix: Sequence, seed: int, index: int) -> str:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append("a")
        return ""

    async def fail(prefix: Sequence, seed: int, index: int) -> str:
        await asyncio.sleep(0.02)
        raise ZeroDivisionError

    steps = {"a": Ask(FunctionGenerator(hang), "x"), "b": Ask(FunctionGenerator(fail, name="f"), "x"),
             "c": Ask(ECHO, "{a}{b}"), "d": Ask(ECHO, "{a}{c}")}  # fmt: skip
    with pytest.raises(PluginError, match="raised ZeroDivisionError"):
        Chain(steps).solve("q")
    assert stopped == ["a"]
