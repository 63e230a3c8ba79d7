"""CodeT: programs and generated tests vouch for each other (Chen et al. 2022)."""

from __future__ import annotations

import math
from collections import Counter, abc
from collections.abc import Callable
from dataclasses import field, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metagen.errors import DataError, InputError
from metagen.generators.base import Generator
from metagen.parts import name_of, part
from metagen.scope import Scope
from metagen.sequence import Message, Prompt, Score, Sequence, digest
from metagen.values import Count
from metagen.verifiers.base import UNSCORED, Verifier
from metagen.verifiers.code.check import EDITION, Suite, check, syntax_fault
from metagen.verifiers.code.limits import Limits
from metagen.verifiers.code.outputs import calls, one_prompt, run_all
from metagen.verifiers.code.program import FencedProgram, ProgramRule
from metagen.verifiers.code.sandbox import Sandbox

#: The score of a consensus set: |programs| · |tests|, or √|programs| · |tests|.
Rule = Literal["product", "sqrt"]


def ask_for_tests(task: Prompt) -> Prompt:
    """The question in words of our own. A task of text is gone on with, as by a model that completes programs."""
    name = next(iter(task.public.get("entry_points", ())), "")
    if task.text is not None:
        asked = f"    pass\n\n\n# Tests of {name or 'it'}:\nassert {name}("
        return replace(task, text=f"{task.text.rstrip()}\n{asked}")
    wanted = f"that call `{name}`" if name else "that call it"
    turn = f"Do not write the program. Write assertions {wanted}, one a line, such as `assert … == …`."
    return replace(task, messages=(*task.messages, Message("user", turn)))


@part
class DualAgreement(Verifier):
    """Scores programs by `dual_agreement` with tests that `generator` writes; scores are of the set scored together.

    ask: the prompt for tests, made of the problem's; `ask_for_tests` by default. Of its `n` samples, the assertions
    that call an entry point (the prompt's public `entry_points`; any function, if none is named) are taken in their
    order, `most` at most, and each once. rule: how a consensus set is scored. Each program is executed once, as a
    leaf call. Verdicts: `missing` without a program, `untested` if there is not one assertion. n: samples with tests.
    most: assertions that are kept. generator: writes the tests. Raises DataError for a problem whose programs read
    standard input.
    """

    sandbox: Sandbox = field(kw_only=False)
    generator: Generator = field(kw_only=False)
    ask: Callable[[Prompt], Prompt] = ask_for_tests
    n: Count = 8
    most: Count = 64
    rule: Rule = "product"
    program: ProgramRule | None = None
    limits: Limits | None = None
    name: str = "dual_agreement"

    def __post_init__(self) -> None:
        self._program = self.program or FencedProgram()
        self._limits = self.limits or self.sandbox.limits

    @property
    def relative(self) -> bool:
        return True

    @cached_property
    def fingerprint(self) -> str:
        rule = () if self.rule == "product" else (self.rule,)
        parts = (self.generator.fingerprint, str(self.n), str(self.most), name_of(self.ask), *rule)
        return digest("dual agreement", self._execution, *parts).hex()

    @property
    def _execution(self) -> str:
        parts = (self.sandbox.fingerprint, self._program.fingerprint, repr(self._limits))
        return digest("tests passed", EDITION, *parts).hex()

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        if not sequences:
            return []
        one_prompt(sequences)
        tests = await self._tests(sequences[0].prompt, scope)
        if tests is None:
            return [Score(None, verdict="untested") for _ in sequences]
        programs = {s.digest: p for s in sequences if (p := self._program.read(s)) is not None}
        by = digest(self._execution, tests.digest).hex()
        found = await run_all(programs, lambda program: self._test(program, tests), by=by, scope=scope)
        places = [i for i, s in enumerate(sequences) if s.digest in found]
        table = [found[sequences[i].digest]["passed"] for i in places]
        values = dict(zip(places, dual_agreement(table, self.rule), strict=True)) if places else {}
        return [self._score_of(s, values.get(i), s.digest in programs) for i, s in enumerate(sequences)]

    @staticmethod
    def _score_of(sequence: Sequence, value: float | None, program: bool) -> Score:
        if value is not None:
            return Score(float(value))
        return UNSCORED if program else Score(0.0, verdict="missing")

    async def _tests(self, prompt: Prompt, scope: Scope) -> Suite | None:
        if "io" in prompt.public:
            raise DataError(
                f"the programs of problem {prompt.problem_id!r} read standard input, and CodeT's tests are assertions "
                "that call a function; choose by public tests, or by what the programs write (mbr with execution)"
            )
        points = tuple(prompt.public.get("entry_points", ()))
        prefix = Sequence.of(self.ask(prompt))
        written = await self.generator.generate(prefix, n=self.n, scope=scope)
        # A prompt may end in the middle of the first assertion.
        texts = [(prefix.prompt.text or "").rpartition("\n")[2] + s.text for s in written]
        found = dict.fromkeys(test for text in texts for test in assertions(text, points))
        return Suite.of({**prompt.public, "tests": tuple(found)[: self.most]})

    async def _test(self, program: str, tests: Suite) -> dict[str, Any]:
        report = await check(self.sandbox, program, tests, limits=self._limits, stop=False)
        return {"passed": [case.verdict == "passed" for case in report.cases]}


