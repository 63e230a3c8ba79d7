"""The web application: routes of the OpenAI API over a service."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from typing import Any, TypeAlias, TypeVar

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from metagen import __version__
from metagen.budget import DIMENSIONS, Account
from metagen.errors import MetagenError
from metagen.logs import logger
from metagen.runs.declare.specs.serve import ServeSpec
from metagen.serve import answers
from metagen.serve.errors import ApiError, of_error
from metagen.serve.gate import Client, Gate, Keys
from metagen.serve.metrics import Metrics
from metagen.serve.models import Models
from metagen.serve.protocol import ChatRequest, Common, CompletionRequest, StreamOptions, parse, read_json
from metagen.serve.protocol import Request as AnyRequest
from metagen.serve.responses import ResponseForm, ResponsesRequest
from metagen.serve.solve import Job, Service, Solution, Told
from metagen.strategies.base import Observe

_LOG = logger(__name__)
T = TypeVar("T")
Place: TypeAlias = AbstractAsyncContextManager[None]
#: Seconds without a word after which a stream says that it is still there.
BEAT = 15.0
#: Seconds in which the body of a request must arrive.
BODY = 30.0
#: Seconds after which a client that does not read its stream is left.
STALLED = 60.0
#: Of a request whose client has gone away.
GONE = 499


def make_app(
    models: Models, spec: ServeSpec, *, keys: Keys | None = None, observe: Observe | None = None
) -> FastAPI:
    """The application. keys: who may ask; by default those of the spec's variables. observe: see Service."""
    app = FastAPI(
        title="metagen", version=__version__, docs_url=None, redoc_url=None,
        description="Strategies of inference-time scaling as models of the OpenAI API.",
        redirect_slashes=False,  # behind a proxy it would send clients, and their keys, to an address without TLS
    )  # fmt: skip
    server = Server(Service(models, spec, observe), Keys(spec.keys) if keys is None else keys)
    server.add_routes(app)
    app.state.server = server
    if spec.origins:
        app.add_middleware(  # clients send headers of their own, such as X-Stainless-Lang
            CORSMiddleware, allow_origins=list(spec.origins), allow_methods=["GET", "POST"], allow_headers=["*"],
            expose_headers=["Retry-After"],
        )  # fmt: skip
    app.add_exception_handler(ApiError, _say)
    app.add_exception_handler(HTTPException, _say_http)
    app.add_exception_handler(Exception, _say_fault)
    return app


