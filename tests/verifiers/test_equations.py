"""A calculator as a verifier, against arithmetic."""

from __future__ import annotations

import asyncio
import random
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.scope import Scope
from metagen.sequence import Prompt, Score, Sequence
from metagen.verifiers.equations import EquationVerifier, check_equations


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("12 * 3 = 36", [True]),
        ("12*3=37", [False]),
        ("She sold 48/2 = 24 clips in May.", [True]),
        ("So 48+24 = 72 clips, and 72 - 2 = 71.", [True, False]),
        ("She earns 0.2 x 50 = $10.", [True]),
        ("$18.00 × 8 = $144.00", [True]),
        ("(4 + 5) / 2 = 4.5", [True]),
        ("2 + 3 * 4 = 14", [True]),
        ("2 + 3 * 4 = 20", [False]),
        ("10 - 2 - 3 = 5", [True]),
        ("-3 + 5 = 2", [True]),
        ("1,200 + 300 = 1,500", [True]),
        ("7/3 = 2.33", [True]),
        ("7/3 = 2.34", [False]),
        ("7/2 = 3", [False]),
        ("5 / 0 = 0", [False]),
        ("2 + 3 = 5 + 1 = 6", [False, True]),
        ("36 = 12 * 3", [True]),
        ("(2 + 3 = 5", [False]),
        ("n = 5", []),
        ("x + 3 = 5", []),
        ("The answer is 5.", []),
        ("5 = 5", []),
        ("20% = 0.2", []),
        ("1 / 200 = 0.5%", []),
        ("3 / 8 = 37.5 %", []),
        ("1 / 4 = 25\\%", []),
        ("1 / 4 = 25 percent, and 2 + 2 = 4", [True]),
        ("5 * 200 = 1 * 10^3", []),
        ("3 apples + 4 apples = 7 apples", []),
        ("10 + 5% = 10.5", []),
        ("- 3 + 4 = 7", [True]),
        ("* 3 + 4 = 7", [True]),
        ("2) 3 + 4 = 7", [True]),
        ("3 boxes + 4 + 5 = 12", []),
        ("boxes - 4 + 5 = 12", []),
        ("1/3 of 12 + 2 = 6", []),
        ("5 hours * $10 = $50", []),
        ("-(2 + 3) = -5", [True]),
        ("( 2 + 3 ) * 2 = 10", [True]),
        ("5 - -3 = 8", [True]),
        ("Total = 5 + 3 = 9", [False]),
        ("Total cost = 3 * 4 = 12", [True]),
        ("n = 5 + 3 = 8 = 4 * 3", [True, False]),
        ("x + 3 = 5 + 1 = 6", []),
        ("2^3 = 4 * 2", []),
        ("sqrt(16) = 2 * 2", []),
        ("(2)(3) = 3 * 2", []),
        ("(2) (3) = 3 * 2", []),
        ("x = 2 (3 + 4) = 14", []),
        ("gcd(12, 18) = 2 * 3", []),
        ("f(2) = 2 + 3 = 6", [False]),
        ("y = C(5, 2) = 5 * 4 / 2 = 10", [True]),
    ],
)
def test_equations_of_a_text(text: str, found: list[bool]) -> None:
    assert check_equations(text) == found


@given(st.lists(st.integers(0, 999), min_size=2, max_size=5), st.integers(0, 2**32), st.integers(-3, 3))
def test_against_python(numbers: list[int], seed: int, off: int) -> None:
    signs = random.Random(seed).choices("+-*", k=len(numbers) - 1)
    side = "".join(f"{n}{sign}" for n, sign in zip(numbers, [*signs, ""], strict=True))
    value = eval(side) + off
    if value >= 0:
        assert check_equations(f"so {side} = {value} pens") == [off == 0]


@given(st.integers(1, 500), st.integers(1, 60), st.integers(1, 4))
def test_rounded_to_the_places_that_are_written(a: int, b: int, places: int) -> None:
    rounded = f"{Decimal(a) / Decimal(b):.{places}f}"
    assert check_equations(f"{a} / {b} = {rounded}") == [True]
    wrong = f"{float(rounded) + 2 * 10**-places:.{places}f}"
    assert check_equations(f"{a} / {b} = {wrong}") == [False]


@pytest.mark.parametrize(
    "text", ["1+" * 4000, "(" * 4000 + "1", "(1+" * 2000 + "1=1", "1+1=" * 3000, "1" * 8000]
)
def test_hostile_texts_end_soon(text: str) -> None:
    """By the bounds of a side: without them the search takes quadratic time."""
    assert len(check_equations(text * 20)) <= 20 * 3000


def scores(verifier: EquationVerifier, *texts: str) -> list[Score]:
    prompt = Prompt("p", text="?")
    return asyncio.run(verifier.score([Sequence(prompt, text) for text in texts], scope=Scope.root("p")))


def test_all_must_hold_and_each_line_has_its_own_value() -> None:
    right, wrong, none = scores(
        EquationVerifier(), "1 + 1 = 2\nThe answer is 2.", "1 + 1 = 3\n3 * 2 = 6", "The answer is 2."
    )
    assert (right.value, right.steps) == (1.0, (1.0, 1.0))
    assert (wrong.value, wrong.steps) == (0.0, (0.0, 1.0))
    assert none.value is None and none.verdict == "no equation"


def test_what_a_false_equation_is_worth_may_be_said() -> None:
    (score,) = scores(EquationVerifier(wrong=0.1), "1 + 1 = 3")
    assert score.value == 0.1
    assert EquationVerifier(wrong=0.1).fingerprint != EquationVerifier().fingerprint
    assert repr(EquationVerifier(wrong=0.1)) == "EquationVerifier(wrong=0.1)"
