from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.verifiers.numbers import MAX_CHARACTERS, canonical, equivalent, parse


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


def test_equivalence_needs_two_numbers() -> None:
    assert equivalent("1.50", "6/4")
    assert not equivalent("1.5", "1.6")
    assert not equivalent("x", "x")
