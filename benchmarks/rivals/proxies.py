"""metagen's server and optillm's, each in front of the same vLLM server: five samples and a vote, for the same clients.

    python -m venv optillm && optillm/bin/pip install optillm==0.4.0
    VLLM_PYTHON=.venv-vllm/bin/python .venv/bin/python -m benchmarks.rivals.proxies optillm/bin/optillm

They take turns. optillm's `self_consistency` draws its five samples one after the other, and returns a text of the
largest group of texts that resemble each other; metagen votes by the task's answer. optillm writes `User: ` before each
question, which the server's chat template takes away again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from benchmarks.rivals.servers import TEMPLATE, WRITER, started
from benchmarks.rivals.table import TOKENS, Line, markdown
from benchmarks.serve import server
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.tasks.base import Problem

#: Samples of a vote: optillm's number is fixed. Clients: requests under way at a time.
N, CLIENTS = 5, 32


def experiment(base_url: str) -> dict[str, Any]:
    """What metagen serves."""
    return {
        "name": "proxy",
        "task": {"kind": "arithmetic", "split": "validation", "levels": [2], "per_level": 1},
        "engines": {"writer": {"kind": "openai", "model": WRITER, "base_url": base_url, "dialect": "vllm"}},
        "generators": {"writer": {"engine": "writer", "max_tokens": TOKENS}},
        "strategies": {"one": {"kind": "sample"}, "vote": {"kind": "majority"}},
        "grid": {"n": [N]},
        "serve": {"port": 0, "concurrency": CLIENTS, "waiting": 4 * CLIENTS},
    }  # fmt: skip


@contextmanager
def optillm(command: str, base_url: str) -> Iterator[str]:
    """The address of a proxy of optillm, which ends with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    asked = [command, "--base-url", base_url, "--port", str(port), "--log", "error"]
    environment = os.environ | {"OPENAI_API_KEY": "none"}
    with Path("rivals-optillm.log").open("wb") as log:
        process = subprocess.Popen(asked, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        until = time.monotonic() + 120
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                    break
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError("optillm does not answer; see rivals-optillm.log") from None
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def main(
    problems: list[Problem], turns: int, asked: Mapping[tuple[str, str], tuple[str, str]]
) -> list[Line]:
    """asked: by method and contestant, the address and the model to ask for."""
    gate = asyncio.Semaphore(CLIENTS)
    spent = [0]
    # A connection for each request: optillm's server ends those that it has answered.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(600)) as session:

        def line(method: str, who: str, url: str, model: str) -> Line:
            async def solve(prompt: str, seed: int) -> str:
                body = {
                    "model": model,
                    "max_tokens": TOKENS,
                    "messages": [{"role": "user", "content": prompt}],
                }
                async with gate, session.post(f"{url}/chat/completions", json=body) as answer:
                    found = await answer.json()
                    answer.raise_for_status()
                spent[0] += found["usage"]["completion_tokens"]
                return str(found["choices"][0]["message"]["content"])

            return Line(method, who, solve)

        lines = [line(*names, *place) for names, place in asked.items()]
        for turn in range(-1, turns):  # the first of each warms up, on few problems
            for one in lines:
                await once(one, problems if turn >= 0 else problems[:8], turn, spent)
    return lines


async def once(line: Line, problems: list[Problem], turn: int, spent: list[int]) -> None:
    before, began = spent[0], time.perf_counter()
    texts = await asyncio.gather(*(line.solve(problem.prompt.text or "", turn) for problem in problems))
    if turn >= 0:
        line.add(time.perf_counter() - began, texts, problems)
        if line.who != "optillm":  # which leaves out the tokens of samples that were cut
            line.generated.append(spent[0] - before)


if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("optillm", help="the command that starts optillm's server")
    given.add_argument("--problems", type=int, default=100)
    given.add_argument("--turns", type=int, default=3)
    wanted = given.parse_args()
    some = ArithmeticTask("validation", seed=47, levels=[2, 3, 4, 5], per_level=-(-wanted.problems // 4))
    chosen = list(some.problems())[: wanted.problems]
    template = TEMPLATE.replace("m.content", "m.content.removeprefix('User: ')")
    with started(WRITER, template) as base, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "proxy.yaml"
        file.write_text(yaml.safe_dump(experiment(base)), encoding="utf-8")
        with optillm(wanted.optillm, base) as theirs, server(file) as ours:
            places = {
                ("one sample", "vLLM alone"): (base, WRITER),
                ("one sample", "optillm"): (theirs, f"none-{WRITER}"),
                ("one sample", "metagen"): (ours, "writer/one"),
                ("vote of five", "optillm"): (theirs, f"self_consistency-{WRITER}"),
                ("vote of five", "metagen"): (ours, f"writer/vote@{N}"),
            }
            print(markdown(asyncio.run(main(chosen, wanted.turns, places)), len(chosen)))
