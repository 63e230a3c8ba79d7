"""One of a few words, in the ways that models write them, and the texts that only look like an answer."""

from __future__ import annotations

import asyncio

import pytest

from metagen.errors import InputError
from metagen.sequence import Finish, Prompt, Sequence
from metagen.verifiers.base import Answer
from metagen.verifiers.rules import answer_rule
from metagen.verifiers.word import WordRule

VALID, TRUTH = WordRule(words=["valid", "invalid"]), WordRule(words=["True", "False"])


def read(text: str, rule: WordRule | None = None, finish: Finish | None = "eos") -> Answer:
    (answer,) = asyncio.run((rule or WordRule()).read([Sequence(Prompt("p", text="?"), text, finish=finish)]))
    return answer


@pytest.mark.parametrize(
    "text",
    [
        "Yes", "yes", " YES.\n", "**Yes**", "**Yes.**", '"Yes"', "'yes'", "`Yes`", "- Yes", "(Yes)", "> Yes", "Yes!",
        r"\boxed{Yes}", r"$\boxed{\text{Yes}}$", r"\boxed{\textbf{yes}}", "Answer: Yes", "**Answer:** Yes",
        "**Answer: Yes**", "Answer - Yes", "A: Yes", "Final Answer: Yes", "#### Yes", "<answer>Yes</answer>",
        "<answer>\nYes\n</answer>", "The answer is Yes", "So the answer is Yes.", "So the answer is: Yes.",
        'So the answer is "Yes".', "So the answer is **Yes**.", "So the answer is \"Yes.\"", "the answer is:\n\nYes",
        "The correct answer is yes, because he does.", "The answer is yes since it holds.", "The answer would be yes.",
        "The final answer is $\\text{Yes}$.", "The answer to the question is Yes.", "I would choose Yes.",
        "Yes, you would return to the starting point.", "Yes. You are back.", "Yes, because no step is left.",
        "Yes you would be back at the start.", "Yes - the steps cancel out.", "Yes: they cancel.", "Yes (they cancel).",
        "Yes\n\nExplanation: no step is left over.", "**Yes**, a typical person would say no more.",
        "We end at (0, 0).\nYes", "We end at (0, 0).\n\n**Yes**", "We end at (0, 0).\nYes, we are back.",
        "We are where we began.\nTherefore, yes.", "We are back. So, yes.", "No step is left.\nSo yes.",
        "Is it no? The answer is no. Wait. The answer is yes.", "<think>The answer is no.</think>\nYes",
        "No, I am wrong at first.\nThe answer is Yes.", "No, wait.\nSo, yes.", "The answer is not no.",
        "The answer is Yes, not No.", "Options A and B: no.\nAnswer: Yes", "Let's see.\n```\nYes\n```",
        "So the answer is Yes.\n\nQ: Is it cold?", "The wrong answer is no.\nYes.", "I hope it is right. Answer: yes.",
    ],
)  # fmt: skip
def test_reads_the_word(text: str) -> None:
    assert read(text).key == "yes"


