"""The notation of problems, numbers and solutions."""

from __future__ import annotations

import random
import re
from enum import StrEnum
from fractions import Fraction
from typing import Final

from metagen.tasks.arithmetic.definitions import Definition, Problem, in_order, operand, values
from metagen.tasks.arithmetic.drawing import LARGEST_INTEGER

DELIMITER: Final = "\n"
#: A name, or a number as an expression has it.
OPERAND: Final = r"(?:[a-h]|\([^()]+\)|[0-9.]+%?)"
_PROBLEM: Final = re.compile(r"Q:(.*);([a-h])\?\n(S:\n|A:)")
#: A definition as a problem has it: name, left operand, operation, right operand.
DEFINITION: Final = re.compile(rf"([a-h])=({OPERAND})([-+*/])({OPERAND})")


class Form(StrEnum):
    """The form of answer that a prompt asks for."""

    STEPS = "steps"
    DIRECT = "direct"


def prompt(problem: Problem, form: Form = Form.STEPS) -> str:
    """The text a generator continues."""
    return f"Q:{problem}\n" + ("S:\n" if form is Form.STEPS else "A:")


def read_prompt(text: str) -> tuple[Problem, Form]:
    """The problem and the form that a prompt was made of; ValueError when it is not one of ours."""
    match = _PROBLEM.fullmatch(text)
    parts = [DEFINITION.fullmatch(part) for part in match[1].split(";")] if match else []
    if match is None or None in parts:
        raise ValueError(f"not a prompt of this task: {text!r}")
    definitions = tuple(Definition(p[1], p[2].strip("()"), p[3], p[4].strip("()")) for p in parts if p)
    return Problem(definitions, match[2]), Form.STEPS if match[3].startswith("S") else Form.DIRECT


def reference_answer(problem: Problem) -> str:
    """The reduced form of the answer, such as `3/2`."""
    return str(values(problem)[problem.target])


def reference_solution(problem: Problem, form: Form = Form.STEPS, rng: random.Random | None = None) -> str:
    """A right completion of `prompt(problem, form)`; with `rng`, numbers take any of their equivalent forms."""
    known = values(problem)
    if form is Form.DIRECT:
        return write_number(known[problem.target], rng, answer=True) + DELIMITER
    written: dict[str, str] = {}
    lines = []
    for d in in_order(problem):
        written[d.name] = write_number(known[d.name], rng)
        left, right = written.get(d.left, d.left), written.get(d.right, d.right)
        lines.append(f"{d.name}={operand(left)}{d.op}{operand(right)}={written[d.name]}")
    again = rng is None or rng.random() < 0.6
    answer = written[problem.target] if again else write_number(known[problem.target], rng, answer=True)
    return DELIMITER.join([*lines, f"A:{answer}"]) + DELIMITER


def write_number(value: Fraction, rng: random.Random | None = None, *, answer: bool = False) -> str:
    """`value` reduced, or with `rng` in a random one of its forms; integers vary only as an `answer`."""
    if rng is None:
        return str(value)
    kind = rng.random()
    if value.denominator == 1:
        if not answer or kind < 0.7:
            return str(value)
        even = abs(value) * 2 <= LARGEST_INTEGER
        return f"{value.numerator * 2}/2" if kind < 0.85 and even else f"{value}.0"
    decimal = _decimal(value)
    if decimal is not None and kind < 0.3:
        return decimal
    if kind < 0.45:
        return f"{value.numerator * 2}/{value.denominator * 2}"
    if kind > 0.88 and 100 % value.denominator == 0 and abs(value) <= 3:
        return f"{value * 100}%"
    return str(value)


def _decimal(value: Fraction) -> str | None:
    """The finite decimal expansion, if it has at most three places."""
    if 1000 % value.denominator:
        return None
    digits = f"{abs(value.numerator) * (1000 // value.denominator):04d}"
    return ("-" if value < 0 else "") + f"{digits[:-3]}.{digits[-3:].rstrip('0') or '0'}"
