"""Tasks whose answers are programs: their tests as plain data, and who runs them."""

from __future__ import annotations

import json
import math
import re
from collections import abc
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from metagen.errors import DataError
from metagen.sequence import Prompt, Sequence, digest
from metagen.tasks.base import Problem
from metagen.tasks.records import RecordTask, Source
from metagen.tasks.template import Asking, before, whole
from metagen.verifiers.code.check import syntax_fault
from metagen.verifiers.code.program import CompletedProgram, ProgramRule
from metagen.verifiers.same_program import SameProgram

#: Runs the hidden tests of a problem against programs: A(y) of each sequence, in [0, 1]; nan: nobody knows.
Grader: TypeAlias = Callable[[Problem, abc.Sequence[Sequence]], Awaitable[list[float]]]
_FUTURE: Final = re.compile(r"^from __future__ import [\w ,]+$", re.MULTILINE)
#: Verdicts kept, at about 200 bytes each.
REMEMBERED = 1 << 14


def code_tests(
    tests: abc.Sequence[str],
    setup: str = "",
    entry_points: abc.Sequence[str] = (),
    names: abc.Sequence[str] = (),
) -> dict[str, Any]:
    """Tests in Python as plain data: those to be seen in `Prompt.public`, the hidden ones in `Problem.reference`.

    tests: each a piece of code that raises unless it passes. setup: code that runs after the candidate's, and before
    the tests. entry_points: names that are the candidate's, even if the setup defines them too. names: what else of
    the candidate's tests and setup use, such as a class.
    """
    data = {"tests": list(tests), "setup": setup, "entry_points": list(entry_points)}
    return data | ({"names": list(names)} if names else {})


class CodeTask(RecordTask):
    """Graded by running hidden tests, which this task only holds.

    asking: how it asks. grader: runs them; by default in a sandbox, made when the first answer is graded. program:
    reads a program out of a sequence; the same rule must be given to whatever runs tests. Votes go to programs that are
    the same but for layout and comments.
    """

    def __init__(
        self,
        source: Source | None,
        *,
        asking: Asking,
        program: ProgramRule,
        grader: Grader | None,
        limit: int | None,
    ) -> None:
        self._asking, self._grader = asking, grader
        self.program = program if asking.turns.assistant is None else WholeProgram(program)
        self._graded: dict[bytes, float] = {}
        super().__init__(source, answer=SameProgram(self.program), limit=limit)

    def hidden_tests(self) -> dict[str, dict[str, Any]]:
        """The hidden tests by problem id: `tests`, `setup` and `entry_points`, as `code_tests` makes them."""
        return {problem.id: json.loads(problem.reference) for problem in self.problems()}

    async def grade(self, problem: Problem, sequences: abc.Sequence[Sequence]) -> list[float]:
        """The grader's verdicts. Equal programs are run once, and a verdict is remembered.

        Raises BrokenTests (of `metagen.verifiers.code.hidden`) where the problem's own tests cannot run.
        """
        if self._grader is None:
            self._grader = sandbox_grader(self.hidden_tests(), self.program)
        names = [digest(problem.digest, repr(self.program.read(sequence))) for sequence in sequences]
        new = {n: s for n, s in zip(names, sequences, strict=True) if n not in self._graded}
        found = dict(zip(new, await self._grader(problem, list(new.values())), strict=True)) if new else {}
        values = [found[name] if name in found else self._graded[name] for name in names]
        if len(self._graded) + len(found) > REMEMBERED:
            self._graded.clear()
        self._graded |= found
        return values

    def _readable(self, found: Mapping[str, tuple[int, Problem]]) -> abc.Sequence[bool]:
        return [True] * len(found)


def sandbox_grader(hidden: Mapping[str, Mapping[str, Any]], program: ProgramRule) -> Grader:
    """Runs hidden tests, by problem id, in a sandbox of its own. Raises IsolationError where there can be none.

    A program that no test shows wrong, and one could not judge, has the grade nan: it is `ungraded`. The grader raises
    BrokenTests for a problem whose tests are no Python, or fail whatever the program does.
    """
    from metagen.verifiers.code.hidden import BrokenTests, HiddenTests
    from metagen.verifiers.code.sandbox import Sandbox
    from metagen.verifiers.code.tested import Tests, read_tests

    known, faulty = dict[str, Tests](), dict[str, str]()
    for name, data in hidden.items():
        try:
            tests = read_tests(data)
        except DataError as error:  # the fault of this problem, and of no other
            faulty[name] = str(error)
        else:
            known |= {} if tests is None else {name: tests}
    verifier = HiddenTests(Sandbox(), known, program=program)

    async def grade(problem: Problem, sequences: abc.Sequence[Sequence]) -> list[float]:
        if problem.id in faulty:
            raise BrokenTests(problem.id, faulty[problem.id])
        scores = await verifier.grade(sequences)
        return [math.nan if score.value is None else score.value for score in scores]

    return grade


class Until:
    """A program rule that reads what comes before `stop`: a base model goes on with a next problem of its own."""

    def __init__(self, program: ProgramRule, stop: str) -> None:
        self._program, self._stop = program, stop

    @property
    def fingerprint(self) -> str:
        return digest("until", self._program.fingerprint, self._stop).hex()

    def read(self, sequence: Sequence) -> str | None:
        return self._program.read(before(sequence, self._stop))


class WholeProgram:
    """A program rule that reads the whole turn of the assistant, as `Whole` reads answers."""

    def __init__(self, program: ProgramRule) -> None:
        self._program = program

    @property
    def fingerprint(self) -> str:
        return digest("whole turn", self._program.fingerprint).hex()

    def read(self, sequence: Sequence) -> str | None:
        return self._program.read(whole(sequence)) or self._program.read(sequence)


class WithPreamble:
    """Puts what a prompt gives before its function (imports, helpers: the public `preamble`) before the program."""

    def __init__(self, program: ProgramRule) -> None:
        self._program = program

    @property
    def fingerprint(self) -> str:
        return digest("with preamble", self._program.fingerprint).hex()

    def read(self, sequence: Sequence) -> str | None:
        program = self._program.read(sequence)
        preamble = sequence.prompt.public.get("preamble", "")
        if program is None or not preamble:
            return program
        # Python wants these before anything else.
        future = "".join(f"{line}\n" for line in _FUTURE.findall(program))
        return f"{future}{preamble}\n{program if not future else _FUTURE.sub('', program)}"


class OrBody:
    """A program as another rule reads it; where it defines none of the entry points, the prompt's stub with it as body.

    So are completions recorded: as what follows the signature and docstring, perhaps without the first indentation.
    """

    def __init__(self, program: ProgramRule) -> None:
        self._program = program

    @property
    def fingerprint(self) -> str:
        return digest("or body", "2", self._program.fingerprint).hex()

    def read(self, sequence: Sequence) -> str | None:
        program, public = self._program.read(sequence), sequence.prompt.public
        stub, points = public.get("setup"), public.get("entry_points")
        if not sequence.text or not stub or not points or "```" in sequence.text:
            return program
        if program is not None and re.search(
            rf"\b(?:def|class)\s+(?:{'|'.join(map(re.escape, points))})\b", program
        ):
            return program
        begun = Prompt(sequence.prompt.problem_id, text=stub)
        for indent in ("", " " * 4):
            whole = CompletedProgram().read(
                Sequence(begun, f"{indent}{sequence.text}", finish=sequence.finish)
            )
            if whole is not None and syntax_fault(whole) is None:
                return whole
        return program
