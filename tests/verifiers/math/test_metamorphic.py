"""What must not change an answer's key, whatever the answer: on real answers, and on such as a grammar makes.

A key is a function of the text, so that equality of keys is an equivalence by construction. What can be wrong is which
texts share a key; so each test changes a text in a way that keeps its meaning, or one that does not.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.verifiers.math.keys import verdict

ROOT = Path(__file__).parents[3]
ANSWERS = sorted(
    {
        json.loads(line)["answer"]
        for line in (ROOT / "tests/data/answers/math.jsonl").read_text("utf-8").splitlines()
    }
)


def plain(answer: str) -> bool:
    """Not of words, of several elements, or a statement: something that arithmetic applies to."""
    key = verdict(answer).key
    return key is not None and key[0] not in '"{([0' and key.split()[0] in (key, "function")


SCALARS = [answer for answer in ANSWERS if plain(answer)]

#: Ways to write the same.
SAME = {
    "blanks": lambda a: f"  {a} ",
    "dollars": lambda a: f"${a}$",
    "two dollars": lambda a: f"$${a}$$",
    "parentheses": lambda a: f"\\({a}\\)",
    "brackets": lambda a: f"\\[{a}\\]",
    "a box": lambda a: f"\\boxed{{{a}}}" if "{" not in a else a,
    "a full stop": lambda a: f"{a}.",
    "a label": lambda a: f"Answer: {a}",
    "stars": lambda a: f"**{a}**",
    "big fractions": lambda a: a.replace("\\frac", "\\dfrac"),
    "display style": lambda a: f"\\displaystyle {a}",
    "sizes": lambda a: a if "\\text" in a else a.replace("(", "\\left(").replace(")", "\\right)"),
}


@pytest.mark.parametrize("change", SAME.values(), ids=SAME.keys())
def test_the_dress_of_an_answer_is_not_the_answer(change) -> None:  # type: ignore[no-untyped-def]  # of text to text
    different = {a: (verdict(a), verdict(change(a))) for a in ANSWERS if verdict(a) != verdict(change(a))}
    assert different == {}


#: Ways to write the same value.
EQUAL = {
    "plus nothing": "({}) + 0",
    "times one": "1 \\cdot ({})",
    "a half twice": "\\frac{{{}}}{{2}} + \\frac{{{}}}{{2}}",
    "minus minus": "-(-({}))",
    "a quotient": "\\frac{{3({})}}{{3}}",
    "one more and one less": "({} + 1) - 1",
    "in per cent": "100({})\\%",
    "a name": "S = {}",
}


def bared(answer: str) -> str:
    """Without currency and units; the percent sign written out."""
    quantity = re.split(r"\\(?:text|mbox)", answer.replace("$", "").replace("\\%", "/100"))[0]
    return re.sub(r"\\[ ,]?\s*$|\.$", "", quantity).strip()


@pytest.mark.parametrize("form", EQUAL.values(), ids=EQUAL.keys())
def test_a_value_has_one_key(form: str) -> None:
    assert len(SCALARS) > 150
    different = {}
    for answer in SCALARS:
        bare = bared(answer)
        if verdict(bare).key != verdict(answer).key or any(mark in bare for mark in "=,"):
            continue  # a unit, or the like, that does not bear arithmetic
        written = form.format(*[bare] * form.count("{}"))
        if verdict(written).key != verdict(answer).key:
            different[answer] = written
    assert different == {}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SCALARS), st.sampled_from(SCALARS))
def test_what_differs_is_told_apart_in_every_form(left: str, right: str) -> None:
    """Equal or not, two answers stay so under what is done to both."""
    if any(mark in left + right for mark in ("=", "\\%", "$", "text", "mbox", "circ", "_", ",", "\\!")):
        return
    same = verdict(left).key == verdict(right).key
    for form in ("2({}) + 7", "\\frac{{{}}}{{9}}", "-({})"):
        assert (verdict(form.format(left)).key == verdict(form.format(right)).key) == same
    for form in ("({}, 1)", "\\{{{}, a\\}}", "({}, \\infty)"):
        first, second = verdict(form.format(left)), verdict(form.format(right))
        if first.key is not None and second.key is not None:
            assert (first.key == second.key) == same, form
