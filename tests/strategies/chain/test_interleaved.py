"""Tools inside of a text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from fractions import Fraction
from math import log
from typing import Any

import pytest

from metagen.errors import InputError, UnsupportedError
from metagen.generators.engine import Sample as Drawn
from metagen.generators.function import FunctionGenerator
from metagen.generators.replay import ReplayGenerator
from metagen.generators.torch import TorchEngine
from metagen.journal import MemoryJournal
from metagen.sequence import Sequence, Step
from metagen.strategies.base import Strategy
from metagen.strategies.chain.interleaved import Interleaved, self_ask
from metagen.strategies.chain.retriever import BM25
from metagen.strategies.chain.retriever import words as words_of
from metagen.strategies.parallel import Sample
from metagen.strategies.tools import ToolError
from metagen.tasks import arithmetic
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.testing import CountingJournal, StrategyLaws, last_word, numbers
from metagen.verifiers.numbers import parse
from tests.strategies.chain.toolbox import add

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
    assert result.sequence.finish is None, "a call that nobody answers has no vote"


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
    match = arithmetic.DEFINITION.fullmatch(f"a={expression}")
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
