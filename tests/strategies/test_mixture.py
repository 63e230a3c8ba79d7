"""Mixture of agents: each layer reads the one before, and the last word is written, not chosen."""

from __future__ import annotations

import re

import pytest

from metagen.errors import InputError, PromptError
from metagen.generators.base import Generator
from metagen.generators.engine import Sample as Drawn
from metagen.generators.function import FunctionGenerator
from metagen.generators.torch import TorchEngine
from metagen.sequence import Prompt, Sequence
from metagen.strategies.base import Strategy
from metagen.strategies.mixture import SYNTHESIS, MixtureOfAgents
from metagen.strategies.parallel import MajorityVote
from metagen.strategies.refine.refinement import Refinement
from metagen.testing import StrategyLaws, first_word, last_word, numbers
from metagen.verifiers.function import FunctionRule

PROMPT = Prompt("p", text="Sum?", public={"hint": 1})
RULE = FunctionRule(lambda text: text or None)


def says(text: str) -> FunctionGenerator:
    return FunctionGenerator(lambda p, s, i: text, count=len, max_tokens=200, name=text)


def adder(name: str = "adder") -> FunctionGenerator:
    """Adds the numbers of the responses that it reads, and 1; a plain task is 1."""

    def add(prefix: Sequence, seed: int, index: int) -> str:
        read = re.findall(r"Response \d+:\n(\d+)", prefix.prompt.text or "")
        return str(1 + sum(map(int, read)))

    return FunctionGenerator(add, count=len, max_tokens=8, name=name)


def test_each_layer_reads_the_one_before() -> None:
    """Three agents write 1 each, two read them and write 4 each, the aggregator reads 4 + 4 and writes 9."""
    strategy = MixtureOfAgents([[adder()] * 3, [adder()] * 2], adder("last"), answer=RULE)
    result = strategy.solve(PROMPT)
    assert result.text == "9" and result.usage.calls == 6 and result.sequence.prompt == PROMPT
    assert [c.key for c in result.candidates] == ["4", "4", "9"]
    assert {row.path for row in result.trace.rows} == {
        "0/layer/0/0", "0/layer/0/1", "0/layer/0/2", "0/layer/1/0", "0/layer/1/1", "0/aggregate",
    }  # fmt: skip


def test_a_strategy_may_be_an_agent() -> None:
    inner: Generator = MajorityVote(says("5"), 3, answer=RULE)
    result = MixtureOfAgents([[inner, says("2")]], adder(), answer=RULE).solve(PROMPT)
    assert result.text == "8" and result.usage.calls == 5


@pytest.mark.parametrize("calls", range(7))
def test_when_calls_run_out_the_newest_whole_response_is_returned(calls: int) -> None:
    strategy = MixtureOfAgents([[adder()] * 3, [adder()] * 2], adder("last"), answer=RULE)
    result = strategy.solve(PROMPT, budget={"calls": calls})
    # With fewer responses to read the sums are smaller; what comes out is the newest that there is.
    expected = ["", "1", "1", "1", "4", "4", "9"][calls]
    assert result.usage.calls <= calls and result.exhausted == (calls < 6)
    assert result.text == expected


def cuts(text: str) -> FunctionGenerator:
    return FunctionGenerator(
        lambda p, s, i: Drawn(text, None, len(text), finish="length"),
        count=len,
        max_tokens=200,
        name=f"cuts {text}",
    )


def test_a_whole_response_beats_one_that_was_cut() -> None:
    whole = MixtureOfAgents([[says("w")], [cuts("c")]], says("z")).solve(PROMPT)
    assert (whole.text, whole.sequence.finish) == ("w", "eos")
    last = MixtureOfAgents([[says("w"), cuts("c")]], cuts("half")).solve(PROMPT)
    assert last.text == "w"
    nothing = MixtureOfAgents([[cuts("c"), cuts("d")]], says("z")).solve(PROMPT)
    assert nothing.text == "c" and nothing.usage.calls == 2


def test_responses_that_do_not_fit_a_context_are_not_lost() -> None:
    def short(prefix: Sequence, seed: int, index: int) -> str:
        if "Response 1" in (prefix.prompt.text or ""):
            raise PromptError("longer than the context")
        return "w"

    agent = FunctionGenerator(short, name="short")
    assert MixtureOfAgents([[agent]], agent).solve(PROMPT).text == "w"
    with pytest.raises(PromptError):
        MixtureOfAgents([[agent]], agent).solve(SYNTHESIS(PROMPT, ["a"]))


def test_models_without_a_chat_template_are_asked_by_text() -> None:
    with TorchEngine("tiny-0.1m", threads=1) as engine:
        agent = engine.generator(max_tokens=24)
        result = MixtureOfAgents([[agent, agent]], agent).solve("Q:a=3+4;a?\nS:\n")
    assert {row.path for row in result.trace.rows} == {"0/layer/0/0", "0/layer/0/1", "0/aggregate"}
    assert all(row.payload is not None and row.usage.generated for row in result.trace.rows)


def test_layers_without_agents_are_refused() -> None:
    for layers in ([], [[adder()], []]):
        with pytest.raises(InputError, match="at least one agent in each"):
            MixtureOfAgents(layers, adder())


class TestMixtureOfStrategies(StrategyLaws):
    def make(self) -> Strategy:
        agents = [Refinement(numbers(), verifier=first_word, rounds=1) for _ in range(2)]
        return MixtureOfAgents([agents], numbers(), answer=last_word)


class TestMixtureOfAgents(StrategyLaws):
    def make(self) -> Strategy:
        return MixtureOfAgents([[numbers(), numbers()], [numbers()]], numbers(), answer=last_word)
