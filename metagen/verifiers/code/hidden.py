"""Hidden tests: the grader A of code tasks, and the oracle made of it. Strategies see no test, nor words on one."""

from __future__ import annotations

import asyncio
from collections import abc
from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from metagen.errors import DataError
from metagen.parts import part
from metagen.sequence import Score, Sequence, digest
from metagen.verifiers.code.tested import Tested, Tests


class BrokenTests(DataError):
    """The hidden tests of a problem cannot run, or fail whatever the program does: nothing is known of its programs.

    In a run it is a failure of this problem alone, under this name: no program is graded by such tests, neither as
    right nor as wrong, and the other problems go on. why: the fault that a person has to mend.
    """

    def __init__(self, problem: str, why: str) -> None:
        super().__init__(
            f"the hidden tests of the problem {problem!r} are broken, so nothing is graded by them: {why}"
        )


@part
class HiddenTests(Tested):
    """1 if all tests of the sequence's problem pass; 0, and the verdict of the test, if one shows the program wrong.

    `ungraded`, without a value, where no test shows it wrong and one could not tell: a value cannot leave its process,
    or a package is missing. tests: by problem id. As a verifier it is an oracle, marked as such in every score; a task
    grades by `grade`.
    Raises DataError for a problem without tests, BrokenTests for tests that fail whatever the program does.
    """

    oracle: ClassVar[bool] = True
    name = "hidden_tests"
    stop = True

    tests: Mapping[str, Tests] = field(kw_only=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._data = digest(*(one for name in sorted(self.tests) for one in (name, self.tests[name].digest)))

    @property
    def data(self) -> bytes:
        return self._data

    async def grade(self, sequences: abc.Sequence[Sequence]) -> list[Score]:
        """The scores, outside of any scope."""
        return await asyncio.gather(*map(self.judge, sequences))

    async def judge(self, sequence: Sequence) -> Score:
        problem = sequence.prompt.problem_id
        if problem not in self.tests:
            raise DataError(f"there are no hidden tests for the problem {problem!r}; give them by its id")
        report = await self.report(sequence, self.tests[problem])
        if report is None:
            return Score(0.0, verdict="missing", oracle=True)
        if (broken := report.broken) is not None:
            raise BrokenTests(
                problem,
                f"{broken.test.strip()!r:.200} fails whatever the program does ({broken.detail}); import in the setup "
                "what it uses, name in `names` what else it uses of the program, and give the sandbox a "
                "judge=Python(packages=…) that has its packages",
            )
        if report.verdict == "passed":
            return Score(1.0, oracle=True)
        if report.ungraded:
            return Score(None, verdict="ungraded", oracle=True)
        return Score(0.0, verdict=report.verdict, oracle=True)
