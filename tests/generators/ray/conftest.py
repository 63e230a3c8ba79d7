"""A cluster of two nodes on this machine, and engines that get into trouble when they are told to."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from metagen.errors import EngineError, InputError
from metagen.generators.engine import Evaluated, EvaluateRequest, Generated, GenerateRequest
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.ray import Placement, RayPool

#: The parts of toy experiments.
TOY = Path(__file__).parents[2] / "runs" / "toy"
#: A cluster that only this machine sees, without tokens, and one that soon misses a node that is gone.
ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
}
SYSTEM = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 4,
    # Replicas start processes of their own; those that wait for tasks would cost a start each.
    "prestart_worker_first_driver": False,
    "enable_worker_prestart": False,
}
TOKENS = ("a", "b", "ab", "c", "d", "\n", "$")


def table(prompt: str, done: tuple[str, ...]) -> list[float]:
    """No two tokens are equally probable, and the longer a text is the sooner it ends."""
    place = sum((i + 1) * TOKENS.index(token) for i, token in enumerate(done)) + 3 * len(prompt) + len(done)
    weights = [1.0 + (place * (i + 2)) % 7 + 0.01 * i for i in range(len(TOKENS) - 1)]
    weights.append(0.4 * len(done))
    return [weight / sum(weights) for weight in weights]


TROUBLES = ("exits", "hangs", "blocks", "memory", "fails", "cancels", "garbles", "outage")


class Garbled:
    """Can be pickled, and cannot be read."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


