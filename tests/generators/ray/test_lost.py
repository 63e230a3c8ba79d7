"""Whatever Ray itself says of a replica that is gone, the replica is lost: its requests go to another one."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from metagen.generators.ray.link import Link, Lost, reason

exceptions = pytest.importorskip("ray.exceptions", reason="a pool needs Ray, which the extra ray brings")


def test_an_error_within_a_replica_is_told_by_its_cause_and_not_by_where_ray_met_it() -> None:
    cause = exceptions.RaySystemError("No module named 'mine'")
    error = exceptions.RayTaskError("Replica.open()", "its traceback", cause, "replica", 1, "127.0.0.1")
    for one in (error, error.as_instanceof_cause()):
        assert reason(one) == "RaySystemError: System error: No module named 'mine'"


@pytest.mark.parametrize(
    "error",
    [
        exceptions.OutOfMemoryError("the memory monitor killed it"),
        exceptions.ObjectLostError("00" * 28, None, ""),
        exceptions.OwnerDiedError("00" * 28, None, ""),
        exceptions.WorkerCrashedError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_ray_raises_of_a_replica_is_its_loss(error: Exception) -> None:
    def fail(*given: Any) -> Any:
        answer: Future[bytes] = Future()
        answer.set_exception(error)
        return SimpleNamespace(future=lambda: answer)

    async def main() -> None:
        method = SimpleNamespace(remote=fail)
        link = Link("one", SimpleNamespace(open=method, collect=method, take=method), deadline=60.0)
        with pytest.raises(Lost, match=type(error).__name__):
            await link.open(object, {}, 60.0)  # type: ignore[arg-type]
        with pytest.raises(Lost, match=type(error).__name__):
            await link.serve()

    asyncio.run(main())
