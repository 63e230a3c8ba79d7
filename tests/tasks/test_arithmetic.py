from __future__ import annotations

import hashlib
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.tasks import arithmetic
from metagen.tasks.arithmetic import Definition, Form, Problem, Split, check, drawing, problems
from metagen.verifiers.numbers import parse

PROBLEM = Problem(
    (Definition("a", "12", "+", "7"), Definition("b", "a", "/", "2"), Definition("c", "b", "-", "a")), "c"
)
SOLUTION = "a=12+7=19\nb=19/2=9.5\nc=9.5-19=-19/2\nA:-9.5\n"


def some_problems(count: int = 60) -> list[Problem]:
    return [p for level in arithmetic.LEVELS for p in problems(Split.TRAIN, level, count, seed=11)]


@pytest.mark.parametrize("form", Form)
def test_reference_solutions_pass_in_all_their_forms(form: Form) -> None:
    rng = random.Random(3)
    written = set()
    for problem in some_problems(250):
        for chance in (None, rng, rng):
            text = arithmetic.reference_solution(problem, form, chance)
            verdict = check(problem, text, form)
            assert all(verdict.steps) and verdict.correct, (str(problem), text)
            assert len(verdict.steps) == (len(problem.definitions) + 1 if form is Form.STEPS else 1)
            written.add(re.sub("[0-9]+", "1", verdict.answer or ""))
    assert {"1", "-1", "1/1", "-1/1", "1.1", "1%"} <= written


def test_a_changed_number_is_caught_where_it_stands() -> None:
    """Any change of a digit that changes the number's value makes its step wrong, and all that follow."""
    rng = random.Random(5)
    for problem in some_problems(100):
        text = arithmetic.reference_solution(problem, rng=rng)
        place = rng.choice(list(re.finditer(r"[0-9]+(\.[0-9]+)?%?", text)))
        number = place[0].replace(place[0][0], str((int(place[0][0]) + rng.randint(1, 9)) % 10), 1)
        if parse(number) == parse(place[0]):
            continue
        broken = text[: place.start()] + number + text[place.end() :]
        wrong = text[: place.start()].count("\n")
        verdict = check(problem, broken)
        assert verdict.steps == tuple(i < wrong for i in range(len(verdict.steps))), (str(problem), broken)


@pytest.mark.parametrize(
    ("text", "steps", "answer", "correct"),
    [
        (SOLUTION, (True,) * 4, "-9.5", True),
        ("a=7+12=19\nb=a/2=38/4\n", (True, True), None, False),  # swapped; by name; unreduced; partial
        (
            "a=12+7=19\nc=9.5-19=-9.5\nA:-9.5\n",
            (True, False, False),
            "-9.5",
            True,
        ),  # c before b, yet a lucky answer
        ("a=12+7=18\nb=18/2=9\nc=9-18=-9\nA:-9\n", (False,) * 4, "-9", False),  # carried on
        ("a=12+7=19\nb=2/19=9.5\n", (True, False), None, False),  # division does not commute
        ("a=12+7=19\na=12+7=19\n", (True, True), None, False),  # said twice, still true
        ("a=19\n", (False,), None, False),  # no working
        ("d=12+7=19\n", (False,), None, False),  # no such quantity
        ("a=12*7=19\n", (False,), None, False),  # another operation
        ("A:-9.5\n", (False,), "-9.5", True),  # nothing derived
        ("a=12+7=19\n\n", (True, False), None, False),
        ("", (), None, False),
        ("a=12+7=19\nb=19/2=9", (True, False), None, False),  # cut off
    ],
)
def test_checker(text: str, steps: tuple[bool, ...], answer: str | None, correct: bool) -> None:
    assert check(PROBLEM, text) == arithmetic.Verdict(steps, answer, correct)


def test_nothing_follows_the_answer() -> None:
    assert check(PROBLEM, SOLUTION + "a=12+7=19\n").steps[-1] is False
    assert check(PROBLEM, "-19/2\n-19/2\n", Form.DIRECT).steps == (True, False)


def test_an_unfinished_answer_does_not_count() -> None:
    cut = SOLUTION.removesuffix(".5\n")
    assert arithmetic.extract_answer(cut) == "-9"
    assert arithmetic.extract_answer(cut, finished=False) is None
    assert arithmetic.extract_answer("-9", Form.DIRECT, finished=False) is None
    assert arithmetic.extract_answer(SOLUTION, finished=False) == "-9.5"


