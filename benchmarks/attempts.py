"""What servers bill and engines start, against what limits allow and results say."""

from __future__ import annotations

import asyncio
import json
import random
import warnings
from collections.abc import Iterator

from benchmarks.row import Row
from metagen.budget import Account, Budget
from metagen.cost import Price
from metagen.errors import BudgetExhausted, EngineError
from metagen.generators.function import FunctionGenerator
from metagen.generators.openai import OpenAIEngine
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence

LIMIT, CALLS, SOLVES = 200.0, 50, 200
PROMPT = Sequence.of(Prompt("p", text="What?"))


def rows() -> Iterator[Row]:
    """A server that cuts off seven of eight answers and bills them all, and solves that are cancelled."""
    for limit in (LIMIT, None):
        billed, scope = asyncio.run(_billing(limit))
        under = f"under money={LIMIT:g}" if limit else "without a limit"
        most = scope.trace.most.money or 0.0
        bound = f"≤ {LIMIT:g}" if limit else None
        how = "a real server cuts off 7 of 8 answers; 8 samples of up to 20 tokens, 1 for each token"
        yield Row(f"billed by a server that cuts off, {under}", billed, "money", how, bound)
        yield Row(f"billed / what the result says at most, {under}", billed / most, "", how, "≤ 1")
    started, cancelled = asyncio.run(_cancelling())
    yield Row(
        "calls started under a shared limit of 50",
        started,
        "calls",
        f"{SOLVES} solves of 2 samples, {cancelled} of them cancelled in the middle",
        f"≤ {CALLS}",
    )


async def _billing(limit: float | None) -> tuple[float, Scope]:
    """What the server billed, and the scope of what asked it."""
    answers = 0
    body = json.dumps({
        "choices": [{"index": 0, "message": {"content": "text"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 15},
    }).encode()  # fmt: skip

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answers
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
        await reader.readexactly(int(length.split(b":")[1]))
        answers += 1
        whole = body if answers % 8 == 0 else body[:10]
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        )
        writer.write(whole)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    scope = Scope.root("p", budget=Budget(money=limit) if limit else None)
    async with server:
        with OpenAIEngine("m", base_url=url, price=Price(prompt=0, generated=1e6)) as engine:
            try:
                with warnings.catch_warnings(action="ignore"):  # the server gives copies of one text
                    await engine.generator(max_tokens=20).generate(PROMPT, n=8, scope=scope)
            except (BudgetExhausted, EngineError):
                pass  # what was billed until then is what counts
    return 15.0 * answers, scope


async def _cancelling() -> tuple[int, int]:
    """How many calls were started, and how many solves were cancelled."""
    chance, started, cancelled = random.Random(0), 0, 0
    shared = Account(Budget(calls=CALLS), owner="all solves")

    async def write(prefix: Sequence, seed: int, index: int) -> str:
        nonlocal started
        started += 1
        for _ in range(4):
            await asyncio.sleep(0)
        return "text"

    generator = FunctionGenerator(write)
    for k in range(SOLVES):
        scope = Scope.root(f"p{k}", account=shared)
        work = asyncio.ensure_future(generator.generate(PROMPT, n=2, scope=scope))
        if chance.random() < 0.3:
            before = started
            while started == before and not work.done():  # noqa: ASYNC110 - turns, not time, are what it waits for
                await asyncio.sleep(0)
            cancelled += work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    return started, cancelled
