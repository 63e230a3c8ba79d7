"""Tools: recorded, charged, retried and timed out; in a chain's step, inside of a text, and called by JSON."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from datetime import date
from fractions import Fraction
from math import log
from typing import Any

import pytest
from pydantic import BaseModel

from metagen.budget import Budget
from metagen.errors import BudgetExhausted, InputError, PromptError, UnsupportedError
from metagen.generators.engine import Sample as Drawn
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.function import FunctionGenerator
from metagen.generators.replay import ReplayGenerator
from metagen.generators.torch import TorchEngine
from metagen.journal import MemoryJournal
from metagen.sequence import Prompt, Sequence, Step
from metagen.strategies.base import Strategy
from metagen.strategies.chain.ask import Ask
from metagen.strategies.chain.chain import Chain
from metagen.strategies.chain.interleaved import Interleaved
from metagen.strategies.chain.program_of_thought import program_of_thought, run_python
from metagen.strategies.chain.retriever import BM25
from metagen.strategies.chain.retriever import words as words_of
from metagen.strategies.chain.self_ask import self_ask
from metagen.strategies.chain.tool_use import ToolUse, described
from metagen.strategies.chain.use import Use
from metagen.strategies.chain.verify import Verify
from metagen.strategies.parallel import MajorityVote, Sample
from metagen.strategies.tools import Tool, ToolError
from metagen.tasks import arithmetic
from metagen.tasks.embedded import ArithmeticTask
from metagen.testing import CountingJournal, StrategyLaws, last_word, numbers, run
from metagen.verifiers.code.isolation import IsolationError
from metagen.verifiers.code.limits import MIB, Limits
from metagen.verifiers.code.sandbox import Sandbox
from metagen.verifiers.function import FunctionVerifier
from metagen.verifiers.numbers import parse


def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    More about it.
    """
    return a + b


def call(tool: Tool, arguments: dict[str, Any], **kwargs: Any) -> Any:
    return run(lambda s: tool.call(arguments, s.child("tool")), **kwargs)[0]


# ------------------------------------------------------------------------------------------------------------ a tool


def test_a_result_is_recorded_and_charged_as_a_call() -> None:
    calls: list[int] = []

    async def double(x: int) -> dict[str, Any]:
        calls.append(x)
        return {"of": x, "is": [2 * x, None]}

    tool, journal = Tool(double), CountingJournal()
    value, rows = run(lambda s: tool.call({"x": 2}, s.child("t")), journal=journal)
    assert value == {"of": 2, "is": [4, None]} and [(r.kind, r.path, r.usage.calls) for r in rows] == [
        ("tool", "t", 1)
    ]
    again, rows = run(
        lambda s: tool.call({"x": 2}, s.child("t")), journal=journal, budget=Budget(calls=1, generated=0)
    )
    assert again == value and calls == [2] and rows[0].usage.calls == 1
    run(lambda s: tool.call({"x": 3}, s.child("t")), journal=journal)
    assert calls == [2, 3] and journal.recorded == 2
    with pytest.raises(BudgetExhausted):
        run(lambda s: tool.call({"x": 3}, s.child("t")), budget=Budget(calls=0))
    assert calls == [2, 3]


def test_a_transient_failure_is_retried_and_what_stays_is_raised_and_not_recorded() -> None:
    failures = iter([ConnectionError("down"), ConnectionError("down"), None, *[ConnectionError("gone")] * 3])
    tries = 0

    async def flaky(x: int) -> int:
        nonlocal tries
        tries += 1
        error = next(failures)
        if error:
            raise error
        return x

    tool, journal = Tool(flaky, wait=0.001), CountingJournal()
    assert call(tool, {"x": 1}, journal=journal) == 1 and tries == 3
    with pytest.raises(ConnectionError, match="gone"):
        call(tool, {"x": 2}, journal=journal)
    assert tries == 6 and journal.recorded == 1


def test_other_errors_are_raised_at_once() -> None:
    tries = 0

    def wrong(x: int) -> int:
        nonlocal tries
        tries += 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        call(Tool(wrong), {"x": 1})
    assert tries == 1
    with pytest.raises(ZeroDivisionError):
        call(Tool(wrong, retry_on=(ArithmeticError,), attempts=4, wait=0), {"x": 1})
    assert tries == 5


