"""200 clients at a time for ten seconds: no request is lost, and every answer is that of the strategy."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from benchmarks.serve import CLIENTS, FILE, PROMPTS, load, server
from metagen.integrations.local import Local

#: Of asking; `LOAD_SECONDS=300` makes it longer.
SECONDS = float(os.environ.get("LOAD_SECONDS", "10"))


@pytest.mark.slow
def test_no_request_is_lost_and_each_gets_its_own_answer(tmp_path: Path) -> None:
    path = tmp_path / "load.yaml"
    path.write_text(yaml.safe_dump(FILE), "utf-8")
    answers: dict[int, str] = {}

    async def main(url: str) -> Any:
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(600)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

            async def ask(body: dict[str, Any]) -> dict[str, Any]:
                async with session.post(f"{url}/completions", json=body) as response:
                    answer: dict[str, Any] = await response.json()
                    assert response.status == 200, answer
                answers[body["seed"]] = body["prompt"] + answer["choices"][0]["text"]
                return answer

            turn = await load(ask, "small/one", SECONDS)
            async with session.get(f"{url.removesuffix('/v1')}/metrics") as response:
                return turn, await response.text()

    with server(path) as url:
        turn, counters = asyncio.run(main(url))
    assert turn.lost == [] and len(turn.latencies) == len(answers) >= CLIENTS
    assert f'metagen_requests_total{{model="small/one",status="200"}} {float(len(answers))}' in counters
    assert "metagen_requests_running 0.0" in counters and "metagen_requests_waiting 0.0" in counters
    local = Local(path)
    try:
        for seed in sorted(answers)[:: max(1, len(answers) // 20)]:
            asyncio.run(check(local, seed, answers[seed]))
    finally:
        local.close()


async def check(local: Local, seed: int, expected: str) -> None:
    prompt = PROMPTS[seed % len(PROMPTS)]
    answer = await local.answer("text", {"model": "small/one", "prompt": prompt, "seed": seed})
    assert prompt + answer["choices"][0]["text"] == expected
