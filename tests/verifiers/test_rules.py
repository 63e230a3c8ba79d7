"""Answer rules by name, with options, from a module; and the faults of each."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from metagen.errors import InputError
from metagen.sequence import Prompt, Sequence
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.choice import ChoiceRule
from metagen.verifiers.numbers import NumberRule
from metagen.verifiers.rules import RULES, answer_rule

PLUGIN = """
from metagen import AnswerRule, FunctionRule

made = FunctionRule(str.strip, str.casefold, name="lower")
no_rule = 3
calls = []

class Last(AnswerRule):
    def __init__(self, n: int = 1, where=None) -> None:
        self.n, self.where = n, where
    async def read(self, sequences):
        return []
    async def key(self, answer):
        return answer[-self.n:]

class Abstract(AnswerRule):
    pass

def factory(n=2):
    return Last(n)

def reads(text):
    return text

def breaks():
    raise KeyError("oh")

def makes_nothing():
    return None
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_rules.py").write_text(PLUGIN, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_rules", raising=False)
    return "my_rules"


def test_rules_of_other_options_have_other_fingerprints(plugin: str) -> None:
    one, two, again = (answer_rule({"kind": f"{plugin}:Last", "n": n}).fingerprint for n in (1, 2, 1))
    assert one == again != two


def key(rule: AnswerRule, answer: str) -> str | None:
    return asyncio.run(rule.key(answer))


def test_every_name_makes_a_rule() -> None:
    rules = [answer_rule(name) for name in RULES]
    assert len({type(rule) for rule in rules}) == len(RULES) == len({rule.fingerprint for rule in rules})
    assert key(answer_rule("number"), "$1,200.") == "1200"


def test_options_stand_in_a_mapping_or_beside_the_name() -> None:
    assert key(answer_rule({"kind": "choice", "letters": "XYZ"}), "y") == "Y"
    assert key(answer_rule("text", fold_case=True, pattern=None), "A B") == "a b"
    assert key(answer_rule({"kind": "recorded", "rule": "choice"}), "B.**") == "B"
    assert key(answer_rule({"kind": "recorded", "rule": {"kind": "text", "fold_case": True}}), "AB") == "ab"
    rule = ChoiceRule()
    assert answer_rule(rule) is rule


def test_a_module_lends_a_rule_a_class_or_a_function_that_makes_one(plugin: str) -> None:
    assert key(answer_rule(f"{plugin}:made"), " X") == " x"
    assert key(answer_rule(f"{plugin}:Last"), "abc") == "c"
    assert key(answer_rule({"kind": f"{plugin}:Last", "n": 2}), "abc") == "bc"
    assert key(answer_rule(f"{plugin}:factory"), "abc") == "bc"
    assert isinstance(answer_rule("metagen:NumberRule"), NumberRule)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ("choise", {}, r"answer='choise' is no answer rule; expected one of number, .* did you mean 'choice'\?"),
        ("", {}, "answer='' is no answer rule"),
        (None, {}, "answer=None: expected an answer rule, one of"),
        (str.strip, {}, "metagen.FunctionRule"),
        ({"letters": "AB"}, {}, "has no kind; expected kind: one of number"),
        ({"kind": "choice", "leters": "AB"}, {}, "answer='choice' has no option 'leters'; it has: pattern, letters"),
        ({"kind": "text", "pattern": "(a)"}, {"pattern": "(b)"}, "'pattern' is given twice"),
        ("choice", {"letters": "A"}, "answer='choice': letters='A': expected two or more"),
        ("verdicts", {"wrong": "none"}, "wrong='none'; expected one of texts, one"),
        ("verdicts", {"pattern": "(a)"}, "answer='verdicts' has no option 'pattern'"),
        ({"kind": "recorded", "rule": "choise"}, {}, "answer.rule='choise' is no answer rule"),
        ("no_such_module:x", {}, "cannot import .*No module named"),
        ("{plugin}:nothing", {}, "cannot import .*has no attribute"),
        ("{plugin}:no_rule", {}, "is 3; expected an answer rule, its class, or a function"),
        ("{plugin}:reads", {}, r"needs text, as options beside kind: .*FunctionRule\(read, key"),
        ("{plugin}:breaks", {}, "making it raised KeyError: 'oh'; mend it, or its options"),
        ("{plugin}:makes_nothing", {}, "made None; expected an answer rule"),
        ("{plugin}:Abstract", {}, "making it raised TypeError: .*abstract"),
        ("{plugin}:made", {"n": 2}, "is made already, and takes no n; give its class"),
        ("builtins:dict", {}, "expected an answer rule"),
    ],
)  # fmt: skip
def test_faults_name_place_value_and_remedy(
    given: Any, options: dict[str, Any], message: str, plugin: str
) -> None:
    given = given.replace("{plugin}", plugin) if isinstance(given, str) else given
    with pytest.raises(InputError, match=message):
        answer_rule(given, **options)


def test_the_place_is_named_as_it_is_called() -> None:
    with pytest.raises(InputError, match="--answer='choise' is no answer rule"):
        answer_rule("choise", "--answer")


@pytest.mark.parametrize(
    ("name", "options", "text", "expected"),
    [
        ("number", {}, "51.0", "51"),
        ("number", {}, "It is 51.", None),
        ("number", {"pattern": "so (.*)"}, "51", "51"),
        ("math", {}, "51.0", "51"),
        ("literal", {}, " [1,  2]\n", "[1, 2]"),
        ("literal", {}, "`'a'`", "'a'"),
        ("literal", {}, "hello", None),
        ("literal", {"pattern": "^Answer: (.*)$"}, "[1, 2]", "[1, 2]"),
        ("literal", {"arguments": True, "pattern": "^Answer: (.*)$"}, "f([1], 'a')", "([1], 'a'; )"),
        ("literal", {"arguments": True, "pattern": "^Answer: (.*)$"}, "[1], 'a'", "([1], 'a'; )"),
        ("literal", {"arguments": True, "pattern": "^Answer: (.*)$"}, "unknown", None),
        ("literal", {"arguments": True}, "f(dict(a=1))", "(\0dict(a=1); )"),
    ],
)
def test_bare_answers_are_read(name: str, options: dict[str, Any], text: str, expected: str | None) -> None:
    """As recorded pools have them, extracted already; but never a beginning that was cut off."""
    rule = answer_rule(name, **options)
    whole, cut = (Sequence(Prompt("p", text="?"), text, finish=finish) for finish in ("eos", "length"))
    answers = asyncio.run(rule.read([whole, cut]))
    assert [answer.key for answer in answers] == [expected, None]