def test_an_error_that_the_tool_reports_is_its_result() -> None:
    tries = 0

    def refuse(x: int) -> int:
        nonlocal tries
        tries += 1
        raise ToolError("there is no such page")

    tool, journal = Tool(refuse), CountingJournal()
    for _ in range(2):
        with pytest.raises(ToolError, match="no such page"):
            call(tool, {"x": 1}, journal=journal)
    assert tries == 1 == journal.recorded


def test_a_time_out_is_tried_again_and_then_recorded() -> None:
    tries = 0

    async def slow(x: float) -> str:
        nonlocal tries
        tries += 1
        await asyncio.sleep(x)
        return "done"

    tool, journal = Tool(slow, timeout=0.03, attempts=2, wait=0), CountingJournal()
    assert call(tool, {"x": 0.0}, journal=journal) == "done"
    for _ in range(2):
        with pytest.raises(ToolError, match=r"'slow' took longer than 0\.03 seconds, in the last of 2"):
            call(tool, {"x": 5.0}, journal=journal)
    assert tries == 3 and journal.recorded == 2


def test_a_time_out_of_the_function_itself_is_transient() -> None:
    def late(x: int) -> int:
        raise TimeoutError("the server was late")

    journal = CountingJournal()
    with pytest.raises(TimeoutError, match="server was late"):
        call(Tool(late, attempts=2, wait=0), {"x": 1}, journal=journal)
    assert journal.recorded == 0


def test_a_deadline_of_the_budget_ends_a_tool() -> None:
    async def slow() -> str:
        await asyncio.sleep(30)
        return ""

    with pytest.raises(BudgetExhausted, match="seconds"):
        call(Tool(slow), {}, budget=Budget(seconds=0.05))


def test_what_is_no_json_is_refused() -> None:
    for value in (object(), float("nan"), {1, 2}):
        with pytest.raises(InputError, match="not JSON"):
            call(Tool(lambda value=value: value, name="odd"), {})


def test_arguments_are_checked_by_the_annotations() -> None:
    tool = Tool(add)
    assert tool.read({"a": "3"}) == {"a": 3, "b": 1}
    for wrong, words in (
        ({"a": "x"}, "a: .*integer"),
        ({"b": 2}, "a: Field required"),
        ({"a": 1, "c": 2}, "c: Extra"),
    ):
        with pytest.raises(ToolError, match=words):
            tool.read(wrong)
    assert (tool.required, tool.optional, tool.about) == (("a",), ("b",), "Add two numbers.")


def test_wrong_tools_are_refused() -> None:
    for make, words in (
        (lambda: Tool(lambda x: x), "called '<lambda>'; give it name="),
        (lambda: Tool(lambda *x: x, name="t"), "'x' by place"),
        (lambda: Tool(add, timeout=0), "timeout=0"),
        (lambda: Tool(add, attempts=0), "attempts=0"),
        (lambda: Tool(add, attempts=1.5), "attempts=1.5"),  # type: ignore[arg-type]
        (lambda: Use(add, c=1), "no argument 'c'; it takes a, b"),
        (lambda: Use(add, b=date(2024, 2, 28)), r"'add' is given b=datetime\.date\(.*\), which is not JSON"),
        (lambda: Use(add, b=float("nan")), "b=nan, which is not JSON"),
    ):
        with pytest.raises(InputError, match=words):
            make()
    changes: list[dict[str, Any]] = [
        {}, {"name": "plus"}, {"version": "2"}, {"timeout": 31}, {"timeout": None}, {"attempts": 2},
    ]  # fmt: skip
    assert len({Tool(add, **change).fingerprint for change in changes}) == len(changes)
    assert Tool(add, timeout=30).fingerprint == Tool(add).fingerprint


# --------------------------------------------------------------------------------------------------- in a chain's step


def test_a_step_reads_by_name_by_template_and_as_a_value() -> None:
    echo = FunctionGenerator(lambda p, s, i: f"[{p.prompt.text}]")

    def split(prompt: str) -> list[str]:
        return prompt.split()

    def count(split: list[str], factor: int = 1) -> int:
        return factor * len(split)

    chain = Chain({"split": Use(split), "count": Use(count, factor=10), "n": Use(count, split="{split}"),
                   "answer": Ask(echo, "{split}|{count}|{n}")})  # fmt: skip
    assert chain.solve("three words here").text == "[three\nwords\nhere|30|16]"
    assert Chain({"only": Use(count, split="{prompt}")}).solve("four").text == "4"


