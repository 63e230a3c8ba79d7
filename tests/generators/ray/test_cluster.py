"""A cluster of one's own: quiet, reached from this machine only, and gone with its driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="a pool needs Ray, which the extra ray brings")
#: Processes of a killed driver, which Ray lets live for a minute. `test_ended.py` tests that they end.
pytestmark = pytest.mark.usefixtures("orphans")


#: One cluster at a time.
SCRIPT = """
import asyncio, signal, sys
from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.ray import RayPool
from metagen.sequence import Sequence

signal.signal(signal.SIGTERM, lambda *_: print("heeded", flush=True))
options = {"tokens": ("a", "b", "$"), "table": {(): [0, 0, 1]}}
with RayPool(EnumerableEngine, options, codec=EnumerableEngine(**options)) as pool:
    asyncio.run(pool.generate(GenerateRequest(Sequence.of("?"), (1,), SamplingParams(), 4)))
    print("ready", flush=True)
    sys.stdin.readline()
import ray
print(ray.is_initialized(), flush=True)
"""
#: State of a socket that listens, in /proc/net/tcp.
LISTENS = "0A"


def descendants(pid: int) -> set[int]:
    found, new = set[int](), {pid}
    while new:
        found |= new
        children = (Path(f"/proc/{one}/task/{one}/children") for one in new)
        new = {int(c) for file in children if file.exists() for c in file.read_text().split()} - found
    return found


def born(pid: int) -> str:
    """When a process began, as the kernel writes it; empty if it is gone. Its number may soon be another one's."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def listening(pids: set[int]) -> list[str]:
    """Addresses that these processes listen at, as the kernel writes them."""
    sockets = set()
    for pid in pids:
        for file in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = str(file.readlink())
            except OSError:
                continue  # closed meanwhile
            sockets.add(target.removeprefix("socket:[").rstrip("]"))
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return [line[1].partition(":")[0] for line in lines if line[3] == LISTENS and line[9] in sockets]


def alone(name: str) -> bool:
    """Whether an address is of the loopback interface: 127.0.0.1, also as one of IPv6, or ::1."""
    return name.endswith("0100007F") or name == "00000000000000000000000001000000"


def environment(home: Path, **more: str) -> dict[str, str]:
    """Without what the tests or their machine say of Ray."""
    return {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | {"HOME": str(home)} | more


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="sockets are looked up in /proc, which only Linux has")
def test_it_is_quiet_reached_from_this_machine_only_and_leaves_signals_to_those_who_heed_them(
    tmp_path: Path,
) -> None:
    """Ray would end the process that gets SIGTERM by exit code 15: a run could not end cleanly."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=environment(tmp_path),
    ) as driver:  # fmt: skip
        assert driver.stdout is not None
        assert driver.stdout.readline() == "ready\n", driver.communicate()[1]
        family = descendants(driver.pid)
        addresses = listening(family)
        assert len(addresses) >= 3, "Ray talks by sockets"
        assert all(map(alone, addresses)), addresses
        driver.send_signal(signal.SIGTERM)
        assert driver.stdout.readline() == "heeded\n", driver.communicate()[1]
        out, err = driver.communicate("\n")
    assert out == "False\n", "the connection ended with the pool"
    assert (driver.returncode, err) == (0, "")


TWICE = """
import asyncio, sys
from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.ray import RayPool
from metagen.sequence import Sequence

options = {"tokens": ("a", "b", "$"), "table": {(): [0, 0, 1]}}
for address in (None, sys.argv[1]):
    with RayPool(EnumerableEngine, options, codec=EnumerableEngine(**options), address=address) as pool:
        asyncio.run(pool.generate(GenerateRequest(Sequence.of("?"), (1,), SamplingParams(), 4)))
        print("ready", flush=True)
"""
HEAD = """
import json, sys
from ray._private import ray_constants
from ray.cluster_utils import Cluster

ray_constants.ENABLE_RAY_CLUSTER = False
cluster = Cluster()
cluster.add_node(**json.loads(sys.argv[1]))
print(cluster.address, flush=True)
sys.stdin.readline()
cluster.shutdown()
"""


@pytest.mark.slow
def test_the_token_of_a_cluster_is_used(node: dict[str, Any], tmp_path: Path) -> None:
    """Ray by itself asks for no token at an address that it is given."""
    token = {"RAY_AUTH_TOKEN": "0123456789abcdef" * 4, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    with subprocess.Popen(
        [sys.executable, "-c", HEAD, json.dumps(node)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment(tmp_path, RAY_AUTH_MODE="token", **token),
    ) as head:  # fmt: skip
        assert head.stdout is not None
        address = head.stdout.readline().strip()
        driver = subprocess.run(
            [sys.executable, "-c", SCRIPT], input="\n", capture_output=True, text=True, timeout=300,
            env=environment(tmp_path, RAY_ADDRESS=address, **token),
        )  # fmt: skip
        head.communicate("\n")
    assert driver.stdout == "ready\nFalse\n", driver.stderr


@pytest.mark.slow
def test_a_cluster_without_a_token_can_be_joined_after_one_with_a_token(
    node: dict[str, Any], tmp_path: Path
) -> None:
    """Ray gives its own cluster a token, and by itself keeps to it for as long as the process lives."""
    outside = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    with subprocess.Popen(
        [sys.executable, "-c", HEAD, json.dumps(node)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment(tmp_path, RAY_AUTH_MODE="disabled", **outside),
    ) as head:  # fmt: skip
        assert head.stdout is not None
        address = head.stdout.readline().strip()
        try:
            driver = subprocess.run(
                [sys.executable, "-c", TWICE, address], capture_output=True, text=True, timeout=300,
                env=environment(tmp_path, **outside),
            )  # fmt: skip
        finally:
            head.communicate("\n")
    assert driver.stdout == "ready\n" * 2, driver.stderr
