"""A step that calls a tool."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from metagen.errors import InputError
from metagen.scope import Scope
from metagen.sequence import Score, digest
from metagen.strategies.chain.step import ChainStep, Inputs, Output
from metagen.strategies.tools import Function, Tool, ToolError, as_tool
from metagen.template import Template


class Use(ChainStep):
    """Calls a tool: `Use(search, query="{question}")`.

    An argument is a template, or a JSON value as it is. Arguments of the tool that are not given, and have no default,
    are read from the steps of their names; from a tool's step they get its value, from others the text.
    tell: an error that the tool reports becomes the text of the output, for other steps to read; as the result of the
    chain it is unfinished, and has no vote. False lets it end the chain.
    Raises InputError for arguments that the tool does not take, or that are no JSON.
    """

    def __init__(self, tool: Tool | Function, /, *, tell: bool = True, **given: Any) -> None:
        self.tool, self.tell = as_tool(tool), tell
        known = (*self.tool.required, *self.tool.optional)
        if unknown := sorted(set(given) - set(known)):
            raise InputError(
                f"the tool {self.tool.name!r} has no argument {unknown[0]!r}; it takes {', '.join(known) or 'none'}"
            )
        for name, value in given.items():
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise InputError(
                    f"the tool {self.tool.name!r} is given {name}={value!r:.60}, which is not JSON ({error}); "
                    "give texts, numbers, lists and dictionaries of these"
                ) from None
        self.given = {name: Template(v) if isinstance(v, str) else v for name, v in given.items()}
        self.read = tuple(name for name in self.tool.required if name not in given)

    @property
    def needs(self) -> tuple[str, ...]:
        places = [place for v in self.given.values() if isinstance(v, Template) for place in v.places]
        return tuple(dict.fromkeys((*places, *self.read)))

    @property
    def fingerprint(self) -> str:
        given = {name: v.text if isinstance(v, Template) else v for name, v in self.given.items()}
        return digest("use", self.tool.fingerprint, json.dumps(given, sort_keys=True), str(self.tell)).hex()

    async def perform(self, inputs: Inputs, scope: Scope) -> Output:
        try:
            value = await self.tool.call(self._arguments(inputs), scope)
        except ToolError as error:
            if not self.tell:
                raise
            return Output(str(error), failed=True)
        return Output(shown(value), value=value)

    def _arguments(self, inputs: Inputs) -> Mapping[str, Any]:
        filled = {n: v.fill(inputs.texts) if isinstance(v, Template) else v for n, v in self.given.items()}
        return filled | {name: _read(inputs, name) for name in self.read}


def use(tool: Tool | Function, *, given: Mapping[str, Any] | None = None, tell: bool = True) -> Use:
    """`Use` with its arguments by name in a mapping: for experiment files."""
    return Use(tool, tell=tell, **(given or {}))


def _read(inputs: Inputs, name: str) -> Any:
    output = inputs.outputs.get(name)
    if output is None or output.value is None or isinstance(output.value, Score):
        return inputs.texts[name]
    return output.value


def shown(value: Any) -> str:
    """A tool's result as text: a text as it is, a list of texts line by line, and the rest as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return "\n".join(value)
    return json.dumps(value, ensure_ascii=False)
