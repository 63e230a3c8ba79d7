"""Connections of HTTP/1.1: faults in the form of the API, and an end to those whose requests never come."""

from __future__ import annotations

import asyncio
import json

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from metagen.serve.errors import ApiError

#: Seconds in which the line and the headers of a request must arrive.
HEAD = 20.0


class Connection(H11Protocol):
    """One of them, of uvicorn's server."""

    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._mind()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._mind()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()

    def send_400_response(self, msg: str) -> None:
        """For what is no HTTP."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # an answer has begun: nothing else can be said
            return
        body = json.dumps(ApiError(400, msg, code="invalid_http").body).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        for event in (
            h11.Response(status_code=400, headers=[*headers, ("Connection", "close")], reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _mind(self) -> None:
        """Close the connection later if no request has begun by then, however slowly its bytes come."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._forget()
        elif self._head is None and not self.transport.is_closing():
            self._head = self.loop.call_later(HEAD, self.timeout_keep_alive_handler)

    def _forget(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None
