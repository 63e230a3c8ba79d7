"""Public examples as a verifier: run by the task's own interpreter, told as the trained corrector reads them."""

from __future__ import annotations

from collections import abc
from dataclasses import replace
from typing import ClassVar

from metagen.call import Ended, Outcome
from metagen.cost import Usage
from metagen.scope import Scope
from metagen.sequence import Prompt, Score, Sequence, digest
from metagen.tasks.programs.grammar import ENTRY_POINT
from metagen.tasks.programs.interpreter import outputs
from metagen.tasks.programs.repair import WRONG, end_last_line, failure
from metagen.tasks.programs.task import PROGRAM, public_cases
from metagen.verifiers.base import PrimitiveVerifier, score_payload


class PublicExamples(PrimitiveVerifier):
    """The share of the prompt's examples that a program passes; the first that fails is the feedback.

    Charged one call. Verdicts: `missing` for no program, `untested` for a prompt without examples.
    """

    whole: ClassVar[bool] = True

    def __init__(self, *, name: str = "examples") -> None:
        self.name = name

    @property
    def fingerprint(self) -> str:
        return digest("public examples", PROGRAM.fingerprint).hex()

    async def evaluate(self, sequences: abc.Sequence[Sequence], scope: Scope, ended: Ended) -> list[Outcome]:
        return [Outcome(score_payload(self._score(s)), Usage(calls=1)) for s in sequences]

    def worst(self, sequences: abc.Sequence[Sequence], scope: Scope) -> Usage:
        return Usage(calls=len(sequences))

    def _score(self, sequence: Sequence) -> Score:
        cases, program = public_cases(sequence.prompt), PROGRAM.read(sequence)
        if not cases:
            return Score(None, verdict="untested")
        if program is None:
            return Score(0.0, verdict="missing", feedback=WRONG)
        got = outputs(program, ENTRY_POINT, [case.plain[0] for case in cases])
        passed = sum(one.equals(case.plain[1]) for one, case in zip(got, cases, strict=True))
        failed = failure(cases, got)
        return Score(passed / len(cases), feedback=None if failed is None else str(failed))


def corrector_prompt(prompt: Prompt, candidate: str, feedback: str | None) -> Prompt:
    """The prompt of the trained corrector: a `Form` of refinement. Without a failing case, execution is withheld."""
    shown = feedback if feedback is not None and feedback.startswith("#") else WRONG
    return replace(prompt, text=f"{prompt.text}{end_last_line(candidate)}{shown}")
