"""CodeT: programs and generated tests vouch for each other (Chen et al. 2022)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as Ordered
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metagen.errors import InputError
from metagen.generators.base import Generator
from metagen.scope import Scope
from metagen.sequence import Message, Prompt, Score, Sequence, digest
from metagen.verifiers.base import UNSCORED, Verifier
from metagen.verifiers.code.check import EDITION, Suite, check, syntax_fault
from metagen.verifiers.code.limits import Limits
from metagen.verifiers.code.outputs import calls, executed, one_prompt
from metagen.verifiers.code.program import FencedProgram, ProgramRule
from metagen.verifiers.code.sandbox import Sandbox
from metagen.verifiers.naming import name_of


def ask_for_tests(task: Prompt) -> Prompt:
    """The question in words of our own. A task of text is gone on with, as by a model that completes programs."""
    name = next(iter(task.public.get("entry_points", ())), "")
    if task.text is not None:
        asked = f"    pass\n\n\n# Tests of {name or 'it'}:\nassert {name}("
        return replace(task, text=f"{task.text.rstrip()}\n{asked}")
    wanted = f"that call `{name}`" if name else "that call it"
    turn = f"Do not write the program. Write assertions {wanted}, one a line, such as `assert … == …`."
    return replace(task, messages=(*task.messages, Message("user", turn)))


class DualAgreement(Verifier):
    """Scores programs by `dual_agreement` with tests that `generator` writes; scores are of the set scored together.

    ask: the prompt for tests, made of the problem's; `ask_for_tests` by default. Of its `n` samples, the assertions
    that call an entry point (the prompt's public `entry_points`; any function, if none is named) are taken in their
    order, `most` at most. Each program is executed once, as a leaf call. Verdicts: `missing` without a program,
    `untested` if there is not one assertion. Raises InputError for n or most below 1.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        generator: Generator,
        *,
        ask: Callable[[Prompt], Prompt] = ask_for_tests,
        n: int = 8,
        most: int = 64,
        program: ProgramRule | None = None,
        limits: Limits | None = None,
        name: str = "dual_agreement",
    ) -> None:
        if n < 1 or most < 1:
            raise InputError(
                f"{name}: n={n!r}, most={most!r}; expected numbers of samples and of tests, at least 1"
            )
        self.name = name
        self._sandbox, self._program = sandbox, program or FencedProgram()
        self._limits = limits or sandbox.limits
        self._generator, self._ask, self._n, self._most = generator, ask, n, most

    @property
    def relative(self) -> bool:
        return True

    @property
    def fingerprint(self) -> str:
        parts = (self._generator.fingerprint, str(self._n), str(self._most), name_of(self._ask))
        return digest("dual agreement", self._execution, *parts).hex()

    @property
    def _execution(self) -> str:
        parts = (self._sandbox.fingerprint, self._program.fingerprint, repr(self._limits))
        return digest("tests passed", EDITION, *parts).hex()

    async def score(self, sequences: Ordered[Sequence], *, scope: Scope) -> list[Score]:
        if not sequences:
            return []
        one_prompt(sequences)
        tests = await self._tests(sequences[0].prompt, scope)
        if tests is None:
            return [Score(None, verdict="untested") for _ in sequences]
        programs = {s.digest: p for s in sequences if (p := self._program.read(s)) is not None}
        by = digest(self._execution, tests.digest).hex()
        found = await executed(programs, lambda program: self._passed(program, tests), by=by, scope=scope)
        places = [i for i, s in enumerate(sequences) if s.digest in found]
        table = [found[sequences[i].digest]["passed"] for i in places]
        values = dict(zip(places, dual_agreement(table), strict=True)) if places else {}
        return [self._scored(s, values.get(i), s.digest in programs) for i, s in enumerate(sequences)]

    @staticmethod
    def _scored(sequence: Sequence, value: float | None, program: bool) -> Score:
        if value is not None:
            return Score(float(value))
        return UNSCORED if program else Score(0.0, verdict="missing")

    async def _tests(self, prompt: Prompt, scope: Scope) -> Suite | None:
        points = tuple(prompt.public.get("entry_points", ()))
        prefix = Sequence.of(self._ask(prompt))
        written = await self._generator.generate(prefix, n=self._n, scope=scope)
        # A prompt may end in the middle of the first assertion.
        texts = [(prefix.prompt.text or "").rpartition("\n")[2] + s.text for s in written]
        found = dict.fromkeys(test for text in texts for test in assertions(text, points))
        return Suite(tuple(found)[: self._most], prompt.public.get("setup", ""), points) if found else None

    async def _passed(self, program: str, tests: Suite) -> dict[str, Any]:
        report = await check(self._sandbox, program, tests, limits=self._limits, stop=False)
        return {"passed": [case.verdict == "passed" for case in report.cases]}


def dual_agreement(passed: ArrayLike) -> NDArray[np.float64]:
    """CodeT's score of each program, in [0, 1]; passed[i, k] says whether program i passes test k.

    Programs that pass the same tests form a consensus set with these tests; its score is the number of
    programs times the number of tests (Chen et al. 2022, CodeT), here divided by all of both. passed: bool,
    [programs, tests]; the result is [programs]. Raises InputError for a table of another shape, or without rows or
    columns.
    """
    table = np.asarray(passed, dtype=bool)
    if table.ndim != 2 or not table.size:
        raise InputError(
            f"passed is a table of programs by tests, one of each at least; got shape {table.shape!r}"
        )
    names = [row.tobytes() for row in table]
    sizes = Counter(names)
    return np.array([sizes[n] * row.sum() for n, row in zip(names, table, strict=True)]) / table.size


def assertions(text: str, entry_points: Ordered[str]) -> list[str]:
    """The assertions of one line in a model's text that call an entry point (any function, if none is named).

    Line by line, since a model's text stops being a program where its length ends.
    """
    lines = (line.strip() for line in text.splitlines())
    written = [line for line in lines if line.startswith("assert") and calls(line, entry_points)]
    return [line for line in written if syntax_fault(line) is None]
