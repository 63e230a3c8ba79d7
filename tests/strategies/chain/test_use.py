"""Tools in a step of a chain."""

from __future__ import annotations

import pytest

from metagen.generators.function import FunctionGenerator
from metagen.sequence import Prompt
from metagen.strategies.chain.chain import Chain
from metagen.strategies.chain.steps import Ask, Use, Verify
from metagen.strategies.parallel import MajorityVote
from metagen.strategies.tools import Tool, ToolError
from metagen.testing import last_word
from metagen.verifiers.function import FunctionVerifier


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


def test_a_tool_reads_that_another_has_returned_nothing() -> None:
    def find(prompt: str) -> str | None:
        return None

    def tell(find: str | None) -> str:
        return f"got {find!r}"

    assert Chain({"find": Use(find), "tell": Use(tell)}).solve("?").text == "got None"
    assert Chain({"find": Use(find), "tell": Use(tell, find="{find}")}).solve("?").text == "got 'null'"


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


def test_a_prompt_of_a_step_keeps_its_problem() -> None:
    assert Chain({"a": Use(lambda_tool(), x="{prompt}")}).solve(Prompt("id", text="hello")).text == "HELLO"


def lambda_tool() -> Tool:
    return Tool(lambda x: x.upper(), name="upper")
