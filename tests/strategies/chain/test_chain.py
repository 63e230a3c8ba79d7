"""Chains: what they compute and refuse, and steps that cannot be done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import TypeVar

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.errors import InputError, PromptError, UnsupportedError
from metagen.generators.engine import Sample as Drawn
from metagen.generators.function import FunctionGenerator
from metagen.generators.replay import ReplayGenerator
from metagen.sequence import Message, Prompt, Score, Sequence, Step
from metagen.strategies.base import Strategy
from metagen.strategies.chain.chain import Chain
from metagen.strategies.chain.steps import Ask, ChainStep, Continue, Use, Verify
from metagen.strategies.parallel import MajorityVote
from metagen.strategies.tools import Tool
from metagen.template import Template, escape
from metagen.testing import StrategyLaws, first_word, last_word, numbers, run
from metagen.verifiers.function import FunctionRule, FunctionVerifier
from metagen.verifiers.oracle import OracleVerifier
from tests.strategies.chain.toys import ECHO, PROMPT, says

T = TypeVar("T")


# ------------------------------------------------------------------------------------------------ what they compute


def test_each_step_reads_what_it_needs_and_the_last_is_returned() -> None:
    chain = Chain({
        "plan": Ask(ECHO, "P:{prompt}"),
        "answer": Ask(ECHO, "A:{prompt}|{plan}|{{plan}}|{\"a\": {}}"),
    })  # fmt: skip
    result = chain.solve(PROMPT)
    assert result.text == '[A:What is it?|[P:What is it?]|{plan}|{"a": {}}]'
    assert result.sequence.prompt == PROMPT and result.sequence.finish == "eos" and not result.exhausted
    assert {row.path for row in result.trace.rows} == {"0/plan", "0/answer"}
    assert [c.sequence for c in result.candidates] == [result.sequence]


def test_steps_may_be_given_in_any_order_and_another_may_be_the_output() -> None:
    steps = [("answer", Ask(ECHO, "{plan}")), ("plan", Ask(ECHO, "{prompt}"))]
    assert Chain(steps, output="answer").solve(PROMPT).text == "[[What is it?]]"
    assert list(Chain(steps, output="answer").graph.edges) == [("plan", "answer")]


def test_prompts_of_steps_keep_problem_and_public_data_and_may_be_chats() -> None:
    seen: list[Prompt] = []

    def look(prefix: Sequence, seed: int, index: int) -> str:
        seen.append(prefix.prompt)
        return "x"

    generator = FunctionGenerator(look)
    chat = Prompt("c", messages=(Message("system", "be brief"), Message("user", "Why?")), public={"hint": 2})
    Chain({"a": Ask(generator, "{prompt}!"), "b": Ask(generator, "{a}?", chat=True)}).solve(chat)
    assert seen[0] == Prompt("c", text="Why?!", public={"hint": 2})
    assert seen[1] == Prompt("c", messages=(Message("user", "x?"),), public={"hint": 2})


def test_a_step_may_go_on_where_another_ended() -> None:
    def write(text: str) -> str | Drawn:
        if text.endswith("S:"):
            return Drawn("one. ", (1, 2), 3, finish="stop")
        return Drawn("7", None, 1, finish="eos")

    chain = Chain({
        "thought": Continue(says(write), "S:"),
        "mean": Ask(ECHO, "{thought}"),
        "answer": Continue(says(write), "so {mean}: ", after="thought"),
    })  # fmt: skip
    result = chain.solve(PROMPT)
    assert result.text == "S:one. so [one. ]: 7"
    assert result.sequence.tokens is None, "ids do not survive text that no model has written"


def test_what_is_written_under_another_prompt_is_rooted_on_the_prefix() -> None:
    chain = Chain({"answer": Ask(ECHO, "{prompt}/{prefix}")})
    prefix = Sequence(PROMPT).extend("so far ")
    (got,), _ = run(lambda s: chain.generate(prefix, scope=s))
    assert got.text == "so far [What is it?/so far ]" and got.extends(prefix) and got.logprob is None


def test_a_score_of_the_output_is_in_the_result() -> None:
    verifier = FunctionVerifier(lambda s: Score(0.25, feedback="meh"), name="critic")
    seen: list[Sequence] = []
    other = FunctionVerifier(lambda s: seen.append(s) or 1.0, name="other")  # type: ignore[func-returns-value]
    chain = Chain(
        {"draft": Ask(ECHO, "{prompt}"), "view": Verify(other, of="draft"),
         "answer": Ask(ECHO, "{draft} {view}"), "check": Verify(verifier, of="answer")},
        output="answer",
    )  # fmt: skip
    result = chain.solve(PROMPT)
    assert result.text == "[[What is it?] 1]"
    assert result.sequence.scores["critic"].value == 0.25 and result.candidates[0].value == 0.25
    assert seen[0].prompt == PROMPT, "a verifier judges an answer to the problem, whatever it was asked as"


def test_a_verdict_or_a_feedback_is_what_a_score_says() -> None:
    def chain(score: Score) -> str:
        steps = {
            "a": Ask(ECHO, "x"),
            "v": Verify(FunctionVerifier(lambda s: score), of="a"),
            "b": Ask(ECHO, "{v}"),
        }
        return Chain(steps, output="b").solve("q").text

    assert chain(Score(None, verdict="timeout")) == "[timeout]"
    assert chain(Score(0.0, verdict="failed", feedback="f(2) is 3")) == "[f(2) is 3]"
    assert chain(Score(1 / 3)) == "[0.333]"


def test_a_strategy_is_a_step_and_a_chain_is_the_generator_of_a_strategy() -> None:
    vote = MajorityVote(numbers(), 4, answer=last_word)
    chain = Chain({"vote": Ask(vote, "{prompt}"), "answer": Ask(ECHO, "{vote}")})
    rule = FunctionRule(lambda text: text[-2:-1])
    result = MajorityVote(chain, 3, answer=rule).solve(PROMPT)
    paths = {row.path for row in result.trace.rows}
    assert paths == {f"0/sample/{i}/{p}" for i in range(3) for p in ("vote/0/sample", "answer")}
    assert len(result.candidates) == 3


@settings(max_examples=40)
@given(st.integers(2, 6), st.integers(0, 2**15 - 1), st.randoms())
def test_any_graph_without_cycles_gives_what_its_formula_says(size: int, edges: int, shuffle: Random) -> None:
    """Step j reads what the bits of `edges` say of those before it; the last reads all. Any order of giving will do."""
    needs: dict[int, list[int]] = {
        j: [i for i in range(j) if j == size - 1 or edges >> (j * (j - 1) // 2 + i) & 1] for j in range(size)
    }
    steps = [(f"s{j}", Ask(ECHO, "".join(f"{{s{i}}}" for i in needs[j]) + str(j))) for j in range(size)]

    def made(j: int) -> str:
        return f"[{''.join(made(i) for i in needs[j])}{j}]"

    shuffle.shuffle(steps)
    chain = Chain(steps, output=f"s{size - 1}")
    assert chain.solve("q").text == made(size - 1)
    back = shuffle.choice(needs[size - 1])
    closed = [(name, Ask(ECHO, f"{{s{size - 1}}}") if name == f"s{back}" else step) for name, step in steps]
    with pytest.raises(InputError, match="in a circle: s"):
        Chain(closed, output=f"s{size - 1}")


def test_independent_steps_run_side_by_side_and_none_waits_for_more_than_it_needs() -> None:
    running: set[str] = set()
    together: list[set[str]] = []

    def slow(name: str, seconds: float) -> FunctionGenerator:
        async def write(prefix: Sequence, seed: int, index: int) -> str:
            running.add(name)
            await asyncio.sleep(seconds)
            together.append(set(running))
            running.discard(name)
            return name

        return FunctionGenerator(write, name=name)

    chain = Chain({
        "short": Ask(slow("short", 0.01), "{prompt}"),
        "long": Ask(slow("long", 0.2), "{prompt}"),
        "next": Ask(slow("next", 0.01), "{short}"),
        "answer": Ask(ECHO, "{next}{long}"),
    })  # fmt: skip
    assert chain.solve("q").text == "[nextlong]"
    assert together == [{"short", "long"}, {"next", "long"}, {"long"}]


# ------------------------------------------------------------------------------------------------ what they refuse


def test_what_is_wrong_with_a_program_is_said_when_it_is_made() -> None:
    a, b = Ask(ECHO, "{prompt}"), Ask(ECHO, "{a}")
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: Chain({}), "no steps"),
        (lambda: Chain({"b": Ask(ECHO, "{thougt}"), "thought": a}), "'b' needs 'thougt'.*did you mean 'thought'"),
        (lambda: Chain({"b": Ask(ECHO, r"\frac{x}{y}")}), r"needs 'x'.*write \{\{x\}\} for a word"),
        (lambda: Chain({"a": Ask(ECHO, "{b}"), "b": b}), "circle: (a → b → a|b → a → b)"),
        (lambda: Chain({"a": Ask(ECHO, "{a}")}), "circle: a → a"),
        (lambda: Chain([("a", a), ("a", b)]), "two steps are called 'a'"),
        (lambda: Chain({"a": a, "b": Ask(ECHO, "{prompt}")}), "nothing reads the step 'a'"),
        (lambda: Chain({"a": a}, output="c"), "output='c': expected one of the steps a"),
        (lambda: Chain({"prompt": a}), "called 'prompt'"),
        (lambda: Chain({"a/b": a}), "called 'a/b'"),
        (lambda: Chain({"a": ECHO}), "expected Ask, Continue, Verify or Use"),  # type: ignore[dict-item]
        (lambda: Chain({"a": a, "v": Verify(first_word, of="a")}), "scores and writes nothing"),
        (lambda: Chain({"a": a, "v": Verify(first_word, of="c")}, output="a"), "'v' needs 'c'"),
        (lambda: Chain({"t": Use(Tool(lambda: 1, name="one")), "b": Continue(ECHO, after="t")}),
         "the step 'b' goes on after 't', which is Use"),
    ]  # fmt: skip
    for make, words in wrong:
        with pytest.raises(InputError, match=words):
            make()
    replay = ReplayGenerator({"p": ["x"]})
    with pytest.raises(UnsupportedError, match="starts from a prompt only"):
        Continue(replay, "cue")


def test_a_chain_generates_to_the_end_only() -> None:
    with pytest.raises(UnsupportedError):
        run(lambda s: Chain({"a": Ask(ECHO, "x")}).generate(Sequence(PROMPT), until=Step(), scope=s))


def test_a_chain_continues_prefixes_that_some_step_sees() -> None:
    replay = ReplayGenerator({"p": ["x"]})
    sees: list[dict[str, ChainStep]] = [
        {"a": Ask(replay, "{prefix}x")},
        {"a": Continue(ECHO)},
        {"a": Use(Tool(lambda text: text, name="same"), text="{prefix}"), "b": Ask(ECHO, "{a}")},
        {"a": Continue(ECHO), "b": Continue(ECHO, "!", after="a")},
    ]
    blind: list[dict[str, ChainStep]] = [
        {"a": Ask(ECHO, "{prompt}")},
        {"a": Ask(ECHO, "{prompt}"), "b": Continue(ECHO, after="a")},
        {"a": Continue(replay)},
    ]
    assert [Chain(steps).accepts_prefix for steps in (*sees, *blind)] == [True] * 4 + [False] * 3
    assert Chain({"a": Continue(replay)}).solve(PROMPT).text == "x"
    for steps in blind:
        with pytest.raises(UnsupportedError, match="cannot continue a partial sequence"):
            run(lambda s, given=steps: Chain(given).generate(Sequence(PROMPT).extend("so"), scope=s))  # type: ignore[misc]


def test_fingerprints_tell_programs_apart_and_oracles_are_seen() -> None:
    async def grade(sequence: Sequence) -> float:
        return 1.0

    chains = [
        Chain({"a": Ask(ECHO, "x")}),
        Chain({"a": Ask(ECHO, "y")}),
        Chain({"b": Ask(ECHO, "x")}),
        Chain({"a": Ask(ECHO, "x", chat=True)}),
        Chain({"a": Continue(ECHO, "x")}),
        Chain({"a": Ask(numbers(), "x")}),
        Chain({"a": Ask(ECHO, "x")}, answer=last_word),
        Chain({"a": Ask(ECHO, "x"), "v": Verify(first_word, of="a")}, output="a"),
        Chain({"a": Ask(ECHO, "x"), "v": Verify(OracleVerifier(grade), of="a")}, output="a"),
        Chain({"a": Use(Tool(lambda k: k, name="f"), k="x")}),
        Chain({"a": Use(Tool(lambda k: k, name="f"), k="y")}),
    ]
    assert len({c.fingerprint for c in chains}) == len(chains)
    assert [c.oracle for c in chains] == [False] * 8 + [True, False, False]


def test_templates_are_filled_in_one_pass() -> None:
    template = Template('{a} {{b}} {a}{c_1} {"k": {}} {0}')
    assert template.places == ("a", "c_1")
    assert template.fill({"a": "{c_1}", "c_1": "!"}) == '{c_1} {b} {c_1}! {"k": {}} {0}'
    for text in ("{x} and {{y}}", "{{{z}}}", "none", '{"a": {b}}'):
        assert Template(escape(text)).fill({}) == text


# ----------------------------------------------------------------------------------------- steps that cannot be done


def narrow(room: int, write: Callable[[str], str] = lambda text: text[-3:]) -> FunctionGenerator:
    """A model with room for so many characters."""

    def fits(text: str) -> str:
        if len(text) > room:
            raise PromptError(f"{len(text)} characters exceed the context of {room}")
        return write(text)

    return says(fits, f"narrow {room}")


def test_a_step_that_others_leave_nothing_to_ask_has_no_vote() -> None:
    """What the first step writes is nothing in every other sample; the answer to it is missing there."""
    first = FunctionGenerator(lambda p, s, i: "" if s % 2 else "4", name="perhaps nothing")
    chain = Chain({"a": Ask(first, "{prompt}"), "b": Ask(ECHO, "{a}"), "c": Continue(ECHO, "!", after="b")})
    vote = MajorityVote(chain, 12, answer=FunctionRule(lambda text: text or None)).solve("2+2?")
    texts = [(c.sequence.text, c.sequence.finish) for c in vote.candidates]
    assert vote.text == "[4]![4[4]!]" and set(texts) == {("[4]![4[4]!]", "eos"), ("", None)}
    assert not vote.exhausted


def test_a_step_whose_prompt_outgrows_the_context_by_what_others_wrote_has_no_vote() -> None:
    long = says(lambda text: "x" * 50, "long")
    result = Chain({"a": Ask(long, "{prompt}"), "b": Ask(narrow(40), "{a}?")}).solve("q")
    assert (result.text, result.sequence.finish, result.exhausted) == ("", None, False)
    assert Chain({"a": Ask(ECHO, "{prompt}"), "b": Ask(narrow(40), "{a}?")}).solve("q").text == "q]?"


def test_a_step_that_has_nothing_to_ask_from_the_start_is_an_error_that_names_it() -> None:
    with pytest.raises(PromptError, match=r"step '0/rest' asks nothing about problem 'p' \('What is it\?'\)"):
        Chain({"rest": Ask(ECHO, "{prefix}")}).solve(PROMPT)
    with pytest.raises(PromptError, match="exceed the context of 5"):
        Chain({"a": Ask(narrow(5), "{prompt}")}).solve(PROMPT)


# -------------------------------------------------------------------------------------------------------- the laws


class TestChainOfTwo(StrategyLaws):
    def make(self) -> Strategy:
        return Chain(
            {"thought": Continue(numbers()), "answer": Ask(numbers(), "{prompt} {thought}")}, answer=last_word
        )


class TestChainOfContinuations(StrategyLaws):
    def make(self) -> Strategy:
        steps = {"thought": Continue(numbers()), "answer": Continue(numbers(), " so", after="thought")}
        return Chain(steps, answer=last_word)


class TestChainOfBranches(StrategyLaws):
    def make(self) -> Strategy:
        steps = {"a": Ask(numbers(), "{prompt} a"), "b": Ask(numbers(), "{prompt} b")}
        steps |= {"c": Ask(numbers(), "{a}"), "d": Ask(numbers(), "{b}")}
        return Chain({**steps, "e": Ask(numbers(), "{c} {d}")}, answer=last_word)


class TestChainWithAll(StrategyLaws):
    def make(self) -> Strategy:
        def shout(a: str) -> str:
            return a.upper()

        return Chain({
            "a": Ask(numbers(), "{prompt}"), "loud": Use(shout), "view": Verify(first_word, of="a"),
            "b": Ask(MajorityVote(numbers(), 2, answer=last_word), "{loud}{view}"), "check": Verify(first_word, of="b"),
        }, output="b")  # fmt: skip


def test_the_graph_is_a_networkx_digraph() -> None:
    graph = TestChainWithAll().make().graph  # type: ignore[attr-defined]
    assert next(iter(nx.topological_sort(graph))) == "a" and set(graph.predecessors("b")) == {"loud", "view"}
