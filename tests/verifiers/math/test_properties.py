"""Laws of keys, on answers that nobody picked."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from metagen.verifiers.math import quantities
from metagen.verifiers.math.extract import find
from metagen.verifiers.math.grammar import MAX_CHARACTERS, parse
from metagen.verifiers.math.keys import Verdict, attempt, verdict
from metagen.verifiers.math.tree import Unreadable
from metagen.verifiers.numbers import canonical


def key(answer: str) -> str:
    found = verdict(answer)
    assert found.key is not None, answer
    return found.key


INTEGERS = st.integers(-(10**12), 10**12)
FRACTIONS = st.fractions(max_denominator=10**6)


@given(FRACTIONS)
def test_a_rational_number_has_one_key_however_it_is_written(value: Fraction) -> None:
    p, q = value.numerator, value.denominator
    whole, rest = divmod(abs(p), q)
    sign = "-" if p < 0 else ""
    spellings = [
        f"{p}/{q}", f"{3 * p}/{3 * q}", f"\\frac{{{p}}}{{{q}}}", f"-\\dfrac{{{-p}}}{{{q}}}", f"x = {p}/{q}",
        f"\\frac{{{100 * p}}}{{{q}}}\\%", f"\\sqrt{{{p * p}}} \\cdot \\frac{{{'-1' if p < 0 else '1'}}}{{{q}}}",
    ]  # fmt: skip
    if whole and rest:
        spellings += [f"{sign}({whole}\\frac{{{rest}}}{{{q}}})", f"{sign}({whole} {rest}/{q})"]
    assert {key(s) for s in spellings} == {str(value)}


@given(st.decimals(-(10**9), 10**9, places=4).map(str) | INTEGERS.map(str))
def test_numbers_agree_with_the_number_rule(text: str) -> None:
    assert key(text) == canonical(text)


@given(INTEGERS)
def test_thousands(value: int) -> None:
    assert key(f"{value:,}") == key(f"{value:,}".replace(",", "{,}")) == key(f"\\${value:,}.00") == str(value)


@given(st.fractions(max_denominator=99), st.integers(6, 15))
def test_a_long_decimal_of_a_simple_fraction_is_that_fraction(value: Fraction, places: int) -> None:
    scaled = round(abs(value) * 10**places)
    text = f"{scaled // 10**places}.{scaled % 10**places:0{places}d}"
    assert quantities.decimal(text) == abs(value) or len(text.rstrip("0").partition(".")[2]) < 6


@given(st.floats(1e-4, 1e6))
def test_a_printed_double_is_close_to_what_is_read(value: float) -> None:
    read = quantities.decimal(f"{value:.17g}") if "e" not in f"{value:.17g}" else Fraction(value)
    assert math.isclose(float(read), value, rel_tol=1e-6)


ELEMENTS = st.lists(FRACTIONS, min_size=2, max_size=6)


@given(ELEMENTS, st.randoms(use_true_random=False))
def test_sets_have_no_order_and_tuples_have(elements: list[Fraction], random: Random) -> None:
    shuffled = random.sample(elements, len(elements))
    assert key(f"\\{{{', '.join(map(str, elements))}\\}}") == key(", ".join(map(str, shuffled)))
    tuples = [f"({', '.join(map(str, e))})" for e in (elements, shuffled)]
    assert (key(tuples[0]) == key(tuples[1])) == (elements == shuffled)


COEFFICIENTS = st.lists(st.integers(-9, 9), min_size=2, max_size=4).filter(lambda c: any(c[1:]))


def polynomial(coefficients: list[int], order: list[int] | None = None, name: str = "x") -> str:
    terms = [f"({c})*{name}^{{{i}}}" for i, c in enumerate(coefficients)]
    return " + ".join(terms if order is None else [terms[i] for i in order])


@example([-1, 0, 8], [0, 1, 0, 2])  # has a value that lies between two of 30 digits
@given(COEFFICIENTS, COEFFICIENTS)
def test_products_of_polynomials_are_multiplied_out(left: list[int], right: list[int]) -> None:
    product = [0] * (len(left) + len(right) - 1)
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            product[i + j] += a * b
    whole = key(polynomial(product))
    assert whole == key(f"({polynomial(left)})({polynomial(right)})") == key(f"f(x) = {polynomial(product)}")
    assert whole != key(polynomial([product[0] + 1, *product[1:]]))
    assert key(f"\\frac{{{polynomial(product)}}}{{{polynomial(right)}}}") == key(polynomial(left))


@given(COEFFICIENTS, st.permutations(range(4)), st.integers(1, 9))
def test_the_order_of_terms_and_the_scale_of_equations_do_not_matter(
    given_: list[int], order: list[int], scale: int
) -> None:
    places = [i for i in order if i < len(given_)]
    shuffled = polynomial(given_, places)
    assert key(polynomial(given_)) == key(shuffled)
    assert key(f"{shuffled} + y^2 = 1") == key(f"{scale} = {scale}y^2 + {scale}({polynomial(given_)})")


@given(FRACTIONS, FRACTIONS, st.sampled_from(["()", "(]", "[)", "[]"]))
def test_intervals_and_inequalities_are_one(low: Fraction, high: Fraction, brackets: str) -> None:
    low, high = sorted((low, high))
    if low == high:
        return
    left, right = "≤" if brackets[0] == "[" else "<", "≤" if brackets[1] == "]" else "<"
    interval = key(f"{brackets[0]}{low}, {high}{brackets[1]}")
    assert (
        interval
        == key(f"{low} {left} t {right} {high}")
        == key(f"t \\in {brackets[0]}{low}, {high}{brackets[1]}")
    )
    assert interval == key(f"{-2 * high} {right} -2t {left} {-2 * low}")


@given(st.integers(2, 50), st.integers(2, 50), st.integers(1, 9))
def test_roots_are_numbers(a: int, b: int, c: int) -> None:
    assert key(f"\\sqrt{{{a}}}\\cdot\\sqrt{{{b}}}") == key(f"\\sqrt{{{a * b}}}")
    assert key(f"\\frac{{{c}}}{{\\sqrt{{{a}}}+\\sqrt{{{a + 1}}}}}") == key(
        f"{c}(\\sqrt{{{a + 1}}}-\\sqrt{{{a}}})"
    )
    assert (key(f"\\sqrt{{{a}}}") == key(f"\\sqrt{{{b}}}")) == (a == b)


ROOT = Path(__file__).parents[3]
ANSWERS = [
    json.loads(line)["answer"]
    for line in (ROOT / "tests/data/answers/math.jsonl").read_text("utf-8").splitlines()
]
SPELLINGS = st.sampled_from(
    ["1/2", "0.5", "50\\%", "x = 1/2", "2", "\\frac42", "\\sqrt2", "2^{1/2}", "1,2", "\\{2,1\\}",
     "(1,2)", "1<x<2", "x>1",
     "C", "(C)", "c", "\\cot x", "\\frac{1}{\\tan x}", "2(k+1)", "2k+2", "y=2x", "2x-y=0", "1/0", "?",
     "0.333333", "1/3"]
)  # fmt: skip


@given(st.lists(SPELLINGS, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_a_key_does_not_depend_on_what_was_asked_before(answers: list[str], random: Random) -> None:
    """Nor on what the libraries behind it remember."""

    def keys(ordered: list[str]) -> dict[str, str | None]:
        verdict.cache_clear()
        attempt.cache_clear()
        return {a: verdict(a).key for a in ordered}

    assert keys(answers) == keys(random.sample(answers, len(answers)))


EDITS = st.tuples(
    st.floats(0, 1), st.integers(0, 2), st.sampled_from(list("01xie{}()[]|\\^_+-/=<,.:!%$&' ±√π"))
)


@settings(max_examples=400)
@given(st.sampled_from(ANSWERS), st.lists(EDITS, min_size=1, max_size=4))
def test_broken_answers_have_verdicts(answer: str, edits: list[tuple[float, int, str]]) -> None:
    for place, kind, character in edits:
        at = int(place * len(answer))
        # Left out, put in, or said twice.
        answer = (
            answer[:at] + answer[at + 1 :],
            answer[:at] + character + answer[at:],
            answer[: at + 3] + answer[at:],
        )[kind]
    found = verdict(answer)
    assert (found.key is None) == (found.verdict == "unparsable")


PIECES = st.sampled_from(
    ["1", "2", "x", "y", "\\frac", "\\sqrt", "{", "}", "(", ")", "[", "]", "+", "-", "*", "/", "^", "_",
     "=", "<", ",",
     ".", " ", "\\pi", "i", "e", "\\sin", "|", "\\{", "\\}", "!", "%", "\\pm", "\\infty", "\\cup",
     "\\text{cm}", "and",
     "\\begin{pmatrix}", "\\end{pmatrix}", "\\\\", "&", "$", ":", "f", "\\in", "\\le", "0.5", "12", "\\log", "'", "°"]
)  # fmt: skip


@settings(max_examples=400)
@given(st.lists(PIECES, max_size=14).map("".join))
def test_whatever_is_written_has_one_verdict(answer: str) -> None:
    """It does not raise, and is the same after the blanks and delimiters around it are gone."""
    found = verdict(answer)
    assert (found.key is None) == (found.verdict == "unparsable")
    assert verdict(answer) == verdict(f"  {answer} ")


@settings(max_examples=300)
@given(st.text(max_size=60))
def test_any_text_is_read(text: str) -> None:
    found = find(text, pattern=None)
    judged = verdict(found) if found is not None else None
    assert judged is None or judged == Verdict(judged.key, None if judged.key is not None else "unparsable")


@given(st.text("()[]{}|\\$,1x^", min_size=100, max_size=2_000))
def test_deep_nesting_is_refused_or_read(text: str) -> None:
    try:
        parse(text)
    except Unreadable:
        return
    assert len(text) <= MAX_CHARACTERS


@pytest.mark.parametrize("size", [10, 1_000, 100_000])
def test_keys_are_short(size: int) -> None:
    found = verdict("1" * size)
    assert len(found.key or "") <= 400
