"""Tool use with JSON calls: in each turn the model calls one of the tools, or answers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import field, replace
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model

from metagen.errors import InputError, PromptError
from metagen.generators.base import Generator
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Sequence, Until
from metagen.strategies.base import Strategy
from metagen.strategies.candidates import conclude
from metagen.strategies.chain.steps import reply_to, to_text
from metagen.strategies.chain.typed import hold, json_of
from metagen.strategies.tools import Function, Tool, ToolError, as_tool, faults
from metagen.template import Template
from metagen.values import Count
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.generative.question import in_words

ASK: Final = """\
{prompt}

There are these tools, each with a JSON schema of its arguments:
{tools}

In each turn write one JSON object and nothing else: {"tool": name, "arguments": {...}} to call a tool, or
{"answer": text} when you know the answer.
"""
TURN: Final = "Result: {result}\n"


class Turn(BaseModel):
    """What the model writes in a turn, and nothing beside."""

    model_config = ConfigDict(extra="forbid")


class Call(Turn):
    """A turn that calls a tool."""

    tool: str
    arguments: dict[str, Any] = {}


class Conclusion(Turn):
    """A turn that answers."""

    answer: str


@part
class ToolUse(Strategy):
    """Lets a generator call tools by JSON, for at most `most` turns; its answer is the result.

    A generator that supports grammars is held to answers, and to calls of these tools with arguments that fit. Of
    others, a turn that is no JSON, names no tool, or has arguments that do not fit the tool, is answered with what was
    wrong. If no turn answers before `most`, the budget or the model's context ends, the last one is returned as it was
    written, unfinished: a call has no vote.

    ask: has the places {prompt} and {tools}. turn: has {result}; it follows what the model has written, as a text, or
    with `chat` as a turn of its own. tools: functions that it may call. most: turns at most. Raises InputError for no
    tools, or tools of equal names.
    """

    generator: Generator = field(kw_only=False)
    tools: Iterable[Tool | Function] = field(kw_only=False)
    most: Count = 8
    ask: str = ASK
    turn: str = TURN
    chat: bool = False
    answer: AnswerRule | None = None

    def __post_init__(self) -> None:
        self.tools = made = tuple(map(as_tool, self.tools))
        self._tools = {tool.name: tool for tool in made}
        if not made or len(self._tools) < len(made):
            raise InputError(f"tools={[tool.name for tool in made]!r}: expected tools of different names")
        self._ask = Template(self.ask).expecting("prompt", "tools", name="ask")
        self._turn = Template(self.turn).expecting("result", name="turn")
        self._held, self._described = hold(self.generator, turns_of(made)), describe(made)

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        words = in_words(prefix.prompt) + prefix.text
        turns = [self._ask.fill({"prompt": words, "tools": self._described})]
        sequence = prefix
        for i in range(self.most):
            try:
                said = await reply_to(
                    prefix, *turns, generator=self._held, scope=scope.child(f"turn/{i}"), chat=self.chat
                )
            except PromptError:  # longer than the context, by what was called and told
                if i == 0:
                    raise
                break
            sequence = replace(said.reroot(prefix), finish=None)
            scope.offers.clear()
            scope.offer(sequence)
            try:
                move = self._read(said.text)
                if isinstance(move, Conclusion):
                    sequence = prefix.extend(move.answer, finish="eos")
                    break
                tool = self._tools[move.tool]
                result = to_text(await tool.call(tool.read(move.arguments), scope.child(f"tool/{i}")))
            except ToolError as error:
                result = str(error)
            turns += [said.text, self._turn.fill({"result": result})]
        return await conclude(sequence, scope, self.answer)

    def _read(self, text: str) -> Call | Conclusion:
        """What a turn does; ToolError for what cannot be done."""
        try:
            data = json.loads(json_of(text))
            kind = Conclusion if isinstance(data, dict) and "answer" in data else Call
            move = kind.model_validate(data)
        except ValidationError as error:
            raise ToolError(f"neither a call nor an answer: {faults(error)}") from None
        except ValueError as error:
            raise ToolError(str(error)) from None
        if isinstance(move, Call) and move.tool not in self._tools:
            raise ToolError(f"no tool is called {move.tool!r}; there are {', '.join(self._tools)}")
        return move


def turns_of(tools: Iterable[Tool]) -> dict[str, Any]:
    """The JSON schema of a turn: an answer, or a call of one of the tools with arguments that fit."""
    turns: Any = Conclusion
    for tool in tools:
        fields: dict[str, Any] = {"tool": Literal[tool.name], "arguments": tool.arguments}
        turns = turns | create_model(f"call_{tool.name}", __base__=Turn, **fields)
    return TypeAdapter(turns).json_schema()


def describe(tools: Iterable[Tool]) -> str:
    """Name, description and schema of the arguments of each tool, a line each."""
    return "\n".join(
        f"{tool.name}: {tool.about} {json.dumps(tool.arguments.model_json_schema(), ensure_ascii=False)}"
        for tool in tools
    )
