"""Python literals: equal keys for what Python holds equal, and nothing ever runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.sequence import Prompt, Sequence
from metagen.verifiers.literal import MAX_CHARACTERS, LiteralRule

RULE = LiteralRule(r"^Answer: (.*)$")
CALLS = LiteralRule(r"^Answer: (.*)$", arguments=True)

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
    st.complex_numbers(allow_nan=False, allow_infinity=False, max_magnitude=9),
    st.text(max_size=4), st.binary(max_size=3),
)  # fmt: skip
frozen = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)
values = st.recursive(
    frozen,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.sets(frozen, max_size=3).filter(bool),
        st.dictionaries(frozen, inner, max_size=3),
    ),
    max_leaves=8,
)


@given(values, values)
def test_equal_keys_mean_equal_values(one: Any, other: Any) -> None:
    keys = [RULE.canonical(repr(value)) for value in (one, other)]
    assert None not in keys
    assert (keys[0] == keys[1]) == (one == other)


@given(values)
def test_a_value_equals_itself_however_it_is_ordered(value: Any) -> None:
    if isinstance(value, dict | set):
        items = list(value.items()) if isinstance(value, dict) else list(value)
        turned = type(value)(reversed(items))
        assert RULE.canonical(repr(turned)) == RULE.canonical(repr(value))


@pytest.mark.parametrize(
    "pair",
    [("1", "1.0"), ("1", "True"), ("{1: 2, 3: 4}", "{3.0: 4, True: 2}"), ("{1, 2}", "{2,1,1}"), ("'a'", '"a"'),
     ("[1,  2]", "[1, 2,]"), ("-0.0", "0"), ("1e400", "2e400"), ("(1)", "1"), ("'a' 'b'", "'ab'"), ("0x10", "16")],
)  # fmt: skip
def test_written_otherwise(pair: tuple[str, str]) -> None:
    assert RULE.canonical(pair[0]) == RULE.canonical(pair[1]) is not None


@pytest.mark.parametrize(
    "pair",
    [("[1]", "(1,)"), ("(1,)", "1"), ("'1'", "1"), ("b'a'", "'a'"), ("{}", "[]"),
     ("9007199254740993", "9007199254740993.0"),
     ("[[]]", "[[], []]"), ("'a, b'", "['a', 'b']"), ("{1: 2}", "{1, 2}"), ("['a', 'b']", "[\"a', 'b\"]")],
)  # fmt: skip
def test_not_the_same(pair: tuple[str, str]) -> None:
    keys = [RULE.canonical(text) for text in pair]
    assert None not in keys and keys[0] != keys[1]


@pytest.mark.parametrize(
    "text",
    ["", "x", "f(1)", "__import__('os').system('x')", "[1", "1 +", "{[]: 1}", "{{}}", "lambda: 0", "[x for x in 'a']",
     "1; 2", "\0", "9" * 5000, "(" * 300 + ")" * 300, "-" * 4000 + "1", "[" * 2000 + "]" * 2000, "1" + "+1j" * 1300,
     " " * MAX_CHARACTERS + "1"],
)  # fmt: skip
def test_what_is_no_literal_has_no_key(text: str) -> None:
    assert RULE.canonical(text) is None


@pytest.mark.parametrize(
    ("text", "other", "same"),
    [("1, 'a'", "f(1, 'a')", True), ("1, k=2, j=3", "f(1, j=3, k=2.0)", True), ("(1, 2)", "1, 2", False),
     ("[1]", "f([1])", True), ("dict(a=1), 2", "f( dict(a = 1), 2 )", True), ("dict(a=1)", "{'a': 1}", False),
     ("f(1)", "f(f(1))", False), ("", "f()", True), ("1", "k=1", False)],
)  # fmt: skip
def test_arguments(text: str, other: str, same: bool) -> None:
    keys = [CALLS.canonical(one) for one in (text, other)]
    assert None not in keys and (keys[0] == keys[1]) == same


def test_calls_that_may_be_run() -> None:
    assert CALLS.call("1, 'open source '") == "f(1, 'open source ')"
    assert CALLS.call("f([1])") == "f([1])"
    for text in (
        "open('x')",
        "f(1, x)",
        "f(1), f(2)",
        "f(*[1])",
        "f(**{})",
        "f(1) or 2",
        "g(1)",
        "1)",
        "f(1)(2)",
    ):
        assert CALLS.call(text) is None, text
    assert RULE.call("1") is None


@pytest.mark.parametrize(
    ("text", "finish", "answer", "verdict"),
    [("Answer: 1\nAnswer: [2]", "eos", "[2]", None), ("Answer: `{1: 2}`", "eos", "{1: 2}", None),
     ("Answer: 12", "length", None, "missing"), ("Answer: 1\nmore", "length", "1", None),
     ("one", "eos", None, "missing"),
     ("Answer: two", "eos", "two", "unparsable"), ("Answer: \n", "eos", None, "missing")],
)  # fmt: skip
def test_where_the_answer_is_read(text: str, finish: Any, answer: str | None, verdict: str | None) -> None:
    (found,) = asyncio.run(RULE.read([Sequence(Prompt("p", text="?"), text, finish=finish)]))
    assert (found.text, found.verdict) == (answer, verdict)


def test_fingerprints() -> None:
    assert len({RULE.fingerprint, CALLS.fingerprint, LiteralRule("(x)").fingerprint}) == 3
