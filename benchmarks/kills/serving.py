"""A server that bills: `python -m benchmarks.kills.serving LEDGER` prints its port, and ends when its stdin does.

It speaks the OpenAI API, slowly and in pieces. A sample is billed once the last byte of its answer was handed to the
operating system; whether anybody has read it by then, the server cannot know.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.kills.parts import ANSWERS, HEX, LINES, NAME, named, note

#: Seconds that an answer takes on average, and into how many pieces it is cut.
SLOW, PIECES = 0.02, 3


def sample(body: dict[str, Any]) -> str:
    """The text that a seed and a prompt have."""
    drawn = random.Random(f"{body['seed']} {body['prompt']}")
    lines = ["".join(drawn.choices(HEX, k=NAME)) for _ in range(LINES)]
    return "\n".join(lines) + f":{drawn.randrange(ANSWERS)}"


def pieces(text: str, stream: bool) -> Iterator[bytes]:
    """What is sent, head and all."""
    usage = {"prompt_tokens": 3, "completion_tokens": len(text)}
    said = {"index": 0, "finish_reason": "stop"}
    if not stream:
        body = json.dumps(
            {"id": "x", "object": "text_completion", "choices": [{"text": text, **said}], "usage": usage}
        )
        yield f"HTTP/1.1 200 -\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        yield from (
            body[at : at + 1 + len(body) // PIECES].encode()
            for at in range(0, len(body), 1 + len(body) // PIECES)
        )
        return
    yield b"HTTP/1.1 200 -\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = [{"choices": [{"index": 0, "text": part}]} for part in (text[:9], text[9:])]
    for chunk in (*chunks, {"choices": [{"text": "", **said}]}, {"choices": [], "usage": usage}):
        event = f"data: {json.dumps(chunk)}\n\n".encode()
        yield f"{len(event):x}\r\n".encode() + event + b"\r\n"
    yield b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


async def serve(ledger: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection, of one request after the other."""
    try:
        while line := await reader.readline():
            length = 0
            while (raw := await reader.readline()).strip():
                name, _, value = raw.decode().partition(":")
                length = int(value) if name.strip().lower() == "content-length" else length
            body = json.loads(await reader.readexactly(length) or b"{}")
            assert b"/completions" in line, line
            text = sample(body)
            for piece in pieces(text, body.get("stream", False)):
                await asyncio.sleep(random.Random(text).expovariate(PIECES / SLOW))
                writer.write(piece)
                await writer.drain()
                if writer.transport.is_closing():
                    return
            note(ledger, ("sample", named(text)))
    except (ConnectionError, asyncio.IncompleteReadError):
        pass  # the client is gone
    finally:
        writer.close()


async def main(ledger: Path) -> None:
    server = await asyncio.start_server(lambda *ends: serve(ledger, *ends), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
