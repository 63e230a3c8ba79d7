"""Ray's own processes may end, and Ray does not tell: a pool hears it long before a replica may take to open."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.generators.ray.test_cluster import born

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("orphans")]
PROGRAM = """
import os, signal, sys, threading, time
from pathlib import Path
import ray
from metagen import MajorityVote, FunctionGenerator, FunctionRule, Sample
from metagen.errors import EngineError
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.ray import Policy, RayPool

def make(delay=3600.0):
    return EnumerableEngine(("a", "b", "$"), lambda prompt, done: [0.4, 0.4, 0.2], name="slow", delay=delay)

def kill():
    while not pool.stats.requests:  # the replica is at work
        time.sleep(0.05)
    raylet = ray._private.worker._global_node.all_processes["raylet"][0].process.pid
    below = [int(pid) for path in Path(f"/proc/{raylet}/task").glob("*/children") for pid in path.read_text().split()]
    agents = [pid for pid in below if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::RuntimeEnvAgent")]
    assert len(agents) == 1
    os.kill(raylet if sys.argv[1] == "raylet" else agents[0], signal.SIGKILL)

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


@pytest.mark.parametrize("what", ["raylet", "agent"])
def test_a_pool_hears_that_ray_has_ended_and_solve_works_in_an_actor(what: str) -> None:
    """The raylet ends with its agent for environments, and is counted as dead a little later."""
    pytest.importorskip("ray")
    own = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    # A dead raylet refuses to be looked after; five times in a row, by default at 3 seconds.
    own["RAY_health_check_period_ms"] = "300"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, what],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=own,
    )
    assert "solved in an actor" in done.stdout, done.stderr[-2000:]
    told = ("Ray's raylet on this machine has ended", "Ray counts this machine's node as dead")
    assert any(words in done.stdout for words in told), done.stdout + done.stderr[-2000:]
    assert "`metagen resume DIRECTORY` goes on" in done.stdout


# The last one: see `orphans`.
@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc, which only Linux has")
def test_a_cluster_ends_with_a_driver_that_is_killed(orphans: set[tuple[int, str]]) -> None:
    assert len(orphans) > 3
    end = time.monotonic() + 180
    while left := [pid for pid, since in orphans if born(pid) == since and Path(f"/proc/{pid}/exe").exists()]:
        assert time.monotonic() < end, f"{left} outlived their driver"
        time.sleep(0.2)
