"""A server under load, and the same work without it, by turns. `SECONDS=30` in the environment makes it shorter.

200 clients ask, each one question after the other. Without the server they are 200 coroutines over an engine in this
process; with it, 200 connections to a process of its own. Both have the same cores, which with the server are shared
by the clients as well. `python -m benchmarks.serve` prints JSON.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import yaml
from scipy import stats

from benchmarks.row import Row
from metagen.integrations.local import Local
from metagen.tasks.arithmetic.task import ArithmeticTask

SECONDS = float(os.environ.get("SECONDS", "300"))
CLIENTS, TURNS = 200, 4
MODELS = ("small/one", "small/majority@8")
FILE: dict[str, Any] = {
    "name": "load",
    "task": {"kind": "arithmetic", "split": "validation", "seed": 41, "levels": [2, 3], "per_level": 50},
    "engines": {"small": {"kind": "torch", "model": "tiny-0.5m"}},
    "generators": {"small": {"engine": "small", "max_tokens": 120}},
    "strategies": {"one": {"kind": "sample"}, "majority": {"kind": "majority"}},
    "grid": {"n": [8]},
    "serve": {"port": 0, "concurrency": CLIENTS, "waiting": CLIENTS},
}
PROFILE = (
    "of single samples, by py-spy for 20 s at 200 Hz: of what runs in the server, 67% is the engine's thread, 13% "
    "strategy and account, 5% FastAPI's layers, 5% h11, 4% reading and writing JSON, 6% the loop; the clients run on "
    "the same two cores, and HTTP shares the interpreter with the engine"
)
PROMPTS = [str(one.prompt.text) for one in ArithmeticTask(levels=(2, 3), per_level=50, seed=41).problems()]
#: Answers one request; returns the answer of the API.
Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


@dataclass
class Turn:
    """The answers that clients got. latencies: seconds of each answer. lost: requests that got none."""

    latencies: list[float] = field(default_factory=list)
    tokens: int = 0
    lost: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Tokens that were generated in a second."""
        return self.tokens / self.seconds


async def load(ask: Ask, model: str, seconds: float, *, clients: int = CLIENTS, first: int = 0) -> Turn:
    """So many clients that ask for so long, and then wait for their last answers. first: the seeds begin here."""
    turn, began = Turn(), time.perf_counter()
    asked = iter(range(first, sys.maxsize))

    async def client() -> None:
        while time.perf_counter() - began < seconds:
            number = next(asked)
            body = {"model": model, "prompt": PROMPTS[number % len(PROMPTS)], "seed": number}
            sent = time.perf_counter()
            try:
                answer = await ask(body)
            except (aiohttp.ClientError, TimeoutError, RuntimeError) as error:
                turn.lost.append(repr(error))
                continue
            turn.latencies.append(time.perf_counter() - sent)
            turn.tokens += answer["usage"]["completion_tokens"]

    await asyncio.gather(*(client() for _ in range(clients)))
    turn.seconds = time.perf_counter() - began
    return turn


@contextmanager
def server(path: Path) -> Iterator[str]:
    """The address of a server of this file, in a process of its own."""
    command = [sys.executable, "-m", "metagen.cli", "serve", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        try:
            said = ""
            while (found := re.search(r"listening at (\S+);", said)) is None:
                line = running.stderr.readline()
                if not line:
                    raise RuntimeError(f"the server ended: {said}")
                said += line
            yield found[1]
        finally:
            running.terminate()


async def by_turns(path: Path, models: tuple[str, ...], seconds: float) -> dict[str, list[tuple[Turn, Turn]]]:
    """Without and with the server, turn by turn, for each model. seconds: of all turns together."""
    each = seconds / (2 * TURNS * len(models))
    with closing(Local(path)) as local, server(path) as url:
        return await _by_turns(local, url, models, each)


async def _by_turns(
    local: Local, url: str, models: tuple[str, ...], each: float
) -> dict[str, list[tuple[Turn, Turn]]]:
    found: dict[str, list[tuple[Turn, Turn]]] = {model: [] for model in models}

    async def bare(body: dict[str, Any]) -> dict[str, Any]:
        return await local.answer("text", body)

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(600)) as session:

        async def served(body: dict[str, Any]) -> dict[str, Any]:
            async with session.post(f"{url}/completions", json=body) as response:
                if response.status != 200:
                    raise RuntimeError(f"{response.status}: {await response.text()}")
                answer: dict[str, Any] = await response.json()
                return answer

        for model in models:
            for ask in (bare, served):
                await load(ask, model, 1.0, clients=8)
        for turn in range(TURNS):
            for model in models:
                # The same requests for both, and others in each turn.
                first = (turn + 1) * 1_000_000
                pair = [await load(ask, model, each, first=first) for ask in (bare, served)]
                found[model].append((pair[0], pair[1]))
    return found


def ratio(pairs: list[tuple[Turn, Turn]]) -> tuple[float, float, float]:
    """Tokens in a second with the server, by those without: geometric mean over turns, its 95% interval (t)."""
    logs = np.log([served.rate / bare.rate for bare, served in pairs])
    mean, half = float(np.mean(logs)), math.inf
    if len(logs) > 1:
        half = float(stats.t.ppf(0.975, len(logs) - 1) * np.std(logs, ddof=1) / math.sqrt(len(logs)))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def measure(models: tuple[str, ...] = MODELS, seconds: float = SECONDS) -> dict[str, list[tuple[Turn, Turn]]]:
    """`by_turns` over the file above."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "load.yaml"
        path.write_text(yaml.safe_dump(FILE), encoding="utf-8")
        return asyncio.run(by_turns(path, models, seconds))


def rows() -> Iterator[Row]:
    """Lost requests, tokens in a second and latencies, for a sample and for a vote."""
    for model, pairs in measure().items():
        mean, low, high = ratio(pairs)
        how = f"{model} of tiny-0.5m, {CLIENTS} clients on the same cores, {TURNS} turns each way"
        yield Row(f"requests lost by the server, {model}", sum(len(served.lost) for _, served in pairs), "requests",
                  how, "≤ 0")  # fmt: skip
        yield Row(f"tokens per second with the server by those without, {model}", mean, "ratio",
                  f"{how}, 95% interval {low:.2f} to {high:.2f}", "≥ 0.9", PROFILE)  # fmt: skip
        for name, side in (("without", 0), ("with", 1)):
            latencies = [one for pair in pairs for one in pair[side].latencies]
            tokens = sum(pair[side].tokens for pair in pairs) / sum(pair[side].seconds for pair in pairs)
            yield Row(f"tokens per second {name} the server, {model}", tokens, "1/s", how)
            for share in (50, 99):
                value = float(np.percentile(latencies, share))
                counted = f"{how}, {len(latencies):,} answers"
                yield Row(f"latency {name} the server, {share}% are faster, {model}", value, "s", counted)


if __name__ == "__main__":
    print(json.dumps([{**vars(row), "holds": row.holds} for row in rows()], indent=1, ensure_ascii=False))
