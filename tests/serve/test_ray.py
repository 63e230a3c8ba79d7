"""A server over a pool of Ray actors: one replica is killed under load, and no request fails."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from metagen.generators.torch.engine import TorchEngine
from metagen.strategies.parallel import MajorityVote
from metagen.verifiers.numbers import NumberRule
from tests.serve.serving import FILE, QUESTION
from tests.serve.test_command import process

pytestmark = pytest.mark.slow
REQUESTS = 24


def replicas(root: int) -> list[int]:
    """The actors among the descendants of a process that run engines."""
    parents: dict[int, int] = {}
    titles: dict[int, str] = {}
    for one in Path("/proc").iterdir():
        try:
            parents[int(one.name)] = int((one / "stat").read_text().rpartition(")")[2].split()[1])
            titles[int(one.name)] = (one / "cmdline").read_bytes().decode("utf-8", "replace")
        except ValueError:  # no process
            continue
        except OSError:
            continue
    found = []
    for pid, title in titles.items():
        above = pid
        while above in parents and above != root:
            above = parents[above]
        if above == root and title.startswith("ray::") and "Replica" in title:
            found.append(pid)
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_a_replica_that_is_killed_fails_no_request(tmp_path: Path) -> None:
    # One pool: whichever replica is killed, it had some of the work.
    served = {
        "engines": {"small": FILE["engines"]["small"]},
        "verifiers": {},
        "strategies": {"majority": {"kind": "majority"}},
        "grid": {"n": [4]},
        "serve": {"port": 0},
        "executor": {"kind": "ray", "pools": {"small": {"replicas": 2, "num_cpus": 0.5}}},
    }
    with process(tmp_path, **served) as (running, url):
        before = replicas(running.pid)
        assert len(before) == 2
        killed: list[int] = []

        def ask(seed: int) -> dict[str, Any]:
            if seed == REQUESTS // 4:
                killed.append(before[0])
                os.kill(before[0], signal.SIGKILL)
            body = {"model": "small/majority@4", "prompt": QUESTION, "seed": seed}
            got = httpx.post(f"{url}/completions", json=body, timeout=240)
            assert got.status_code == 200, got.text
            return dict(got.json())

        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(ask, range(REQUESTS)))
        assert killed and len(answers) == REQUESTS
        running.send_signal(signal.SIGTERM)
        assert running.wait(120) == 0
    with TorchEngine("tiny-0.5m", threads=1) as engine:
        vote = MajorityVote(engine.generator(max_tokens=120), n=4, answer=NumberRule())
        for seed, answer in enumerate(answers):
            assert answer["choices"][0]["text"] == vote.solve(QUESTION, seed=seed).text