@given(st.text(alphabet="abcA:=+-*/()0123456789.%\n\r\u2028", max_size=60))
def test_any_text_can_be_checked(text: str) -> None:
    verdict = check(PROBLEM, text)
    assert "".join(arithmetic.steps_of(text)) == text
    assert len(verdict.steps) == len(arithmetic.steps_of(text))
    assert list(verdict.steps) == sorted(verdict.steps, reverse=True)


def test_splits_are_disjoint_and_seeds_decide() -> None:
    keys = {
        split: {
            arithmetic.canonical(p)
            for level in arithmetic.LEVELS
            for p in problems(split, level, 150, seed=seed)
        }
        for seed, split in enumerate(Split)
    }
    assert not keys[Split.TRAIN] & keys[Split.VALIDATION]
    assert not keys[Split.TRAIN] & keys[Split.TEST]
    assert not keys[Split.VALIDATION] & keys[Split.TEST]
    for split in Split:
        assert all(arithmetic.split_of(p) is split for p in problems(split, 4, 50))
    assert problems(Split.TEST, 5, 40, seed=1) == problems(Split.TEST, 5, 60, seed=1)[:40]
    assert problems(Split.TEST, 5, 40, seed=1) != problems(Split.TEST, 5, 40, seed=2)


def test_the_problems_of_a_seed_stay_what_they_are() -> None:
    """Runs name them, models were trained and measured on them."""
    drawn = [p for split in Split for level in arithmetic.LEVELS for p in problems(split, level, 20, seed=7)]
    written = "\n".join(arithmetic.prompt(p) + arithmetic.reference_solution(p) for p in drawn)
    assert hashlib.sha256(written.encode()).hexdigest()[:16] == "07c6030ddae85acc"


def test_the_split_ignores_names_and_order() -> None:
    renamed = Problem(
        (Definition("h", "f", "-", "g"), Definition("g", "12", "+", "7"), Definition("f", "g", "/", "2")), "h"
    )
    assert arithmetic.canonical(renamed) == arithmetic.canonical(PROBLEM)


@pytest.mark.parametrize("form", Form)
def test_prompts_read_back(form: Form) -> None:
    for problem in some_problems():
        read, read_form = arithmetic.read_prompt(arithmetic.prompt(problem, form))
        assert (read.definitions, read.target, read_form) == (problem.definitions, problem.target, form)


@pytest.mark.parametrize(
    "text", ["", "Q:a=1+2;a?\n", "Q:a=1;a?\nS:\n", "Q:a=1+2;a?\nS:\nx", "Q:A=1+2;A?\nS:\n"]
)
def test_other_prompts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a prompt"):
        arithmetic.read_prompt(text)


def test_levels_differ_and_unknown_ones_are_refused() -> None:
    sizes = [sum(len(p.definitions) for p in problems(Split.TRAIN, level, 50)) for level in arithmetic.LEVELS]
    assert sizes == sorted(set(sizes))
    with pytest.raises(ValueError, match="level"):
        problems(Split.TRAIN, 9, 1)


def test_harder_levels_are_longer_or_in_any_order() -> None:
    longest = {level: max(len(p.definitions) for p in problems(Split.TEST, level, 30)) for level in (6, 7)}
    assert longest == {6: 7, 7: 8}
    shown = problems(Split.TEST, 8, 60)
    assert sum(arithmetic.in_order(p) != list(p.definitions) for p in shown) > 40
    assert all(
        check(p, arithmetic.reference_solution(p)).correct
        for level in arithmetic.HARDER
        for p in problems(Split.TEST, level, 40)
    )


def test_more_problems_than_there_are_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "LARGEST_INTEGER", 6)
    monkeypatch.setattr(drawing, "_IN_VAIN", 50)
    with pytest.raises(ValueError, match=r"level 1 has hardly more than \d+ different validation problems"):
        problems(Split.VALIDATION, 1, 100_000)


def test_circles_are_refused() -> None:
    with pytest.raises(ValueError, match="circle"):
        arithmetic.in_order(Problem((Definition("a", "b", "+", "1"), Definition("b", "a", "+", "1")), "a"))
