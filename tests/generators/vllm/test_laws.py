"""The laws of engines, and of the generators that decode with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from metagen.generators.base import Generator
from metagen.generators.engine import Engine
from metagen.sequence import Prompt
from metagen.testing import EngineLaws, GeneratorLaws

PROMPTS = (
    "Q:a=12+7;b=a*3;b?\nS:\n",
    "Q:x=1/2+3;y=x-4;y?\nS:\n",
    "Q:p=9*8;q=p-30;q?\nS:\n",
    "Q:a=5*5;b=a+17;c=b/2;c?\nS:\n",
)
OPEN: dict[str, Any] = {}


@pytest.fixture(scope="module", autouse=True)
def shared(small: dict[str, Any]) -> Iterator[None]:
    """One that draws each sample by its seed; by default none has one, and the other tests are about that."""
    from metagen.generators.vllm import VLLMEngine

    with VLLMEngine("tiny-0.5m", seeded=True, **small) as engine:
        OPEN.update(engine=engine, small=small)
        yield
    OPEN.clear()


class TestEngine(EngineLaws):
    prompts = PROMPTS
    most = 100
    #: Rounding depends on what shares a step, and on what is read from the cache.
    flips = 0.05
    block = 32
    patience = 600.0

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine:
        engine: Engine = OPEN["engine"]
        return engine

    def make(self) -> Engine:
        from metagen.generators.vllm import VLLMEngine

        return VLLMEngine("tiny-0.5m", seeded=True, **OPEN["small"])


class TestGenerator(GeneratorLaws):
    prompt = Prompt("law", text=PROMPTS[0])
    begun = "a=12+7=19\n"

    @contextmanager
    def make(self) -> Iterator[Generator]:  # type: ignore[override]
        yield OPEN["engine"].generator(max_tokens=100)
