"""Choice letters, in all the ways that models write them, and the texts that only look like one."""

from __future__ import annotations

import asyncio

import pytest

from metagen.errors import InputError
from metagen.sequence import Finish, Prompt, Sequence
from metagen.verifiers.base import Answer
from metagen.verifiers.choice import ChoiceRule


def read(text: str, rule: ChoiceRule | None = None, finish: Finish | None = "eos") -> Answer:
    (answer,) = asyncio.run(
        (rule or ChoiceRule()).read([Sequence(Prompt("p", text="?"), text, finish=finish)])
    )
    return answer


@pytest.mark.parametrize(
    "text",
    [
        "B", "b", " B \n", "(B)", "(b)", "[B]", "B.", "B)", "b)", "B:", "**B**", "**B.**", "B.**", "*B*", "__B__",
        "`B`", '"B"', "B. Paris", "B) Paris", "(B) Paris", "B: Paris", "**B** Paris", "**B. Paris**", "B - Paris",
        "B – Paris", "B\nParis", "B)4<2<6", "$B$", r"\(B\)", r"$\text{B}$", r"\text{B}", r"\mathrm{(B)}",
        r"\boxed{B}", r"\boxed{\text{B}}", r"\boxed{\textbf{(B)}}", r"$\boxed{\text{(B)}}$",
        r"\boxed{\text{(B) } 42}", r"\boxed{\text{B. Paris}}", r"\boxed B", r"\fbox{B}", r"\boxed{b}", "Answer: B",
        "answer: b", "ANSWER: B", "Answer: (B)", "**Answer:** B", "**Answer: B**", "Answer: **B**", "Answer - B",
        "Answer:B", "Answer: B. Paris", "Answer: $\\text{B}$", "A: B", "Final Answer: B",
        "Final answer: \\boxed{B}", "#### B", "<answer>B</answer>", "The answer is B", "The answer is B.",
        "the answer is b.", "The answer is (b)", "So the answer is **B**.", "The answer is: B",
        "The answer is option B.", "The correct answer is B) Paris.", "The correct option is B",
        "the correct choice is (B).", "The best answer is B because it fits.", "The answer is B, since it fits.",
        "The answer to the question is B.", "ThefinalanswerisB", "The correct answer is therefore B.",
        "The answer must be B.", "The answer would be B", "My answer: B", "The answer is letter B.",
        "The correct answer is Paris (B).", "The answer is Paris, which is option B.",
        "The answer is choice B: Paris", "Option B", "option (B)", "Choice B.", "Letter B", "Option B is correct.",
        "B is correct.", "(B) is the right answer.", "I think that B is the best choice.", "I choose B.",
        "I would go with option B.", "We pick (B).", "Therefore, B.", "Thus, the answer is B.",
        "Option B is the correct one, as A is too small.", "Options A and C are wrong.\nAnswer: B",
        "A is wrong.\n\nB", "Paris is the capital.\n**B**",
        "First A seems right. The answer is A. Wait. The answer is B.", "<think>The answer is A.</think>\nB",
        "Reasoning …\n(B) Paris", "B. Paris\n\nExplanation: London (A) is too large.", "The answer is B!",
        "Antwort: B", "La respuesta correcta es B.", "La réponse est B.", "答案是B", "答案：B", "正确答案是 B。",
        "Ответ: B",
        "option two", "Option 2", "The second option", "the 2nd choice", "The answer is option two.",
        "The correct answer is the second option.", "Option Bravo", "The answer is option Bravo.",
        r"\boxed{\text{option B}}", r"\boxed{2nd\ option}", "Answer: B\n\nQ: What else?", "Ans: B", "ans = b",
        "B is the answer.", "(B) is my final answer.", "Hence, option B.", "The answer is B, not A.",
        "The answer is (B) because (A) is too small, not (C).", "**Answer: B. The mitochondria**",
        "Based on the above, option B is the most accurate.", "The answer is:\n\n**B) 42**",
        "B) 12 m/s\n\nBecause A) is too slow.",
    ],
)  # fmt: skip
def test_reads_the_letter(text: str) -> None:
    assert read(text).key == "B"


@pytest.mark.parametrize("text", [
        "A", "a", "(A)", "a)", "A.", "The answer is A.", "The answer is a.", "Answer: A", "Answer: a",
        "The answer is A because it fits.", "Answer: A (Paris)", "Answer: A. Paris", "**A** Paris",
        "A is correct.", "A) a cat", r"\boxed{A}", "The answer is (a) Paris", "Option A", "Alpha", "I choose A.",
        "The first option",
    ])  # fmt: skip
