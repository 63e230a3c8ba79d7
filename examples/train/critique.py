r"""Critiques in the family's notation: what a generative verifier writes before it says its verdict of a solution.

The prompt is the solution and then the problem. The critique is what a generator would write there, a solution of its
own with reduced values in place of names, and behind `C:` the answer that is to be judged, reduced as well. `V:` asks
for the verdict: `R`, the two answers are one, or `W`, they are not. It is reference-guided grading (Zheng et al. 2023),
by a judge that writes the reference itself.

    a=12+7=19\nb=19*3=58\nA:58\nQ:a=12+7;b=a*3;b?\nS:\n    a=12+7=19\nb=19*3=57\nA:57\nC:58\nV:W

Critiques to learn from are made by the task's rules. What the two letters are worth, and how the prompt is made, are
fields of `metagen.verifiers.generative.question.Question`; `OPTIONS` holds them as an experiment file does.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from metagen.tasks.arithmetic import Definition, Form, extract_answer, in_order, read_prompt, values
from metagen.verifiers.numbers import canonical
from pools import Solution

RIGHT, WRONG, CUE = "R", "W", "V:"
#: Options of `kind: judge` in an experiment file, and of `metagen.verifiers.generative.options.generative`.
OPTIONS: dict[str, Any] = {
    "template": "{candidate}{task}",
    "labels": {RIGHT: 1.0, WRONG: 0.0},
    "cue": CUE,
    "join": "",
    "chat": False,
    "max_tokens": 200,
}


def asked(solution: Solution) -> str:
    """The prompt of a critique."""
    return "".join(solution.steps) + solution.prompt


def critique(solution: Solution) -> str:
    """The problem worked out step by step, and the answer of the solution, if it has one."""
    return "".join(f"{line}\n" for line in _lines(solution))


def verdict(solution: Solution) -> str:
    """What stands behind a critique."""
    return CUE + (RIGHT if solution.correct else WRONG)


def _lines(solution: Solution) -> Iterator[str]:
    problem, _ = read_prompt(solution.prompt)
    known = values(problem)
    yield from (_worked(d, known) for d in in_order(problem))
    yield f"A:{known[problem.target]}"
    answer = extract_answer("".join(solution.steps), Form.STEPS)
    yield f"C:{(answer and canonical(answer)) or ''}"


def _worked(d: Definition, known: dict[str, Fraction]) -> str:
    """The definition with values in place of names, and its value."""
    left, right = (_operand(str(known[o]) if o in known else o) for o in (d.left, d.right))
    return f"{d.name}={left}{d.op}{right}={known[d.name]}"


def _operand(text: str) -> str:
    return f"({text})" if "/" in text or text.startswith("-") else text
