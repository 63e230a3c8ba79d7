"""Countdown: the solver against brute force, solutions that are played, expressions that cannot execute."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.errors import DataError, InputError
from metagen.scope import Scope
from metagen.sequence import Finish, Prompt, Sequence
from metagen.tasks.countdown import expressions, notation, problems
from metagen.tasks.countdown.game import (
    COUNTDOWN,
    RATIONALS,
    Move,
    Number,
    Rules,
    after,
    good_moves,
    moves,
    reachable,
    table,
)
from metagen.tasks.countdown.task import CountdownTask, Game24Task, solves
from metagen.tasks.countdown.verifier import Played
from metagen.tasks.split import Split
from metagen.testing import VerifierLaws

PROMPT = Prompt("p", text="Q:3 5 7 2=24\nS:\n", public={"numbers": [3, 5, 7, 2], "target": 24})
RIGHT = "7*3=21;2 5 21\n5-2=3;3 21\n21+3=24;24\n"
#: Allowed moves, and a wrong end.
DEAD = "7-5=2;2 2 3\n2*2=4;3 4\n4*3=12;12\n"


def said(text: str, finish: str = "eos") -> Sequence:
    return Sequence.of(PROMPT).extend(text, finish=finish)  # type: ignore[arg-type]


def values(numbers: tuple[Number, ...], rules: Rules) -> set[Number]:
    """All that can be made of all numbers, by splitting them in two in every way: another way than the solver's."""
    if len(numbers) == 1:
        return {numbers[0]}
    found: set[Number] = set()
    places = range(len(numbers))
    for size in range(1, len(numbers)):
        for some in itertools.combinations(places, size):
            left = values(tuple(numbers[i] for i in some), rules)
            right = values(tuple(numbers[i] for i in places if i not in some), rules)
            for a, b in itertools.product(left, right):
                results = (Move(a, op, b).result for op in "+-*/")
                found |= {one for one in results if one is not None and rules.allow(one)}
    return found


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 13), min_size=2, max_size=4), st.booleans())
def test_what_can_be_reached_is_what_brute_force_finds(numbers: list[int], integers: bool) -> None:
    rules = COUNTDOWN if integers else RATIONALS
    made = values(tuple(numbers), rules)
    for target in {*range(-3, 40), *list(made)[:20]}:
        assert reachable(table(numbers), target, rules) == (target in made)


def test_a_famous_game_of_24() -> None:
    """8 / (3 − 8/3) = 24 needs fractions."""
    assert reachable(table([3, 3, 8, 8]), 24, RATIONALS) and not reachable(table([3, 3, 8, 8]), 24)
    assert not reachable(table([1, 1, 1, 1]), 24, RATIONALS)


def test_moves_take_two_numbers_and_leave_one() -> None:
    here = table([7, 3, 3])
    for move in moves(here):
        left = after(here, move)
        assert left is not None and len(left) == 2 and move.result in left
    assert {str(m) for m in moves(table([6, 3]))} == {"6+3=9", "6-3=3", "6*3=18", "6/3=2"}
    assert {str(m) for m in moves(table([6, 4]), RATIONALS)} >= {"6/4=3/2", "4/6=2/3", "4-6=-2"}
    assert after(here, Move(3, "+", 3)) == (6, 7) and after(table([7, 3]), Move(3, "+", 3)) is None
    assert after(here, Move(3, "-", 3)) is None and after(here, Move(3, "/", 0)) is None
    assert after(table([999, 1]), Move(999, "+", 1)) is None and Move(1, "/", 0).result is None


def test_good_moves_are_those_that_leave_the_target_in_reach() -> None:
    good, every = good_moves(table([2, 3, 4]), 24)
    assert {str(m) for m in good} == {"3*2=6", "4*2=8", "4*3=12"} and len(every) > len(good)


# -- solutions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "steps", "complete"),
    [
        (RIGHT, (True, True, True), True),
        (RIGHT.rstrip(), (True, True, True), True),
        ("7*3=21;21 5 2\n", (True,), False),  # what is left may stand in any order
        ("7*3=22;2 5 22\n", (False,), False),
        ("7*3=21;2 5\n", (False,), False),
        ("7*4=28;2 5 28\n", (False,), False),
        ("7*3=21;2 5 21\n21*21=441;2 5\n", (True, False), False),
        ("7*3=21;2 5 21\nhello\n5-2=3;3 21\n", (True, False, False), False),
        (RIGHT + "24+1=25;25\n", (True, True, True, False), False),
        ("5/2=5/2;5/2 3 7\n", (False,), False),
        ("2-5=-3;-3 3 7\n", (False,), False),
        ("7/0=1;1\n", (False,), False),
        ("٣+5=8;2 7 8\n", (False,), False),
        ("", (), False),
    ],
)  # fmt: skip
def test_solutions_are_played(text: str, steps: tuple[bool, ...], complete: bool) -> None:
    played = notation.replay(table([3, 5, 7, 2]), text)
    assert (played.steps, played.complete) == (steps, complete)


