"""Executions of programs as leaf calls: once for each program, recorded, and charged."""

from __future__ import annotations

import ast
import asyncio
import re
from collections import abc
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from metagen.call import Ended, Item, Outcome, Request
from metagen.cost import Usage
from metagen.errors import DataError
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence, digest
from metagen.verifiers.code.io_tests import IOTests
from metagen.verifiers.code.limits import Limits
from metagen.verifiers.code.program import FencedProgram, ProgramRule
from metagen.verifiers.code.sandbox import Sandbox

#: Changes whenever a key of an output does.
EDITION = "3"
#: Runs a program, and says in JSON how it went.
Run = Callable[[str], Awaitable[dict[str, Any]]]


async def run_all(
    programs: Mapping[bytes, str], run: Run, *, by: str, scope: Scope
) -> dict[bytes, Mapping[str, Any]]:
    """The result of `run` for each program, by its name, as far as the budget goes. by: fingerprint of the execution.

    Raises a limit's refusal if not even one was reached.
    """
    if not programs:
        return {}
    texts = list(programs.values())

    async def execute(positions: abc.Sequence[int], cap: int | None, ended: Ended) -> list[Outcome]:
        async def one(place: int) -> Outcome:
            ended[place] = Outcome(await run(texts[positions[place]]), Usage(calls=1))
            return ended[place]

        return await asyncio.gather(*map(one, range(len(positions))))

    def worst(positions: abc.Sequence[int], cap: int | None) -> Usage:
        return Usage(calls=len(positions))

    rows = await scope.call(Request("execute", by, tuple(map(Item, programs))), execute, worst)
    return {row.content: row.payload or {} for row in rows}


class ProgramOutputs:
    """The outputs of programs on the public inputs of their prompt, which MBR-exec compares.

    `await outputs(sequences, scope)` gives for each sequence one key for each input, equal for equal values; a key of
    None where the program gave none, or is missing; None in place of all keys where the budget did not reach the
    program. The inputs are the prompt's public `inputs`, expressions such as `f(3)`; or else the calls in its public
    tests; of public tests by standard input, their inputs, and an output is what was written, without white space at
    the end of lines. Raises DataError for a prompt without either, and for sequences of several problems.
    """

    def __init__(
        self, sandbox: Sandbox, *, program: ProgramRule | None = None, limits: Limits | None = None
    ) -> None:
        self._sandbox, self._program = sandbox, program or FencedProgram()
        self._limits = limits or sandbox.limits

    @property
    def fingerprint(self) -> str:
        parts = (self._sandbox.language.fingerprint, self._program.fingerprint, repr(self._limits))
        return digest("program outputs", EDITION, *parts).hex()

    async def __call__(
        self, sequences: abc.Sequence[Sequence], scope: Scope
    ) -> list[tuple[str | None, ...] | None]:
        if not sequences:
            return []
        prompt = one_prompt(sequences)
        tests = IOTests.of(prompt.public)
        inputs = public_inputs(prompt) if tests is None else tests.inputs
        programs = {s.digest: p for s in sequences if (p := self._program.read(s)) is not None}
        limits = self._limits.of_test(prompt.public.get("seconds"), prompt.public.get("memory"))
        kind = "stdin" if tests else "" if limits == self._limits else repr(limits)
        by = digest(self.fingerprint, kind, *inputs).hex()

        async def run(program: str) -> dict[str, Any]:
            return await (self._run(program, inputs, limits) if tests is None else self._read(program, tests))

        found = await run_all(programs, run, by=by, scope=scope)
        nothing = (None,) * len(inputs)
        rows = {name: tuple(row["outputs"]) for name, row in found.items()}
        return [rows.get(s.digest) if s.digest in programs else nothing for s in sequences]

    async def _run(self, program: str, inputs: abc.Sequence[str], limits: Limits) -> dict[str, Any]:
        outcome = await self._sandbox.evaluate(program, inputs, limits=limits)
        keys = [answer.key for answer in outcome.answers]
        return {"outputs": keys + [None] * (len(inputs) - len(keys)), "verdict": outcome.verdict}

    async def _read(self, program: str, tests: IOTests) -> dict[str, Any]:
        outputs: list[str | None] = []
        verdict = ""
        for given, expected in zip(tests.inputs, tests.outputs, strict=True):
            limits = tests.limits(self._limits, expected)
            outcome = await self._sandbox.execute(program, stdin=given, limits=limits)
            verdict = outcome.verdict
            written = "\n".join(line.rstrip() for line in outcome.stdout.rstrip().split("\n"))
            outputs.append(digest(written).hex() if outcome.verdict == "finished" else None)
        return {"outputs": outputs, "verdict": verdict}


def output_classes(outputs: abc.Sequence[abc.Sequence[str | None] | None]) -> list[str | None]:
    """The answer class of each program, for voting: equal for programs with equal outputs on all inputs.

    The choice of the utility `ExecutionAgreement` in its 0-1 form is the majority of these classes (MBR-exec).

    `outputs[i][k]`: the output of program i on input k, None for no output. None for a program that failed anywhere, or
    was not run.
    """
    return [digest(*map(str, row)).hex() if row and None not in row else None for row in outputs]


def one_prompt(sequences: abc.Sequence[Sequence]) -> Prompt:
    """The first prompt, which stands for all; DataError for several problems, whose programs cannot be compared."""
    problems = list(dict.fromkeys(s.prompt.problem_id for s in sequences))
    if len(problems) > 1:
        raise DataError(
            f"programs for the problems {', '.join(map(repr, problems[:4]))} are compared; give those of one at a time"
        )
    return sequences[0].prompt


def public_inputs(prompt: Prompt) -> tuple[str, ...]:
    """Expressions to evaluate: the prompt's public `inputs`, or else the calls of entry points in its public tests.

    Where no entry points are named, calls of what the tests' setup defines do not count: the program has nothing of it.
    Raises DataError if there is neither.
    """
    given = tuple(prompt.public.get("inputs", ()))
    points, setup = tuple(prompt.public.get("entry_points", ())), prompt.public.get("setup", "")
    called = [call for test in prompt.public.get("tests", ()) for call in calls(test, points)]
    found = given or [call for call in called if points or not _defines(setup, call)]
    if not found:
        raise DataError(
            f"the prompt of problem {prompt.problem_id!r} has no public inputs to execute programs on; give "
            "public={'inputs': ['f(1)', …]}, or 'tests' and the names of their 'entry_points'"
        )
    return tuple(dict.fromkeys(found))


def _defines(code: str, call: str) -> bool:
    name = re.escape(call.partition("(")[0])
    return re.search(rf"^(?:async )?(?:def|class) +{name}\b", code, re.MULTILINE) is not None


def calls(code: str, entry_points: abc.Sequence[str]) -> list[str]:
    """The calls of entry points (of any name, if none is given) in a piece of code; none if it does not parse."""
    if len(code) > 10_000:  # nobody's test; and a parser can be made to use much memory
        return []
    try:
        return [
            ast.unparse(node)
            for node in ast.walk(ast.parse(code))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and (not entry_points or node.func.id in entry_points)
        ]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
