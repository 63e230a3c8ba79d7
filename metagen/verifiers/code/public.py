"""Public tests: an extrinsic verifier, which a strategy may use, with words on what failed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence as Ordered

from metagen.call import Outcome
from metagen.cost import Usage
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.verifiers.base import PrimitiveVerifier, score_payload
from metagen.verifiers.code.check import Suite, check
from metagen.verifiers.code.feedback import feedback
from metagen.verifiers.code.limits import Limits
from metagen.verifiers.code.program import FencedProgram, ProgramRule
from metagen.verifiers.code.sandbox import Sandbox


class PublicTests(PrimitiveVerifier):
    """The share of public tests that pass, with `feedback` on the first that do not.

    The tests are the prompt's public data: `tests`, a list of code such as `assert f(2) == 4`, and
    optionally `setup` and `entry_points` (see `Suite`). The verdict is that of the first test that does not
    pass; `missing` for a sequence without a program. A prompt without tests scores nothing: `untested`.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        program: ProgramRule | None = None,
        limits: Limits | None = None,
        name: str = "public_tests",
    ) -> None:
        self._sandbox, self._program, self.name = sandbox, program or FencedProgram(), name
        self._limits = limits or sandbox.limits

    @property
    def fingerprint(self) -> str:
        language, program = self._sandbox.language.fingerprint, self._program.fingerprint
        return digest("public tests", language, program, repr(self._limits)).hex()

    async def evaluate(self, sequences: Ordered[Sequence], scope: Scope) -> list[Outcome]:
        scores = await asyncio.gather(*map(self._score, sequences))
        return [Outcome(score_payload(score), Usage(calls=1)) for score in scores]

    def worst(self, sequences: Ordered[Sequence], scope: Scope) -> Usage:
        return Usage(calls=len(sequences))

    async def _score(self, sequence: Sequence) -> Score:
        tests = Suite.of(sequence.prompt.public)
        if tests is None:
            return Score(None, verdict="untested")
        program = self._program.read(sequence)
        if program is None:
            return Score(0.0, verdict="missing", feedback="There is no program in the answer.")
        report = await check(self._sandbox, program, tests, limits=self._limits, stop=False)
        verdict = None if report.verdict == "passed" else report.verdict
        return Score(report.share, verdict=verdict, feedback=feedback(report))
