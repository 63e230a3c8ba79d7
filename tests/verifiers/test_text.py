"""Plain text as answers: as it stands, or with case and blanks folded."""

from __future__ import annotations

import asyncio

import pytest

from metagen.errors import InputError
from metagen.sequence import Finish, Prompt, Sequence
from metagen.verifiers.base import Answer
from metagen.verifiers.text import LONGEST, TextRule


def read(rule: TextRule, text: str, finish: Finish | None = "eos") -> Answer:
    (answer,) = asyncio.run(rule.read([Sequence(Prompt("p", text="?"), text, finish=finish)]))
    return answer


def test_a_text_is_its_own_answer_without_the_blanks_around_it() -> None:
    assert read(TextRule(), "  New  York\n") == Answer("New  York", "New  York")
    assert read(TextRule(), " \n") == Answer(verdict="missing")
    assert read(TextRule(), "New York", "length") == Answer(verdict="missing"), "more might have followed"


def test_case_and_blanks_count_unless_they_are_folded() -> None:
    texts = ("New York", "new york", "New\n  York", "STRASSE", "Straße")
    assert len({read(TextRule(), text).key for text in texts}) == 5
    assert len({read(TextRule(fold_case=True), text).key for text in texts}) == 3
    assert len({read(TextRule(fold_case=True, fold_blanks=True), text).key for text in texts}) == 2


def test_a_pattern_says_where_the_answer_stands() -> None:
    rule = TextRule(r"^City: (.*)$", fold_case=True)
    assert read(rule, "City: Rome\nno,\nCity: Paris ") == Answer("Paris", "paris")
    assert read(rule, "City: Rome\nCity: Par", "length").key == "rome"
    assert read(rule, "Paris") == Answer(verdict="missing")
    with pytest.raises(InputError, match="has 2 groups"):
        TextRule("(a)(b)")


def test_a_long_text_has_a_short_key() -> None:
    one, other = "x" * 10_000 + "1", "x" * 10_000 + "2"
    keys = [read(TextRule(), text).key or "" for text in (one, other, f" {one}\n")]
    assert keys[0] == keys[2] != keys[1] and max(map(len, keys)) <= LONGEST
    assert asyncio.run(TextRule().key(one)) == keys[0]


def test_options_are_part_of_the_name() -> None:
    rules = [TextRule(), TextRule("(a)"), TextRule(fold_case=True), TextRule(fold_blanks=True)]
    assert len({rule.fingerprint for rule in rules}) == 4