def test_an_error_becomes_text_or_ends_the_chain() -> None:
    def refuse(prompt: str) -> str:
        raise ToolError("cannot")

    assert Chain({"a": Use(refuse)}).solve("q").text == "cannot"
    with pytest.raises(ToolError, match="cannot"):
        Chain({"a": Use(refuse, tell=False)}).solve("q")


def test_an_error_of_a_tool_is_no_answer() -> None:
    """Two of three programs crash, on line 7; the answer of the third is the only one."""

    def compute(program: str) -> str:
        if program == "crash":
            raise ToolError("raised: line 7")
        return "5"

    turns = iter(["crash", "fine", "crash"])
    model = FunctionGenerator(lambda p, s, i: next(turns), name="coder")
    chain = Chain({"program": Ask(model, "{prompt}"), "result": Use(compute)})
    result = MajorityVote(chain, 3, answer=last_word).solve("2+3?")
    assert result.text == "5" and result.answer is not None and result.answer.key == "5"
    assert sorted((c.sequence.text, c.sequence.finish or "") for c in result.candidates) == [
        ("5", "eos"), ("raised: line 7", ""), ("raised: line 7", ""),
    ]  # fmt: skip
    echo = FunctionGenerator(lambda p, s, i: f"[{p.prompt.text}]")
    steps = {"result": Use(compute, program="crash"), "answer": Ask(echo, "{result}")}
    told = Chain(steps).solve("q")
    assert told.text == "[raised: line 7]" and told.sequence.finish == "eos", "but other steps may read it"


def test_a_tool_reads_what_a_score_says() -> None:
    def quote(score: str) -> str:
        return f"<{score}>"

    chain = Chain({
        "draft": Ask(FunctionGenerator(lambda p, s, i: "x"), "{prompt}"),
        "score": Verify(FunctionVerifier(lambda s: 0.5), of="draft"),
        "told": Use(quote),
    })  # fmt: skip
    assert chain.solve("q").text == "<0.5>"


# ----------------------------------------------------------------------------------------------------- inside of a text

CORPUS = [
    "Ada Lovelace wrote about the Analytical Engine of Charles Babbage.",
    "Charles Babbage was born in London in 1791.",
    "Alan Turing was born in London in 1912.",
]


def test_bm25_ranks_by_the_formula() -> None:
    retriever = BM25(CORPUS, k1=1.5, b=0.75)
    assert retriever.search("When was Charles Babbage born?", 2) == [CORPUS[1], CORPUS[0]]
    assert retriever.search("xylophone") == [] and retriever.search("the of in") == []
    # "turing": in one of three documents, once; idf = ln(1 + (3 - 1 + 0.5) / (1 + 0.5)).
    lengths = [len(words_of(p)) for p in CORPUS]
    norm = 1 - 0.75 + 0.75 * lengths[2] / (sum(lengths) / 3)
    expected = log(1 + 2.5 / 1.5) / (1 + 1.5 * norm)
    scores = retriever._index.get_scores(["turing"])
    assert scores.tolist() == pytest.approx([0.0, 0.0, expected], rel=1e-5)
    assert retriever.search("London born") == [CORPUS[1]], "equals come in the order of the corpus"
    with pytest.raises(InputError, match="corpus is empty"):
        BM25([])
    with pytest.raises(InputError, match="no words"):
        BM25(["the"])


class Stops(FunctionGenerator):
    """Writes lines of a script until a stop text: what the text read so far asks for."""

    def __init__(self, script: dict[str, str], stop: tuple[str, ...] = ()) -> None:
        def write(prefix: Sequence, seed: int, index: int) -> Drawn:
            seen = (prefix.prompt.text or "") + prefix.text
            said = next(text for end, text in script.items() if seen.endswith(end))
            for s in stop:
                if s in said:
                    return Drawn(said.partition(s)[0], None, 5, finish="stop")
            return Drawn(said, None, 5, finish="eos")

        super().__init__(write, name=repr((script, stop)), count=len, max_tokens=200)
        self._script = script

    def replace(self, **changes: Any) -> Stops:
        return Stops(self._script, **changes)