class Server:
    """What the routes share: a service, its clients, its queue and its counters. draining: no new work is taken."""

    def __init__(self, service: Service, keys: Keys) -> None:
        self.service, self.keys = service, keys
        self.gate = Gate(service.spec.concurrency, service.spec.waiting)
        self.metrics = Metrics(self.gate)
        self.draining = False
        self._began = int(time.time())

    def add_routes(self, app: FastAPI) -> None:
        """All of them."""
        kinds: tuple[type[Common], ...] = (ChatRequest, CompletionRequest, ResponsesRequest)
        chat, text, new = (_documented(kind) for kind in kinds)
        app.post("/v1/chat/completions", openapi_extra=chat, responses=_RESPONSES)(self.chat)
        app.post("/v1/completions", openapi_extra=text, responses=_RESPONSES)(self.complete)
        app.post("/v1/responses", openapi_extra=new, responses=_RESPONSES)(self.respond)
        app.get("/v1/models")(self.list_models)
        app.get("/v1/models/{name:path}")(self.show_model)
        app.get("/health")(self.health)
        app.get("/ready")(self.ready)
        app.get("/metrics")(self.show_metrics)

    # -- routes ------------------------------------------------------------------------------------

    async def chat(self, request: Request) -> Response:
        """Answer a chat."""
        return await self._answer(request, ChatRequest)

    async def complete(self, request: Request) -> Response:
        """Continue a text."""
        return await self._answer(request, CompletionRequest)

    async def respond(self, request: Request) -> Response:
        """Answer in the form of the Responses API."""
        return await self._answer(request, ResponsesRequest)

    async def list_models(self, request: Request) -> dict[str, Any]:
        """The configurations of the file, and their aliases."""
        self._client(request)
        return {"object": "list", "data": [self._model(name) for name in self.service.models.names]}

    async def show_model(self, name: str, request: Request) -> dict[str, Any]:
        """One of them."""
        self._client(request)
        self.service.models.find(name)
        return self._model(name)

    async def health(self) -> dict[str, str]:
        """The process is alive."""
        return {"status": "ok"}

    async def ready(self) -> Response:
        """Whether new work is taken."""
        status = "draining" if self.draining else "ready"
        return JSONResponse({"status": status}, 503 if self.draining else 200)

    async def show_metrics(self, request: Request) -> Response:
        """For Prometheus, which sends a key where others need one."""
        self._client(request)
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    def _client(self, request: Request) -> Client:
        """Who asks. ApiError for nobody who may, and for web pages: browsers send their origin with what they post."""
        origin, known = request.headers.get("origin"), self.service.spec.origins
        if origin is not None and origin not in known and "*" not in known:
            raise ApiError(
                403,
                f"web pages of {origin!r:.80} may not ask; serve.origins names those that may",
                code="wrong_origin",
            )
        return self.keys.client(request.headers.get("authorization"))

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._began, "owned_by": "metagen"}

    # -- answering ---------------------------------------------------------------------------------

    async def _answer(
        self, request: Request, kind: type[ChatRequest | CompletionRequest | ResponsesRequest]
    ) -> Response:
        began, model, status = time.monotonic(), "", 500
        try:
            client = self._client(request)
            self.keys.count(client)
            if self.draining:
                raise ApiError(503, "this server is about to end", code="draining", retry=1)
            asked = parse(kind, await _json(request, self.service.spec.max_body), request.headers)
            jobs = await self._jobs(asked)
            _check_quota(client)
            model, form = jobs[0].model, _form(asked)
            limit = self.service.limit(jobs, client.account)
            place = self.gate.enter(client, _seconds(jobs[0]))
            if asked.stream:
                response = await self._stream(request, place, form, asked, jobs, limit, began)
                status = 0  # it is counted when the stream ends
                return response
            solutions = await _unless_gone(request, self._solve(place, jobs, limit))
            status = 200
            return _Json(form.whole(solutions))
        except (_Gone, ClientDisconnect):
            status = GONE
            return Response(status_code=GONE)
        except MetagenError as error:
            refusal = _told(error, kind)
            status = refusal.status
            return await _say(request, refusal)
        finally:
            if status:
                self.metrics.ended(model, status, time.monotonic() - began)

    async def _jobs(self, asked: Common) -> list[Job]:
        chat = asked.chat() if isinstance(asked, ResponsesRequest) else asked
        assert isinstance(chat, AnyRequest)
        if chat.form is None:
            return self.service.jobs(chat)
        # Reading a grammar may take a second, in which others are answered.
        return await asyncio.to_thread(self.service.jobs, chat)

    async def _stream(
        self, request: Request, place: Place, form: AnyForm, asked: Common, jobs: list[Job], limit: Account | None,
        began: float,
    ) -> Response:  # fmt: skip
        """A stream, once its work has begun: what fails before has a status."""
        await _unless_gone(request, place.__aenter__())
        options = getattr(asked, "stream_options", None)
        usage = isinstance(options, StreamOptions) and options.include_usage
        events = self._follow(jobs, limit)
        chunks = _with_beats(form.stream(jobs, events, usage=usage, progress=asked.metagen.progress))
        ended = [GONE]

        async def end() -> None:
            await chunks.aclose()
            await place.__aexit__(None, None, None)
            if ended[0]:
                self.metrics.ended(jobs[0].model, ended[0], time.monotonic() - began)

        try:
            first = await _unless_gone(request, anext(chunks))
        except BaseException:
            ended[0] = 0  # who catches it counts it
            await end()
            raise
        return _Stream(_frames(form, first, chunks, ended, type(asked)), end)

    async def _solve(self, place: Place, jobs: list[Job], limit: Account | None) -> list[Solution]:
        async with place:
            solutions = await self.service.solve(jobs, limit, self.gate.spare)
        for solution in solutions:
            self.metrics.spent(solution)
        return solutions

    async def _follow(self, jobs: list[Job], limit: Account | None) -> AsyncGenerator[Told]:
        async with aclosing(self.service.follow(jobs, limit, self.gate.spare)) as events:
            async for place, event in events:
                if isinstance(event, Solution):
                    self.metrics.spent(event)
                yield place, event


def _seconds(job: Job) -> float | None:
    return None if job.budget is None else job.budget.seconds


AnyForm = answers.Form | ResponseForm


def _form(asked: Common) -> AnyForm:
    if isinstance(asked, ResponsesRequest):
        return ResponseForm(asked.model)
    return answers.Form("chat" if isinstance(asked, ChatRequest) else "text", asked.model)


class _Stream(StreamingResponse):
    """Server-sent events. end: is awaited whatever becomes of them, once."""

    def __init__(self, frames: AsyncGenerator[str], end: Callable[[], Awaitable[None]]) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(frames, media_type="text/event-stream", headers=headers)
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def patient(message: Message) -> None:
            async with asyncio.timeout(STALLED):
                await send(message)

        try:
            await super().__call__(scope, receive, patient)
        except TimeoutError:
            _LOG.warning("a client does not read its stream, and is left")
        finally:
            await self._end()


Chunks = AsyncGenerator[dict[str, Any] | None]


