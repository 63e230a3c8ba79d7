"""Servers on a real socket, each in a thread with an event loop of its own, and what they were asked."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

KEY = "sk-local-4711-do-not-tell-anyone"


@dataclass
class Asked:
    """A request as it came in. number: how many came before it. at: when, in seconds."""

    number: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    at: float = field(default_factory=time.monotonic)


@dataclass
class Reply:
    """A response. cut: so many bytes of the body are sent before the connection is closed. delay: seconds before."""

    status: int = 200
    body: bytes | dict[str, Any] = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    chunked: bool = False
    delay: float = 0.0

    def head(self, body: bytes) -> bytes:
        lines = {"content-type": "application/json", **self.headers}
        lines |= {"transfer-encoding": "chunked"} if self.chunked else {"content-length": str(len(body))}
        return "".join(
            [f"HTTP/1.1 {self.status} -\r\n", *(f"{k}: {v}\r\n" for k, v in lines.items()), "\r\n"]
        ).encode()


Handler = Callable[[Asked], Awaitable[Reply]]


class Server:
    """Answers by `handler`. asked: all requests. most: how many were in work at a time. gone: clients that left."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.asked: list[Asked] = []
        self.running = self.most = self.gone = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client is gone, or the server is closed
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; whether the connection stays open."""
        line = await reader.readline()
        if not line:
            return False
        headers: dict[str, str] = {}
        while (raw := await reader.readline()).strip():
            name, _, value = raw.decode().partition(":")
            headers[name.strip().lower()] = value.strip()
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
        asked = Asked(len(self.asked), line.decode().split()[1], headers, body)
        self.asked.append(asked)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            reply = await self._watched(self._reply(asked), reader)
        finally:
            self.running -= 1
        if reply is None:
            self.gone += 1
            return False
        return await self._send(reply, writer)

    async def _reply(self, asked: Asked) -> Reply:
        reply = await self.handler(asked)
        await asyncio.sleep(reply.delay)
        return reply

    async def _watched(self, work: Any, reader: asyncio.StreamReader) -> Reply | None:
        """The reply, or None if the client leaves first, as servers notice that abort what they do."""
        working, leaving = asyncio.create_task(work), asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            for task in (working, leaving):
                task.cancel()
            await asyncio.gather(working, leaving, return_exceptions=True)

    async def _send(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        sent = body if reply.cut is None else body[: reply.cut]
        if reply.chunked:
            sent = f"{len(body):x}\r\n".encode() + sent + (b"\r\n0\r\n\r\n" if reply.cut is None else b"")
        writer.write(reply.head(body) + sent)
        await writer.drain()
        return reply.cut is None

    @contextmanager
    def open(self) -> Iterator[Server]:
        loop = asyncio.new_event_loop()
        started, stopping = threading.Event(), asyncio.Event()

        async def main() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            started.set()
            await stopping.wait()
            server.close()
            rest = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

        thread = threading.Thread(target=lambda: loop.run_until_complete(main()), daemon=True)
        thread.start()
        started.wait()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(stopping.set)
            thread.join()
            loop.close()


def said(text: str = "hello", **choice: Any) -> dict[str, Any]:
    """A choice in the form of completions and of chats at once."""
    return {
        "index": 0,
        "text": text,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
    } | choice


def answer(*choices: dict[str, Any], prompt: Any = 5, new: Any = 3, **usage: Any) -> dict[str, Any]:
    """The body of a good response."""
    counts = {"prompt_tokens": prompt, "completion_tokens": new, **usage}
    numbered = [choice | {"index": i} for i, choice in enumerate(choices or (said(),))]
    return {"id": "x", "object": "text_completion", "choices": numbered, "usage": counts}


def stream(*chunks: dict[str, Any], end: bool = True) -> Reply:
    """A response in server-sent events."""
    events = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks] + (["data: [DONE]\n\n"] if end else [])
    head = ": keep-alive\n\n"
    return Reply(body=(head + "".join(events)).encode(), headers={"content-type": "text/event-stream"})


def delta(finish: str | None = None, index: int = 0, **fields: Any) -> dict[str, Any]:
    """A chunk of a streamed chat."""
    return {"choices": [{"index": index, "delta": fields, "finish_reason": finish}]}


def always(reply: Reply) -> Handler:
    async def handler(asked: Asked) -> Reply:
        return reply

    return handler


def in_turn(*replies: Reply) -> Handler:
    """One after the other; the last one from then on."""

    async def handler(asked: Asked) -> Reply:
        return replies[min(asked.number, len(replies) - 1)]

    return handler
