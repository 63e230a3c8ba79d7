"""Tool calls inside of a text: the model writes a call, the tool's result is written after it, the model goes on."""

from __future__ import annotations

import re
from collections.abc import Mapping

from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator, is_count
from metagen.matching import first_match
from metagen.scope import Scope
from metagen.sequence import Sequence, Until, digest
from metagen.strategies.base import Strategy
from metagen.strategies.candidates import concluded
from metagen.strategies.chain.use import shown
from metagen.strategies.reopen import reopened
from metagen.strategies.tools import Function, Tool, ToolError, as_tool
from metagen.template import Template
from metagen.verifiers.base import AnswerRule


class Interleaved(Strategy):
    """Lets a generator call one tool in the middle of its text (Toolformer, Schick et al. 2023).

    call: a regular expression for a call at the end of the text; its named groups are the tool's arguments.
    result: what is written after it, with a place for {result}; errors that the tool reports are written there too.
    until: where to look for a call; by default where the generator stops by itself, at one of its stop texts.

    most: calls, and pieces of text without one. Then the generator goes on to its end, and `result` is written no more.
    The text that the tool has written is part of the sequence. Raises InputError for a `call` whose
    groups are not the tool's arguments.
    """

    def __init__(
        self,
        generator: Generator,
        tool: Tool | Function,
        *,
        call: str,
        result: str = "{result}",
        until: Until = None,
        most: int = 32,
        answer: AnswerRule | None = None,
    ) -> None:
        self.generator, self.tool, self.answer = generator, as_tool(tool), answer
        self.until, self.most = until, most
        self.result = Template(result).expecting("result", name="result")
        if not is_count(most, 1):
            raise InputError(f"most={most!r}: expected how many calls there may be, at least 1")
        if not generator.accepts_prefix or (until is not None and not generator.accepts_until):
            raise UnsupportedError(f"{generator!r} cannot be stopped and sent on; Interleaved needs both")
        try:
            self.call = re.compile(rf"(?:{call})\Z")
        except re.error as error:
            raise InputError(f"call={call!r} is no regular expression ({error})") from None
        groups = set(self.call.groupindex)
        if not set(self.tool.required) <= groups <= {*self.tool.required, *self.tool.optional}:
            raise InputError(
                f"call={call!r} has the groups {sorted(groups)}; the tool {self.tool.name!r} takes "
                f"{', '.join(self.tool.required)}: write (?P<name>…) for each"
            )

    @property
    def fingerprint(self) -> str:
        parts = (self.generator.fingerprint, self.tool.fingerprint, self.call.pattern, self.result.text)
        rule = self.answer.fingerprint if self.answer else ""
        return digest("interleaved", *parts, repr(self.until), str(self.most), rule).hex()

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        text = prefix
        for i in range(self.most):
            (text,) = await self.generator.generate(text, until=self.until, scope=scope.child(f"text/{i}"))
            found = first_match(self.call, text.text, len(prefix.text))
            if text.finish in ("eos", "length") or (found is None and text.finish is not None):
                break
            if found is not None:
                told = await self._told(found.named, scope.child(f"tool/{i}"))
                text = reopened(text, self.result.fill({"result": told}))
            scope.offers.clear()
            scope.offer(text)
        else:
            (text,) = await self.generator.generate(text, scope=scope.child("rest"))
        return await concluded(text, scope, self.answer)

    async def _told(self, arguments: Mapping[str, str | None], scope: Scope) -> str:
        given = {name: value for name, value in arguments.items() if value is not None}
        try:
            return shown(await self.tool.call(self.tool.read(given), scope))
        except ToolError as error:
            return str(error)
