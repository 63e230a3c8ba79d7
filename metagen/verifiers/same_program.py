"""Answers that are programs: the same if they are written the same."""

from __future__ import annotations

import ast
from collections import abc
from dataclasses import field

from metagen.parts import part
from metagen.sequence import Sequence, digest
from metagen.verifiers.base import Answer, AnswerRule
from metagen.verifiers.code.program import ProgramRule
from metagen.verifiers.source import parse

#: A longer program has no key; its syntax tree would be large.
MAX_PROGRAM = 50_000


@part
class SameProgram(AnswerRule):
    """The key of a program is its syntax tree: layout and comments make no difference. `unparsable` if it has none.

    Examples:
        >>> import asyncio
        >>> from metagen.verifiers.code.program import FencedProgram
        >>> from metagen.verifiers.same_program import SameProgram
        >>> rule = SameProgram(FencedProgram())
        >>> asyncio.run(rule.key("x = 1+1  # two")) == asyncio.run(rule.key("x = 1 + 1"))
        True
    """

    program: ProgramRule = field(kw_only=False)

    @property
    def fingerprint(self) -> str:
        return digest("same program", self.program.fingerprint).hex()

    async def read(self, sequences: abc.Sequence[Sequence]) -> list[Answer]:
        return [await self._answer(self.program.read(sequence)) for sequence in sequences]

    async def key(self, answer: str) -> str | None:
        if len(answer) > MAX_PROGRAM:
            return None
        try:
            return digest(ast.dump(parse(answer))).hex()
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None

    async def _answer(self, program: str | None) -> Answer:
        if program is None:
            return Answer(verdict="missing")
        key = await self.key(program)
        return Answer(program, key, None if key is not None else "unparsable")
