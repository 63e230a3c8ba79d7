"""Verifiers that run a suite of tests: the common part of public and hidden tests."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import abc
from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, TypeAlias

from metagen.call import Ended, Outcome
from metagen.cost import Usage
from metagen.errors import InputError
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.verifiers.base import PrimitiveVerifier, score_payload
from metagen.verifiers.code.check import EDITION, Suite, check
from metagen.verifiers.code.io_tests import IOTests, check_io
from metagen.verifiers.code.limits import Limits
from metagen.verifiers.code.program import FencedProgram, ProgramRule
from metagen.verifiers.code.report import Report
from metagen.verifiers.code.sandbox import Sandbox

#: Tests in Python, or by standard input and output.
Tests: TypeAlias = Suite | IOTests


def read_tests(public: Mapping[str, Any]) -> Tests | None:
    """The tests in a prompt's public data: under `io`, or those of a `Suite`. None if there are none.

    Raises InputError for both, DataError for tests that are none.
    """
    if public.get("io") and public.get("tests"):
        raise InputError("the prompt has both io and tests, and only io would run; give one")
    return IOTests.of(public) or Suite.of(public)


@part
class Tested(PrimitiveVerifier):
    """Scores each sequence by the report on its program; one execution is one call.

    limits: of each test, by default those of the sandbox; a problem's own stand in place of either.
    """

    whole: ClassVar[bool] = True
    #: Whether all tests are run, or none beyond the first that does not pass.
    stop: ClassVar[bool]

    sandbox: Sandbox = field(kw_only=False)
    program: ProgramRule | None = None
    limits: Limits | None = None

    def __post_init__(self) -> None:
        self._program = self.program or FencedProgram()
        self._limits = self.limits or self.sandbox.limits

    @property
    def fingerprint(self) -> str:
        parts = (self.sandbox.fingerprint, self._program.fingerprint, repr(self._limits))
        return digest(type(self).__name__, EDITION, *parts, self.data).hex()

    @property
    def data(self) -> bytes:
        """Names the tests that do not come with the prompt."""
        return b""

    async def evaluate(self, sequences: abc.Sequence[Sequence], scope: Scope, ended: Ended) -> list[Outcome]:
        async def one(place: int, sequence: Sequence) -> Outcome:
            ended[place] = outcome = Outcome(score_payload(await self.judge(sequence)), Usage(calls=1))
            return outcome

        return await asyncio.gather(*(one(i, sequence) for i, sequence in enumerate(sequences)))

    def worst(self, sequences: abc.Sequence[Sequence], scope: Scope) -> Usage:
        return Usage(calls=len(sequences))

    @abstractmethod
    async def judge(self, sequence: Sequence) -> Score:
        """The score of one sequence."""

    async def report(self, sequence: Sequence, tests: Tests) -> Report | None:
        """The report on its program; None if it has none."""
        program = self._program.read(sequence)
        if program is None:
            return None
        if isinstance(tests, IOTests):
            return await check_io(self.sandbox, program, tests, limits=self._limits, stop=self.stop)
        return await check(self.sandbox, program, tests, limits=self._limits, stop=self.stop)
