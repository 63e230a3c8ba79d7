"""A pool obeys the laws of engines and of generators, as what runs in it does."""

from __future__ import annotations

import sys
from collections import abc
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from metagen.generators.base import Generator
from metagen.generators.engine import Engine
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.ray import RayPool
from metagen.testing import EngineLaws, GeneratorLaws

#: One cluster, in one process.
pytestmark = pytest.mark.usefixtures("cluster")
TOKENS = ("a", "b", "ab", "c", "d", "\n", "$")


def table(prompt: str, done: tuple[str, ...]) -> list[float]:
    """No two tokens are equally probable, and the longer a text is the sooner it ends."""
    place = sum((i + 1) * TOKENS.index(token) for i, token in enumerate(done)) + 3 * len(prompt) + len(done)
    weights = [1.0 + (place * (i + 2)) % 7 + 0.01 * i for i in range(len(TOKENS) - 1)]
    weights.append(0.4 * len(done))
    return [weight / sum(weights) for weight in weights]


OPTIONS: dict[str, Any] = {
    "tokens": TOKENS,
    "table": table,
    "name": "laws",
    "max_context": 400,
    "delay": 0.0005,
}


def pool(replicas: int = 2) -> RayPool:
    from ray import cloudpickle

    # Replicas do not have the tests on their path.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return RayPool(EnumerableEngine, OPTIONS, replicas=replicas, codec=EnumerableEngine(**OPTIONS))


class TestRayPool(EngineLaws):
    tolerance = 1e-9
    many = 400
    without = frozenset({"written"})

    def make(self) -> Engine:
        return pool()

    def decode(self, engine: Engine, ids: abc.Sequence[int]) -> str:
        return EnumerableEngine(**OPTIONS).decode(ids)


@pytest.fixture(scope="module")
def one() -> Iterator[RayPool]:
    """A pool of one replica that all laws of generators use."""
    with pool(1) as opened:
        yield opened


class TestGeneratorOfAPool(GeneratorLaws):
    begun = "ab"

    @pytest.fixture(autouse=True)
    def _pool(self, one: RayPool) -> None:
        self.pool = one

    def make(self) -> AbstractContextManager[Generator]:
        return nullcontext(self.pool.generator())
