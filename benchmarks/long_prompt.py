"""Many samples of one long prompt: the prompt is computed and read once, not once a sample."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.row import Row, seconds
from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.generators.models.sources import resolve
from metagen.generators.torch import TorchEngine
from metagen.sequence import Prompt, Sequence

MODEL, LENGTH, SAMPLES, TOKENS = "tiny-0.5m", 1500, 64, 64
#: Definitions one after another, one token a character, and one for the beginning of the text.
TEXT = ("Q:" + "a=12+7;b=a*3;c=b-40;d=c/2;" * 100)[: LENGTH - 1]


def rows() -> Iterator[Row]:
    """Tokens per second of both; both write on until they have all their tokens or end."""
    torch.manual_seed(0)
    how = f"{MODEL}, {SAMPLES} samples of at most {TOKENS} tokens of one prompt of {LENGTH}, median of 5"
    theirs, ours = _transformers(), _metagen()
    yield Row("long prompt, num_return_sequences, tokens per second", theirs, "1/s", how)
    yield Row(
        "long prompt, torch engine, tokens per second", ours, "1/s", f"{how}; a new engine for each run"
    )
    yield Row("long prompt, torch engine over transformers.generate", ours / theirs, "×", how, "≥ 10")


def _metagen() -> float:
    counts: list[int] = []
    request = GenerateRequest(
        Sequence(Prompt("p", text=TEXT)), tuple(range(SAMPLES)), SamplingParams(max_tokens=TOKENS), TOKENS
    )

    def once() -> None:
        with TorchEngine(MODEL) as engine:
            answer = asyncio.run(engine.generate(request))
        counts.append(sum(s.generated or 0 for s in answer.samples))

    taken = seconds(once)
    return sum(counts[1:]) / len(counts[1:]) / taken


def _transformers() -> float:
    model = AutoModelForCausalLM.from_pretrained(resolve(MODEL), dtype=torch.float32, trust_remote_code=False)
    given = AutoTokenizer.from_pretrained(resolve(MODEL), trust_remote_code=False)(TEXT, return_tensors="pt")
    assert given["input_ids"].shape[1] == LENGTH
    end = model.config.eos_token_id
    counts: list[int] = []

    def once() -> None:
        made = model.generate(
            **given,
            do_sample=True,
            top_k=0,
            max_new_tokens=TOKENS,
            num_return_sequences=SAMPLES,
            pad_token_id=end,
        )[:, LENGTH:]
        counts.append(int(((made == end).cumsum(1) - (made == end).long() == 0).sum()))

    taken = seconds(once)
    return sum(counts[1:]) / len(counts[1:]) / taken
