"""The torch engine beside transformers: 64 problems of all levels, 16 samples each, on the mid-size model."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.row import Row
from metagen.budget import Account, Budget
from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.generators.models.sources import resolve
from metagen.generators.torch import TorchEngine
from metagen.journal import SQLiteJournal
from metagen.scope import Scope
from metagen.sequence import Prompt
from metagen.sequence import Sequence as Text
from metagen.tasks.arithmetic.task import ArithmeticTask

#: Runs of each side by turns: what they differ in is less than what single runs differ in.
TURNS = 11
PROFILE = (
    "a sample takes 50 µs of the event loop's thread alone (cProfile: records as JSON 30%, digests 17%, accounts 14%, "
    "sequences 9%) and 110 µs beside the engine, whose two threads have both cores and wait for each other meanwhile"
)
MODEL, PROBLEMS, SAMPLES, TOKENS = "tiny-0.5m", 64, 16, 200
BATCHES = (32, 64, 128, 256, 512)
#: Tokens that were generated, and the seconds that they took.
Rate = tuple[int, float]
Work = Callable[..., Coroutine[Any, Any, Rate]]
PROMPTS = [p.prompt for p in ArithmeticTask("validation", per_level=11, limit=PROBLEMS).problems()]


def rows() -> Iterator[Row]:
    """Tokens per second that are handed out, end tokens included, and the ratios of both."""
    # In a process of its own: a pool of OpenMP threads that rests beside another one makes libgomp put both to sleep
    # at every barrier, which halves the engine's speed.
    with ProcessPoolExecutor(1, get_context("spawn")) as other:

        def generate(batch: int) -> float:
            return rate(other.submit(transformers, batch).result())

        first = {batch: generate(batch) for batch in BATCHES}
        best = max(first, key=lambda batch: first[batch])
        rates: list[list[float]] = [[], [], []]
        for turn in range(TURNS + 1):
            for found, work in zip(rates, (sample, through_the_stack), strict=False):
                with TorchEngine(MODEL) as engine:
                    found.append(rate(asyncio.run(work(engine))))
            if turn % 2:
                rates[2].append(generate(best))
    ours, stack, theirs = (
        statistics.median(rates[0][1:]),
        statistics.median(rates[1][1:]),
        statistics.median(rates[2]),
    )
    how = f"{MODEL}, {PROBLEMS} prompts × {SAMPLES} samples, temperature 1, at most {TOKENS} tokens; by turns, median"
    yield Row(
        "transformers.generate, tokens per second", theirs, "1/s", f"{how}; batch {best}, best of {BATCHES}"
    )
    yield Row(
        "torch engine, tokens per second",
        ours,
        "1/s",
        f"{how}; a new engine for each run; tokens of all samples, of which those that begin alike are computed once",
    )
    yield Row("torch engine over transformers.generate", ours / theirs, "×", how, "≥ 3")
    yield Row(
        "scope, budget and SQLite journal over the bare engine",
        stack / ours,
        "×",
        f"tokens per second; {how}; one call of n = {SAMPLES} a problem; {TURNS} runs each, by turns; "
        "engine and journal are open before",
        "≥ 0.95",
        PROFILE,
    )


def rate(done: Rate) -> float:
    return done[0] / done[1]


async def through_the_stack(engine: TorchEngine, prompts: Sequence[Prompt] = PROMPTS) -> Rate:
    """The same work as calls of a generator under a budget, every sample durable before it is handed out.

    The journal's file is made before the clock starts, as the engine is.
    """
    generator = engine.generator(max_tokens=TOKENS)
    with (
        tempfile.TemporaryDirectory() as folder,
        SQLiteJournal(Path(folder) / "journal.sqlite", seed=0) as journal,
    ):
        account = Account(Budget(generated=10**9, calls=10**6), None, "benchmark")
        began = time.perf_counter()
        scopes = [Scope.root(p.problem_id, journal=journal, account=account) for p in prompts]
        await asyncio.gather(
            *(
                generator.generate(Text(p), n=SAMPLES, scope=scope)
                for p, scope in zip(prompts, scopes, strict=True)
            )
        )
        return sum(scope.usage.generated or 0 for scope in scopes), time.perf_counter() - began


async def sample(engine: TorchEngine, prompts: Sequence[Prompt] = PROMPTS) -> Rate:
    began = time.perf_counter()
    params = SamplingParams(max_tokens=TOKENS)
    requests = [
        GenerateRequest(Text.of(p), tuple(range(i << 20, (i << 20) + SAMPLES)), params, TOKENS)
        for i, p in enumerate(prompts)
    ]
    answers = await asyncio.gather(*(engine.generate(r) for r in requests))
    return sum(s.generated or 0 for a in answers for s in a.samples), time.perf_counter() - began


@cache
def model() -> tuple[Any, Any]:
    torch.manual_seed(0)
    weights = AutoModelForCausalLM.from_pretrained(
        resolve(MODEL), dtype=torch.float32, trust_remote_code=False
    )
    return weights, AutoTokenizer.from_pretrained(
        resolve(MODEL), padding_side="left", trust_remote_code=False
    )


def transformers(batch: int, prompts: Sequence[Prompt] = PROMPTS) -> Rate:
    writer, tokenizer = model()
    texts = [p.text or "" for p in prompts for _ in range(SAMPLES)]
    end, total = tokenizer.eos_token_id, 0
    began = time.perf_counter()
    for at in range(0, len(texts), batch):
        given = tokenizer(texts[at : at + batch], return_tensors="pt", padding=True)
        made = writer.generate(**given, do_sample=True, top_k=0, max_new_tokens=TOKENS, pad_token_id=end)
        new = made[:, given["input_ids"].shape[1] :]
        total += int(((new == end).cumsum(1) - (new == end).long() == 0).sum())
    return total, time.perf_counter() - began
