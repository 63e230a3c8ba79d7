"""Tools: functions that a strategy calls, with a time-out and retries; recorded, and charged as a call."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import abc
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, PydanticUserError, ValidationError, create_model
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential, wait_random

from metagen import threads
from metagen.border import blamed, is_async, ours
from metagen.call import Ended, Item, Outcome, Request
from metagen.cost import Usage
from metagen.errors import InputError, MetagenError
from metagen.generators.base import is_count
from metagen.scope import Scope
from metagen.sequence import digest

#: What a tool is made of; it may be async. Arguments and result are JSON.
Function = Callable[..., Any] | Callable[..., Awaitable[Any]]


class ToolError(MetagenError):
    """A tool says that it cannot do what was asked, or took too long. It is a result: recorded, and not retried."""


class Tool:
    """A function with named arguments, as a leaf call of a strategy.

    A result, once recorded, is never computed again: the function should give the same for the same arguments, and
    change nothing. ToolError raised by the function is recorded as its result.

    name: as models call it; by default the function's. version: names what the function depends on, such as a corpus;
    both are part of the fingerprint: change one when the function changes its mind.
    timeout: seconds of one attempt; when the last attempt takes longer, that is recorded too, so timeout and attempts
    are part of the fingerprint as well. A plain function runs in a thread, one call after the other; it cannot be
    stopped, and goes on unheard.
    attempts: of calls that raise one of `retry_on`, or take too long, with waits of `wait` seconds, doubled each
    time up to a minute and shifted at random. What is still raised after the last is raised, and not recorded, so
    that a resumed run tries again; every other error is raised at once.

    Raises InputError for a lambda without a name, and for a function that takes arguments without names.
    """

    def __init__(
        self,
        function: Function,
        *,
        name: str | None = None,
        version: str = "",
        timeout: float | None = 30.0,
        attempts: int = 3,
        wait: float = 0.5,
        retry_on: tuple[type[Exception], ...] = (OSError,),
    ) -> None:
        name = name or str(getattr(function, "__name__", ""))
        if not name.isidentifier():
            raise InputError(
                f"a tool is called {name!r}; give it name=, a word without spaces, such as 'search'"
            )
        if (timeout is not None and timeout <= 0) or not is_count(attempts, 1) or wait < 0:
            raise InputError(
                f"the tool {name!r} has timeout={timeout!r}, attempts={attempts!r}, wait={wait!r}: expected seconds "
                "above 0 or None, at least 1 attempt, and seconds from 0"
            )
        self.name, self.version, self.timeout, self.attempts = name, version, timeout, attempts
        self._function, self._wait = function, wait
        self._retry_on: tuple[type[Exception], ...] = (TimeoutError, *retry_on)
        self._taken = inspect.signature(function).parameters
        odd = [
            p.name for p in self._taken.values() if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        ]
        if odd:
            raise InputError(
                f"the tool {name!r} takes {odd[0]!r} by place or by any name; give it named arguments"
            )

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    @property
    def fingerprint(self) -> str:
        patience = (repr(self.timeout and float(self.timeout)), str(self.attempts))
        return digest("tool", self.name, self.version, *patience, *self._taken).hex()

    @property
    def required(self) -> tuple[str, ...]:
        """Arguments without a default."""
        return tuple(p.name for p in self._taken.values() if p.default is p.empty)

    @property
    def optional(self) -> tuple[str, ...]:
        """Arguments with a default."""
        return tuple(p.name for p in self._taken.values() if p.default is not p.empty)

    @property
    def about(self) -> str:
        """The first paragraph of the function's docstring."""
        return (inspect.getdoc(self._function) or "").partition("\n\n")[0]

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """Its arguments as a pydantic model, by the function's annotations."""
        try:
            fields: dict[str, Any] = {
                p.name: (
                    Any if p.annotation is p.empty else p.annotation,
                    ... if p.default is p.empty else p.default,
                )
                for p in inspect.signature(self._function, eval_str=True).parameters.values()
            }
            model: type[BaseModel] = create_model(self.name, __config__=ConfigDict(extra="forbid"), **fields)
            model.model_rebuild()
        except (NameError, PydanticUserError) as error:
            raise InputError(f"the annotations of the tool {self.name!r} cannot be read: {error}") from None
        return model

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments checked by the function's annotations, as JSON; ToolError for those that do not fit."""
        try:
            return self.arguments.model_validate(dict(arguments)).model_dump(mode="json")
        except ValidationError as error:
            raise ToolError(f"the tool {self.name!r} cannot take these arguments: {faults(error)}") from None

    async def call(self, arguments: Mapping[str, Any], scope: Scope) -> Any:
        """The result, computed or recorded. Raises ToolError as the function did, and a limit's refusal."""
        given = json.dumps(dict(arguments), sort_keys=True, ensure_ascii=False)
        request = Request("tool", self.fingerprint, (Item(digest(given)),))

        async def execute(positions: abc.Sequence[int], cap: int | None, ended: Ended) -> list[Outcome]:
            if ours(self._function):
                result = await self._result(arguments)
            else:
                with blamed(f"the tool {self.name!r}", self._function):
                    result = await self._result(arguments)
            return [Outcome(result, Usage(calls=1), Usage(calls=1))]

        (row,) = await scope.call(request, execute, lambda positions, cap: Usage(calls=len(positions)))
        payload = row.payload or {}
        if "error" in payload:
            raise ToolError(payload["error"])
        return payload["value"]

    async def _result(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The payload to be recorded: a value or an error."""
        value: Any = None
        try:
            async for attempt in AsyncRetrying(
                stop=stop_after_attempt(self.attempts),
                wait=wait_exponential(self._wait, max=60.0) + wait_random(0.0, self._wait),
                retry=retry_if_exception_type(self._retry_on),
                reraise=True,
            ):
                with attempt:
                    value = await self._attempt(arguments)
        except ToolError as error:
            return {"error": str(error)}
        except _TooLong:
            late = f"took longer than {self.timeout:g} seconds, in the last of {self.attempts} attempts"
            return {"error": f"the tool {self.name!r} {late}"}
        return {"value": self._plain(value)}

    async def _attempt(self, arguments: Mapping[str, Any]) -> Any:
        if ours(self._function) and not is_async(self._function):
            return self._function(**arguments)
        clock = asyncio.timeout(self.timeout)
        try:
            async with clock:
                if is_async(self._function):
                    made = self._function(**arguments)
                else:
                    made = await threads.run(self, self._function, **arguments)
                return await made if inspect.isawaitable(made) else made
        except TimeoutError as error:
            raise (_TooLong() if clock.expired() else error) from None

    def _plain(self, value: Any) -> Any:
        """The value as the journal would give it back; InputError if it is not JSON."""
        try:
            return json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InputError(
                f"the tool {self.name!r} returned {value!r:.60}, which is not JSON ({error}); return texts, numbers, "
                "lists and dictionaries of these"
            ) from None


class _TooLong(TimeoutError):
    """An attempt was cut off by the tool's own time-out."""


def faults(error: ValidationError) -> str:
    """What pydantic found wrong, one line each."""
    lines = [
        f"{'.'.join(map(str, fault['loc'])) or 'the whole'}: {fault['msg']}"
        for fault in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    return "; ".join(lines)


def as_tool(function: Tool | Function) -> Tool:
    """A tool, of a function if it is none."""
    return function if isinstance(function, Tool) else Tool(function)