def test_a_step_that_leads_nowhere_is_wrong_though_it_is_allowed() -> None:
    numbers, target = notation.read_prompt(PROMPT.text or "")
    assert notation.check(numbers, target, RIGHT, finished=True) == [True, True, True]
    found = notation.check(numbers, target, DEAD, finished=True)
    assert notation.replay(numbers, DEAD).steps == (True, True, True) and found[-1] is False
    assert found == sorted(found, reverse=True)
    # A step that was cut off is not judged.
    assert notation.check(numbers, target, RIGHT[:-3], finished=False) == [True, True]


def test_only_a_whole_right_solution_is_graded_right() -> None:
    async def grades(*texts: str) -> list[float]:
        problem = next(CountdownTask(per_level=1, levels=[2]).problems())
        return await CountdownTask().grade(problem, [said(text) for text in texts])

    wrong = ["", RIGHT.replace("24;24", "25;25"), "7*3=21;2 5 21\n", "24", "24;24\n", "12*2"]
    assert asyncio.run(grades(RIGHT, *wrong)) == [1.0] + [0.0] * len(wrong)


def test_answers_are_expressions_and_the_order_of_steps_is_nothing() -> None:
    other = "3*7=21;5 21 2\n5-2=3;3 21\n3+21=24;24\n"
    rule = CountdownTask().answer
    first, second, wrong, missing, dead = asyncio.run(
        rule.read(
            [
                said(RIGHT),
                said(other),
                said("7*3=22;2 5 22\n"),
                said(""),
                said("7-5=2;2 2 3\n2*2=4;3 4\n4*3=12;12\n"),
            ]
        )
    )
    assert first.key == second.key == "((3*7)+5-2)"
    assert (wrong.key, wrong.verdict, missing.verdict) == (None, "unparsable", "missing")
    assert dead.key is not None and dead.key != first.key  # allowed, and an answer, though a wrong one
    assert asyncio.run(rule.key("3*7+(5-2)")) == first.key and asyncio.run(rule.key("x")) is None


@pytest.mark.parametrize(
    "same",
    [
        ["(2+3)+4", "(3+4)+2", "4+(3+2)"],
        ["9-(5-2)", "(9+2)-5", "(9-5)+2", "2+(9-5)"],
        ["(8/4)*6", "(8*6)/4", "6/(4/8)"],
        ["(2*3)+(4*5)", "(5*4)+(3*2)"],
    ],
)
def test_chains_of_one_kind_are_one_answer(same: list[str]) -> None:
    rule = Game24Task("none.jsonl").answer
    keys = {asyncio.run(rule.key(text)) for text in same}
    assert len(keys) == 1 and None not in keys
    assert asyncio.run(rule.key("9-5-2")) != asyncio.run(rule.key("9-(5-2)"))


def test_what_was_cut_off_is_not_right_though_it_reads_well() -> None:
    assert solves(said(RIGHT)) and not solves(said(RIGHT, "length"))


# -- problems ------------------------------------------------------------------------------------------


def test_problems_follow_from_a_seed_and_keep_their_levels_and_splits() -> None:
    task = CountdownTask("validation", per_level=6)
    asked = list(task.problems())
    assert [p.level for p in asked[:4]] == [1, 2, 3, 4] and len({p.id for p in asked}) == 24
    assert [p.prompt for p in asked] == [
        p.prompt for p in CountdownTask("validation", per_level=6).problems()
    ]
    other = CountdownTask("validation", per_level=6, seed=1)
    assert {p.prompt.text for p in asked} != {p.prompt.text for p in other.problems()}
    for one in asked:
        problem = problems.Problem(tuple(one.prompt.public["numbers"]), one.prompt.public["target"])
        assert problems.level_of(problem) == one.level and problems.split_of(problem) is Split.VALIDATION
        assert notation.read_prompt(one.prompt.text or "") == (problem.table, problem.target)
        for seed in range(3):
            text = problems.solution(problem, random.Random(seed))
            assert all(task.check_steps(one, text, finished=True)) and solves(said_of(one.prompt, text))


def said_of(prompt: Prompt, text: str) -> Sequence:
    return Sequence.of(prompt).extend(text, finish="eos")


