"""Numbers as they are written, and the answer rule that reads them."""

from __future__ import annotations

import asyncio
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.sequence import Finish, Prompt, Sequence
from metagen.verifiers.base import Answer
from metagen.verifiers.numbers import MAX_CHARACTERS, NumberRule, canonical, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", Fraction(12)),
        ("-7", Fraction(-7)),
        ("+7", Fraction(7)),
        ("007", Fraction(7)),
        ("3/2", Fraction(3, 2)),
        ("6/4", Fraction(3, 2)),
        ("-6/4", Fraction(-3, 2)),
        ("1.5", Fraction(3, 2)),
        (".5", Fraction(1, 2)),
        ("2.", Fraction(2)),
        ("-0.125", Fraction(-1, 8)),
        ("150%", Fraction(3, 2)),
        ("12.5%", Fraction(1, 8)),
        ("-0", Fraction(0)),
        (" 19\n", Fraction(19)),
    ],
)
def test_reads_the_ways_to_write_a_number(text: str, value: Fraction) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "-",
            "+",
            ".",
            "%",
            "/",
            "1/0",
            "0/0",
            "1/",
            "/2",
            "1/-2",
            "1.5/2",
            "--1",
            "1 2",
            "1e5",
            "1_000",
            "1,000",
        ),
        *(
            "0x10",
            "12+7",
            "(3)",
            "nan",
            "inf",
            "1%%",
            "% 1",
            "٣",
            "１２",
            "½",
            "−1",
            "1\x00",
            "3/2/4",
            "1\n2",
        ),
    ],
)
def test_reads_nothing_else(text: str) -> None:
    assert parse(text) is None
    assert canonical(text) is None


def test_work_is_bounded() -> None:
    assert parse("9" * MAX_CHARACTERS) == int("9" * MAX_CHARACTERS)
    assert parse("9" * (MAX_CHARACTERS + 1)) is None
    assert parse("9" * 10_000_000) is None


@given(st.fractions(max_denominator=10**6), st.integers(1, 50))
def test_unreduced_fractions_have_the_canonical_key(value: Fraction, factor: int) -> None:
    assert canonical(f"{value.numerator * factor}/{value.denominator * factor}") == str(value)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**9), max_value=10**9))
def test_decimals_and_percentages_are_exact(value: object) -> None:
    assert parse(f"{value:f}") == Fraction(str(value))
    assert parse(f"{value:f}%") == Fraction(str(value)) / 100


@given(st.text(max_size=40))
def test_never_raises_and_keys_read_back(text: str) -> None:
    key = canonical(text)
    assert key is None or parse(key) == parse(text)


# -- the answer rule ------------------------------------------------------------------------------


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
