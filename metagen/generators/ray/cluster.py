"""The connection to a Ray cluster: one of this machine, started for the purpose, or one that is there."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from metagen.errors import EngineError, InputError, UnsupportedError, install
from metagen.logs import logger

_LOG = logger(__name__)
#: Bytes of shared memory of a local cluster. Messages are small, and models are not shared.
OBJECT_STORE = 256 << 20
#: Ray binds to all interfaces unless it is told that there are no other nodes, which is meant for other platforms.
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_TOKENS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
#: Ray sets it to `token` when it starts a cluster, and asks for that token ever after, wherever it is connected to.
_MODE = "RAY_AUTH_MODE"
#: Times that a local cluster is started: where all cores are busy, parts of Ray give up on one another.
_STARTS = 3

_users = 0
_joined: str | None = None
_mode: str | None = None
_lock = threading.Lock()


@contextmanager
def connect(address: str | None = None) -> Iterator[Any]:
    """The module `ray`, connected for as long as the context lasts.

    address: of a cluster, such as `10.0.0.1:6379` or `auto`; by default RAY_ADDRESS, else a cluster is started on this
    machine, which nothing outside of it can reach. A connection that is there already is used, and left as it is; one
    that was made here ends with the last context that uses it. Of one process all contexts share one cluster.

    A token in RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH is used, unless RAY_AUTH_MODE says otherwise; this is read anew
    for each connection, and left as it was. Raises
    UnsupportedError without Ray, InputError if no cluster answers, and EngineError if none can be started.
    """
    global _joined, _mode, _users
    address = address or os.environ.get("RAY_ADDRESS") or None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise UnsupportedError(
            f"a pool of engines needs Ray ({error}); install it by {install('ray')}"
        ) from None
    with _lock:
        if ours := bool(_users) or not ray.is_initialized():
            if not _users:
                _mode = os.environ.get(_MODE)
                try:
                    _read_tokens(ray)
                    with _signals():
                        _join(ray, address) if address else _start(ray)
                except BaseException:
                    _restore(_MODE, _mode)
                    raise
                _joined = address
            elif address != _joined:
                raise InputError(
                    f"address={address!r}: this process is connected to the cluster at {_joined!r} (None: one of "
                    "its own), and can be to one only; give all pools the same address"
                )
            _users += 1
    try:
        yield ray
    finally:
        with _lock:
            if ours:
                _users -= 1
                if not _users:
                    ray.shutdown()
                    _restore(_MODE, _mode)


def find_dead_part(ray: Any) -> str | None:
    """The part of Ray that has ended on this machine, so that no replica can start; None as far as is known.

    It may wait for an answer of the cluster.
    """
    node = getattr(ray._private.worker, "_global_node", None)
    dead = [] if node is None else [name for name, _ in node.dead_processes()]
    for name, what in (("raylet", "raylet"), ("gcs_server", "control service")):
        if name in dead:
            return f"Ray's {what} on this machine has ended"
    own = ray.get_runtime_context().get_node_id()
    gone = any(one["NodeID"] == own and not one["Alive"] for one in ray.nodes())
    return "Ray counts this machine's node as dead" if gone else None


def list_free(ray: Any) -> dict[str, float]:
    """What the cluster has left of each resource."""
    return {name: left for name, left in ray.available_resources().items() if ":" not in name}


def _read_tokens(ray: Any) -> None:
    """Make Ray read again what the environment says of tokens: it does so once in a process, and they may differ."""
    if any(os.environ.get(name) for name in _TOKENS):
        os.environ.setdefault(_MODE, "token")
    if hasattr(ray._raylet, "AuthenticationTokenLoader"):  # older ones have no tokens
        ray._raylet.Config.initialize("")
        ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _join(ray: Any, address: str) -> None:
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(
            f"no Ray cluster answers at address={address!r} ({error}); start one by `ray start --head`, or leave "
            "the address out to use this machine alone"
        ) from error
    _LOG.info("cluster joined", extra={"address": address, "nodes": len(ray.nodes())})


@contextmanager
def _signals() -> Iterator[None]:
    """Ray makes SIGTERM end the process that connects, with exit code 15; whoever heeded it before does so again."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)


def _start(ray: Any) -> None:
    with _loopback():
        for attempt in range(1, _STARTS + 1):
            try:
                ray.init(
                    address="local",
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    object_store_memory=OBJECT_STORE,
                )
            except Exception as error:  # Ray raises a bare one
                ray.shutdown()
                if attempt == _STARTS:
                    raise EngineError(
                        f"Ray did not start on this machine, tried {_STARTS} times ({error}); free some of its cores "
                        "or memory, or start it by `ray start --head` and give its address"
                    ) from error
            else:
                break
    _LOG.info("cluster started", extra={"cores": ray.cluster_resources().get("CPU")})


@contextmanager
def _loopback() -> Iterator[None]:
    """What starts meanwhile binds to loopback: here by the constant, in other processes by the variable."""
    from ray._private import ray_constants

    constant, variable = ray_constants.ENABLE_RAY_CLUSTER, os.environ.get(_LOOPBACK)
    ray_constants.ENABLE_RAY_CLUSTER, os.environ[_LOOPBACK] = False, "0"
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = constant
        _restore(_LOOPBACK, variable)
