"""The answer rule for numbers."""

import asyncio

import pytest

from metagen.errors import InputError
from metagen.sequence import Finish, Prompt, Sequence
from metagen.verifiers.base import Answer
from metagen.verifiers.numeric import NumberRule


def read(text: str, finish: Finish | None = "eos", rule: NumberRule | None = None) -> Answer:
    (answer,) = asyncio.run((rule or NumberRule()).read([Sequence(Prompt("p", "?"), text, finish=finish)]))
    return answer


@pytest.mark.parametrize("text", ["A:3/2", "x\nA: 6/4 \n", "A:1\nA:1.5", "A:150%\nmore"])
def test_equal_numbers_have_one_key(text: str) -> None:
    assert read(text).key == "3/2"


def test_no_answer_and_no_number_are_told_apart() -> None:
    assert read("a=1") == Answer(verdict="missing")
    assert read("A:") == Answer(verdict="missing")
    assert read(" A:1") == Answer(verdict="missing")
    assert read("A:two") == Answer("two", None, "unparsable")
    assert read("A:1/0") == Answer("1/0", None, "unparsable")


@pytest.mark.parametrize("finish", ["length", None])
def test_an_answer_that_may_go_on_is_none(finish: Finish | None) -> None:
    assert read("A:1\nA:12", finish).key == "1"
    assert read("A:12", finish).verdict == "missing"
    assert read("A:12\n", finish).key == "12"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("$1,200.", "1200"), ("-$3", "-3"), ("12,345,678", "12345678"), ("1,23", None), ("€ 5", "5"), ("5.", "5"),
        ("1,2345", None), ("$", None), ("2 apples", None),
    ],
)  # fmt: skip
def test_numbers_in_prose(text: str, key: str | None) -> None:
    assert asyncio.run(NumberRule(prose=True).key(text)) == key


def test_without_prose_a_number_is_bare() -> None:
    assert asyncio.run(NumberRule().key("1,200")) is None
    assert asyncio.run(NumberRule().key("$3")) is None


def test_a_pattern_of_ones_own() -> None:
    rule = NumberRule(r"#### (\S+)")
    assert read("#### 5 then #### 6.0", rule=rule).key == "6"


def test_a_pattern_has_one_group() -> None:
    with pytest.raises(InputError, match="has 2 groups; expected one"):
        NumberRule("(a)(b)")
