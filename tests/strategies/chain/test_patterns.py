"""The patterns on top of chains, and typed outputs: each worked out by hand on scripted generators."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from metagen.errors import InputError, PromptError
from metagen.generators.engine import Sample, SamplingParams
from metagen.generators.function import FunctionGenerator
from metagen.generators.torch import TorchEngine
from metagen.sequence import Prompt, Score, Sequence
from metagen.strategies.base import Strategy
from metagen.strategies.chain.demonstrate import demonstrate
from metagen.strategies.chain.draft_sketch_fill import DraftSketchFill
from metagen.strategies.chain.interleaved import self_ask
from metagen.strategies.chain.least_to_most import LeastToMost
from metagen.strategies.chain.patterns import chain_of_thought, direct, search_predict, system_two_attention
from metagen.strategies.chain.retriever import BM25
from metagen.strategies.chain.steps import Continue
from metagen.strategies.chain.typed import TYPED, Typed, closed, json_of
from metagen.strategies.parallel import MajorityVote
from metagen.strategies.sequential.budget_forcing import BudgetForcing, Thinking
from metagen.testing import CountingJournal, StrategyLaws, first_word, last_word, numbers, run
from metagen.verifiers.function import FunctionRule, FunctionVerifier
from metagen.verifiers.oracle import OracleVerifier


def by_prompt(
    answer: Callable[[str], str], seen: list[str] | None = None, name: str = "by prompt"
) -> FunctionGenerator:
    """A generator that answers by the text of its prompt."""

    def write(prefix: Sequence, seed: int, index: int) -> str:
        text = (prefix.prompt.text or prefix.prompt.messages[-1].content) + prefix.text
        if seen is not None:
            seen.append(text)
        return answer(text)

    return FunctionGenerator(write, name=name, count=len, max_tokens=100)


# ------------------------------------------------------------------------------- thought, rewriting, smaller questions


def test_a_thought_then_the_answer_with_a_thinker_of_its_own() -> None:
    thinker = by_prompt(lambda t: " hmm")
    answers = by_prompt(lambda t: f" {len(t)}", name="answers")
    result = chain_of_thought(answers, thinker=thinker, cue=" So:", answer=last_word).solve("123")
    assert result.text == " hmm So: 11" and result.answer is not None and result.answer.key == "11"
    assert direct(answers, cue=" So:").solve("123").text == " So: 7"
    with pytest.raises(
        InputError, match="thought=64 is of the generator's own thoughts, and a thinker writes them"
    ):
        chain_of_thought(answers, thinker=thinker, cue=" So:", thought=64)


class Told(FunctionGenerator):
    """Keeps what it is told of stop texts, as generators over engines do."""

    def __init__(self, params: SamplingParams) -> None:
        super().__init__(lambda p, s, i: " x", name=repr(params))
        self.params = params

    def replace(self, **changes: Any) -> Told:
        return Told(self.params.replace(**changes))


def test_the_generators_own_stop_texts_stay() -> None:
    told = Told(SamplingParams(stop=("\n\n", "So:"), max_tokens=50))
    thought = chain_of_thought(told, cue="So:", thought=9).steps["thought"]
    assert isinstance(thought, Continue) and isinstance(thought.generator, Told)
    assert thought.generator.params == SamplingParams(stop=("\n\n", "So:"), max_tokens=9)
    asking = self_ask(told, BM25(CORPUS).tool()).generator
    assert isinstance(asking, Told) and asking.params.stop == ("\n\n", "So:", "Intermediate answer:")
    forced = BudgetForcing(told, Thinking(), end="A:", count=len)._thinker
    assert isinstance(forced, Told) and forced.params.stop == ("\n\n", "So:", "A:")


def test_system_two_attention_answers_what_was_written_again() -> None:
    seen: list[str] = []
    model = by_prompt(lambda t: "2+2?" if "again" in t else "4", seen)
    result = system_two_attention(model).solve("My aunt says 5. 2+2?")
    assert result.text == "4" and "My aunt" in seen[0] and seen[1] == "2+2?"
    other = system_two_attention(
        model, rewriter=by_prompt(lambda t: "3+3?", name="r"), ask="{prompt}/{rewritten}"
    )
    assert other.solve("x").text == "4" and seen[-1] == "x/3+3?"
    nothing = system_two_attention(model, rewriter=by_prompt(lambda t: "", name="silent")).solve("2+2?")
    assert (nothing.text, nothing.sequence.finish) == ("", None), "a problem written away has no answer"


def test_smaller_questions_are_answered_with_the_answers_so_far() -> None:
    seen: list[str] = []

    def answer(text: str) -> str:
        return "a?\n\n b?\nc?\n" if "first" in text else f"<{text[-2]}>"

    strategy = LeastToMost(by_prompt(answer, seen), decompose="{prompt} first", solve="{solved}{question}",
                           solved="{question}{reply};", answer=last_word)  # fmt: skip
    result = strategy.solve("Q")
    assert seen == ["Q first", "a?", "a?<a>;b?", "a?<a>;b?<b>;c?"] and result.text == "<c>"
    assert [r.path for r in result.trace.rows] == ["0/decompose", "0/solve/0", "0/solve/1", "0/solve/2"]
    few = LeastToMost(by_prompt(answer), decompose="{prompt} first", solve="{solved}{question}", most=2)
    assert few.solve("Q").text == "<c>" and len(few.solve("Q").trace.rows) == 3
    none = LeastToMost(
        by_prompt(lambda t: "" if "first" in t else t), decompose="{prompt} first", solve="{question}"
    )
    assert none.solve("Q").text == "Q", "with no questions, the problem itself is asked"
    talk = "Here are the questions:\n1. a?\n2) b?\n- c?\n\nThe last one is the hardest of all."
    listed = LeastToMost(
        by_prompt(lambda t: talk if "first" in t else t[-2]), decompose="{prompt} first", solve="{question}"
    )
    assert [row.path for row in listed.solve("Q").trace.rows][1:] == [f"0/solve/{i}" for i in range(3)]
    assert listed.solve("Q").text == "c", "what stands around a list is no question"
    for wrong in ({"solve": "{prompt}"}, {"solve": "{question}{x}"}, {"decompose": "x"},
                  {"most": 0}, {"most": 2.5}, {"most": True}):  # fmt: skip
        with pytest.raises(InputError):
            LeastToMost(by_prompt(answer), **wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"solve has no place \{solved\} for it"):
        LeastToMost(by_prompt(answer), solve="{question}", solved="{reply}")


@pytest.mark.parametrize(
    ("plan", "asked"),
    [
        ("1. a?\n2. b?\n3. what was it th", ["a?", "b?", "Q"]),
        ("a?\nand what", ["a?", "Q"]),
        ("and what", ["Q"]),
    ],
)
def test_of_a_plan_that_was_cut_the_last_line_is_no_question(plan: str, asked: list[str]) -> None:
    seen: list[str] = []

    def write(prefix: Sequence, seed: int, index: int) -> Sample:
        seen.append(prefix.prompt.text or "")
        planning = "first" in seen[-1]
        return Sample(plan if planning else ".", None, None, finish="length" if planning else "eos")

    LeastToMost(FunctionGenerator(write), decompose="{prompt} first", solve="{question}").solve("Q")
    assert seen[1:] == asked


def in_steps(room: int = 100) -> LeastToMost:
    """Three questions, each answered by its letter; a question that is solved takes eight characters."""

    def answer(text: str) -> str:
        if len(text) > room:
            raise PromptError(f"{len(text)} characters exceed the context of {room}")
        return "a?\nb?\nc?" if "first" in text else text[-2]

    return LeastToMost(by_prompt(answer), decompose="{prompt} first", solve="{solved}{question}",
                       solved="{question}{reply};;;;;", answer=FunctionRule(lambda text: text or None))  # fmt: skip


@pytest.mark.parametrize("calls", range(5))
def test_the_last_reply_so_far_is_what_a_spent_budget_returns_and_has_no_vote(calls: int) -> None:
    result = in_steps().solve("Q", budget={"calls": calls})
    assert result.text == ["", "", "a", "b", "c"][calls] and result.exhausted == (calls < 4)
    assert result.sequence.finish == ("eos" if calls == 4 else None)
    assert [c.sequence.text for c in result.candidates] == [result.text] * (calls > 1)


@pytest.mark.parametrize(("room", "text"), [(7, "a"), (9, "a"), (10, "b"), (17, "b"), (18, "c")])
def test_the_last_reply_that_fits_is_returned_and_has_no_vote(room: int, text: str) -> None:
    result = in_steps(room).solve("Q")
    assert (result.text, result.sequence.finish) == (text, "eos" if text == "c" else None)


def test_a_problem_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(PromptError, match="7 characters exceed the context of 6"):
        in_steps(6).solve("Q")


# ---------------------------------------------------------------------------------------- demonstrate, search, predict

CORPUS = ["The engine was designed by Babbage.", "Babbage was born in 1791.", "Turing was born in 1912."]


def searching(text: str) -> str:
    """A model that needs its worked examples: without one before the question it answers at random."""
    last = text.rpartition("\n\n")[2]
    if last.endswith("Search query:"):
        return " Who was born?" if "Babbage" in last and "engine" in last else " engine designed"
    return " 1791" if "1791" in last else " none"


def test_hops_of_query_and_passages_then_an_answer() -> None:
    chain = search_predict(by_prompt(searching), BM25(CORPUS).tool(), hops=2, answer=last_word)
    assert list(chain.steps) == ["query_1", "passages_1", "query_2", "passages_2", "answer"]
    result = chain.solve("When was the designer of the engine born?")
    assert result.text == " 1791"
    with pytest.raises(InputError, match="hops=0"):
        search_predict(numbers(), BM25(CORPUS).tool(), hops=0)


def test_demonstrations_are_what_led_to_right_answers() -> None:
    chain = search_predict(by_prompt(searching), BM25(CORPUS).tool(), hops=1, answer=last_word)
    asked: list[str] = []

    async def accept(prompt: Prompt, sequence: Sequence) -> bool:
        asked.append(prompt.problem_id)
        return prompt.problem_id != "wrong"

    examples = [Prompt(name, text=f"{name} {{braces}}?") for name in ("wrong", "right", "more")]
    shown, rows = run(lambda s: demonstrate(chain, examples, accept, s.child("examples"), most=1))
    assert asked == ["wrong", "right"] and {r.path.split("/")[2] for r in rows} == {"0", "1"}
    seen: list[str] = []
    again, _ = run(lambda s: demonstrate(
        search_predict(by_prompt(searching, seen), BM25(CORPUS).tool(), hops=1), examples, accept, s.child("e"), most=1
    ))  # fmt: skip
    seen.clear()
    again.solve("Who?")
    assert (
        seen[0] == "Question: right {braces}?\nSearch query: engine designed\n\nQuestion: Who?\nSearch query:"
    )
    assert shown.fingerprint != chain.fingerprint and list(shown.steps) == list(chain.steps)

    async def never(prompt: Prompt, sequence: Sequence) -> bool:
        return False

    with pytest.raises(InputError, match="most=0: expected how many examples"):
        run(lambda s: demonstrate(chain, examples, accept, s, most=0))
    with pytest.raises(InputError, match="solved none"):
        run(lambda s: demonstrate(chain, examples, never, s))


# ------------------------------------------------------------------------------------------ draft, sketch, fill, check


def sketching(text: str) -> str:
    if "informally" in text:
        return "by parts"
    if "full form" in text:
        assert "by parts" in text
        return "(<hole>)+(<hole>)"
    return "filled"


def test_holes_are_filled_until_the_check_accepts_and_the_best_wins() -> None:
    fills: list[tuple[str, int]] = []

    def fill(prefix: Sequence, seed: int, index: int) -> str:
        number = (prefix.prompt.text or "").partition("number ")[2][0]
        fills.append((number, index))
        return f" {number}{index} "

    values = {"(10)+(20)": 0.2, "(11)+(21)": 0.7, "(12)+(22)": 0.4, "(13)+(23)": 1.0}
    verifier = FunctionVerifier(lambda s: values[s.text], name="check")
    filler = FunctionGenerator(fill, name="filler")

    def solve(tries: int, accept: float = 1.0) -> str:
        fills.clear()
        made = DraftSketchFill(by_prompt(sketching), verifier, filler=filler, tries=tries, accept=accept)
        result = made.solve("q")
        assert result.sequence.scores["check"].value == values[result.text]
        return result.text

    assert solve(1) == "(10)+(20)" and sorted(fills) == [("1", 0), ("2", 0)]
    assert solve(3) == "(11)+(21)", "the best, not the last"
    assert solve(9) == "(13)+(23)" and len(fills) == 8
    assert solve(9, accept=0.5) == "(11)+(21)" and len(fills) == 4
    for wrong in ({"tries": 0}, {"tries": 1.5}, {"hole": ""}, {"accept": 2.0}, {"fill": "{prompt}"}):
        with pytest.raises(InputError):
            DraftSketchFill(by_prompt(sketching), verifier, **wrong)  # type: ignore[arg-type]


def test_a_whole_of_cut_pieces_is_cut_and_loses_to_any_other() -> None:
    def solve(cut: Callable[[str, int], bool]) -> tuple[str, str | None, int]:
        def write(prefix: Sequence, seed: int, index: int) -> Sample:
            asked = prefix.prompt.text or ""
            said = "<hole>!" if "full form" in asked else f"{index}"
            return Sample(said, None, len(said), finish="length" if cut(asked, index) else "stop")

        generator = FunctionGenerator(write, count=len, max_tokens=9, name="cut")
        verifier = FunctionVerifier(lambda s: {"0!": 1.0, "1!": 0.5}[s.text])
        result = DraftSketchFill(generator, verifier, tries=2).solve("q")
        return result.text, result.sequence.finish, result.usage.calls

    assert solve(lambda asked, index: False) == ("0!", "eos", 4)
    assert solve(lambda asked, index: "number" in asked and index == 0) == ("1!", "eos", 6)
    assert solve(lambda asked, index: "full form" in asked) == ("0!", "length", 4)


@pytest.mark.parametrize("at", ["full form", "number 2"])
def test_what_outgrows_the_context_leaves_no_whole(at: str) -> None:
    def write(text: str) -> str:
        if at in text:
            raise PromptError("longer than the context")
        return sketching(text)

    result = DraftSketchFill(by_prompt(write), first_word).solve("q")
    assert (result.text, result.sequence.finish, result.candidates) == ("", None, ())
    with pytest.raises(PromptError):
        DraftSketchFill(by_prompt(write), first_word, draft="{prompt} " + at).solve("q")


def test_a_sketch_without_holes_is_checked_as_it_is() -> None:
    verifier = FunctionVerifier(lambda s: 0.0)
    result = DraftSketchFill(by_prompt(lambda t: "whole"), verifier, tries=5).solve("q")
    assert result.text == "whole" and [r.path for r in result.trace.rows] == [
        "0/draft",
        "0/sketch",
        "0/check",
    ]


@pytest.mark.parametrize("calls", range(9))
def test_the_best_whole_so_far_is_what_a_spent_budget_returns(calls: int) -> None:
    """Draft, sketch, then twice two fills and a check: eight calls."""
    verifier = FunctionVerifier(lambda s: 0.5 if "0" in s.text else 0.4)
    filler = FunctionGenerator(lambda p, s, i: f"{i}", name="f")
    strategy = DraftSketchFill(by_prompt(sketching), verifier, filler=filler, tries=2)
    result = strategy.solve("q", budget={"calls": calls})
    assert result.usage.calls == calls and result.exhausted == (calls < 8)
    assert result.text == ("(0)+(0)" if calls >= 4 else "")


# -------------------------------------------------------------------------------------------------------------- typed


class Other(BaseModel):
    name: str


class Person(BaseModel):
    name: str
    age: int = Field(ge=0)


def test_a_reply_is_validated_and_asked_for_again_with_what_was_wrong() -> None:
    seen: list[str] = []
    replies = iter(["Ada, 36", '{"name": "Ada"}', 'It is {"name": "Ada", "age": 36}.'])
    typed = Typed(by_prompt(lambda t: next(replies), seen), Person, again="|{error}")
    result = typed.solve("Who?")
    assert typed.parse(result) == Person(name="Ada", age=36) and result.sequence.prompt.text == "Who?"
    assert seen[0].startswith("Who?\n") and '"age": {"minimum": 0' in seen[0]
    assert seen[1] == f"{seen[0]}\nAda, 36\n|there is no JSON object in it"
    assert seen[2] == f'{seen[0]}\n{{"name": "Ada"}}\n|age: Field required'
    assert result.sequence.scores[TYPED] == Score(1.0) and [c.value for c in result.candidates] == [
        0.0,
        0.0,
        1.0,
    ]
    assert [r.path for r in result.trace.rows] == ["0/try/0", "0/try/1", "0/try/2"]


def test_in_a_chat_replies_and_faults_are_turns() -> None:
    prompts: list[Prompt] = []

    def write(prefix: Sequence, seed: int, index: int) -> str:
        prompts.append(prefix.prompt)
        return "?"

    Typed(FunctionGenerator(write), Person, tries=2, chat=True).solve("Who?")
    assert [m.role for m in prompts[0].messages] == ["user"]
    assert [m.role for m in prompts[1].messages] == ["user", "assistant", "user"]
    assert prompts[1].messages[1].content == "?" and "no JSON object" in prompts[1].messages[2].content


def test_when_no_reply_is_valid_the_last_one_says_why() -> None:
    typed = Typed(by_prompt(lambda t: '{"name": 1, "age": -1}'), Person, tries=2)
    result = typed.solve("Who?")
    score = result.sequence.scores[TYPED]
    assert score.value == 0.0 and score.feedback is not None
    assert (
        score.feedback
        == "name: Input should be a valid string; age: Input should be greater than or equal to 0"
    )
    with pytest.raises(InputError, match="is no Person"):
        typed.parse(result)
    with pytest.raises(InputError, match="no JSON object"):
        typed.parse("nothing")


@pytest.mark.parametrize("calls", range(4))
def test_what_there_is_is_returned_when_calls_run_out(calls: int) -> None:
    valid = '{"name": "A", "age": 1}'

    def write(prefix: Sequence, seed: int, index: int) -> str:
        text = prefix.prompt.text or ""
        return valid if "still no" in text else "still no" if "does not fit" in text else "no"

    result = Typed(FunctionGenerator(write), Person).solve("q", budget={"calls": calls})
    assert result.text == ["", "no", "still no", valid][calls] and result.exhausted == (calls < 3)


def test_a_reply_that_leaves_no_room_to_ask_again_is_the_last() -> None:
    def write(text: str) -> str:
        if len(text) > 300:
            raise PromptError("longer than the context")
        return "no" * 100

    result = Typed(by_prompt(lambda t: write(t)[:100]), Person).solve("Who?")
    assert result.text == "no" * 50 and result.sequence.scores[TYPED].value == 0.0
    assert result.usage.calls == 1
    with pytest.raises(PromptError):
        Typed(by_prompt(write), Person).solve("Who?" * 100)


def test_a_vote_over_typed_answers() -> None:
    generator = FunctionGenerator(lambda p, s, i: f'{{"name": "x", "age": {s % 2}}}')
    result = MajorityVote(Typed(generator, Person), 5, answer=last_word).solve("q")
    assert len(result.candidates) == 5 and Typed(generator, Person).parse(result).name == "x"


def test_json_is_found_in_what_models_write() -> None:
    fences = 'x\n```json\n{"a": 0}\n```\nno:\n```\n{"a": 1}\n```\n'
    for text in ('{"a": 1}', ' {"a": 1}\n', fences, 'so {"a": 1} or {"a": 2}', 'f{x} is {"a": 1}'):
        assert json_of(text).replace(" ", "") == '{"a":1}'
    for text in ("", "{", "{x}", "[" * 100_000, '{"a":' * 50_000):
        with pytest.raises(ValueError, match="no JSON"):
            json_of(text)


class Total(BaseModel):
    left: int = Field(ge=0, le=99)
    sign: Literal["+", "-"]


def test_an_engine_that_knows_grammars_writes_what_fits() -> None:
    with TorchEngine("tiny-0.5m", threads=1) as engine:
        typed = Typed(engine.generator(max_tokens=160), Total, tries=1, ask="{prompt}")
        results = [typed.solve("Q:a=1+2;a?\nS:\n", seed=seed) for seed in range(3)]
    whole = [result for result in results if result.sequence.finish == "eos"]
    assert whole and all(result.sequence.scores["typed"].value == 1.0 for result in whole)
    assert all(json.loads(result.text).keys() == {"left", "sign"} for result in whole)


class Piece(BaseModel):
    size: int


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    parts: list[Piece]
    by_name: dict[str, Piece]


def test_held_objects_have_the_fields_of_the_schema_alone() -> None:
    """But where the model takes more, and in mappings."""
    made = closed(Open.model_json_schema())
    assert made["additionalProperties"] is True
    assert made["$defs"]["Piece"]["additionalProperties"] is False
    assert made["properties"]["by_name"]["additionalProperties"] == {"$ref": "#/$defs/Piece"}
    union = closed({"anyOf": [Total.model_json_schema(), {"type": "null"}]})
    assert union["anyOf"][0]["additionalProperties"] is False and union["anyOf"][1] == {"type": "null"}
    both = {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}], "properties": {"c": {}}}
    assert closed(both) == both, "each part of allOf knows a part of the fields"


def test_wrong_typed_parts_are_refused() -> None:
    for wrong in ({"tries": 0}, {"tries": 1.5}, {"ask": "{question}"}, {"again": "x"}):
        with pytest.raises(InputError):
            Typed(numbers(), Person, **wrong)  # type: ignore[arg-type]
    assert (
        Typed(numbers(), Person).accepts_prefix
        and not Typed(numbers(), Person, ask="{schema}").accepts_prefix
    )
    made = [Typed(numbers(), Person), Typed(numbers(), Other), Typed(numbers(), Person, tries=1)]
    assert len({typed.fingerprint for typed in made}) == 3


# ----------------------------------------------------------------------------------------------------------- the laws


class TestTyped(StrategyLaws):
    def make(self) -> Strategy:
        return Typed(numbers(), Person, tries=2)


class TestLeastToMost(StrategyLaws):
    def make(self) -> Strategy:
        return LeastToMost(numbers(), answer=last_word)


class TestDraftSketchFill(StrategyLaws):
    def make(self) -> Strategy:
        return DraftSketchFill(numbers(), first_word, tries=2)


class TestSystemTwoAttention(StrategyLaws):
    def make(self) -> Strategy:
        return system_two_attention(numbers(), answer=last_word)


class TestSearchPredict(StrategyLaws):
    def make(self) -> Strategy:
        return search_predict(numbers(), BM25(CORPUS).tool(), hops=2, answer=last_word)


@pytest.mark.parametrize("law", [TestTyped, TestLeastToMost, TestDraftSketchFill, TestSearchPredict])
def test_each_resumes_in_its_middle(law: type[StrategyLaws]) -> None:
    strategy = law().make()
    assert isinstance(strategy, Strategy)
    whole = strategy.solve("q")
    rows = list(whole.trace.rows)
    for kept in range(len(rows) + 1):
        cut = CountingJournal()
        asyncio.run(cut.record(rows[:kept]))
        assert strategy.solve("q", journal=cut).text == whole.text and cut.recorded == len(rows)


def test_an_oracle_inside_is_seen() -> None:
    async def grade(sequence: Sequence) -> float:
        return 1.0

    assert DraftSketchFill(numbers(), OracleVerifier(grade)).oracle
    assert Typed(DraftSketchFill(numbers(), OracleVerifier(grade)), Person).oracle
    assert not LeastToMost(numbers()).oracle
