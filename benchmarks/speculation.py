"""Speculation beside plain decoding, and beside transformers' assisted generation, on the same embedded models."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.row import Row
from metagen.generators.decoding.draft import Draft
from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.generators.models.sources import resolve
from metagen.generators.torch import TorchEngine
from metagen.sequence import Sequence
from metagen.tasks.arithmetic.task import ArithmeticTask

#: Runs of each side, by turns.
TURNS = 5
TARGET, DRAFT, GAMMA, TOKENS = "tiny-2m", "tiny-0.1m", 4, 200
#: Rows, and samples of each prompt: every clock runs for about half a second.
BATCHES = {1: 4, 8: 8, 32: 24}
PROMPTS = [p.prompt for p in ArithmeticTask("validation", per_level=2, limit=12).problems()]
#: Of what misses its bound.
PROFILE = (
    "one row, one thread: a plain token takes 0.22 ms, and a block of 4.4 tokens 0.55 ms: 0.23 ms the target's pass "
    "for five tokens (0.13 ms for one), 0.08 ms four drafted tokens, and the rest Python between these calls"
)


def rows() -> Iterator[Row]:
    """Tokens per second that are handed out, end tokens included, and ratios of both sides."""
    ours: dict[tuple[int, bool], list[float]] = {(b, d): [] for b in BATCHES for d in (False, True)}
    theirs: dict[int, list[float]] = {gamma: [] for gamma in (0, GAMMA, 20)}
    # In a process of its own: see benchmarks/engine.py.
    with ProcessPoolExecutor(1, get_context("spawn")) as other:
        for turn in range(TURNS + 1):
            for (batch, drafts), found in ours.items():
                rate = _engine(batch, drafts)
                if turn:
                    found.append(rate)
            for gamma, found in theirs.items():
                rate = other.submit(_transformers, gamma).result()
                if turn:
                    found.append(rate)
    how = f"{TARGET}, draft {DRAFT}, γ = {GAMMA}, temperature 1, at most {TOKENS} tokens; by turns, median"
    median = {key: statistics.median(found) for key, found in ours.items()}
    for batch in BATCHES:
        yield Row(
            f"speculation over plain decoding, {batch} rows",
            median[batch, True] / median[batch, False],
            "×",
            f"tokens per second; block verification; {how}",
            "≥ 1.3" if batch == 1 else None,
            PROFILE if batch == 1 else None,
        )
    best = max((GAMMA, 20), key=lambda gamma: statistics.median(theirs[gamma]))
    assisted = statistics.median(theirs[best])
    yield Row(
        "transformers, assisted over plain generation, 1 row",
        assisted / statistics.median(theirs[0]),
        "×",
        f"tokens per second; one text a prompt; {best} assistant tokens, the better of {GAMMA} and 20; {how}",
    )
    yield Row("speculation, tokens per second, 1 row", median[1, True], "1/s", how)
    yield Row("transformers, assisted generation, tokens per second, 1 row", assisted, "1/s", how)
    yield Row("speculation over transformers, 1 row", median[1, True] / assisted, "×", how, "≥ 1", PROFILE)


def _engine(batch: int, drafts: bool) -> float:
    """All prompts, so many at a time as there are rows; a new engine, which has written as much before."""
    params = SamplingParams()
    draft = Draft(DRAFT, GAMMA) if drafts else None

    async def go(engine: TorchEngine, first: int) -> int:
        seeds = [range(first + (i << 20), first + (i << 20) + BATCHES[batch]) for i in range(len(PROMPTS))]
        requests = [
            GenerateRequest(Sequence.of(p), tuple(own), params, TOKENS)
            for p, own in zip(PROMPTS, seeds, strict=True)
        ]
        answers = await asyncio.gather(*(engine.generate(r) for r in requests))
        return sum(s.generated or 0 for a in answers for s in a.samples)

    with TorchEngine(TARGET, max_batch=batch, draft=draft) as engine:
        asyncio.run(go(engine, 1 << 40))
        began = time.perf_counter()
        return asyncio.run(go(engine, 0)) / (time.perf_counter() - began)


@cache
def _models() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    target, draft = (
        AutoModelForCausalLM.from_pretrained(resolve(name), dtype=torch.float32, trust_remote_code=False)
        for name in (TARGET, DRAFT)
    )
    return target, draft, AutoTokenizer.from_pretrained(resolve(TARGET), trust_remote_code=False)


def _transformers(gamma: int) -> float:
    """One prompt after another, for assisted generation has one row; γ 0 is plain."""
    target, draft, tokenizer = _models()
    options: dict[str, Any] = {}
    if gamma:
        draft.generation_config.num_assistant_tokens = gamma
        draft.generation_config.num_assistant_tokens_schedule = "constant"
        options["assistant_model"] = draft
    total = 0
    began = time.perf_counter()
    for prompt in PROMPTS:
        given = tokenizer(prompt.text, return_tensors="pt")
        made = target.generate(
            **given,
            do_sample=True,
            top_k=0,
            max_new_tokens=TOKENS,
            pad_token_id=tokenizer.eos_token_id,
            **options,
        )
        total += made.shape[1] - given["input_ids"].shape[1]
    return total / (time.perf_counter() - began)
