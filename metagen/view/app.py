"""The web app of the viewer: its pages are three files of this package, its data JSON, and it answers GET alone.

It listens on this machine only. A page of another origin cannot read what it answers: it sends no CORS header, and a
request under another host name is refused, so that no name can be pointed at it (DNS rebinding).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from metagen.errors import InputError, MetagenError
from metagen.view.desk import Desk
from metagen.view.listed import Wish

#: Names under which this machine calls itself.
HOSTS = ("127.0.0.1", "localhost")
#: Files of the front-end, by name; nothing else is served by name.
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".txt": "text/plain"}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
#: A report is a page of its own: in an origin of its own, it cannot ask this app for anything.
ALONE = (
    "sandbox allow-scripts allow-popups allow-modals; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
Handler = Callable[[Request], Awaitable[Response]]


def make(desk: Desk) -> Starlette:
    """The app over a desk, which it closes at its end."""

    def answer(tell: Callable[[Request], Any]) -> Handler:
        async def handle(request: Request) -> Response:
            try:
                return _json(await run_in_threadpool(tell, request))
            except InputError as error:
                return _json({"error": str(error)}, 404)
            except MetagenError as error:
                return _json({"error": str(error)}, 500)

        return handle

    async def report(request: Request) -> Response:
        try:
            page = await run_in_threadpool(desk.report, _wanted(request, "run"))
        except InputError as error:
            return _json({"error": str(error)}, 404)
        return Response(page, media_type="text/html", headers={**HEADERS, "Content-Security-Policy": ALONE})

    def get(request: Request, *names: str) -> list[str]:
        return [_wanted(request, name) for name in names]

    def listed(request: Request) -> Any:
        wish, start = Wish.of(request.query_params), _number(request, "start", 0)
        return desk.problems(_wanted(request, "run"), wish, start, _number(request, "count", 100))

    def beside(request: Request) -> Any:
        run, problem = get(request, "run", "problem")
        return desk.beside(run, problem, Wish.of(request.query_params))

    routes: dict[str, Handler] = {
        "/": _asset,
        "/assets/{name}": _asset,
        "/api/runs": answer(lambda request: desk.runs()),
        "/api/run": answer(lambda request: desk.run(*get(request, "run"))),
        "/api/results": answer(lambda request: desk.results(*get(request, "run"))),
        "/api/problems": answer(listed),
        "/api/beside": answer(beside),
        "/api/experiment": answer(lambda request: {"text": desk.experiment(*get(request, "run"))}),
        "/api/problem": answer(lambda request: desk.problem(*get(request, "run", "problem"))),
        "/api/replay": answer(lambda request: desk.replay(*get(request, "run", "problem", "configuration"))),
        "/api/recipe": answer(lambda request: desk.recipe(*get(request, "run", "configuration"))),
        "/api/compare": answer(lambda request: desk.compare(*get(request, "a", "b"))),
        "/report": report,
    }

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            desk.close()

    return Starlette(
        routes=[Route(path, handler, methods=["GET"]) for path, handler in routes.items()],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS), www_redirect=False),
            Middleware(GZipMiddleware, minimum_size=2000),
        ],
        lifespan=lifespan,
    )


async def _asset(request: Request) -> Response:
    name = request.path_params.get("name", "index.html")
    found = resources.files("metagen.view").joinpath("assets")
    file = next((one for one in found.iterdir() if one.name == name), None)
    kind = TYPES.get(f".{name.rpartition('.')[2]}")
    if file is None or kind is None:
        return _json({"error": f"there is no file {name!r}"}, 404)
    return Response(file.read_bytes(), media_type=kind, headers=HEADERS)


def _wanted(request: Request, name: str) -> str:
    value = request.query_params.get(name)
    if not value:
        raise InputError(f"the address lacks {name}=…; open it from the list of runs")
    return value


def _number(request: Request, name: str, usual: int) -> int:
    """A count. InputError for what is none."""
    text = request.query_params.get(name, str(usual))
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InputError(f"{name}={text!r} in the address is no count; expected 0 or more")
    return int(text)


def _json(data: Any, status: int = 200) -> Response:
    # Lone surrogates stay escapes; what is not finite has been taken out.
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Response(text, status, media_type="application/json", headers=HEADERS)