class Troubled(EnumerableEngine):
    """Exact, and in trouble once for each file that lies in a directory: the first replica that finds it takes it.

    A file is named after its trouble. `fatal` ends the process whenever it is asked for that prompt. A prompt that
    begins with `Twice` ends the first two processes that are asked for it, and then waits until another such prompt
    is asked for elsewhere. closing: seconds that it takes.
    """

    def __init__(
        self,
        directory: str = "",
        *,
        fatal: str = "",
        bills: bool = False,
        closing: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(TOKENS, table, name="troubled", **options)
        self.place, self.fatal, self.bills, self.closing = directory, fatal, bills, closing

    def __enter__(self) -> Troubled:
        if self.place:
            self._note("opened")
        super().__enter__()
        return self

    async def generate(self, request: GenerateRequest) -> Generated:
        if self.fatal and self.fatal == request.prefix.prompt.text:
            await asyncio.sleep(0.1)
            os._exit(13)
        if self.place and (request.prefix.prompt.text or "").startswith("Twice"):
            await self._meet(request.prefix.prompt.problem_id)
        await self._meet_troubles()
        return await super().generate(request)

    async def evaluate(self, requests: list[EvaluateRequest]) -> list[Evaluated]:
        await self._meet_troubles()
        return await super().evaluate(requests)

    async def _meet_troubles(self) -> None:
        for name in TROUBLES if self.place else ():
            if self._takes(name):
                await self._trouble(name)

    def __exit__(self, *error: Any) -> None:
        if self.closing:
            self._note("closing")
            time.sleep(self.closing)
        super().__exit__(*error)

    async def _meet(self, name: str) -> None:
        if self._noted(f"{name}-fell-*") < 2:
            self._note(f"{name}-fell")
            await asyncio.sleep(0.1)
            os._exit(13)
        self._note(f"{name}-came")
        end = time.monotonic() + 60
        while self._noted("*-came-*") < 2:
            if time.monotonic() > end:
                raise InputError("nobody else came")
            await asyncio.sleep(0.1)

    def _note(self, what: str) -> None:
        (Path(self.place) / f"{what}-{os.getpid()}").touch()

    def _noted(self, pattern: str) -> int:
        return len(list(Path(self.place).glob(pattern)))

    def _takes(self, name: str) -> bool:
        try:
            (Path(self.place) / name).unlink()
        except FileNotFoundError:
            return False
        return True

    async def _trouble(self, name: str) -> None:
        match name:
            case "exits":
                os._exit(137)
            case "hangs":
                # All that this engine was asked hangs with it.
                self._delay = 3600.0
                await asyncio.sleep(3600)
            case "blocks":
                time.sleep(3600)  # noqa: ASYNC251 - that is the trouble
            case "memory":
                raise MemoryError("no memory is left")
            case "fails":
                raise RuntimeError("the device is lost")
            case "cancels":
                raise asyncio.CancelledError
            case "garbles":
                self.stats.extra["garbled"] = Garbled()  # type: ignore[assignment]  # what an engine must not do
            case "outage":
                raise EngineError("the server does not answer")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def node_options(**more: Any) -> dict[str, Any]:
    """Ports are given, since Ray waits no more than seconds for a process that is to tell its own."""
    ports = ("metrics_agent_port", "runtime_env_agent_port", "dashboard_agent_listen_port")
    return {
        "node_ip_address": "127.0.0.1",
        **{name: free_port() for name in ports},
        "include_dashboard": False,
        "include_log_monitor": False,
        "object_store_memory": 80 << 20,
        "num_cpus": 4,
        **more,
    }


#: The cluster, from the first file here that asks for it until the last test of this directory: starting one takes
#: longer than most tests.
_clusters: list[Any] = []


@contextmanager
def surroundings() -> Iterator[None]:
    """What the cluster, and those that are connected to it, find in the environment."""
    from ray._private import ray_constants

    before = {name: os.environ.get(name) for name in (*ENVIRONMENT, "RAY_ADDRESS", "PYTHONPATH")}
    os.environ.update(ENVIRONMENT)
    # Drivers of shards, and what tests start, find the toy.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TOY), *filter(None, [before["PYTHONPATH"]])])
    # Ray was imported before its environment was set.
    several, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = several
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes; the second has room for replicas that ask for `room`. The tests are connected to the first.

    The nodes are the same for all files of this directory. Each file has a connection of its own, with which its actors
    end.
    """
    pytest.importorskip("ray", reason="a pool needs Ray, which the extra ray brings")
    with surroundings():
        from ray import cloudpickle
        from ray.cluster_utils import Cluster

        from metagen.generators.ray.cluster import connect

        # Replicas do not have the tests on their path.
        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        if not _clusters:
            _clusters.append(Cluster())
            _clusters[0].add_node(**node_options(_system_config=SYSTEM))
            _clusters[0].add_node(**node_options(resources={"room": 4}))
        os.environ["RAY_ADDRESS"] = _clusters[0].address
        with connect():
            yield _clusters[0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the cluster behind the last test of this directory, when its fixtures have ended."""
    if _clusters and (nextitem is None or Path(__file__).parent not in nextitem.path.parents):
        with surroundings():
            _clusters.pop().shutdown()


@pytest.fixture(scope="session")
def orphans(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[int, str]]:
    """Processes of a cluster whose driver was killed, each with when it began; other tests pass while they end.

    Ray's agents first try for a minute to tell the control service, which has ended too.
    """
    from tests.generators.ray.test_cluster import SCRIPT, born, descendants, environment

    if sys.platform != "linux":
        return set()
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment(tmp_path_factory.mktemp("killed")),
    ) as driver:  # fmt: skip
        assert driver.stdout is not None
        assert driver.stdout.readline() == "ready\n"
        family = {(pid, born(pid)) for pid in descendants(driver.pid) - {driver.pid}}
        driver.send_signal(signal.SIGKILL)
    return family


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Waits until something is so."""

    def wait(so: Callable[[], bool], seconds: float = 300.0) -> None:
        end = time.monotonic() + seconds
        while not so():
            assert time.monotonic() < end, f"not so within {seconds} s"
            time.sleep(0.05)

    return wait


@pytest.fixture
def troubles(cluster: Any, tmp_path: Path) -> Path:
    """Where files make trouble."""
    return tmp_path


@pytest.fixture(scope="module")
def pools(cluster: Any) -> Callable[[Path], Callable[..., RayPool]]:
    """Makes pools of engines that get into trouble by the files of a directory."""

    def of(troubles: Path) -> Callable[..., RayPool]:
        def made(
            replicas: int = 2,
            *,
            placement: Placement | None = None,
            policy: Any = None,
            router: Any = None,
            scaling: Any = None,
            lent: bool = False,
            roster: Any = None,
            **options: Any,
        ) -> RayPool:
            return RayPool(
                Troubled,
                {"directory": str(troubles), "delay": 0.05, **options},
                replicas=replicas,
                codec=Troubled(),
                placement=placement,
                policy=policy,
                router=router,
                scaling=scaling,
                lent=lent,
                roster=roster,
            )

        return made

    return of


@pytest.fixture
def make(pools: Callable[[Path], Callable[..., RayPool]], troubles: Path) -> Callable[..., RayPool]:
    """Makes pools of engines that get into trouble."""
    return pools(troubles)


@pytest.fixture(scope="module")
def alone() -> Callable[..., EnumerableEngine]:
    """The same engine without a pool."""
    return Troubled


@pytest.fixture
def add_node(cluster: Any) -> Callable[..., Any]:
    """Adds a node to the cluster."""
    return lambda **options: cluster.add_node(**node_options(**options))


@pytest.fixture
def node() -> dict[str, Any]:
    """Options of a node."""
    return node_options()
