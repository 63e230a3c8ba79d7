"""Problems of program synthesis: seeds, spaces, and what their examples promise."""

from __future__ import annotations

import random

import pytest

from metagen.tasks.programs import grammar
from metagen.tasks.programs.cases import Case, read_prompt
from metagen.tasks.programs.grammar import Program
from metagen.tasks.programs.interpreter import outputs
from metagen.tasks.programs.problems import (
    DIFFICULTY,
    HIDDEN,
    LEVELS,
    PUBLIC,
    UNLABELLED,
    Problem,
    agrees,
    behaviour,
    draw,
    problems,
    split_of,
)
from metagen.tasks.programs.repair import WRONG, Failure, failure_of, repair_prompt
from metagen.tasks.programs.trace import add_trace, strip_comments
from metagen.tasks.split import Split

VALIDATION = [p for level in LEVELS for p in problems(Split.VALIDATION, level, 12)]


def test_a_longer_list_begins_with_the_shorter_one() -> None:
    assert problems(Split.TEST, 2, 6)[:3] == problems(Split.TEST, 2, 3)
    assert problems(Split.TEST, 2, 3) != problems(Split.TEST, 2, 3, seed=1)


def test_no_function_is_in_two_spaces() -> None:
    """Nor twice in one list, however its program is written."""
    found = {split: {behaviour(p.program) for p in problems(split, 3, 40)} for split in Split}
    assert all(len(names) == 40 for names in found.values())
    assert not found[Split.TRAIN] & found[Split.TEST]
    assert not found[Split.TRAIN] & found[Split.VALIDATION]
    assert not found[Split.TEST] & found[Split.VALIDATION]
    once, twice = Program(("[a+2 for a in x]",)), Program(("[a+1 for a in x]", "[a+1 for a in x]"))
    assert behaviour(once) == behaviour(twice)


def test_single_operations_are_divided_by_their_examples() -> None:
    """What one operation does is in all spaces, no function twice in one of them, and no problem in two."""
    found = {split: problems(split, 1, 40) for split in Split}
    does = {split: {behaviour(p.program) for p in each} for split, each in found.items()}
    assert all(len(names) == 40 for names in does.values())
    assert does[Split.TRAIN] & does[Split.VALIDATION] and does[Split.TEST] & does[Split.VALIDATION]
    for split, each in found.items():
        assert {split_of(p.program, p.public) for p in each} == {split}
    prompts = [p.prompt for each in found.values() for p in each]
    assert len(set(prompts)) == len(prompts)


def test_every_level_has_enough_problems() -> None:
    for level in LEVELS:
        assert len(problems(Split.TEST, level, 75)) == 75


@pytest.mark.parametrize("problem", VALIDATION, ids=lambda p: p.source)
def test_a_problem_keeps_its_promises(problem: Problem) -> None:
    assert (len(problem.public), len(problem.hidden), len(problem.unlabelled)) == (PUBLIC, HIDDEN, UNLABELLED)
    inputs = [c.x for c in (*problem.public, *problem.hidden)] + list(problem.unlabelled)
    assert len(set(inputs)) == len(inputs)
    assert split_of(problem.program, problem.public) is Split.VALIDATION
    length, easy = DIFFICULTY[problem.level]
    assert len(problem.program.operations) == length
    assert grammar.easy(problem.program) is easy
    got = outputs(problem.source, "f", [c.plain[0] for c in (*problem.public, *problem.hidden)])
    assert all(o.equals(c.plain[1]) for o, c in zip(got, (*problem.public, *problem.hidden), strict=True))
    assert read_prompt(problem.prompt) == problem.public
    assert outputs(problem.solution, "f", [c.plain[0] for c in problem.public]) == got[:PUBLIC]
    assert strip_comments(problem.solution) == problem.source
    # What similar programs do elsewhere, the examples rule out.
    for rival in (
        *grammar.single(),
        *grammar.without_one(problem.program),
        *grammar.siblings(problem.program),
    ):
        assert agrees(rival, problem.hidden) or not agrees(rival, problem.public)
    assert not any(agrees(p, problem.public) for p in grammar.without_one(problem.program))


