"""One request to a server: sent by one pooled client, tried again where that may help, explained where it may not."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import time
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from metagen.attempts import UNTOLD, Attempt
from metagen.errors import EngineError, InputError, MetagenError, SetupError, install, lacks
from metagen.generators.engine import EngineStats
from metagen.generators.openai.answer import Malformed
from metagen.generators.openai.body import API
from metagen.generators.openai.keys import HOSTED, VARIABLE, Hiding, Key, is_openai_host, loopback, redact
from metagen.generators.openai.limiter import Concurrency, Gate, Limiter
from metagen.generators.openai.retries import (
    BUSY,
    LASTING,
    QUOTA,
    TRANSIENT,
    UNPAID,
    Backoff,
    Failed,
    Patience,
    Spent,
    pause_of,
)
from metagen.generators.openai.stream import error_in
from metagen.generators.turns import Kind, Turns
from metagen.logs import logger

if TYPE_CHECKING:
    from aiohttp import ClientResponse

_LOG = logger(__name__)
T = TypeVar("T")
#: Seconds to reach the server at all, within the time-out of the attempt.
CONNECT = 10.0
#: Bytes of an answer, unpacked, at most: some thousand tokens of 128 samples with log-probabilities take less.
MOST_BYTES: Final = 256 << 20
#: Characters of a server's words that an error quotes.
QUOTED = 300
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\s]+")
#: Seconds for which a connection that nothing goes over is kept: less than servers keep theirs (5 of vLLM's), by more
#: than busy ones are late.
KEPT = 1.0
#: Whose account is billed, by the environment variable that says it: told to the hosted server alone.
ACCOUNT: Final = {"OPENAI_ORG_ID": "OpenAI-Organization", "OPENAI_PROJECT_ID": "OpenAI-Project"}
PATHS: Final[Mapping[API, str]] = {"chat": "/chat/completions", "completions": "/completions"}


class Refused(InputError):
    """The server takes no such request."""


@dataclass(frozen=True, slots=True)
class Ask(Generic[T]):
    """One request. body: made when it is sent, lest those that wait hold their prompts. read: what comes of the
    answer's body; what it finds Malformed is asked for again. size: how long an answer is, for the limiter; None for
    one that has no length. kind: which requests it must not meet. begin: told before each attempt. listen: makes, for
    each attempt, what is told of its answer's bytes as they come.
    """

    api: API
    body: Callable[[], Mapping[str, Any]]
    read: Callable[[bytes], T]
    size: Callable[[T], float | None]
    kind: Kind = "plain"
    begin: Callable[[], Awaitable[Attempt]] | None = None
    listen: Callable[[], Callable[[bytes], None]] | None = None


class Transport:
    """Sends to one server, from one event loop. Counts in `stats.extra` what went wrong on the way.

    model: as errors name it. Redirects are not followed, since they would carry the key elsewhere. Attempts that
    failed or were cancelled, and whose work the server may have done and may bill, are counted as `maybe_billed`.
    """

    def __init__(
        self,
        base_url: str,
        key: Key,
        *,
        model: str,
        patience: Patience,
        concurrency: Concurrency,
        stats: EngineStats,
    ) -> None:
        self.base_url, self._key, self.patience, self._stats = base_url, key, patience, stats
        self._model = model
        failures = ("busy", "timeouts", "connection", "invalid", "status", "cancelled")
        stats.extra.update(dict.fromkeys(("attempts", "retries", *failures, "maybe_billed"), 0.0))
        self.limiter = Limiter(concurrency)
        self._gate = Gate(self.limiter, time.monotonic)
        self._turns = Turns()
        self._base_url = base_url.rstrip("/")
        self._aiohttp = aiohttp = library()
        # Nothing is taken out of the environment but proxies: no cookies, no names and passwords, no other headers.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=min(CONNECT, patience.timeout)),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Content-Type": "application/json", "User-Agent": "metagen"} | _account(base_url),
        )
        self._proxy = _proxy(base_url)
        self._hiding = Hiding(key)
        self._hiding.start()

    async def close(self) -> None:
        await self._session.close()
        self._hiding.stop()

    async def ask(self, asked: Ask[T]) -> T:
        """What `read` makes of the answer's body. Raises InputError for what the server refuses, EngineError when it
        gives none within the patience, and BudgetExhausted if the limits leave no room for trying again.
        """
        spent = Spent(self.patience)
        retrying = AsyncRetrying(
            stop=spent,
            wait=Backoff(),
            retry=retry_if_exception(lambda error: isinstance(error, Failed) and error.transient),
            before_sleep=self._again,
            sleep=asyncio.sleep,
            reraise=True,
        )
        try:
            answer: T = await retrying(self._attempt, asked, spent)
            return answer
        except Failed as failed:
            failure = failed
        # Raised outside of the handler: what failed holds the request, and that the key.
        raise self._explain(failure)

    async def _attempt(self, asked: Ask[T], spent: Spent) -> T:
        # Whoever has a place has its turn, so that none is kept for those that wait for one.
        async with self._turns.of(asked.kind), self._gate.place():
            body = self._encode(asked.body())
            attempt = UNTOLD if asked.begin is None else await asked.begin()
            began = time.monotonic()
            self._stats.extra["attempts"] += 1
            try:
                content, failed = await self._exchange(asked, body, spent.left)
            except asyncio.CancelledError:
                self._stats.extra["cancelled"] += 1
                self._stats.extra["maybe_billed"] += 1
                raise
            finally:
                spent.seconds += time.monotonic() - began
            if failed is None:
                try:
                    answer = asked.read(content)
                except Malformed as error:
                    failed = self._told(content) or Failed(self._quote(str(error)), "invalid", billed=True)
                else:
                    self.limiter.note_answer(began, time.monotonic(), asked.size(answer), self._gate.running)
                    return answer
            now = time.monotonic()
            if failed.busy or failed.kind == "timeouts":
                self.limiter.note_refusal(began, now, failed.pause or 0.0)
            elif failed.kind == "connection":
                self.limiter.note_drop(began, now)
        self._stats.extra[failed.kind] += 1
        self._stats.extra["maybe_billed"] += failed.billed
        if not failed.billed:
            attempt.free()
        raise failed

    def _encode(self, body: Mapping[str, Any]) -> bytes:
        try:
            return json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"a request to {self._model!r} is no JSON, and was not sent: {error}; see the tools of the prompt"
            ) from None

    async def _exchange(self, asked: Ask[T], body: bytes, seconds: float) -> tuple[bytes, Failed | None]:
        """The body of a good response, or what went wrong."""
        aiohttp = self._aiohttp
        # Made for each request: whoever looks at the session finds no key.
        own = {"Authorization": f"Bearer {self._key.reveal()}"} if self._key.set else None
        try:
            async with (
                asyncio.timeout(seconds),
                self._session.post(
                    self._base_url + PATHS[asked.api],
                    data=body,
                    headers=own,
                    allow_redirects=False,
                    proxy=self._proxy,
                ) as response,
            ):
                good = 200 <= response.status < 300
                content = await _read(response, asked.listen() if good and asked.listen is not None else None)
                if content is None:
                    words = f"its answer has more than {MOST_BYTES:,} bytes"
                    return b"", Failed(words, "invalid", transient=False, billed=True)
        except MetagenError:  # of who listens
            raise
        except aiohttp.ConnectionTimeoutError:
            return b"", Failed("it could not be reached in time", "timeouts")
        except TimeoutError:
            return b"", _late(seconds)
        except aiohttp.ClientConnectorError as error:  # it has done nothing
            return b"", self._connection_failure(error, billed=False)
        except aiohttp.ClientResponseError as error:
            return b"", self._unreadable(error)
        except (aiohttp.ClientError, OSError) as error:
            return b"", self._connection_failure(error, billed=True)
        except Exception as error:  # noqa: BLE001 - the client's own, for a header or an encoding that is none
            return b"", self._unreadable(error)
        return content, None if 200 <= response.status < 300 else self._refusal(response, content)

    def _connection_failure(self, error: Exception, *, billed: bool) -> Failed:
        why = f"{type(error).__name__}: {error}"
        return Failed(f"the connection failed ({self._quote(why)})", "connection", billed=billed)

    def _unreadable(self, error: Exception) -> Failed:
        return Failed(f"its answer could not be read ({type(error).__name__})", "invalid", billed=True)

    def _refusal(self, response: ClientResponse, content: bytes) -> Failed:
        status, text = response.status, content.decode("utf-8", "replace")
        words = f"it answered {status} {_phrase(status)}"
        if status not in (401, 403):  # which may quote the key, in part
            words += f": {self._quote(text)}" if text.strip() else ""
        if "html" in response.headers.get("content-type", ""):
            words = f"it answered {status} {_phrase(status)} with a page for people"
        pause = pause_of(response.headers)
        empty = not _codes(_error(text)).isdisjoint(QUOTA) or (status == UNPAID and pause is None)
        busy = status in (*BUSY, UNPAID) and not empty
        return Failed(
            words,
            "busy" if busy else "status",
            transient=not empty and status not in LASTING and (busy or status in TRANSIENT or status >= 500),
            busy=busy,
            pause=pause,
            billed=status >= 500 and status not in LASTING and not busy,
            status=status,
        )

    def _told(self, content: bytes) -> Failed | None:
        """What an answer under a good status says went wrong; None if it is another that is no answer."""
        if (error := error_in(content)) is None:
            return None
        code = str(error.get("code"))
        # Others are no statuses: those of gRPC, or words.
        status = int(code) if re.fullmatch(r"[45]\d\d", code, re.ASCII) else None
        if not _codes(error).isdisjoint(QUOTA):
            status = UNPAID
        busy = status in BUSY
        words = "it answered an error under a good status"
        if status not in (401, 403):  # which may quote the key, in part
            words += f": {self._quote(str(error.get('message') or error))}"
        return Failed(
            words,
            "busy" if busy else "invalid",
            transient=status is None or status in TRANSIENT or (status >= 500 and status not in LASTING),
            busy=busy,
            billed=True,
            status=status,
        )

    def _again(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        assert isinstance(error, Failed)
        self._stats.extra["retries"] += 1
        # No words of the server's: they may quote the prompt.
        _LOG.log(
            logging.DEBUG if error.busy else logging.WARNING,
            "request failed, trying again",
            extra={
                "server": redact(self.base_url), "kind": error.kind, "status": error.status,
                "attempt": state.attempt_number, "wait": round(state.upcoming_sleep, 3),
            },
        )  # fmt: skip

    def _quote(self, text: str) -> str:
        """Words of a server's, on one line, without the key."""
        return self._key.hide(_CONTROL.sub(" ", self._key.hide(text)).strip())[:QUOTED]

    def _explain(self, failed: Failed) -> MetagenError:
        """The error that the caller sees: where, what, and what to do."""
        where = f"{redact(self.base_url)} did not answer for {self._model!r}: {failed}"
        status = failed.status
        if failed.transient:
            tried = f"after {self.patience.attempts} failures or {self.patience.total:g} seconds"
            remedy = "see whether the server is up, or raise attempts or total"
            if failed.kind == "invalid":
                remedy = (
                    "see whether api and dialect are this server's, and whether it has what was asked for"
                )
            return EngineError(f"{where}; given up {tried}: {remedy}")
        if status in (401, 403) and self._key.variable is None:
            return SetupError(
                f"{where}; no key was sent, since none is named for this address; put the server's key into an "
                f"environment variable, and name that by api_key_env ({VARIABLE} goes elsewhere than to {HOSTED} only "
                "where it is named)"
            )
        if status in (401, 403):
            return SetupError(
                f"{where}; the key in the environment variable {self._key.variable} was sent; set it to a key that "
                "this server accepts for this model"
            )
        if status in (*BUSY, UNPAID):
            return SetupError(
                f"{where}; the account of the key has nothing left to spend: add to it, or name the key of another one "
                "by api_key_env"
            )
        if status == HTTPStatus.NOT_FOUND:
            return SetupError(
                f"{where}; see whether base_url ends as the server's API does (often /v1), and model"
            )
        if status is not None and 300 <= status < 400:
            return SetupError(f"{where}; redirects are not followed: give the final address as base_url")
        return Refused(f"{where}; change the request, or the dialect, so that the server takes it")