@pytest.mark.parametrize(
    ("text", "rule", "key"),
    [
        ("The argument is deductively valid.", VALID, "valid"),
        ("Therefore, the argument is invalid.", VALID, "invalid"),
        ("So, the argument is not valid.", VALID, "invalid"),
        ("Hence the argument isn't deductively valid.", VALID, "invalid"),
        ("The argument is not invalid.", VALID, "valid"),
        ("The answer is that the argument is not deductively valid.", VALID, "invalid"),
        ("A valid argument needs more.\nThis argument is **invalid**.", VALID, "invalid"),
        ("Invalid. A valid argument would say so.", VALID, "invalid"),
        ("- invalid", VALID, "invalid"),
        ("We can deduce it, so the argument is valid.", VALID, "valid"),
        ("the answer is True", TRUTH, "true"),
        ("not ( True ) and ( True ) = False and True = False", TRUTH, "false"),
        ("Z = not (True) = False.", TRUTH, "false"),
        ("The expression evaluates to True.", TRUTH, "true"),
        ("True and False = False\nSo the result is: False", TRUTH, "false"),
        ("The value is thus `False`.", TRUTH, "false"),
        ("not True is False. So the answer is False.", TRUTH, "false"),
        ("It is not incorrect to say so. Therefore, it is not a valid argument.", VALID, "invalid"),
        ("This argument is valid because it is sound. It is the first of many.", VALID, "valid"),
        ("The argument isn't valid, as we see here. Others do not matter.", VALID, "invalid"),
        ("So, the answer is True.\n\nA possible answer is False.\n\nWe go on.", TRUTH, "true"),
        (
            "It follows. To conclude, the argument is valid.\n\nAn invalid one would not do. We go on.",
            VALID,
            "valid",
        ),
        ("In conclusion, the argument is not valid.\nLet us see why it is.", VALID, "invalid"),
        ("The answer is True. The answer is False, which is not correct.", TRUTH, "true"),
        ('The answer is True.\nThe next statement is "So the answer is False."', TRUTH, "true"),
    ],
)
def test_reads_a_statement(text: str, rule: WordRule, key: str) -> None:
    assert read(text, rule).key == key


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("", "missing"), ("Maybe.", "missing"), ("No one can tell.", "missing"),
        ("There is no way to tell.", "missing"),
        ("The answer is that there is no way to tell.", "missing"), ("Yesterday we left.", "missing"),
        ("I do not know whether it is yes or no to begin with", "missing"), ("The answer is nothing.", "missing"),
        ("The answer is Yes or No.", "ambiguous"), ("Yes / No", "missing"), ("Answer: yes/no", "ambiguous"),
        ("Yes, it is.\nNo, it is not.", "ambiguous"), (r"\boxed{Yes or No}", "ambiguous"),
        ('The fifth statement is "So the answer is Yes."\n\nWe go on.', "missing"),
        ("The answer is yes, which is wrong. We go on.", "missing"),
        ("The wrong answer is yes", "missing"), ("No-one came.", "missing"), ("No problem is too hard.", "missing"),
    ],
)  # fmt: skip
def test_what_only_looks_like_an_answer(text: str, verdict: str) -> None:
    assert read(text) == Answer(verdict=verdict)


def test_a_text_that_was_cut() -> None:
    """What stands at its end may go on."""
    assert read("The answer is no", finish="length").verdict == "missing"
    assert read("Yes", finish="length").verdict == "missing"
    assert read("The answer is Yes. I am su", finish="length").key == "yes"
    assert read("Yes, it is.\nFor the steps ca", finish="length").key == "yes"
    assert read("A = not True = False and", TRUTH, finish="length").verdict == "missing"
    assert read("To conclude, it is valid.\nTo see th", VALID, finish="length").key == "valid"
    assert read("To conclude, it is valid", VALID, finish="length").verdict == "missing"


def test_more_than_two_words() -> None:
    rule = WordRule(words=["entailment", "neutral", "contradiction"])
    assert read("So the label is neutral.\nAnswer: Contradiction.", rule).key == "contradiction"
    assert read("The answer is not neutral.", rule).verdict == "missing", "it may be either of two"


def test_a_pattern_of_ones_own() -> None:
    rule = answer_rule({"kind": "word", "pattern": "^Label: (.*)$"})
    texts = ("The answer is no.\nLabel: Yes.", "The answer is no.\nLabel: perhaps", "The answer is no.")
    prompt = Prompt("p", text="?")
    answers = asyncio.run(rule.read([Sequence(prompt, text, finish="eos") for text in texts]))
    assert answers == [Answer("Yes.", "yes"), Answer(verdict="unparsable"), Answer(verdict="missing")]


@pytest.mark.parametrize("words", [["yes"], ["yes", "Yes"], ["yes", " "], []])
def test_words_are_checked(words: list[str]) -> None:
    with pytest.raises(InputError, match="two or more different words"):
        WordRule(words=words)


def test_a_long_text_takes_no_longer() -> None:
    for text in ("*" * 50_000, "the answer is " * 5_000, "is not " * 9_000, "Yes " * 9_000, "\n- " * 9_000):
        assert read(text).verdict in ("missing", "ambiguous", None)