def test_training_problems_come_from_their_space() -> None:
    rng = random.Random(0)
    drawn = [draw(rng, length) for length in (1, 2, 3, 4, 5) for _ in range(10)]
    assert {split_of(p.program, p.public) for p in drawn} == {Split.TRAIN}
    assert all(agrees(p.program, p.public) and not p.hidden for p in drawn)


@pytest.mark.parametrize("level", [0, 7, -1])
def test_an_unknown_level_is_refused(level: int) -> None:
    with pytest.raises(ValueError, match=f"not {level}"):
        problems(Split.TEST, level, 1)


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(ValueError, match="not -1"):
        problems(Split.TEST, 1, -1)


def test_an_operation_that_is_not_of_the_grammar_is_never_run() -> None:
    with pytest.raises(KeyError):
        Program(("__import__('os').getcwd()",))([1])


@pytest.mark.parametrize("text", ["", "3 1 > 1", " 3 1 >1", " 3 1", " a > 1", " 3 = 1 2"])
def test_other_prompts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a prompt"):
        read_prompt(text)


def test_prompts_are_written_as_documented() -> None:
    cases = (Case((3, -1), (-1, 3)), Case((), ()), Case((4,), 4))
    problem = Problem(Program(("sorted(x)",)), cases, (), (), 0)
    assert problem.prompt == " 3 -1 > -1 3\n >\n 4 = 4\n"
    assert read_prompt(problem.prompt) == cases


def test_a_solution_shows_how_far_the_examples_have_come() -> None:
    program = Program(("[a for a in x if a>4]", "sorted(x)", "sum(x)"))
    cases = (Case((7, 1, 5), 12), Case((3,), 0))
    assert add_trace(program, cases) == (
        "def f(x):\n"
        " x=[a for a in x if a>4] # 7 5 = 12 ; = 0\n"
        " x=sorted(x) # 5 7 = 12 ; = 0\n"
        " return sum(x)\n"
    )


def test_after_each_line_the_rest_of_the_program_is_a_problem_of_the_same_kind() -> None:
    """Each comment reads as a prompt, which the lines below it solve."""
    for problem in VALIDATION:
        lines = problem.solution.splitlines()[1:]
        for done, line in enumerate(lines[:-1], 1):
            cases = read_prompt("".join(f"{case}\n" for case in line.split(" #")[1].split(" ;")))
            assert agrees(Program(problem.program.operations[done:]), cases)


CASES = (Case((3, 1), (1, 3)), Case((5, 4), (4, 5)))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("return x", "# 3 1 > 1 3 not > 3 1\n"),
        ("return len(x)-1", "# 3 1 > 1 3 not = 1\n"),
        ("return [1,3]", "# 5 4 > 4 5 not > 1 3\n"),
        ("return x[2]", "# 3 1 > 1 3 not IndexError\n"),
        ("x=x", "# 3 1 > 1 3 not None\n"),
        ("return [x]", "# 3 1 > 1 3 not [[3, 1]]\n"),
        ("return (", "# 3 1 > 1 3 not SyntaxError\n"),
    ],
)
def test_a_corrector_is_told_the_first_case_that_fails(line: str, words: str) -> None:
    source = f"def f(x):\n {line}\n"
    failed = failure_of(source, CASES)
    assert failed is not None and str(failed) == words
    assert repair_prompt(" 3 1 > 1 3\n", source, failed) == f" 3 1 > 1 3\n{source}{words}"


def test_a_right_program_has_no_failure() -> None:
    assert failure_of("def f(x):\n return sorted(x)\n", CASES) is None


def test_a_corrector_is_not_told_the_comments_of_a_program() -> None:
    shown = "def f(x):\n x=x[1:] # 1 > 1 3 ; 4 > 4 5\n return x\n"
    plain = "def f(x):\n x=x[1:]\n return x\n"
    failed = failure_of(shown, CASES)
    assert failed == failure_of(plain, CASES)
    assert repair_prompt("", shown, failed) == repair_prompt("", plain, failed)


def test_what_execution_has_shown_can_be_withheld() -> None:
    assert repair_prompt(" 3 1 > 1 3\n", "def f(x):\n return x", None).endswith(f"return x\n{WRONG}")
    assert isinstance(failure_of("def f(x):\n return x", CASES), Failure)