def library() -> ModuleType:
    """The client, imported when an engine is made. InputError where it is not installed."""
    try:
        import aiohttp
    except ImportError as error:
        raise InputError(f"an OpenAIEngine needs {lacks(error)}; {install('openai')}") from error
    return aiohttp


async def _read(response: ClientResponse, hear: Callable[[bytes], None] | None) -> bytes | None:
    """The body, unpacked; None if it is too large. hear: is told of its parts as they come."""
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > MOST_BYTES:
            response.close()
            return None
        parts.append(part)
        if hear is not None:
            hear(part)
    return b"".join(parts)


def _account(base_url: str) -> dict[str, str]:
    """The headers that say whose account is billed, of the hosted server."""
    given = {header: os.environ.get(variable) for variable, header in ACCOUNT.items()}
    return {header: value for header, value in given.items() if value} if is_openai_host(base_url) else {}


def _proxy(base_url: str) -> str | None:
    """The proxy that the environment names for an address; none for one on this machine.

    InputError for a proxy that speaks no HTTP.
    """
    parts = urlsplit(base_url)
    if loopback(base_url) or urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy and urlsplit(proxy).scheme not in ("http", "https"):
        raise InputError(
            f"the environment names the proxy {redact(proxy)!r} for {redact(base_url)!r}, and only proxies at http:// "
            f"or https:// can be used: set {parts.scheme.upper()}_PROXY to such a one, or NO_PROXY to {parts.hostname}"
        )
    return proxy


def _error(text: str) -> Any:
    """What the body of a refusal says of its error."""
    try:
        return json.loads(text)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _codes(error: Any) -> set[str]:
    """The words by which programs know an error."""
    return {str(error.get(name)) for name in ("code", "type")} if isinstance(error, dict) else set()


def _late(seconds: float) -> Failed:
    return Failed(f"it gave no answer within {seconds:g} seconds", "timeouts", billed=True)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "(no known status)"