QUESTION = "When was the designer of the Analytical Engine born?"
SCRIPT = {
    QUESTION: "\nFollow up: Who designed the Analytical Engine?\nIntermediate answer: I think nobody",
    "Charles Babbage.\n": "Follow up: When was Charles Babbage born?\nIntermediate answer: 1000",
    "1791.\n": "So the final answer is: 1791",
}


def test_self_ask_asks_the_retriever_and_not_itself() -> None:
    result = self_ask(Stops(SCRIPT), BM25(CORPUS).tool()).solve(QUESTION)
    assert result.text == (
        "\nFollow up: Who designed the Analytical Engine?\n"
        f"Intermediate answer: {CORPUS[0]}\n"
        "Follow up: When was Charles Babbage born?\n"
        f"Intermediate answer: {CORPUS[1]}\n"
        "So the final answer is: 1791"
    )
    assert [row.path for row in result.trace.rows] == [
        "0/text/0",
        "0/tool/0",
        "0/text/1",
        "0/tool/1",
        "0/text/2",
    ]
    assert result.sequence.finish == "eos" and not result.exhausted


@pytest.mark.parametrize("calls", range(6))
def test_what_there_is_of_the_text_is_returned_when_calls_run_out(calls: int) -> None:
    strategy = self_ask(Stops(SCRIPT), BM25(CORPUS).tool())
    whole = strategy.solve(QUESTION).text
    result = strategy.solve(QUESTION, budget={"calls": calls})
    assert whole.startswith(result.text) and result.usage.calls == calls
    assert result.exhausted == (calls < 5)
    assert [whole.count(line) for line in ("Intermediate",)] == [2]
    assert result.text.count("Intermediate") == min(calls // 2, 2)


def test_after_the_last_call_the_generator_is_left_to_itself() -> None:
    result = self_ask(Stops(SCRIPT), BM25(CORPUS).tool(), most=1).solve(QUESTION)
    assert result.text.endswith("Follow up: When was Charles Babbage born?\n")
    assert [row.path for row in result.trace.rows][-1] == "0/rest"


def test_an_interleaved_text_resumes_in_its_middle() -> None:
    strategy, journal = self_ask(Stops(SCRIPT), BM25(CORPUS).tool()), MemoryJournal()
    whole = strategy.solve(QUESTION, journal=journal)
    rows = list(whole.trace.rows)
    for kept in range(len(rows) + 1):
        cut = CountingJournal()
        asyncio.run(cut.record(rows[:kept]))
        assert strategy.solve(QUESTION, journal=cut).text == whole.text and cut.recorded == len(rows)


def test_wrong_calls_are_refused_when_it_is_built() -> None:
    for make, words in (
        (lambda: Interleaved(numbers(), add, call=r"(?P<a>\d+"), "no regular expression"),
        (
            lambda: Interleaved(numbers(), add, call=r"(?P<b>\d+)"),
            r"has the groups \['b'\]; the tool 'add' takes a",
        ),
        (
            lambda: Interleaved(numbers(), add, call=r"(?P<a>\d+)", result="x"),
            r"result='x'.*expected \{result\}",
        ),
        (lambda: Interleaved(numbers(), add, call=r"(?P<a>\d+)", most=0), "most=0"),
    ):
        with pytest.raises(InputError, match=words):
            make()
    with pytest.raises(UnsupportedError, match="needs both"):
        Interleaved(ReplayGenerator({"q": ["x"]}), add, call=r"(?P<a>\d+)")


class TestInterleaved(StrategyLaws):
    def make(self) -> Strategy:
        def shout(word: str) -> str:
            return word.upper()

        return Interleaved(numbers(), shout, call=r"(?P<word>\w+)", answer=last_word)


def calculate(expression: str) -> str:
    """The value of `left op right`, as a fraction."""
    match = arithmetic._DEFINITION.fullmatch(f"a={expression}")
    values = [parse(match[i].strip("()")) for i in (2, 4)] if match else [None]
    if match is None or None in values or (match[3] == "/" and not values[1]):
        raise ToolError("?")
    left, right = (Fraction(v) for v in values if v is not None)
    return str({"+": left + right, "-": left - right, "*": left * right}.get(match[3]) or left / right)


@pytest.fixture(scope="module")
def small() -> Iterator[TorchEngine]:
    with TorchEngine("tiny-0.1m", threads=1) as engine:
        yield engine


def test_a_calculator_helps_the_embedded_model(small: TorchEngine) -> None:
    """The model plans, the tool computes."""
    task = ArithmeticTask("validation", levels=(4,), per_level=16, seed=5)
    problems = list(task.problems())
    greedy = small.generator(temperature=0.0, max_tokens=160)
    helped = Interleaved(
        greedy,
        calculate,
        call=r"(?:\A|\n)[a-h]=(?P<expression>[^=\n]+)=",
        result="{result}\n",
        until=Step("="),
    )

    async def right(strategy: Strategy) -> int:
        results = await asyncio.gather(*(strategy.asolve(p.prompt) for p in problems))
        grades = [(await task.grade(p, [r.sequence]))[0] for p, r in zip(problems, results, strict=True)]
        return int(sum(grades))

    alone, together = asyncio.run(_two(right(Sample(greedy)), right(helped)))
    assert together >= alone + 3


async def _two(a: Any, b: Any) -> tuple[int, int]:
    return await a, await b


# ------------------------------------------------------------------------------------------------------- JSON calls


def test_calls_by_json_and_what_is_wrong_with_them() -> None:
    turns = iter([
        "I think",
        '{"tool": "sub", "arguments": {}}',
        '{"tool": "add", "arguments": {"a": "two"}}',
        '```json\n{"tool": "add", "arguments": {"a": 2, "b": 3}}\n```',
        'So {"answer": "5"} it is',
    ])  # fmt: skip
    prompts: list[str] = []

    def write(prefix: Sequence, seed: int, index: int) -> str:
        prompts.append(prefix.prompt.text or "")
        return next(turns)

    result = ToolUse(FunctionGenerator(write), [add], answer=last_word).solve("2+3?")
    assert result.text == "5" and result.answer is not None and result.answer.key == "5"
    assert [row.path for row in result.trace.rows] == [
        "0/turn/0", "0/turn/1", "0/turn/2", "0/turn/3", "0/tool/3", "0/turn/4"
    ]  # fmt: skip
    assert prompts[0].startswith("2+3?\n") and "add: Add two numbers. {" in prompts[0]
    told = [prompt.rpartition("Result: ")[2].strip() for prompt in prompts[1:]]
    assert told[0] == "there is no JSON object in it"
    assert told[1] == "no tool is called 'sub'; there are add"
    assert told[2].startswith(
        "the tool 'add' cannot take these arguments: a: Input should be a valid integer"
    )
    assert told[3] == "5"


class Point(BaseModel):
    x: int


def test_a_tool_may_take_nothing_or_a_model() -> None:
    def now() -> str:
        return "noon"

    def right(point: Point) -> int:
        assert point == {"x": 2}, "arguments are JSON"
        return 3

    turns = iter(
        ['{"tool": "now"}', '{"tool": "right", "arguments": {"point": {"x": 2}}}', '{"answer": "x"}']
    )
    prompts: list[str] = []

    def write(prefix: Sequence, seed: int, index: int) -> str:
        prompts.append(prefix.prompt.text or "")
        return next(turns)

    assert ToolUse(FunctionGenerator(write), [now, Tool(right)]).solve("q").text == "x"
    assert '"$defs": {"Point"' in prompts[0]
    assert [p.rpartition("Result: ")[2].strip() for p in prompts[1:]] == ["noon", "3"]


def test_annotations_that_cannot_be_read_are_an_error_when_it_is_built() -> None:
    def undefined(x: Nothing) -> None:  # type: ignore[name-defined]  # noqa: F821
        """Odd."""

    def strange(x: EnumerableEngine) -> None:
        """Odd."""

    for odd in (undefined, strange):
        with pytest.raises(InputError, match=f"annotations of the tool '{odd.__name__}' cannot be read"):
            ToolUse(numbers(), [odd])


def test_without_an_answer_the_last_turn_is_returned() -> None:
    generator = FunctionGenerator(lambda p, s, i: '{"tool": "add", "arguments": {"a": 1}}')
    result = ToolUse(generator, [Tool(add)], most=2).solve("q")
    assert json.loads(result.text)["tool"] == "add" and len(result.trace.rows) == 4
    assert result.sequence.finish is None, "a call is no answer"
    for tools, most in (([], 1), ([add, add], 1), ([add], 0), ([add], 1.5)):
        with pytest.raises(InputError, match="expected tools of different names"):
            ToolUse(generator, tools, most=most)


def counting_up(room: int = 10_000) -> ToolUse:
    """Adds one to the last result until it is 3, and answers; a model with room for so many characters."""

    def write(prefix: Sequence, seed: int, index: int) -> str:
        text = prefix.prompt.text or ""
        if len(text) > room:
            raise PromptError(f"{len(text)} characters exceed the context of {room}")
        last = int((text.rpartition("Result: ")[2].split() or ["0"])[0]) if "Result: " in text else 0
        return json.dumps(
            {"answer": "three"} if last == 3 else {"tool": "add", "arguments": {"a": last, "b": 1}}
        )

    return ToolUse(FunctionGenerator(write), [add], ask="{prompt}{tools}", answer=last_word)


@pytest.mark.parametrize("calls", range(8))
def test_the_last_turn_is_what_a_spent_budget_returns(calls: int) -> None:
    result = counting_up().solve("q", budget={"calls": calls})
    assert result.exhausted == (calls < 7) and result.usage.calls == calls
    if calls == 7:
        assert (result.text, result.sequence.finish) == ("three", "eos")
    elif calls:
        assert json.loads(result.text)["arguments"]["a"] == (calls - 1) // 2
        assert result.sequence.finish is None
    else:
        assert not result.text
    assert [c.sequence.text for c in result.candidates] == [result.text] * (calls > 0)


def test_the_last_turn_that_fits_is_returned_where_calls_outgrow_the_context() -> None:
    first = len("q" + described([Tool(add)]))
    result = counting_up(first + 80).solve("q")
    assert json.loads(result.text)["arguments"] == {"a": 1, "b": 1} and result.sequence.finish is None
    with pytest.raises(PromptError):
        counting_up(first - 1).solve("q")


class TestToolUse(StrategyLaws):
    def make(self) -> Strategy:
        return ToolUse(numbers(), [add], most=2)


# ------------------------------------------------------------------------------------------------ program of thought


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    if shutil.which("bwrap") is None:
        pytest.skip("programs cannot be isolated on this machine: there is no bubblewrap")
    try:
        return Sandbox(limits=Limits(wall=5.0, memory=256 * MIB, processes=16))
    except IsolationError as error:
        pytest.skip(f"programs cannot be isolated on this machine: {error}")


def test_a_program_of_thought_is_run(sandbox: Sandbox) -> None:
    program = "Let me see.\n```python\nx = 6 * 7\nprint(x)\n```\n"
    generator = FunctionGenerator(
        lambda p, s, i: program if "Python" in (p.prompt.text or "") else f"It is {p.prompt.text}"
    )
    assert program_of_thought(generator, sandbox, answer=last_word).solve("6 times 7?").text == "42"
    chain = program_of_thought(generator, sandbox, conclude="{result}!")
    result = chain.solve("6 times 7?")
    assert result.text == "It is 42!" and [r.path for r in result.trace.rows] == [
        "0/program",
        "0/result",
        "0/answer",
    ]


def test_what_goes_wrong_in_a_program_is_told(sandbox: Sandbox) -> None:
    tool, journal = run_python(sandbox), CountingJournal()
    for program, words in (("1/0", "ZeroDivisionError"), ("while True: pass", "timeout"), ("", "no program")):
        limited = tool if program != "while True: pass" else run_python(Sandbox(limits=Limits(wall=0.3)))
        for _ in range(2):
            with pytest.raises(ToolError, match=words):
                call(limited, {"program": program}, journal=journal)
    assert journal.recorded == 3
    assert Chain({"r": Use(tool, program="{prompt}")}).solve("print(1").text.startswith("raised: ")


def test_a_prompt_of_a_step_keeps_its_problem() -> None:
    assert Chain({"a": Use(lambda_tool(), x="{prompt}")}).solve(Prompt("id", text="hello")).text == "HELLO"


def lambda_tool() -> Tool:
    return Tool(lambda x: x.upper(), name="upper")
