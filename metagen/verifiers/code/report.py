"""The report of a run of tests on a program: test by test, as a whole, and in words for a model that mends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from metagen.verifiers.code.execution import Ending

#: Outcomes of the code of a test: `passed`; `failed`, an assertion does not hold; `raised`, the candidate did;
#: `unrepresentable`, a value cannot leave its process; `broken`, the test itself fails, whatever the candidate does.
JudgeVerdict = Literal["passed", "failed", "raised", "unrepresentable", "broken"]
#: Of a test: the same; `unavailable`, the program imports a package that the sandbox has not got; `unreached`, one
#: before it failed; else how an execution ended.
TestVerdict = JudgeVerdict | Literal["unavailable", "unreached"] | Ending
#: These say nothing of the program: a right one may meet them.
UNGRADED: Final[frozenset[TestVerdict]] = frozenset({"unrepresentable", "unavailable"})


_LINES = 20

#: Of verdicts that no assertion explains.
_WORDS = {
    "timeout": "It took too long",
    "memory": "It used too much memory",
    "output": "It wrote too much",
    "crashed": "The process ended",
    "broken": "The test itself fails, whatever the program does",
    "forged": "It interfered with how it is tested",
    "unrepresentable": "A value cannot be tested",
    "unavailable": "A package is missing here",
}


def decisive(verdict: TestVerdict) -> bool:
    """Whether a program with a test that went so is wrong."""
    return verdict != "passed" and verdict not in UNGRADED


@dataclass(frozen=True, slots=True)
class Case:
    """The outcome of one test.

    case: the assertion that failed. call: the candidate's last call in it. expected, got: its two sides, where
    it compares two. detail: the message or the traceback.
    """

    test: str
    verdict: TestVerdict
    case: str | None = None
    call: str | None = None
    expected: str | None = None
    got: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of all tests. cases: one for each test, in order."""

    cases: tuple[Case, ...]
    stdout: str = ""

    @property
    def passed(self) -> int:
        return sum(case.verdict == "passed" for case in self.cases)

    @property
    def share(self) -> float | None:
        """Passed, of the tests that say something of the program, in [0, 1]; None where none does."""
        graded = sum(case.verdict not in UNGRADED for case in self.cases)
        return self.passed / graded if graded else None

    @property
    def verdict(self) -> TestVerdict:
        """`passed` if all are; else the first that shows the program wrong; else the first that shows nothing."""
        verdicts = [case.verdict for case in self.cases if case.verdict != "passed"]
        return next((v for v in verdicts if decisive(v)), verdicts[0] if verdicts else "passed")

    @property
    def ungraded(self) -> bool:
        """Whether nothing shows the program wrong, and some test could not say that it is right."""
        return self.verdict in UNGRADED

    @property
    def broken(self) -> Case | None:
        """The first test that is at fault itself: then nothing has been learnt about the candidate."""
        return next((case for case in self.cases if case.verdict == "broken"), None)


def feedback(report: Report, *, cases: int = 3) -> str:
    """The outcome in words: how many tests pass, and the first `cases` that do not."""
    head = f"{report.passed} of {len(report.cases)} tests pass."
    failing = [case for case in report.cases if case.verdict not in ("passed", "unreached")]
    return "\n\n".join([head, *map(_describe, failing[:cases])])


def _describe(case: Case) -> str:
    lines = [f"Failing test: {(case.case or case.test).strip()}"]
    if case.call is not None:
        lines.append(f"Call: {case.call}")
    if case.got is not None:
        lines += [f"Expected: {case.expected}", f"Got: {case.got}"]
    detail = _shorten(case.detail) if case.detail else None
    if case.verdict in _WORDS:
        lines.append(f"{_WORDS[case.verdict]}: {detail or case.verdict}")
    elif detail:
        lines.append(detail)
    return "\n".join(lines)


def _shorten(text: str) -> str:
    lines = text.strip().splitlines()
    return "\n".join(lines if len(lines) <= _LINES else [*lines[:3], "…", *lines[4 - _LINES :]])
