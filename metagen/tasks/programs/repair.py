"""The prompt of a corrector: the examples, a program that is wrong, and the first example that it fails.

     3 1 > 1 3
     5 4 > 4 5
    def f(x):
     return x
    # 3 1 > 1 3 not > 3 1

It answers with a whole program, which may show its work; the program in its prompt has no comments. Only public
examples are ever told.
"""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass

from metagen.tasks.programs.cases import Case, result_text
from metagen.tasks.programs.grammar import ENTRY_POINT
from metagen.tasks.programs.interpreter import Output, outputs
from metagen.tasks.programs.trace import strip_comments

#: In place of a failing case: something is wrong, and nothing was executed.
WRONG = "#wrong\n"


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that a program fails, and what it gave instead, as prompts have it, or the name of an error."""

    case: Case
    got: str

    def __str__(self) -> str:
        """A comment, so that program and failure are Python still."""
        return f"#{self.case} not{self.got}\n"


def failure(cases: abc.Sequence[Case], got: abc.Sequence[Output]) -> Failure | None:
    """The first of the cases that its output fails; None if all pass."""
    for case, output in zip(cases, got, strict=True):
        if not output.equals(case.plain[1]):
            return Failure(case, _got(output)[:80])
    return None


def failure_of(source: str, cases: abc.Sequence[Case]) -> Failure | None:
    """The first case that a program fails, by the interpreter."""
    return failure(cases, outputs(source, ENTRY_POINT, [case.plain[0] for case in cases]))


def repair_prompt(prompt: str, source: str, failed: Failure | None) -> str:
    """The text that a corrector continues. failed: None withholds what execution has shown."""
    return prompt + end_last_line(source) + (WRONG if failed is None else str(failed))


def end_last_line(source: str) -> str:
    """The program without comments, its last line ended, so that nothing is written onto it."""
    plain = strip_comments(source)
    return plain if plain.endswith("\n") else plain + "\n"


def _got(output: Output) -> str:
    value = output.value
    if output.status != "returned":
        return f" {output.error or output.status}"
    plain = isinstance(value, list) and all(isinstance(v, int) for v in value)
    return result_text(value) if plain or isinstance(value, int) else f" {value!r}"
