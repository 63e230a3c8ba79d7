"""Solutions of a problem that a judge is to tell apart, and the value of each of their lines.

Of the solver's own solutions there are some; others are written here: the right one, the right one with a result that
is false, and solutions that are true equations between numbers of the problem, and not its solution.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from data import OPERATORS, work_out

from metagen.verifiers.equations import check_equations

UNREAD = -1.0
#: Solutions of a row; of these the solver's at most, right and wrong.
TOGETHER, SAMPLED_RIGHT, SAMPLED_WRONG = 6, 2, 3
#: How often each operation is written by mistake.
MISTAKES = {"+": 0.35, "-": 0.35, "*": 0.15, "/": 0.15}
TRIES = 200
ANSWER = re.compile(r"The answer is (-?\d[\d,]*(?:\.\d+)?)\.?$")
STEP = re.compile(r"(\d+(?:\.\d+)?) [-+*/] (\d+(?:\.\d+)?) = (\d+(?:\.\d+)?)")

Problem = dict[str, Any]


def is_right(solution: str, reference: str) -> bool:
    found = ANSWER.search(solution.strip())
    return found is not None and number(found[1]) == number(reference)


def number(text: str) -> Fraction:
    return Fraction(text.replace(",", ""))


def values_of(problem: Problem, solution: str) -> list[float]:
    """For each line: 1 if it is right, 0 if it is wrong, `UNREAD` if that is not known.

    The last line is right if its answer is. A line before it is wrong if an equation up to it is false, and right if
    the solution is, or if the answer can be had from its result: with one operation more where the published equation
    has one more, with none where it has none. A right answer behind a false equation is luck, and tells nothing.
    """
    lines = solution.splitlines()
    holds = [all(check_equations(line)) for line in lines]
    right = is_right(solution, problem["answer"])
    if right:
        return [1.0 if all(holds) else UNREAD] * len(lines)
    operations = sum(token in OPERATORS for token in problem["equation"].split())
    values: list[float] = []
    for i, line in enumerate(lines[:-1]):
        known = reaches(problem, line, operations - i - 1)
        values.append(0.0 if not all(holds[: i + 1]) or 0.0 in values else known)
    return [*values, 0.0]


def reaches(problem: Problem, line: str, left: int) -> float:
    """Whether the answer can be had from a line's result with `left` operations."""
    found = STEP.fullmatch(line)
    if found is None or left > 1:
        return UNREAD
    *used, result = map(number, found.groups())
    answer = number(problem["answer"])
    if left < 1 or result == answer:
        return float(result == answer)
    constants = [token for token in problem["equation"].split() if token[0].isdigit()]
    others = {number(n) for n in (*problem["numbers"], *constants)} - set(used)
    return float(any(answer in apply_all(result, other) for other in others))


def apply_all(a: Fraction, b: Fraction) -> set[Fraction]:
    return {a + b, a - b, b - a, a * b, *([a / b] if b else []), *([b / a] if a else [])}


def choose(problem: Problem, rng: np.random.Generator) -> list[str]:
    """The different solutions of a row, at most `TOGETHER`."""
    texts = [solution["text"] for solution in problem.get("solutions", ())]
    right = [text for text in texts if values_of(problem, text)[-1:] == [1.0]]
    wrong = [text for text in texts if values_of(problem, text)[-1:] == [0.0]]
    numbers = list(map(number, problem["numbers"]))
    equation = commute(problem["equation"].split(), rng)
    chosen = [*right[:SAMPLED_RIGHT], *wrong[:SAMPLED_WRONG], write(*work(equation, numbers))]
    if len(wrong) < SAMPLED_WRONG:
        chosen.append(miscalculate(*work(equation, numbers), rng))
    for _ in range(TRIES):
        if len(set(chosen)) == TOGETHER:
            break
        worked = work_out(mistake(equation, len(numbers), rng), numbers)
        if worked and worked[1] != number(problem["answer"]) and looks_right(worked[0], numbers):
            chosen.append(write(*worked))
    return sorted(set(chosen))


def looks_right(steps: Sequence[str], numbers: Sequence[Fraction]) -> bool:
    """Whether no result is below 0, or a fraction where no number is one."""
    results = [number(step.rsplit(" = ", 1)[1]) for step in steps]
    whole = all(n.denominator == 1 for n in numbers)
    return all(r >= 0 and (r.denominator == 1 or not whole) for r in results)


def work(equation: Sequence[str], numbers: Sequence[Fraction]) -> tuple[list[str], Fraction]:
    worked = work_out(equation, numbers)
    if worked is None:
        raise ValueError(
            f"{' '.join(equation)} of {list(map(str, numbers))} has no value; draw the problem again"
        )
    return worked


def write(steps: Sequence[str], answer: Fraction | str) -> str:
    shown = answer if isinstance(answer, str) else steps[-1].rsplit(" = ", 1)[1]
    return "\n".join([*steps, f"The answer is {shown}."])


def commute(equation: Sequence[str], rng: np.random.Generator) -> list[str]:
    """The equation with operands of sums and products in any order."""
    stack: list[list[str]] = []
    for token in reversed(equation):
        if token in OPERATORS:
            left, right = stack.pop(), stack.pop()
            if token in "+*" and rng.integers(2):
                left, right = right, left
            stack.append([token, *left, *right])
        else:
            stack.append([token])
    return stack.pop()


def mistake(equation: Sequence[str], numbers: int, rng: np.random.Generator) -> list[str]:
    """An equation of one or two operations, as many as the right one has twice as often as not."""
    names = [f"number{i}" for i in rng.permutation(numbers)]
    operators = rng.choice(list(MISTAKES), p=list(MISTAKES.values()), size=2).tolist()
    two = (len(equation) > 3) == (rng.integers(3) > 0)
    if not two or numbers < 2:
        return [operators[0], *(names * 2)[:2]]
    first, second, third = (names * 2)[:3]
    if rng.integers(2):
        return [operators[0], operators[1], first, second, third]
    return [operators[0], first, operators[1], second, third]


def miscalculate(steps: Sequence[str], answer: Fraction, rng: np.random.Generator) -> str:
    """The solution with another result in its last step: some digits of it are not those of the right one."""
    before, shown = steps[-1].rsplit(" = ", 1)
    digits = list(shown)
    places = [i for i, digit in enumerate(digits) if digit.isdigit()]
    for i in rng.permutation(places)[: rng.integers(1, 3)]:
        digits[i] = str(rng.integers(1 if i == 0 else 0, 10))
    false = "".join(digits)
    if number(false) == answer:
        false = str(int(answer) + 1)
    return write([*steps[:-1], f"{before} = {false}"], false)
