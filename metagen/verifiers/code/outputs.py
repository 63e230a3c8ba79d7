"""What programs do, as leaf calls: executed once for each program, recorded, and charged."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Sequence as Ordered
from typing import Any

from metagen.call import Ended, Item, Outcome, Request
from metagen.cost import Usage
from metagen.errors import DataError
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence, digest
from metagen.verifiers.code.limits import Limits
from metagen.verifiers.code.program import FencedProgram, ProgramRule
from metagen.verifiers.code.sandbox import Sandbox

#: Runs a program, and says in JSON how it went.
Run = Callable[[str], Awaitable[dict[str, Any]]]


async def executed(
    programs: Mapping[bytes, str], run: Run, *, by: str, scope: Scope
) -> dict[bytes, Mapping[str, Any]]:
    """What `run` says of each program, by its name, as far as the budget goes. by: a fingerprint of what is run.

    Raises BudgetExhausted if not even one was reached.
    """
    if not programs:
        return {}
    texts = list(programs.values())

    async def execute(positions: Ordered[int], cap: int | None, ended: Ended) -> list[Outcome]:
        async def one(place: int) -> Outcome:
            ended[place] = Outcome(await run(texts[positions[place]]), Usage(calls=1))
            return ended[place]

        return await asyncio.gather(*map(one, range(len(positions))))

    def worst(positions: Ordered[int], cap: int | None) -> Usage:
        return Usage(calls=len(positions))

    rows = await scope.call(Request("execute", by, tuple(map(Item, programs))), execute, worst)
    return {row.content: row.payload or {} for row in rows}


class ProgramOutputs:
    """The outputs of programs on the public inputs of their prompt: what MBR-exec compares.

    `await outputs(sequences, scope)` gives for each sequence one key for each input, equal for equal values; None
    where the program gave none, or is missing, or the budget did not reach it. The inputs are the prompt's
    public `inputs`, expressions such as `f(3)`; or else the calls in its public tests.
    """

    def __init__(
        self, sandbox: Sandbox, *, program: ProgramRule | None = None, limits: Limits | None = None
    ) -> None:
        self._sandbox, self._program = sandbox, program or FencedProgram()
        self._limits = limits or sandbox.limits

    @property
    def fingerprint(self) -> str:
        language, program = self._sandbox.language.fingerprint, self._program.fingerprint
        return digest("program outputs", language, program, repr(self._limits)).hex()

    async def __call__(self, sequences: Ordered[Sequence], scope: Scope) -> list[tuple[str | None, ...]]:
        if not sequences:
            return []
        inputs = public_inputs(sequences[0].prompt)
        programs = {s.digest: p for s in sequences if (p := self._program.read(s)) is not None}
        by = digest(self.fingerprint, *inputs).hex()
        found = await executed(programs, lambda program: self._run(program, inputs), by=by, scope=scope)
        nothing = (None,) * len(inputs)
        return [tuple(found[s.digest]["outputs"]) if s.digest in found else nothing for s in sequences]

    async def _run(self, program: str, inputs: Ordered[str]) -> dict[str, Any]:
        outcome = await self._sandbox.evaluate(program, inputs, limits=self._limits)
        keys = [answer.key for answer in outcome.answers]
        return {"outputs": keys + [None] * (len(inputs) - len(keys)), "verdict": outcome.verdict}


def public_inputs(prompt: Prompt) -> tuple[str, ...]:
    """Expressions to evaluate: the prompt's public `inputs`, or else the calls of entry points in its public tests."""
    given = tuple(prompt.public.get("inputs", ()))
    points = tuple(prompt.public.get("entry_points", ()))
    found = given or [call for test in prompt.public.get("tests", ()) for call in calls(test, points)]
    if not found:
        raise DataError(
            f"the prompt of problem {prompt.problem_id!r} has no public inputs to execute programs on; give "
            "public={'inputs': ['f(1)', …]}, or 'tests' and the names of their 'entry_points'"
        )
    return tuple(dict.fromkeys(found))


def calls(code: str, entry_points: Ordered[str]) -> list[str]:
    """The calls of entry points (of any name, if none is given) in a piece of code; none if it does not parse."""
    if len(code) > 10_000:  # nobody's test; and a parser can be made to use much memory
        return []
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and (not entry_points or node.func.id in entry_points)
    ]
