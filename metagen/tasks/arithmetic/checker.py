"""The checker: which steps of a solution follow, and whether its answer is right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from metagen.tasks.arithmetic.definitions import Definition, Problem, literal, values
from metagen.tasks.arithmetic.notation import DELIMITER, OPERAND, Form
from metagen.verifiers.numbers import parse

_STEP: Final = re.compile(rf"([a-h])=({OPERAND})([-+*/])({OPERAND})=([^=]+)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The checker's findings in a completion.

    `steps[i]`: line i follows from the problem, and so do all lines before it. A tail without its delimiter is a step
    that is not right. `answer`: the final answer as written, if there is one. `correct`: the answer has the right
    value (whatever the steps).
    """

    steps: tuple[bool, ...]
    answer: str | None
    correct: bool


def steps_of(text: str) -> list[str]:
    """`text` cut after each delimiter; joined, the steps give the text back. The last may lack its delimiter."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def extract_answer(text: str, form: Form = Form.STEPS, *, finished: bool = True) -> str | None:
    """The answer as written. A last line without its delimiter counts only if the text is `finished` (not cut off)."""
    lines = text.split(DELIMITER)
    if not finished:
        lines.pop()
    if form is Form.DIRECT:
        return (lines[0].strip() or None) if lines else None
    answers = [line[2:].strip() for line in lines if line.startswith("A:")]
    return (answers[-1] or None) if answers else None


def check(problem: Problem, text: str, form: Form = Form.STEPS, *, finished: bool = True) -> Verdict:
    """Judge a completion of `prompt(problem, form)`, finished or partial."""
    truth = values(problem)
    answer = extract_answer(text, form, finished=finished)
    correct = answer is not None and parse(answer) == truth[problem.target]
    return Verdict(tuple(_check_steps(problem, truth, text, form)), answer, correct)


def _check_steps(problem: Problem, truth: dict[str, Fraction], text: str, form: Form) -> Iterator[bool]:
    by_name = {d.name: d for d in problem.definitions}
    derived: set[str] = set()
    answered, right = False, True
    for line in steps_of(text):
        body = line.removesuffix(DELIMITER)
        right = right and not answered and line.endswith(DELIMITER)
        if right and (form is Form.DIRECT or body.startswith("A:")):
            answered = True
            known = form is Form.DIRECT or problem.target in derived
            right = (
                known
                and parse(body.removeprefix("A:") if form is Form.STEPS else body) == truth[problem.target]
            )
        elif right:
            name = _follows(body, by_name, truth, derived)
            right = name is not None
            derived.add(name or "")
        yield right


def _follows(
    line: str, by_name: dict[str, Definition], truth: dict[str, Fraction], derived: set[str]
) -> str | None:
    """The name that a line derives, or `None` if it doesn't follow from the definitions and what is derived."""
    match = _STEP.fullmatch(line)
    definition = by_name.get(match[1]) if match else None
    if match is None or definition is None or match[3] != definition.op:
        return None

    def agrees(operand: str, written: str) -> bool:
        if operand in by_name:
            return operand in derived and (written == operand or parse(written.strip("()")) == truth[operand])
        return parse(written.strip("()")) == literal(operand)

    straight = agrees(definition.left, match[2]) and agrees(definition.right, match[4])
    swapped = (
        definition.op in "+*" and agrees(definition.left, match[4]) and agrees(definition.right, match[2])
    )
    if (straight or swapped) and parse(match[5]) == truth[definition.name]:
        return definition.name
    return None