def test_the_splits_have_no_problem_in_common_whatever_the_order_of_numbers() -> None:
    sets = [
        {(tuple(sorted(p.numbers)), p.target) for p in problems.problems(split, 2, 40)} for split in Split
    ]
    assert not sets[0] & sets[1] and not sets[0] & sets[2] and not sets[1] & sets[2]
    shuffled = problems.Problem((2, 7, 5, 3), 24), problems.Problem((3, 5, 7, 2), 24)
    assert problems.split_of(shuffled[0]) is problems.split_of(shuffled[1])


def test_what_is_out_of_range_is_refused() -> None:
    for wrong in ({"split": "tset"}, {"levels": [5]}, {"levels": []}, {"per_level": 0}, {"limit": 0}):
        with pytest.raises(InputError, match="expected"):
            CountdownTask(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not a prompt"):
        notation.read_prompt("Q:1 2\n")
    with pytest.raises(ValueError, match="cannot make"):
        problems.solution(problems.Problem((1, 1), 99), random.Random(0))


# -- expressions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(6-4)*(5+7)", 24),
        ("(10 − 4) × (6 ÷ 1)", 36),
        ("4*6 = 24", 24),
        ("[1+2]*{3+4}", 21),
        ("8/(3-8/3)", 24),
    ],
)
def test_expressions_are_read_as_moves(text: str, value: int) -> None:
    played = expressions.read(text)
    assert played is not None and played[-1].result == value


@pytest.mark.parametrize(
    "text",
    ["", "none", "__import__('os')", "2**9**9", "9//2", "1.5*2", "-3+5", "1/0", "(1+2", "f(3)", "1+" * 150 + "1",
     "12345678901+1", "007+1", "1 2+3", "(" * 90 + "1" + ")" * 90 + "+", "١+١"],
)  # fmt: skip
def test_nothing_else_is_read(text: str) -> None:
    assert expressions.read(text) is None


def test_game_of_24_is_graded_by_playing(tmp_path: Path) -> None:
    path = tmp_path / "puzzles.jsonl"
    rows = [
        {"id": "g/1", "puzzle": "4 5 6 10"},
        {"numbers": [3, 3, 8, 8]},
        {"puzzle": "1 2 3 4", "target": 10},
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
    task = Game24Task(path)
    first, second, third = task.problems()
    assert (first.id, second.id) == ("g/1", "game24/1") and "make 10" in (third.prompt.text or "")

    def grades(problem: object, *texts: str) -> list[float]:
        sequences = [said_of(problem.prompt, text) for text in texts]  # type: ignore[attr-defined]
        return asyncio.run(task.grade(problem, sequences))  # type: ignore[arg-type]

    wrong = ("(6 - 4) * 5", "(10-4)*(6-5)+4", "4*6", "none", "")
    assert grades(first, "(10-6)*5+4", "Think.\nAnswer: (10-6)*5+4 = 24", *wrong) == [1.0, 1.0, *[0.0] * 5]
    assert grades(second, "8/(3-8/3)", "8*3") == [1.0, 0.0] and grades(third, "1+2+3+4") == [1.0]
    path.write_text('{"puzzle": "4 x"}', "utf-8")
    with pytest.raises(DataError, match=r"puzzles.jsonl:1: no puzzle"):
        list(task.problems())


@settings(max_examples=200)
@given(st.text(alphabet="0123456789+-*/(); \n=x", max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    played = notation.replay(table([3, 5, 7, 2]), text)
    assert len(played.steps) >= len(played.moves)
    assert solves(said(text)) in (True, False)
    result = expressions.read(text)
    assert result is None or all(isinstance(move.result, int | Fraction) for move in result)


# -- playing as a verifier -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "finish", "value"),
    [
        (RIGHT, "eos", 1.0),
        (RIGHT, None, 1.0),
        (RIGHT, "length", 0.0),
        (DEAD, "eos", 0.0),
        (DEAD, None, 0.0),  # one number is left, and is not the target
        ("7-5=2;2 2 3\n2*2=4;3 4\n", None, 1.0),  # a dead end, but by the rules
        ("7-5=2;2 2 3\n2*2=4;3 4\n", "eos", 0.0),
        ("7-5=3;2 3 3\n", None, 0.0),
        ("7-5=2;2 2 3\n2*", None, 1.0),
        ("", None, 1.0),
        ("", "eos", 0.0),
    ],
)
def test_playing_tells_what_breaks_the_rules_or_ends_elsewhere(
    text: str, finish: Finish | None, value: float
) -> None:
    sequence = Sequence.of(PROMPT).extend(text, finish=finish)
    (score,) = asyncio.run(Played().score([sequence], scope=Scope.root("p")))
    assert score.value == value


class TestPlayed(VerifierLaws):
    prompt = PROMPT
    texts = (RIGHT, DEAD, "7*3=22;2 5 22\n")

    def make(self) -> Played:
        return Played()
