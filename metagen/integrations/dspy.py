"""For DSPy: strategies as an engine of `dspy.LM`."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import dspy
from dspy import lm15

from metagen.errors import InputError
from metagen.integrations.local import Local, Served
from metagen.serve.errors import ApiError, refuse
from metagen.strategies.base import wait

#: Fields of a configuration that the OpenAI API calls by the same name.
SENT = (
    "max_tokens", "temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty",
    "response_format",
)  # fmt: skip
#: Fields that change nothing here.
IDLE = ("service_tier", "user_id", "store", "cache")


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
    are not looked at. options: fields of `metagen` in each request, such as {"n": 8}. settings: of the LM, such as
    temperature, max_tokens or seed.

    DSPy's cache is off unless `cache=True` turns it on: it would go by the name alone, and not see another strategy.
    """
    local = Local(served, own_sampling=own_sampling)
    engine, name = StrategyEngine(local, options or {}), local.name(model)
    return dspy.LM(
        name, engine=engine, async_engine=AsyncStrategyEngine(engine), **{"cache": False, **settings}
    )


class StrategyEngine:
    """An engine for `dspy.LM(engine=…)`."""

    def __init__(self, local: Local, options: Mapping[str, Any]) -> None:
        self._local, self._options = local, dict(options)

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
        if request.tools:
            raise refuse("tools", "a strategy calls no tools of a program; leave them out")
        system = request.system
        words = system if isinstance(system, str) or system is None else "".join(map(_text, system))
        turns = [] if not words else [{"role": "system", "content": words}]
        turns += [{"role": one.role, "content": "".join(map(_text, one.parts))} for one in request.messages]
        config = request.config
        fields = {name: value for name in SENT if (value := getattr(config, name)) is not None}
        for one in dataclasses.fields(config):
            if one.name not in (*SENT, *IDLE, "stop", "extensions") and getattr(config, one.name) is not None:
                raise refuse(one.name, "not supported; leave it out")
        if config.stop:
            fields["stop"] = list(config.stop)
        return {
            "metagen": self._options,
            **fields,
            **(config.extensions or {}),
            "model": request.model,
            "messages": turns,
        }

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


def _response(answer: dict[str, Any]) -> lm15.Response:
    (choice,) = answer["choices"]
    thought = choice["message"].get("reasoning_content")
    parts = [
        *([] if thought is None else [lm15.ThinkingPart(thought)]),
        lm15.TextPart(choice["message"]["content"]),
    ]
    usage = answer.get("usage")
    return lm15.Response(
        id=answer["id"],
        model=answer["model"],
        message=lm15.Message.assistant(parts),
        finish_reason=choice["finish_reason"],
        usage=lm15.Usage() if usage is None else _usage(usage),
        provider_data={"metagen": answer["metagen"]},
    )


def _usage(usage: dict[str, Any]) -> lm15.Usage:
    return lm15.Usage(
        input_tokens=usage["prompt_tokens"],
        output_tokens=usage["completion_tokens"],
        total_tokens=usage["total_tokens"],
        cache_read_tokens=usage["prompt_tokens_details"].get("cached_tokens"),
        reasoning_tokens=usage["completion_tokens_details"].get("reasoning_tokens"),
    )
