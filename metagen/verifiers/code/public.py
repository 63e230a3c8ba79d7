"""Public tests: an extrinsic verifier, which a strategy may use, with words on what failed."""

from __future__ import annotations

from dataclasses import replace

from metagen.errors import DataError
from metagen.parts import part
from metagen.sequence import Score, Sequence
from metagen.values import Positive, Size
from metagen.verifiers.code.program import ProgramRule
from metagen.verifiers.code.report import feedback
from metagen.verifiers.code.sandbox import Sandbox
from metagen.verifiers.code.tested import Tested, read_tests


@part
class PublicTests(Tested):
    """The share of public tests that pass, with `feedback` on the first that do not.

    The tests are the prompt's public data: `io`, inputs and outputs of `IOTests`; or, under the names of the fields of
    `Suite`, `tests`, a list of code such as `assert f(2) == 4`, and optionally `setup`, `entry_points` and so on. The
    verdict is that of the first test that shows the program wrong; `missing` for a sequence without a program.
    `ungraded` where no test does, and one could not tell; the share is of the others. `untested`, without a value,
    where the prompt has no tests, or they are no Python, or fail whatever the program does.
    """

    stop = False

    name: str = "public_tests"

    async def judge(self, sequence: Sequence) -> Score:
        try:
            tests = read_tests(sequence.prompt.public)
        except DataError:  # no Python: as broken as a test that fails whatever the program does
            tests = None
        if tests is None:
            return Score(None, verdict="untested")
        report = await self.report(sequence, tests)
        if report is None:
            return Score(0.0, verdict="missing", feedback="There is no program in the answer.")
        if report.broken is not None:
            return Score(None, verdict="untested", feedback=feedback(report))
        verdict = None if report.verdict == "passed" else "ungraded" if report.ungraded else report.verdict
        return Score(report.share, verdict=verdict, feedback=feedback(report))


def public_tests(
    sandbox: Sandbox,
    *,
    program: ProgramRule | None = None,
    wall: Positive | None = None,
    memory: Size | None = None,
    name: str = "public_tests",
) -> PublicTests:
    """The share of a problem's public tests that a program passes, in a sandbox; with words on what failed.

    wall, memory: of one execution, in seconds of wall clock and bytes; by default those of the sandbox, as the other
    limits are. Limits that a problem has of its own stand in their place.
    """
    given = {"wall": wall, "memory": memory}
    known = {limit: value for limit, value in given.items() if value is not None}
    limits = replace(sandbox.limits, **known) if known else None  # type: ignore[arg-type]  # each as it is named
    return PublicTests(sandbox, program=program, limits=limits, name=name)
