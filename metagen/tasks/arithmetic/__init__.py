r"""The embedded task: quantities defined one from another, then a question.

A problem is a handful of definitions and the name that is asked for. The prompt's form says how to answer it:

    Q:a=12+7;b=a*3;b?\nS:\n        step by step:   a=12+7=19\nb=19*3=57\nA:57\n
    Q:a=12+7;b=a*3;b?\nA:          directly:       57\n

A *step* is a line ended by `DELIMITER`. Numbers occur in equivalent forms (`3/2`, `6/4`, `1.5`, `150%`), so that
answers must be compared by value. All functions are pure; the standard library suffices. Each file holds one idea:
`definitions`, problems; `drawing`, problems at random; `notation`, their texts and those of solutions;
`checker`, right steps and answers.
"""

from __future__ import annotations

from metagen.tasks.arithmetic.checker import Verdict, check, extract_answer, steps_of
from metagen.tasks.arithmetic.definitions import NAMES, Definition, Problem, canonical, in_order, values
from metagen.tasks.arithmetic.drawing import DIFFICULTY, HARDER, LEVELS, Difficulty, draw, problems, split_of
from metagen.tasks.arithmetic.notation import (
    DEFINITION,
    DELIMITER,
    Form,
    prompt,
    read_prompt,
    reference_answer,
    reference_solution,
    write_number,
)
from metagen.tasks.split import Split

__all__ = [
    "DEFINITION", "DELIMITER", "DIFFICULTY", "HARDER", "LEVELS", "NAMES",
    "Definition", "Difficulty", "Form", "Problem", "Split",
    "Verdict", "canonical", "check", "draw", "extract_answer", "in_order", "problems", "prompt", "read_prompt",
    "reference_answer", "reference_solution", "split_of", "steps_of", "values", "write_number",
]  # fmt: skip
