"""Ray's own processes may end, and Ray does not tell: a pool hears it long before a replica may take to open."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]
PROGRAM = """
import os, signal, threading, time
import ray
from metagen import MajorityVote, FunctionGenerator, FunctionRule, Sample
from metagen.errors import EngineError
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.ray import Policy, RayPool

def make(delay=3600.0):
    return EnumerableEngine(("a", "b", "$"), lambda prompt, done: [0.4, 0.4, 0.2], name="slow", delay=delay)

def kill():
    time.sleep(2)
    os.kill(ray._private.worker._global_node.all_processes["raylet"][0].process.pid, signal.SIGKILL)

class Solves:
    def solve(self):
        return Sample(FunctionGenerator(lambda prefix, seed, index: "solved in an actor")).solve("q").text

with RayPool(make, codec=make(0.0), policy=Policy(deadline=30, opening=3600)) as pool:
    print(ray.get(ray.remote(Solves).remote().solve.remote()), flush=True)
    threading.Thread(target=kill, daemon=True).start()
    try:
        Sample(pool.generator(max_tokens=4)).solve("q")
    except EngineError as error:
        print("error:", error, flush=True)
"""


def test_a_pool_hears_that_ray_has_ended_and_solve_works_in_an_actor() -> None:
    pytest.importorskip("ray")
    own = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False, env=own
    )
    assert "solved in an actor" in done.stdout, done.stderr[-2000:]
    assert "Ray's raylet on this machine has ended" in done.stdout
    assert "`metagen resume DIRECTORY` goes on" in done.stdout
