"""A session: a fresh isolated process that is asked over a socket, in lines of JSON."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from metagen.verifiers.code.cgroup import Group
from metagen.verifiers.code.execution import Execution, Stopped
from metagen.verifiers.code.inside.values import CONTAINER
from metagen.verifiers.code.limits import Limits
from metagen.verifiers.code.process import Output, Process

#: Bytes of a line that is looked at in a thread.
LONG = 64 * 1024
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"')


class Session(Execution):
    """A running process and its channel. Use as `async with`: leaving kills the tree, whatever happened."""

    def __init__(self, limits: Limits, group: Group | None, who: str = "the program") -> None:
        super().__init__(limits, group, who)
        #: Bytes of all messages: answers and, beside them, arguments that were changed, tracebacks, names.
        self._most = 2 * limits.answer + 65536
        self._nonce = secrets.token_hex(16)
        self._asked = 0
        self._received = 0
        #: Whether the last line was, so that what is in it should be looked at in a thread.
        self.long = False

    async def start(
        self,
        start: Callable[[Output], Process],
        inner: socket.socket,
        outer: socket.socket,
        *,
        preamble: bytes,
    ) -> None:
        """Start the process, and wait until it can be asked.

        inner: the socket that it inherits; outer: the other end. To be awaited to its end, else a part of what
        it starts may live on. Raises SandboxError.
        """
        self._reader, self._writer = await asyncio.open_connection(sock=outer, limit=self._most)
        self.launch(start)
        # The end of the channel is seen here only if no one else holds the other end.
        inner.close()
        self._writer.write(preamble)
        await self._ready()

    async def _ready(self) -> None:
        """Wait until the inside stands; nothing of the candidate's has been run before."""
        self.send({"nonce": self._nonce, "room": self._limits.answer})
        try:
            await self.receive()
            self.begin()
        except Stopped as stop:
            raise self.start_error(stop.detail) from None

    async def ask(self, request: dict[str, Any], *, long: bool = False) -> dict[str, Any]:
        """The answer to one request; Stopped when there is none."""
        self._asked += 1
        number = self._asked
        await self.forward({"id": number, **request}, long=long)
        return await self._reply(number)

    async def give(self, number: int, given: Any, *, long: bool = False) -> dict[str, Any]:
        """Give what was asked `back` for the sake of a request; then the answer to this, or the next such question."""
        await self.forward({"given": given}, long=long)
        return await self._reply(number)

    async def _reply(self, number: int) -> dict[str, Any]:
        answer = await self.receive()
        if answer.get("id") != number:
            self.end("forged", f"{self._who} gave an answer that was not asked for")
        if "oversized" in answer:
            self.end("output", f"{self._who} returned more than {self._limits.answer} bytes")
        raised = answer.get("raised", ["", "", "", ""])
        if not (isinstance(raised, list) and [type(part) for part in raised] == [str] * 4):
            self.end("forged", f"{self._who} gave an answer of its own making")
        if raised[0] == "MemoryError":
            self.end("memory", f"{self._who} ran out of its {self._limits.memory} bytes of memory")
        return answer

    def send(self, message: dict[str, Any]) -> None:
        if self._ending is None:
            self._writer.write(encode(message))

    async def forward(self, message: dict[str, Any], *, long: bool) -> None:
        """Send what came from another session; in a thread, where it is long."""
        if not long:
            self.send(message)
            return
        line = await asyncio.to_thread(encode, message)
        if self._ending is None:
            self._writer.write(line)

    async def receive(self) -> dict[str, Any]:
        """The next line from the inside, if it carries the nonce of this run."""
        if self._ending is not None:
            raise self._ending
        try:
            line = await self._deadline.within(self._reader.readline)
        except TimeoutError:
            self._late()
        except ValueError:
            self.end("output", f"{self._who} returned more than {self._limits.answer} bytes")
        except ConnectionError:  # gone with words unread
            line = b""
        self._received += len(line)
        if self._received > self._most:
            self.end("output", f"{self._who} returned more than {self._limits.answer} bytes")
        if not line.endswith(b"\n"):
            await self._silent()
        self.long = len(line) > LONG
        if self.long and is_crowded(line, self._limits.answer):
            self.end("output", f"{self._who} returned more lists than {self._limits.answer} bytes may hold")
        # A long answer must not hold up the others.
        message = await asyncio.to_thread(decode, line) if self.long else decode(line)
        if not isinstance(message, dict) or message.get("nonce") != self._nonce:
            self.end("forged", f"{self._who} wrote a line of its own to the channel of answers")
        return message

    async def _silent(self) -> NoReturn:
        """The channel is closed, and an answer was expected: why? Raises Stopped."""
        self.end("crashed", f"{self._who} ended with exit status {await self.wait()} before it answered")

    async def close(self) -> None:
        if self.process is not None:
            self._writer.transport.abort()
        await super().close()


def encode(message: dict[str, Any]) -> bytes:
    """A message as a line."""
    return json.dumps(message).encode() + b"\n"


def decode(line: bytes) -> Any:
    """The JSON of a line; None if it is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def is_crowded(line: bytes, room: int) -> bool:
    """Whether a line opens more lists and objects than values of `room` bytes can: two for each that contains others.

    Each costs far more here than in the line: one of nothing else would take long to parse, in one go.
    """
    most = 2 * room // CONTAINER + 4096
    if line.count(b"[") + line.count(b"{") <= most:
        return False
    bare = _TEXT.sub(b"", line)
    return bare.count(b"[") + bare.count(b"{") > most
