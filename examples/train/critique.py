r"""Critiques in the family's notation: what a generative verifier writes of a solution before it says its verdict.

The prompt is the problem and the solution, then `C:`. The critique does each line again, with reduced values in place
of names, and says behind it whether the solution's line agrees: ` R` right, ` W` wrong. It ends at the
first wrong one. `V:` asks for the verdict, by the same letters.

    Q:a=12+7;b=a*3;b?\nS:\na=12+7=19\nb=19*3=58\nA:58\nC:\n    a=12+7=19 R\nb=19*3=57 W\nV:W

Where all lines are right but the answer never comes, the line that is missing is written, and wrong. A problem that
was answered directly is worked out first. Without a critique the verdict follows at once.

Critiques are made by the task's checker. What the two letters are worth, and how the prompt is made, are fields of
`metagen.verifiers.generative.question.Question`; `OPTIONS` holds them as an experiment file does.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from metagen.tasks.arithmetic import Definition, Form, Problem, in_order, read_prompt, values
from pools import Solution

RIGHT, WRONG, BEGIN, CUE = "R", "W", "C:\n", "V:"
#: Options of `kind: judge` in an experiment file, and of `metagen.verifiers.generative.options.generative`.
OPTIONS: dict[str, Any] = {
    "template": "{task}{candidate}" + BEGIN,
    "labels": {RIGHT: 1.0, WRONG: 0.0},
    "cue": CUE,
    "join": "",
    "chat": False,
    "max_tokens": 200,
}


def asked(solution: Solution) -> str:
    """The prompt of a critique."""
    return solution.prompt + "".join(solution.steps) + BEGIN


def verdict(solution: Solution) -> str:
    """What stands behind `V:`."""
    return CUE + (RIGHT if sound(solution) else WRONG)


def sound(solution: Solution) -> bool:
    """Whether the answer is right, and all steps are."""
    return solution.correct and all(solution.labels)


def critique(solution: Solution) -> str:
    """The lines before the verdict."""
    problem, form = read_prompt(solution.prompt)
    lines = list(_direct(problem, solution) if form is Form.DIRECT else _stepwise(problem, solution))
    return "".join(f"{line}\n" for line in lines)


def _direct(problem: Problem, solution: Solution) -> Iterator[str]:
    known = values(problem)
    yield from (_worked(d, known) for d in in_order(problem))
    yield _marked(f"A:{known[problem.target]}", sound(solution))


def _stepwise(problem: Problem, solution: Solution) -> Iterator[str]:
    known = values(problem)
    derived: set[str] = set()
    answered = False
    for step, right in zip(solution.steps, solution.labels, strict=True):
        line, name = _again(problem, known, derived, step)
        yield _marked(line, right)
        if not right:
            return
        derived.add(name)
        answered = answered or step.startswith("A:")
    if not answered:
        yield _marked(_again(problem, known, derived, "A:")[0], right=False)


def _again(problem: Problem, known: dict[str, Fraction], derived: set[str], step: str) -> tuple[str, str]:
    """The line as it should be, and the name that it derives: what the step is about, else what comes next."""
    names = {d.name for d in problem.definitions}
    ready = [d for d in in_order(problem) if all(o in derived or o not in names for o in (d.left, d.right))]
    about = next((d for d in ready if step.startswith(f"{d.name}=")), None)
    following = next((d for d in ready if d.name not in derived), None)
    chosen = about or following
    if chosen is None or (about is None and problem.target in derived and step.startswith("A:")):
        return f"A:{known[problem.target]}", ""
    return _worked(chosen, known), chosen.name


def _worked(d: Definition, known: dict[str, Fraction]) -> str:
    """The definition with values in place of names, and its value."""
    left, right = (_operand(str(known[o]) if o in known else o) for o in (d.left, d.right))
    return f"{d.name}={left}{d.op}{right}={known[d.name]}"


def _operand(text: str) -> str:
    return f"({text})" if "/" in text or text.startswith("-") else text


def _marked(line: str, right: bool) -> str:
    return f"{line} {RIGHT if right else WRONG}"
