"""What a run of tests says of a program: how each test went, and what that makes of the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from metagen.verifiers.code.execution import Ending

#: What the code of a test can come to: `passed`; `failed`, an assertion does not hold; `raised`, the candidate did;
#: `unrepresentable`, a value cannot leave its process; `broken`, the test itself fails, whatever the candidate does.
JudgeVerdict = Literal["passed", "failed", "raised", "unrepresentable", "broken"]
#: Of a test: the same; `unavailable`, the program imports a package that the sandbox has not got; `unreached`, one
#: before it failed; else how an execution ended.
TestVerdict = JudgeVerdict | Literal["unavailable", "unreached"] | Ending
#: These say nothing of the program: a right one may meet them.
UNGRADED: Final[frozenset[TestVerdict]] = frozenset({"unrepresentable", "unavailable"})


def decisive(verdict: TestVerdict) -> bool:
    """Whether a program with a test that went so is wrong."""
    return verdict != "passed" and verdict not in UNGRADED


@dataclass(frozen=True, slots=True)
class Case:
    """How one test went.

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
    """How a candidate did. cases: one for each test, in order."""

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
