"""Clients that send nonsense, half requests or nothing: each gets an error of the API, and holds nothing."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from metagen.serve import app, connection
from tests.serve.serving import QUESTION, Running, serving
from tests.serve.test_command import process

ASKED = {"model": "fast", "prompt": QUESTION}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("hostile"), origins=["https://page.example"]) as running:
        yield running


def raw(running: Running, *pieces: bytes) -> bytes:
    """All that the server sends until it closes the connection."""
    port = int(running.host.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connected:
        for piece in pieces:
            connected.sendall(piece)
        found = b""
        while part := connected.recv(65536):
            found += part
        return found


def request(body: Any, *headers: str, length: int | None = None) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    size = len(content) if length is None else length
    lines = ["POST /v1/completions HTTP/1.1", "Host: x", f"Content-Length: {size}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + content


def post(running: Running, body: Any, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(f"{running.url}/completions", content=content, headers=headers, timeout=60)


def counted(running: Running, status: int) -> float:
    lines = httpx.get(f"{running.host}/metrics").text.splitlines()
    name = "metagen_requests_total{"
    found = [line for line in lines if line.startswith(name) and f'status="{status}"' in line]
    return sum(float(line.split()[-1]) for line in found)


@pytest.mark.parametrize(
    "sent",
    [
        b"GARBAGE\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nabc\r\n",
    ],
    ids=["no http", "no host", "a length below none", "no chunk"],
)
def test_what_is_no_http_is_told_as_json(served: Running, sent: bytes) -> None:
    head, _, body = raw(served, sent).partition(b"\r\n\r\n")
    assert b" 400 " in head and json.loads(body)["error"]["code"] == "invalid_http"
    assert httpx.get(f"{served.host}/health").status_code == 200


def test_headers_have_an_end(served: Running) -> None:
    found = b""
    with suppress(ConnectionError):  # what was sent behind the answer resets the connection
        found = raw(served, b"GET /health HTTP/1.1\r\nHost: x\r\nX: ", *[b"a" * 10_000] * 500, b"\r\n\r\n")
    assert b" 200 " not in found and httpx.get(f"{served.host}/health").status_code == 200


def test_half_a_request_is_no_fault_of_the_server(served: Running, caplog: pytest.LogCaptureFixture) -> None:
    before = counted(served, 499), counted(served, 500)
    port = int(served.host.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as connected:
        connected.sendall(request(b'{"mod', length=1000))
    for _ in range(1000):
        if counted(served, 499) > before[0]:
            break
        time.sleep(0.01)
    assert (counted(served, 499), counted(served, 500)) == (before[0] + 1, before[1])
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


def test_requests_behind_one_another_get_their_answers_in_order(served: Running) -> None:
    last = request({**ASKED, "model": "nobody"}, "Connection: close")
    found = raw(served, request({**ASKED, "max_tokens": 3}) + request({**ASKED, "n": 0}) + last)
    assert [part[:3] for part in found.split(b"HTTP/1.1 ")[1:]] == [b"200", b"400", b"404"]


def test_a_request_that_does_not_come_is_not_waited_for(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD", 0.3)
    monkeypatch.setattr(app, "BODY", 0.3)
    # Nothing, a part of the headers, and one byte after the other.
    assert raw(served) == b"" and raw(served, b"GET /hea") == b""
    port = int(served.host.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as slow:
        sent = 0
        try:
            for byte in b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 600:
                slow.sendall(bytes([byte]))
                sent += 1
                time.sleep(0.02)
        except OSError:
            pass
        assert sent < 600
    late = raw(served, request(b'{"mod', "Connection: close", length=1000))
    assert b" 408 " in late.splitlines()[0] and b'"code":"timeout"' in late


def test_who_does_not_read_a_stream_holds_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "STALLED", 0.1)
    ended: list[bool] = []

    async def frames() -> AsyncGenerator[str]:
        while True:
            yield "data: {}\n\n"

    async def end() -> None:
        ended.append(True)

    async def never(*_: Any) -> Any:
        await asyncio.Event().wait()

    async def main() -> None:
        scope: dict[str, Any] = {"type": "http", "asgi": {"spec_version": "2.3"}}
        await asyncio.wait_for(app._Stream(frames(), end)(scope, never, never), 60)

    asyncio.run(main())
    assert ended == [True]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"model": "fast", "model": "vote", "prompt": "x"}', "model"),
        (b'{"model": "fast", "prompt": "x", "metagen": {"n": 2, "n": 3}}', "n"),
        (b'{"model": "fast", "prompt": "x", "stop": "\\ud800"}', None),
        (b'{"model": "\\uDFFF", "prompt": "x"}', None),
        (b'{"model": "fast", "prompt": "x", "user": [NaN]}', None),
        (b'{"model": "fast", "prompt": "x", "user": [1e400]}', None),
        (b'{"model": "fast", "prompt": "x", "temperature": -Infinity}', None),
        (b'{"model": "fast", "prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}", ...),
        (b'{"model": "fast", "prompt": "x", "seed": ' + b"9" * 5000 + b"}", None),
    ],
)
def test_json_with_two_meanings_or_none(served: Running, body: bytes, param: Any) -> None:
    for streams in (body, body[:-1] + b', "stream": true}'):
        got = post(served, streams)
        error = got.json()["error"]
        assert got.status_code == 400, error
        assert param is ... or (error["param"] == param and error["code"] == "invalid_json"), error


def test_characters_beyond_the_first_plane_are_whole(served: Running) -> None:
    assert post(served, b'{"model": "fast", "max_tokens": 2, "prompt": "\\ud83d\\ude00"}').status_code == 200


def test_other_types_than_json_are_refused(served: Running) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/xml"):
        got = post(served, ASKED, **{"Content-Type": kind})
        assert got.status_code == 415 and kind in got.json()["error"]["message"]
    for kind in ("application/json", "Application/JSON; charset=utf-8"):
        assert post(served, {**ASKED, "max_tokens": 2}, **{"Content-Type": kind}).status_code == 200


def test_web_pages_may_ask_only_if_they_are_named(served: Running) -> None:
    """A page can post to any address without asking first, if it does not say that it sends JSON."""
    for page in ("http://evil.example", "null"):
        for kind in ("text/plain", "application/json"):
            got = post(served, ASKED, Origin=page, **{"Content-Type": kind})
            assert got.status_code == 403 and "access-control-allow-origin" not in got.headers
    page = "https://page.example"
    named = post(served, {**ASKED, "max_tokens": 2}, Origin=page)
    assert named.status_code == 200 and named.headers["access-control-allow-origin"] == page
    # OpenAI's client for browsers has headers of its own.
    asks = {"Origin": page, "Access-Control-Request-Method": "POST"}
    asks["Access-Control-Request-Headers"] = "authorization,content-type,x-stainless-lang,x-metagen-n"
    assert httpx.options(f"{served.url}/completions", headers=asks).status_code == 200
    refused = httpx.post(
        f"{served.url}/completions", content=b"x" * 1_000_001, headers={"Origin": page}, timeout=60
    )
    assert refused.status_code == 413 and refused.headers["access-control-allow-origin"] == page


def test_nobody_is_sent_to_another_address(served: Running) -> None:
    got = httpx.post(f"{served.url}/completions/", json=ASKED, headers={"Host": "elsewhere"})
    assert got.status_code == 404 and "location" not in got.headers


def test_no_key_is_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALICE_KEY", " secret-of-alice \n")
    serve = {"keys": {"alice": {"env": "ALICE_KEY"}}, "aliases": {"fast": "small/greedy"}}
    with process(tmp_path, serve=serve) as (running, url):
        for key in ("secret-of-alice", "secret-of-nobody"):
            headers = {"Authorization": f"Bearer {key}"}
            got = httpx.post(
                f"{url}/completions", json={**ASKED, "max_tokens": 2}, headers=headers, timeout=60
            )
            assert got.status_code == (200 if "alice" in key else 401)
            httpx.post(f"{url}/completions", content=b"{", headers=headers)
            httpx.get(f"{url}/models/{key}", headers=headers)
            port = int(url.removesuffix("/v1").rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port)) as connected:
                connected.sendall(f"GET / HTTP/1.1\r\nAuthorization: Bearer {key}\r\n: \r\n\r\n".encode())
                connected.recv(1000)
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0 and running.stderr is not None
        assert "secret" not in running.stderr.read()
