"""The shipped models in the engine: robust to being trained again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from metagen.generators.engine import EvaluateRequest, GenerateRequest, SamplingParams
from metagen.generators.models.sources import resolve
from metagen.generators.tiny import names
from metagen.generators.torch import TorchEngine
from metagen.sequence import Sequence, Step

TEXT = "Q:a=12+7;b=a*3;c=b-8;c?\nS:\n"


@pytest.mark.parametrize("name", names())
def test_it_computes_what_transformers_computes(name: str) -> None:
    reference = AutoModelForCausalLM.from_pretrained(resolve(name), dtype=torch.float32).eval()
    with TorchEngine(name, threads=1, max_batch=4) as engine:
        ids = engine.render(Sequence.of(TEXT))
        everywhere = EvaluateRequest(ids, tuple(range(len(ids))), tuple(range(10)))
        (found,) = asyncio.run(engine.evaluate([everywhere]))
    with torch.inference_mode():
        want = torch.log_softmax(reference(torch.tensor([ids])).logits[0], -1)[:, :10]
    torch.testing.assert_close(torch.tensor(found.values), want, atol=1e-4, rtol=1e-4)


def test_steps_of_a_generator() -> None:
    with TorchEngine("tiny-0.1m", threads=1, max_batch=16) as engine:

        def generate(**changes: Any) -> Any:
            request = GenerateRequest(Sequence.of(TEXT), tuple(range(16)), SamplingParams(), 120, **changes)
            return asyncio.run(engine.generate(request))

        steps = generate(until=Step("\n"))
        assert {s.text[s.step_end - 1] for s in steps.samples if s.step_end} == {"\n"}
        whole = generate()
        assert {s.finish for s in whole.samples} <= {"eos", "length"}
        assert sum(s.finish == "eos" for s in whole.samples) >= 8, "a trained model knows when to end"
