"""Hidden tests: the grader A of code tasks, and the oracle made of it. Strategies see no test, nor words on one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from collections.abc import Sequence as Ordered
from typing import ClassVar

from metagen.call import Outcome
from metagen.cost import Usage
from metagen.errors import DataError
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.verifiers.base import PrimitiveVerifier, score_payload
from metagen.verifiers.code.check import Suite, check
from metagen.verifiers.code.limits import Limits
from metagen.verifiers.code.program import FencedProgram, ProgramRule
from metagen.verifiers.code.sandbox import Sandbox


class HiddenTests(PrimitiveVerifier):
    """1 if all tests of the sequence's problem pass, else 0 and the verdict of the first that does not.

    tests: by problem id. As a verifier it is an oracle, marked as such in every score; a task grades by `grade`.
    """

    oracle: ClassVar[bool] = True
    name = "hidden_tests"

    def __init__(
        self,
        sandbox: Sandbox,
        tests: Mapping[str, Suite],
        *,
        program: ProgramRule | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._sandbox, self._tests, self._program = sandbox, tests, program or FencedProgram()
        self._limits = limits or sandbox.limits
        self._data = digest(*(part for name in sorted(tests) for part in (name, tests[name].digest)))

    @property
    def fingerprint(self) -> str:
        language, program = self._sandbox.language.fingerprint, self._program.fingerprint
        return digest("hidden tests", language, program, repr(self._limits), self._data).hex()

    async def grade(self, sequences: Ordered[Sequence]) -> list[Score]:
        """The scores, outside of any scope. Raises DataError for a problem without tests."""
        return await asyncio.gather(*map(self._score, sequences))

    async def evaluate(self, sequences: Ordered[Sequence], scope: Scope) -> list[Outcome]:
        return [Outcome(score_payload(score), Usage(calls=1)) for score in await self.grade(sequences)]

    def worst(self, sequences: Ordered[Sequence], scope: Scope) -> Usage:
        return Usage(calls=len(sequences))

    async def _score(self, sequence: Sequence) -> Score:
        problem = sequence.prompt.problem_id
        if problem not in self._tests:
            raise DataError(f"there are no hidden tests for the problem {problem!r}; give them by its id")
        program = self._program.read(sequence)
        if program is None:
            return Score(0.0, verdict="missing", oracle=True)
        report = await check(self._sandbox, program, self._tests[problem], limits=self._limits)
        if report.verdict == "passed":
            return Score(1.0, oracle=True)
        return Score(0.0, verdict=report.verdict, oracle=True)