async def _frames(
    form: AnyForm, first: dict[str, Any] | None, chunks: Chunks, ended: list[int], kind: type[Common]
) -> AsyncGenerator[str]:
    """Chunks as server-sent events. An error within them is one, and ends the stream. ended: gets the status."""
    try:
        yield _frame(form, first)
        async for chunk in chunks:
            yield _frame(form, chunk)
        ended[0] = 200
    except MetagenError as error:
        refusal = _told(error, kind)
        ended[0] = refusal.status
        yield form.broken(refusal)
    except Exception:  # noqa: BLE001 - the stream has begun: no one else can say it
        ended[0] = 500
        _LOG.exception("a request failed")
        yield form.broken(_FAULT)
    if form.end:
        yield form.end


def _frame(form: AnyForm, chunk: dict[str, Any] | None) -> str:
    return ": still at work\n\n" if chunk is None else form.frame(chunk)


def _check_quota(client: Client) -> None:
    account = client.account
    if account is None:
        return
    # What is only reserved comes back in part: who needs it waits.
    spent = [
        name
        for name, used in zip(DIMENSIONS, account.spent, strict=True)
        if (most := getattr(account.budget, name)) is not None and used >= most
    ]
    if spent:
        raise ApiError(429, f"the budget of this key is spent: {', '.join(spent)}", code="insufficient_quota")


class _Json(JSONResponse):
    """JSON. Half a character, which an engine may write and UTF-8 cannot hold, is its escape."""

    def render(self, content: Any) -> bytes:
        said = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return said.encode("utf-8", "backslashreplace")


class _Gone(Exception):
    """The client has gone away."""


async def _unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled once nobody waits for it. Raises _Gone then."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise _Gone
        return task.result()
    finally:
        for one in (task, watch):
            one.cancel()
        with suppress(asyncio.CancelledError, MetagenError):
            await task


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _with_beats(chunks: AsyncGenerator[dict[str, Any]]) -> Chunks:
    """Chunks, and None whenever there was none for some time."""
    waiting: asyncio.Future[dict[str, Any]] | None = None
    try:
        while True:
            if waiting is None:
                waiting = asyncio.ensure_future(anext(chunks))
            done, _ = await asyncio.wait({waiting}, timeout=BEAT)
            if not done:
                yield None
                continue
            try:
                chunk = waiting.result()
            except StopAsyncIteration:
                return
            finally:
                waiting = None
            yield chunk
    finally:
        if waiting is not None:
            waiting.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration, MetagenError):
                await waiting
        await chunks.aclose()


async def _json(request: Request, most: int) -> Any:
    """What the body of a request says. most: bytes, beyond which no more are read."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(
            415, f"Content-Type is {kind!r:.80}; expected application/json", code="unsupported_media_type"
        )
    body, size = bytearray(), int(request.headers.get("content-length", 0))
    try:
        async with asyncio.timeout(BODY):
            parts = request.stream()
            while size <= most and (part := await anext(parts, None)) is not None:
                body += part
                size = max(size, len(body))
    except TimeoutError:
        raise ApiError(408, f"the body did not arrive within {BODY:g} seconds", code="timeout") from None
    if size > most:
        raise ApiError(413, f"the body has more than {most:,} bytes", code="body_too_large")
    return read_json(body)


# -- errors ------------------------------------------------------------------------------------------

_FAULT = ApiError(500, "this is a fault of the server; its log says more", code="internal_error")


def _told(error: MetagenError, kind: type[Common]) -> ApiError:
    """What a client is told; the rest is in the log."""
    refusal = kind.called(of_error(error, kind.asks))
    if refusal.status >= 500 and not isinstance(error, ApiError):
        _LOG.error("a request failed", exc_info=error)
    return refusal


async def _say(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body, error.status, headers=error.headers)


async def _say_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    found = ApiError(
        error.status_code, str(error.detail), code="not_found" if error.status_code == 404 else None
    )
    return JSONResponse(found.body, error.status_code, headers=error.headers)


async def _say_fault(request: Request, error: Exception) -> Response:
    return JSONResponse(_FAULT.body, 500)


# -- documentation -------------------------------------------------------------------------------------

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "object", "required": ["message", "type", "param", "code"]}},
}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": what, "content": {"application/json": {"schema": _ERROR}}}
    for status, what in (
        (400, "A field that cannot be honoured"), (401, "No key, or an unknown one"), (402, "The budget ended"),
        (403, "A web page that may not ask"), (404, "No such model"), (408, "A body that does not arrive"),
        (413, "Too large a body"), (415, "A body that is no JSON"), (429, "Too many requests"),
        (503, "The engine failed"),
    )
}  # fmt: skip


def _documented(kind: type[Common]) -> dict[str, Any]:
    schema = kind.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": _inline(schema)}}}}


def _inline(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without references."""
    definitions = schema.pop("$defs", {})

    def of(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                return of(definitions[value["$ref"].rpartition("/")[2]])
            return {name: of(one) for name, one in value.items()}
        return [of(one) for one in value] if isinstance(value, list) else value

    found: dict[str, Any] = of(schema)
    return found
