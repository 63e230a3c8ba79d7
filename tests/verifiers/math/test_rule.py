"""The rule as strategies and tasks use it."""

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from metagen.errors import InputError
from metagen.sequence import Finish, Prompt, Sequence
from metagen.verifiers.base import Answer
from metagen.verifiers.math import MathRule
from metagen.verifiers.math.keys import attempt, verdict


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
    answers = asyncio.run(MathRule().judge(["?!", "1/0", "2"]))
    assert [(a.key, a.verdict) for a in answers] == [(None, "unparsable"), (None, "unparsable"), ("2", None)]


def test_fingerprints_name_all_that_changes_keys() -> None:
    rules = [
        MathRule(),
        MathRule("(x)"),
        MathRule(sources=("boxed",)),
        MathRule(percent="dropped"),
    ]
    assert len({rule.fingerprint for rule in rules}) == len(rules)
    assert MathRule().fingerprint == MathRule().fingerprint


def test_fingerprints_name_the_library_that_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    before = MathRule().fingerprint
    monkeypatch.setattr("metagen.verifiers.math.rule._mpmath", lambda: "0.0")
    assert MathRule().fingerprint != before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pattern": "("}, "is not a regular expression"),
        ({"pattern": "(a)(b)"}, "has 2 groups"),
        ({"percent": "half"}, "percent='half'; expected one of"),
        ({"sources": ("box",)}, "sources=.*'box'.*; expected a list, each one of pattern"),
        ({"sources": ()}, "no place is looked at, and every answer would be missing"),
        ({"sources": ("pattern", "last")}, "no pattern to look for; give pattern, or leave 'pattern' out"),
        (
            {"pattern": "is (.)", "sources": ["boxed"]},
            r"sources=\('boxed',\) does not look at it; add 'pattern'",
        ),
    ],
)
def test_options_are_checked(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        MathRule(**options)  # type: ignore[arg-type]  # on purpose


def test_no_other_library_is_asked() -> None:
    code = """
import sys, asyncio, metagen
assert "metagen.verifiers.math" not in sys.modules
from metagen.verifiers.math import MathRule
from metagen.verifiers.math.keys import attempt, verdict
asyncio.run(MathRule().judge(["\\\\sqrt2", "x^2<1", "(1,2]", "\\\\pi^{0.3}", "\\\\int_0^1 x dx"]))
print(sorted({"sympy", "math_verify", "latex2sympy2_extended", "torch", "numpy"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_rules_may_be_asked_from_several_threads_and_event_loops() -> None:
    answers = [f"|\\tan {k}x - {k}| < \\sqrt{{{k}}}" for k in range(2, 6)]

    def judge(_: int) -> list[str | None]:
        verdict.cache_clear()
        attempt.cache_clear()
        return [a.key for a in asyncio.run(MathRule().judge(answers))]

    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(judge, range(4)))
    assert None not in results[0] and all(keys == results[0] for keys in results)


def test_other_coroutines_run_while_a_long_answer_is_judged() -> None:
    """What takes long is done in another thread, so that the event loop goes on."""
    turns = 0

    async def both() -> None:
        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(count())
        await MathRule().judge(["\\max(a,b,c,d,e,f,g,h)"])
        other.cancel()

    verdict.cache_clear()
    asyncio.run(both())
    assert turns > 10
