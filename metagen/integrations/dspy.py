"""For DSPy: strategies as an engine of `dspy.LM`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

try:
    import dspy
    from dspy import lm15
except ImportError as error:
    raise ImportError(
        "metagen.integrations.dspy needs DSPy: pip install 'dspy>=3.4' beside metagen", name=error.name
    ) from error

from metagen.errors import InputError
from metagen.integrations.local import Local, Served
from metagen.serve.errors import ApiError, refuse
from metagen.strategies.base import wait

#: Fields of a configuration that the OpenAI API calls by the same name.
SENT = ("max_tokens", "temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty")
#: Fields that are put into other words.
WRITTEN = ("stop", "response_format", "tool_choice", "extensions")
#: Fields that change nothing here.
IDLE = ("service_tier", "user_id", "store", "cache")
REASONS = {"tool_calls": "tool_call"}


def language_model(
    served: Served,
    model: str | None = None,
    *,
    own_sampling: bool | None = None,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> dspy.LM:
    """A `dspy.LM` whose answers are those of a strategy.

    served: a strategy, strategies by name, or an experiment file, whose engines stay open to the end of the process.
    model: which of them, where there are several. own_sampling: temperature and other sampling parameters of programs
    are not looked at. options: fields of `metagen` in each request, such as {"n": 8}, beside those that it has.
    settings: of the LM, such as temperature, max_tokens or seed.

    DSPy's cache is off unless `cache=True` turns it on: it would go by the name alone, and not see another strategy.
    """
    local = Local(served, own_sampling=own_sampling)
    name = local.name(model)
    engine = StrategyEngine(local, options or {}, supports_function_calling=local.takes_tools(name))
    return dspy.LM(
        name, engine=engine, async_engine=AsyncStrategyEngine(engine), **{"cache": False, **settings}
    )


class StrategyEngine:
    """An engine for `dspy.LM(engine=…)`. supports_function_calling: adapters may send tools."""

    def __init__(
        self, local: Local, options: Mapping[str, Any], *, supports_function_calling: bool = False
    ) -> None:
        self._local, self._options = local, dict(options)
        self.supports_function_calling = supports_function_calling

    def complete(self, request: lm15.Request) -> lm15.Response:
        return wait(self.answer(request))

    async def answer(self, request: lm15.Request) -> lm15.Response:
        """One response to one request. A refused request raises an error of lm15."""
        try:
            return _response(await self._local.answer("chat", self._body(request)))
        except (ApiError, InputError) as error:
            status = error.status if isinstance(error, ApiError) else 400
            kind = lm15.InvalidRequestError if status < 500 else lm15.ServerError
            raise kind(str(error), provider="metagen", status=status) from error

    def _body(self, request: lm15.Request) -> dict[str, Any]:
        system = request.system
        words = system if isinstance(system, str) or system is None else "".join(map(_text, system))
        turns = [] if not words else [{"role": "system", "content": words}]
        turns += [turn for message in request.messages for turn in _turns(message)]
        config = request.config
        fields = {name: value for name in SENT if (value := getattr(config, name)) is not None}
        for one in dataclasses.fields(config):
            if one.name not in (*SENT, *WRITTEN, *IDLE) and getattr(config, one.name) is not None:
                raise refuse(one.name, "not supported; leave it out")
        if config.stop:
            fields["stop"] = list(config.stop)
        if config.response_format is not None:
            fields["response_format"] = _format(config.response_format)
        if request.tools:
            fields |= {"tools": list(map(_tool, request.tools)), "tool_choice": _choice(config.tool_choice)}
        more = dict(config.extensions or {})
        if isinstance(own := more.get("metagen"), Mapping):
            more["metagen"] = {**self._options, **own}
        return {
            "metagen": self._options, **fields, **more, "model": request.model, "messages": turns,
        }  # fmt: skip

    def stream(self, request: lm15.Request) -> Iterator[Any]:
        return iter(lm15.response_to_events(self.complete(request)))

    def close(self) -> None:
        self._local.close()


class AsyncStrategyEngine:
    """The same, awaited."""

    def __init__(self, engine: StrategyEngine) -> None:
        self._engine = engine

    async def complete(self, request: lm15.Request) -> lm15.Response:
        return await self._engine.answer(request)

    async def stream(self, request: lm15.Request) -> AsyncIterator[Any]:
        for event in lm15.response_to_events(await self._engine.answer(request)):
            yield event

    async def aclose(self) -> None:
        self._engine.close()


def _text(part: Any) -> str:
    if not isinstance(part, lm15.TextPart):
        raise refuse("messages", f"a part of type {getattr(part, 'type', part)!r}; strategies read text only")
    return str(part.text)


def _turns(message: lm15.Message) -> Iterator[dict[str, Any]]:
    """A message as the OpenAI API has it: one turn for each result of a tool. Thoughts before it are left out."""
    if message.role == "tool":
        for part in message.parts:
            content = "".join(map(_text, part.content))
            yield {"role": "tool", "tool_call_id": part.id, "content": content}
        return
    parts = [part for part in message.parts if not isinstance(part, lm15.ThinkingPart)]
    calls = [part for part in parts if isinstance(part, lm15.ToolCallPart)]
    turn = {"role": message.role, "content": "".join(_text(part) for part in parts if part not in calls)}
    yield turn | ({"tool_calls": list(map(_written_call, calls))} if calls else {})


def _written_call(call: lm15.ToolCallPart) -> dict[str, Any]:
    arguments = json.dumps(call.input, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _tool(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, lm15.FunctionTool):
        raise refuse("tools", f"{tool.name!r} is a tool of some provider; strategies call functions only")
    about = {} if tool.description is None else {"description": tool.description}
    return {"type": "function", "function": {"name": tool.name, "parameters": tool.parameters, **about}}


def _choice(choice: lm15.ToolChoice | None) -> str:
    """How tools are chosen. Nothing is promised beyond `auto`."""
    if choice is None:
        return "auto"
    if choice.allowed or choice.parallel is not None:
        raise refuse("tool_choice", "allowed and parallel cannot be promised; leave them out")
    return str(choice.mode)


def _format(given: Mapping[str, Any]) -> dict[str, Any]:
    if given["type"] != "json_schema":
        return dict(given)
    return {"type": "json_schema", "json_schema": {k: v for k, v in given.items() if k != "type"}}


def _response(answer: dict[str, Any]) -> lm15.Response:
    (choice,) = answer["choices"]
    said = choice["message"]
    calls = said.get("tool_calls") or []
    parts = [
        *([lm15.ThinkingPart(said["reasoning_content"])] if said.get("reasoning_content") else []),
        *([lm15.TextPart(said["content"] or "")] if said["content"] or not calls else []),
        *map(_call, calls),
    ]
    usage = answer.get("usage")
    return lm15.Response(
        id=answer["id"],
        model=answer["model"],
        message=lm15.Message.assistant(parts),
        finish_reason=REASONS.get(choice["finish_reason"], choice["finish_reason"]),
        usage=lm15.Usage() if usage is None else _usage(usage),
        provider_data={"metagen": answer["metagen"]},
    )


def _call(call: Mapping[str, Any]) -> lm15.ToolCallPart:
    """A call that the model wrote. Raises ServerError where its arguments are no JSON object."""
    function = call["function"]
    arguments = json.loads(function["arguments"])
    if not isinstance(arguments, dict):
        raise lm15.ServerError(
            f"the model called {function['name']!r} with {arguments!r:.80}; expected an object of arguments",
            provider="metagen",
            status=502,
        )
    return lm15.ToolCallPart(call["id"], function["name"], arguments)


def _usage(usage: dict[str, Any]) -> lm15.Usage:
    return lm15.Usage(
        input_tokens=usage["prompt_tokens"],
        output_tokens=usage["completion_tokens"],
        total_tokens=usage["total_tokens"],
        cache_read_tokens=usage["prompt_tokens_details"].get("cached_tokens"),
        reasoning_tokens=usage["completion_tokens_details"].get("reasoning_tokens"),
    )
