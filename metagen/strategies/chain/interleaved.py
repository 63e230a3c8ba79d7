"""Tool calls inside of a text, and self-ask: the model writes a call, the tool's result follows, the model goes on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace

from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator
from metagen.matching import first_match
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Sequence, Until
from metagen.strategies.base import Strategy
from metagen.strategies.candidates import conclude
from metagen.strategies.chain.steps import to_text
from metagen.strategies.reopen import reopen, stop_at
from metagen.strategies.tools import Function, Tool, ToolError, as_tool
from metagen.template import Template
from metagen.values import Count
from metagen.verifiers.base import AnswerRule


@part
class Interleaved(Strategy):
    """Lets a generator call one tool in the middle of its text (Toolformer, Schick et al. 2023).

    call: a regular expression for a call at the end of the text; its named groups are the tool's arguments.
    result: what is written after it, with a place for {result}; errors that the tool reports are written there too.
    until: where to look for a call; by default where the generator stops by itself, at one of its stop texts.

    most: calls, and pieces of text without one. Then the generator goes on to its end, and `result` is written no
    more; a text that ends with a call all the same is returned unfinished, and has no vote. The text that the tool has
    written is part of the sequence. tool: the function that it may call. step: what is written between two looks for a
    call. Raises InputError for a `call` whose groups are not the tool's arguments. Raises UnsupportedError for a
    generator that cannot be stopped and sent on.
    """

    generator: Generator = field(kw_only=False)
    tool: Tool | Function = field(kw_only=False)
    call: str
    result: str = "{result}"
    until: Until = None
    most: Count = 32
    answer: AnswerRule | None = None

    def __post_init__(self) -> None:
        self._tool = as_tool(self.tool)
        self._result = Template(self.result).expecting("result", name="result")
        if not self.generator.accepts_prefix or (self.until is not None and not self.generator.accepts_until):
            raise UnsupportedError(
                f"{self.generator!r} cannot be stopped and sent on; Interleaved needs both"
            )
        try:
            self._call = re.compile(rf"(?:{self.call})\Z")
        except re.error as error:
            raise InputError(f"call={self.call!r} is no regular expression ({error})") from None
        groups, required = set(self._call.groupindex), set(self._tool.required)
        if not required <= groups <= {*required, *self._tool.optional}:
            raise InputError(
                f"call={self.call!r} has the groups {sorted(groups)}; the tool {self._tool.name!r} takes "
                f"{', '.join(self._tool.required)}: write (?P<name>…) for each"
            )

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        text = prefix
        for i in range(self.most):
            (text,) = await self.generator.generate(text, until=self.until, scope=scope.child(f"text/{i}"))
            found = first_match(self._call, text.text, len(prefix.text))
            if text.finish in ("eos", "length") or (found is None and text.finish is not None):
                break
            if found is not None:
                told = await self._tell(found.named, scope.child(f"tool/{i}"))
                text = reopen(text, self._result.fill({"result": told}))
            scope.offers.clear()
            scope.offer(text)
        else:
            (text,) = await self.generator.generate(text, scope=scope.child("rest"))
            if text.finish == "stop" and first_match(self._call, text.text, len(prefix.text)):
                text = replace(text, finish=None)
        return await conclude(text, scope, self.answer)

    async def _tell(self, arguments: Mapping[str, str | None], scope: Scope) -> str:
        given = {name: value for name, value in arguments.items() if value is not None}
        try:
            return to_text(await self._tool.call(self._tool.read(given), scope))
        except ToolError as error:
            return str(error)


FOLLOW_UP = "Follow up:"
INTERMEDIATE = "Intermediate answer:"


def self_ask(
    generator: Generator, search: Tool | Function, *, most: int = 5, answer: AnswerRule | None = None
) -> Interleaved:
    """Puts "Intermediate answer: …" of `search(query)` after each "Follow up: …" of the model, until it answers.

    generator: is told to stop before "Intermediate answer:" too. Its prompts should show the form by worked examples,
    which models without training for it need. search: a function of the query.
    """
    return Interleaved(
        stop_at(generator, INTERMEDIATE),
        search,
        call=rf"{FOLLOW_UP}[ \t]*(?P<query>[^\n]+)\s*",
        result=INTERMEDIATE + " {result}\n",
        most=most,
        answer=answer,
    )
