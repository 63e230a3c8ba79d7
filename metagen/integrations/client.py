"""A client that looks like OpenAI's, and has no server: strategies of this process answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Generic, Literal, Self, TypeVar, overload

from pydantic import BaseModel

from metagen.integrations.local import Local, Served
from metagen.integrations.shapes import ChatChunk, ChatCompletion, Completion
from metagen.serve import answers
from metagen.strategies.base import wait

W = TypeVar("W", bound=BaseModel)
C = TypeVar("C", bound=BaseModel)


def client(served: Served, *, own_sampling: bool | None = None) -> Client:
    """A client of strategies: `client(vote).chat.completions.create(messages=[…])`.

    served: a strategy, strategies by name (the `model` of a request), or the path of an experiment file, whose grid
    are the models, whose section `serve` holds, and whose engines are open until the client is closed.
    own_sampling: ignore temperature and other sampling parameters of requests.

    Raises InputError for a value that is no strategy, and ConfigError for a file that cannot be served.
    """
    return Client(Local(served, own_sampling=own_sampling))


def aclient(served: Served, *, own_sampling: bool | None = None) -> AsyncClient:
    """`client` for code that runs in an event loop of its own."""
    return AsyncClient(Local(served, own_sampling=own_sampling))


class _Endpoint(Generic[W, C]):
    """One kind of requests. whole, part: of its answers."""

    def __init__(self, local: Local, kind: answers.Kind, whole: type[W], part: type[C]) -> None:
        self._local, self._kind, self._whole, self._part = local, kind, whole, part

    async def _answer(self, fields: Mapping[str, Any], headers: Mapping[str, str] | None) -> W:
        return self._whole.model_validate(await self._local.answer(self._kind, fields, headers))

    def _chunks(self, fields: Mapping[str, Any], headers: Mapping[str, str] | None) -> AsyncGenerator[C]:
        """The chunks of a stream. A refused request raises here, before its first chunk is asked for."""
        asked, jobs = self._local.jobs(self._kind, fields, headers)
        usage = asked.stream_options is not None and asked.stream_options.include_usage
        form, service = answers.Form(self._kind, asked.model), self._local.service

        async def chunks() -> AsyncGenerator[C]:
            events = service.follow(jobs, service.limit(jobs))
            made = form.stream(jobs, events, usage=usage, progress=asked.metagen.progress)
            async with aclosing(made):
                async for one in made:
                    yield self._part.model_validate(one)

        return chunks()


class Completions(_Endpoint[W, C]):
    """`create` as in OpenAI's client, with the fields that the server of metagen knows."""

    @overload
    def create(self, *, stream: Literal[False] = False, **fields: Any) -> W: ...
    @overload
    def create(self, *, stream: Literal[True], **fields: Any) -> Iterator[C]: ...
    def create(
        self,
        *,
        stream: bool = False,
        extra_body: Mapping[str, Any] | None = None,
        extra_headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> W | Iterator[C]:
        """The answer, or with `stream` an iterator of its parts. Closing the iterator ends the work.

        extra_body: more fields, such as {"metagen": {"n": 8}}. extra_headers: `x-metagen-…`. A field that
        cannot be honoured raises ApiError, whose `param` names it; errors of parts are raised as they are.
        """
        given = {**fields, **(extra_body or {}), "stream": stream}
        if stream:
            return _iterate(self._chunks(given, extra_headers))
        return wait(self._answer(given, extra_headers))


class AsyncCompletions(_Endpoint[W, C]):
    """`create` of `Completions`, awaited."""

    @overload
    async def create(self, *, stream: Literal[False] = False, **fields: Any) -> W: ...
    @overload
    async def create(self, *, stream: Literal[True], **fields: Any) -> AsyncIterator[C]: ...
    async def create(
        self,
        *,
        stream: bool = False,
        extra_body: Mapping[str, Any] | None = None,
        extra_headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> W | AsyncIterator[C]:
        """The answer, or with `stream` an asynchronous iterator of its parts. See `Completions.create`."""
        given = {**fields, **(extra_body or {}), "stream": stream}
        if stream:
            return self._chunks(given, extra_headers)
        return await self._answer(given, extra_headers)


class Chat:
    """`chat.completions`."""

    def __init__(self, local: Local) -> None:
        self.completions: Completions[ChatCompletion, ChatChunk] = Completions(
            local, "chat", ChatCompletion, ChatChunk
        )


class AsyncChat:
    """`chat.completions`."""

    def __init__(self, local: Local) -> None:
        self.completions: AsyncCompletions[ChatCompletion, ChatChunk] = AsyncCompletions(
            local, "chat", ChatCompletion, ChatChunk
        )


class Client:
    """`chat.completions` and `completions`, as OpenAI's client has them. models: the names that requests may give."""

    def __init__(self, local: Local) -> None:
        self._local = local
        self.models = tuple(local.service.models.names)
        self.chat = Chat(local)
        self.completions: Completions[Completion, Completion] = Completions(
            local, "text", Completion, Completion
        )

    def close(self) -> None:
        """Close the engines that a file named."""
        self._local.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncClient:
    """`Client`, awaited."""

    def __init__(self, local: Local) -> None:
        self._local = local
        self.models = tuple(local.service.models.names)
        self.chat = AsyncChat(local)
        self.completions: AsyncCompletions[Completion, Completion] = AsyncCompletions(
            local, "text", Completion, Completion
        )

    async def close(self) -> None:
        """Close the engines that a file named."""
        self._local.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def _iterate(chunks: AsyncGenerator[C]) -> Iterator[C]:
    """An asynchronous iterator, run step by step in the background."""

    async def step() -> C | None:
        return await anext(chunks, None)

    async def close() -> None:
        await chunks.aclose()

    try:
        while (chunk := wait(step())) is not None:
            yield chunk
    finally:
        wait(close())
