"""The laws of engines hold behind HTTP, with a tokenizer and without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from metagen.generators.engine import Engine
from metagen.generators.openai import OpenAIEngine
from metagen.generators.torch import TorchEngine
from metagen.testing import EngineLaws
from metagen.testing.asking import seeds
from tests.generators.openai.model_server import serves
from tests.generators.openai.serving import Server

MODEL = "tiny-0.1m"


class Served(EngineLaws):
    """Of two prompts the model is sure, of two it is not."""

    prompts = (
        "Q:a=81/9;b=a+7;c=b-2;c?\nS:\na=81/9=",
        "Q:a=12+7;b=a*3;b?\nS:\na=12+7=19\nb=19*3=",
        "Q:a=5",
        "Q:",
    )
    flips = 0.02
    most = 40
    many = 40
    url = ""

    def _first(
        self, engine: Engine, number: int, first: int, temperature: float, **params: Any
    ) -> list[tuple[int, ...]]:
        """Fewer draws: each is a request over HTTP."""
        request = self.request(seeds(60, first), number, most=1, temperature=temperature, **params)
        return [sample.ids for sample in self.draw(engine, request) if sample.ids]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def server(cls) -> Iterator[Server]:
        with TorchEngine(MODEL, threads=1) as engine, Server(serves(engine)).open() as server:
            cls.url = server.url
            yield server


class TestWithATokenizer(Served):
    def make(self) -> Engine:
        return OpenAIEngine(
            MODEL, base_url=self.url, api="completions", dialect="vllm", tokenizer=MODEL, max_context=2048,
            n_per_request=1,
        )  # fmt: skip


class TestTogether(Served):
    """Samples of a prefix in one request, as vLLM's dialect asks by default: seeds are the request's."""

    without = frozenset({"seeds", "reads"})

    def make(self) -> Engine:
        return OpenAIEngine(
            MODEL, base_url=self.url, api="completions", dialect="vllm", tokenizer=MODEL, max_context=2048
        )


class TestWithoutOne(Served):
    """A server that reads texts, and says no more than that it stopped."""

    without = frozenset({"ids", "until", "evaluate", "stop_token_ids", "ignore_eos"})

    def make(self) -> Engine:
        return OpenAIEngine(MODEL, base_url=self.url, api="completions", dialect="llamacpp")


class TestChats(Served):
    """Of a dialect that tells less than it might: what only ids give is missing."""

    without = frozenset({"ids", "until", "evaluate"})

    def make(self) -> Engine:
        return OpenAIEngine(MODEL, base_url=self.url, dialect="vllm", n_per_request=1)