def dual_agreement(passed: ArrayLike, rule: Rule = "product") -> NDArray[np.float64]:
    """CodeT's score of each program, in [0, 1]; passed[i, k] says whether program i passes test k.

    Programs that pass the same tests form a consensus set S with these tests. Its score is |programs| · |tests| by the
    rule `product` (Chen et al. 2022, CodeT, section 2), and √|programs| · |tests| by `sqrt` (the authors' code,
    microsoft/CodeT, `CodeT/src/agreement.py`), here divided by the most that it can be. A program that passes no test
    is in no set: 0. passed: bool, [programs, tests]; the result is [programs]. Raises InputError for a table of another
    shape, or without rows or columns, and for another rule.
    """
    table = np.asarray(passed, dtype=bool)
    if table.ndim != 2 or not table.size:
        raise InputError(
            f"passed is a table of programs by tests, one of each at least; got shape {table.shape!r}"
        )
    if rule not in get_args(Rule):
        raise InputError(f"rule={rule!r}: expected one of {', '.join(get_args(Rule))}")
    power = 1.0 if rule == "product" else 0.5
    names = [row.tobytes() for row in table]
    sizes = Counter(names)
    worth = [sizes[n] ** power * row.sum() for n, row in zip(names, table, strict=True)]
    return np.asarray(worth, dtype=np.float64) / float(len(table) ** power * table.shape[1])


def codet_at_k(scores: ArrayLike, correct: ArrayLike, k: int) -> float:
    """CodeT@k of one problem: the probability that a right program is among k that are taken by rank.

    scores: of `dual_agreement`; correct: whether each program is right; both [programs]. As in the authors' code
    (microsoft/CodeT, `CodeT/src/evaluation.py`): consensus sets are ranked by their score, sets of equal score are one,
    and one random program of each of the k best is taken. Where there are fewer than k, the sets are gone through
    again in their order, and each draw is a new one. Programs without a score above 0 are in no set; where that is all
    of them, the k programs are any (pass@k). Raises InputError for arrays of another shape, and a k that is none.
    """
    # Rounded: sets of one score may differ in their last bit.
    values, right = np.asarray(scores, dtype=np.float64).round(12), np.asarray(correct, dtype=bool)
    if values.ndim != 1 or values.shape != right.shape or not values.size or np.isnan(values).any():
        raise InputError(
            f"scores and correct have one value for each program, at least one; got {values.shape!r} and "
            f"{right.shape!r}"
        )
    if not 1 <= k <= values.size:
        raise InputError(f"k={k!r}: expected from 1 to the number of programs, {values.size}")
    ranked = np.unique(values[values > 0])[::-1]
    if not ranked.size:
        wrong = int((~right).sum())
        return 1.0 - math.comb(wrong, k) / math.comb(values.size, k)
    wrong_shares = [1.0 - right[values == score].mean() for score in ranked]
    return float(1.0 - np.prod([wrong_shares[i % len(wrong_shares)] for i in range(k)]))


def assertions(text: str, entry_points: abc.Sequence[str]) -> list[str]:
    """The assertions of one line in a model's text that call an entry point (any function, if none is named).

    Line by line, since a model's text stops being a program where its length ends.
    """
    lines = (line.strip() for line in text.splitlines())
    written = [line for line in lines if line.startswith("assert") and calls(line, entry_points)]
    return [line for line in written if syntax_fault(line) is None]