def test_a_is_a_letter_too(text: str) -> None:
    expected = "A" if text != "Alpha" else None
    assert read(text).key == expected


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "42", "Paris", "A cat", "a cat", "A cat sat on the mat.", "The answer is a mixture of both.",
        "The answer is A mixture.", "Answer: A mixture of gases", "The answer is a for loop.",
        "The answer is a (small) dog that barks.", "The answer is a-b.", "Answer: Bananas", "Because", "A: Paris",
        "The answer is not B.", "B is not correct.", "B)isnotcorrectbasedonthelogic", "B) is not correct",
        "D)doesnotfitthecriteria", "The wrong answer is B.", "The incorrect option is B.", "Is the answer B?",
        "B?", "E. coli", "The answer is E. coli.", "Answer: C. elegans", "C++", "The answer is C++.", "C#",
        "The answer is B-cells.", "The answer is vitamin C.", "Answer: hepatitis B", "D-glucose", "B12",
        "The answer is B12", "I", "I don't know", "F", "Answer: F", "None of the above",
        "Consider option B. It may be right.", "We look at (B) first.",
        "If B is correct, then C is too small, so what?", "[invalidanswer]", "As an AI I cannot answer.",
        "x = B + 1", "No answer", "The answer is 2", "second", "Bravo!", "Answer: Delta",
        "The answer depends on B.", "The answer is C major.", "Elephants", "be", "The answer isn't B.",
        "A student's answer is wrong.", "Plan B", "Type B", "Option 7", "the tenth option", "This means: B",
        "Banks: B", "The answer to be C would need more.", "Which plans B and others made is not the answer.",
        "Group B is the answer to nothing?", "The answer would be (B) Paris, which is not correct.",
        'The last step is "So the answer is B."',
    ],
)  # fmt: skip
def test_never_guesses(text: str) -> None:
    answer = read(text)
    assert (answer.key, answer.verdict) == (None, "missing")


@pytest.mark.parametrize(
    "text",
    [
        "A and B", "A, C", "A/B", "Answer: A and C", "Answer: B or C", "The answer is B or C.", "(A) and (B)",
        r"\boxed{A, B}", r"\boxed{A} and \boxed{C}", "The answer is A, B and D.", "Both A and C are correct.",
        "A. one\nB. two\nC. three\nD. four", "Option A or option B", "A is correct. B is correct.",
        "Answer: A & B", "The answer is either A or B.",
        'The answer is B.\nSo the answer is both "yes" and "no".',
    ],
)  # fmt: skip
def test_several_letters_are_no_answer(text: str) -> None:
    answer = read(text)
    assert (answer.key, answer.verdict) == (None, "ambiguous")


def test_letters_are_those_of_the_task() -> None:
    assert read("Answer: J", ChoiceRule(letters="ABCDEFGHIJ")).key == "J"
    assert read("J") == Answer(verdict="missing")
    assert read("Answer: 3", ChoiceRule(letters="1234")).key == "3"
    assert read("option two", ChoiceRule(letters="1234")).key == "2"
    assert read("Answer: E", ChoiceRule(letters="ABCD")).key is None
    assert read("y", ChoiceRule(letters="YN")).key == "Y"
    pronoun = ChoiceRule(letters="ABCDEFGHI")
    assert read("The answer is I.", pronoun).key == "I" and read("Answer: I think so", pronoun).key is None


@pytest.mark.parametrize("letters", ["", "A", "AB-", "ABA", "Aa", "A B", "ÄB", ["yes", "no"], 5])
def test_letters_that_cannot_be_told_apart_are_refused(letters: str) -> None:
    with pytest.raises(InputError, match="expected two or more different letters or digits, such as 'ABCDE'"):
        ChoiceRule(letters=letters)


def test_a_pattern_says_where_the_letter_stands() -> None:
    rule = ChoiceRule(r"^Choice=(.*)$")
    assert read("Choice=(b)", rule) == Answer("(b)", "B")
    assert read("Answer: B", rule).verdict == "missing"
    assert read("Choice=none", rule).verdict == "unparsable"
    assert read("Choice=A or B", rule).verdict == "ambiguous"


def test_what_reaches_the_end_of_a_cut_text_does_not_count() -> None:
    assert read("The answer is B", finish="length").key is None
    assert read("Answer: B\nfor", finish="length").key == "B"
    assert read("B", finish="length").key is None
    assert read("The answer is A.\nSo the answer is B", finish="length").key == "A"


def test_an_option_that_a_cut_text_went_through_is_no_answer() -> None:
    text = "Adjectives have an order.\nOption (B): a green new chair does not keep it.\nOption (C): a new"
    assert read(text, finish="length").key is None
    assert read(f"(B) Paris\n{text}", finish="length").key == "B"


def test_keys_of_references() -> None:
    rule = ChoiceRule()
    keys = [asyncio.run(rule.key(answer)) for answer in ("B", "b", "(B)", "B. Paris", "Paris", "2", "A or B")]
    assert keys == ["B"] * 4 + [None] * 3


def test_options_are_part_of_the_name() -> None:
    rules = [ChoiceRule(), ChoiceRule("(.)"), ChoiceRule(letters="ABCD")]
    assert len({rule.fingerprint for rule in rules}) == 3


def test_no_text_takes_long() -> None:
    hostile = [
        "(" * 20_000,
        "answer is " * 5_000,
        "the " * 10_000,
        "A and " * 8_000,
        "**" * 20_000,
        "\\boxed{" * 5_000,
        "B, " * 10_000,
    ]
    for text in hostile:  # a backtracking search would not end here
        assert read(text).key is None
