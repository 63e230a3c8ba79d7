"""The table of what each engine can do says what the engines do. vLLM's column is tried where vLLM is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from metagen.generators.decoding.draft import Draft
from metagen.generators.engine import EvaluateRequest, Sample
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.function import FunctionGenerator
from metagen.generators.openai import OpenAIEngine
from metagen.generators.ray.messages import Facts
from metagen.generators.replay import Recorded, ReplayGenerator
from metagen.generators.torch import TorchEngine
from metagen.sequence import Sequence, Thought
from tests.generators.openai.model_server import serves
from tests.generators.openai.serving import Server
from tests.generators.probes import Probe, table
from tests.generators.torch.scored_models import make_value_head

MODEL, PROMPT, BEGUN = "tiny-0.1m", "Q:a=5;b=a+7;b?\nS:\n", "b=5+7="


def test_torch(tmp_path: Path) -> None:
    with TorchEngine(MODEL, threads=1) as engine:
        found = Probe(engine.generator(), PROMPT, BEGUN, engine).found()
    with TorchEngine(MODEL, threads=1, draft=Draft.lookup()) as engine:
        found |= {
            name: can or found[name]
            for name, can in Probe(engine.generator(), PROMPT, BEGUN, engine).found().items()
        }
    make_value_head(tmp_path)
    with TorchEngine(tmp_path, threads=1) as engine:
        (read,) = asyncio.run(engine.evaluate([EvaluateRequest((0, 1), (0,), outputs=True)]))
    found["outputs of a head that scores"] |= bool(read.values)
    assert found == table()["torch"]


@pytest.mark.parametrize("column", ["openai, `vllm`", "openai, plain"])
def test_servers(column: str) -> None:
    spoken: Any = {}
    if "vllm" in column:
        spoken = {"dialect": "vllm", "api": "completions", "tokenizer": MODEL, "n_per_request": 1}
    with (
        TorchEngine(MODEL, threads=1) as model,
        Server(serves(model)).open() as server,
        OpenAIEngine(MODEL, base_url=server.url, structured_outputs=True, **spoken) as engine,
    ):
        found = Probe(engine.generator(), PROMPT, BEGUN, engine).found()
    assert found == table()[column]


def test_enumerable() -> None:
    tokens = ("5", "7", "\n", "{", "}", "$")
    engine = EnumerableEngine(tokens, lambda prompt, done: [1 / 6] * 6, name="table", delay=0.001)
    with engine:
        found = Probe(engine.generator(), PROMPT, "5", engine).found()
    assert found == table()["enumerable"]


def test_generators_without_an_engine() -> None:
    async def write(prefix: Sequence, seed: int, index: int) -> Sample:
        await asyncio.sleep(0.02)
        return Sample(f"{seed}\n{index}", None, None, logprob=-1.0, finish="eos", thought=Thought("hm"))

    replay = ReplayGenerator({"probe": [Recorded(text, 2, thought=Thought("hm")) for text in "abcdef"]})
    assert Probe(replay, PROMPT, BEGUN).found() == table()["replay"]
    function = FunctionGenerator(write, count=len, max_tokens=30)
    assert Probe(function, PROMPT, BEGUN).found() == table()["function"]


def test_a_pool_is_asked_as_the_engine_in_it() -> None:
    engine = EnumerableEngine(("a", "$"), {(): [0.5, 0.5], ("a",): [0.0, 1.0]})
    facts = Facts.of(engine)
    assert (facts.supports, facts.tokenizer_fingerprint, facts.bills) == (
        engine.supports, engine.tokenizer_fingerprint, False,
    )  # fmt: skip
