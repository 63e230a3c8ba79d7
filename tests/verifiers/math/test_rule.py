"""The rule as strategies and tasks use it."""

import asyncio
import subprocess
import sys

import pytest

from metagen.errors import InputError
from metagen.sequence import Finish, Prompt, Sequence
from metagen.verifiers.base import Answer
from metagen.verifiers.math import MathRule
from metagen.verifiers.math.rule import versions


def read(*texts: str, finish: Finish | None = "eos", rule: MathRule | None = None) -> list[Answer]:
    sequences = [Sequence(Prompt("p", "?"), text, finish=finish) for text in texts]
    return asyncio.run((rule or MathRule()).read(sequences))


def test_answers_are_read_in_order() -> None:
    assert read(
        "so \\boxed{\\frac12}", "I do not know.", "The answer is 50%.", "\\boxed{1 +}", "\\boxed{0.50}"
    ) == [
        Answer("\\frac12", "1/2"),
        Answer(verdict="missing"),
        Answer("50%", "1/2"),
        Answer("1 +", None, "unparsable"),
        Answer("0.50", "1/2"),
    ]


def test_the_task_has_the_first_word() -> None:
    rule = MathRule(r"^A: (.*)$")
    assert [a.key for a in read("A: 3\n\\boxed{4}", "\\boxed{4}", rule=rule)] == ["3", "4"]
    only = MathRule(r"^A: (.*)$", sources=("pattern",))
    assert [a.verdict for a in read("A: 3", "\\boxed{4}", rule=only)] == [None, "missing"]


@pytest.mark.parametrize("finish", ["length", None])
def test_an_answer_that_may_go_on_is_none(finish: Finish | None) -> None:
    answers = read("\\boxed{12}", "\\boxed{12", "The answer is 1", "so it is 7", finish=finish)
    assert [a.key for a in answers] == ["12", None, None, None]


def test_references_have_the_keys_of_answers() -> None:
    rule = MathRule()

    async def keys() -> list[str | None]:
        return [
            await rule.key(a)
            for a in ("\\frac{1}{2}", "$50\\%$", "\\cot x", "\\frac{\\cos x}{\\sin x}", "1/0")
        ]

    half, percent, cot, quotient, nothing = asyncio.run(keys())
    assert half == percent == "1/2"
    assert cot == quotient is not None
    assert nothing is None


def test_judge_says_why_there_is_no_key() -> None:
    answers = asyncio.run(MathRule(deadline=0.5).judge(["\\sum_{k=1}^{10^{9}} k!", "1/0", "2"]))
    assert [(a.key, a.verdict) for a in answers] == [(None, "timeout"), (None, "unparsable"), ("2", None)]


def test_fingerprints_name_all_that_changes_keys() -> None:
    rules = [
        MathRule(),
        MathRule("(x)"),
        MathRule(sources=("boxed",)),
        MathRule(percent="dropped"),
        MathRule(deadline=1),
    ]
    assert len({rule.fingerprint for rule in rules}) == len(rules)
    assert MathRule().fingerprint == MathRule().fingerprint


def test_fingerprints_name_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    before = MathRule().fingerprint
    assert "none" not in versions()
    monkeypatch.setattr("metagen.verifiers.math.rule.version", lambda name: "0.0")
    versions.cache_clear()
    try:
        assert MathRule().fingerprint != before
    finally:
        versions.cache_clear()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pattern": "("}, "is not a regular expression"),
        ({"pattern": "(a)(b)"}, "has 2 groups"),
        ({"percent": "half"}, "percent='half' is unknown"),
        ({"sources": ("box",)}, "'box' is unknown"),
        ({"deadline": 0}, "more than 0"),
        ({"deadline": float("nan")}, "more than 0"),
        ({"deadline": float("inf")}, "not without end"),
        ({"within": 0}, "within=0: expected seconds"),
    ],
)
def test_options_are_checked(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        MathRule(**options)  # type: ignore[arg-type]  # on purpose


def test_sympy_stays_outside() -> None:
    code = """
import sys, asyncio, metagen
assert "metagen.verifiers.math" not in sys.modules
from metagen.verifiers.math import MathRule
asyncio.run(MathRule().judge(["\\\\sqrt2", "x^2+1", "(1,2]", "\\\\pi^{0.3}"]))
print(sorted({"sympy", "math_verify", "torch", "numpy"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
