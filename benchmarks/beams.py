"""Beam search in the torch engine beside transformers: 64 problems, four beams each, on the mid-size model."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from benchmarks.engine import PROMPTS, model
from benchmarks.row import Row
from metagen.generators.decoding.search import BeamSearch
from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.generators.torch import TorchEngine
from metagen.sequence import Prompt
from metagen.sequence import Sequence as Text

MODEL, WIDTH, TOKENS, TURNS = "tiny-0.5m", 4, 100, 5
#: Prompts that transformers searches at once.
BATCHES = (8, 16, 32, 64)
#: The best text of each prompt, and the seconds that all took.
Found = tuple[list[str], float]


def rows() -> Iterator[Row]:
    """Problems per second, and their ratio."""
    # In a process of its own, for what benchmarks/engine.py says of threads.
    with ProcessPoolExecutor(1, get_context("spawn")) as other:

        def generate(batch: int) -> Found:
            return other.submit(transformers, batch).result()

        first = {batch: generate(batch) for batch in BATCHES}
        best = min(first, key=lambda batch: first[batch][1])
        ours, theirs = [], []
        for turn in range(TURNS + 1):
            with TorchEngine(MODEL) as engine:
                ours.append(asyncio.run(search(engine)))
            if turn:
                theirs.append(generate(best))
    mine, yours = (len(PROMPTS) / statistics.median(s for _, s in runs) for runs in (ours[1:], theirs))
    how = f"{MODEL}, {len(PROMPTS)} prompts, {WIDTH} beams, at most {TOKENS} tokens; {TURNS} runs by turns, median"
    alike = sum(a == b for a, b in zip(ours[-1][0], theirs[-1][0], strict=True)) / len(PROMPTS)
    yield Row(
        "beam search by transformers, problems per second",
        yours,
        "1/s",
        f"{how}; batch {best}, best of {BATCHES}",
    )
    yield Row(
        "beam search in the torch engine, problems per second",
        mine,
        "1/s",
        f"{how}; a new engine for each run",
    )
    yield Row("beam search in the torch engine over transformers", mine / yours, "×", how, "≥ 2")
    yield Row("best texts of beam search that are those of transformers", alike, "share", how, "≥ 0.98")


async def search(engine: TorchEngine, prompts: Sequence[Prompt] = PROMPTS) -> Found:
    params = SamplingParams(max_tokens=TOKENS, search=BeamSearch(WIDTH))
    began = time.perf_counter()
    answers = await asyncio.gather(
        *(engine.generate(GenerateRequest(Text.of(p), (0,), params, TOKENS, ranks=(0,))) for p in prompts)
    )
    return [a.samples[0].text for a in answers], time.perf_counter() - began


def transformers(batch: int, prompts: Sequence[Prompt] = PROMPTS) -> Found:
    writer, tokenizer = model()
    texts, found, end = [p.text or "" for p in prompts], [], tokenizer.eos_token_id
    began = time.perf_counter()
    for at in range(0, len(texts), batch):
        given = tokenizer(texts[at : at + batch], return_tensors="pt", padding=True)
        made = writer.generate(
            **given, num_beams=WIDTH, do_sample=False, max_new_tokens=TOKENS, pad_token_id=end
        )
        found += tokenizer.batch_decode(made[:, given["input_ids"].shape[1] :], skip_special_tokens=True)
    return found, time.perf_counter() - began
