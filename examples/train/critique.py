r"""Critiques in the family's notation: what a generative verifier writes before it says its verdict of a solution.

The prompt is the problem and the solution. The critique goes through the solution's lines: each by its name, and
behind it `+`, it is right, or `-`, it is not, where it stops. `V:` asks for the verdict: `R`, the answer is right, or
`W`. So do generative process verifiers (ThinkPRM, Khalifa et al. 2025), here with a character for each word.

    Q:a=12+7;b=a*3;b?\nS:\na=12+7=19\nb=19*3=58\nA:58\n    a+b-V:W

Critiques to learn from are made by the task's step checker. What the two letters are worth, and how the prompt is made,
are fields of `metagen.verifiers.generative.question.Question`; `OPTIONS` holds them as an experiment file does.
"""

from __future__ import annotations

from typing import Any

from pools import Solution

SOUND, UNSOUND = "+", "-"
RIGHT, WRONG, CUE = "R", "W", "V:"
#: Options of `kind: judge` in an experiment file, and of `metagen.verifiers.generative.judge.Judge`.
OPTIONS: dict[str, Any] = {
    "template": "{task}{candidate}",
    "labels": {RIGHT: 1.0, WRONG: 0.0},
    "cue": CUE,
    "join": "",
    "chat": False,
    "max_tokens": 48,
}


def asked(solution: Solution) -> str:
    """The prompt of a critique."""
    return solution.prompt + "".join(solution.steps)


def critique(solution: Solution) -> str:
    """The lines up to the first that is wrong, each with what is to be said of it."""
    found = ""
    for line, sound in zip(solution.steps, solution.labels, strict=True):
        found += line[0] + (SOUND if sound else UNSOUND)
        if not sound:
            break
    return found


def verdict(solution: Solution) -> str:
    """What stands behind a critique."""
    return CUE + (RIGHT if solution.correct else WRONG)
