"""Keys and values in fp8, beside those in bfloat16, in vLLM: speed and room. Runs where vLLM is."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu import engines, models
from benchmarks.gpu.pieces.vllm_speed import dtype, options
from benchmarks.gpu.place import Place
from benchmarks.gpu.row import Found, found, missing
from metagen.generators.vllm import VLLMEngine

KINDS = ("auto", "fp8")
#: Tokens of each prompt, over those of the other pieces: keys and values are most of what a step reads.
LONGER = 16


def tasks(place: Place) -> Iterator[tuple[str, Callable[[], Iterable[Found]]]]:
    yield "both", lambda: both(place)


def both(place: Place) -> Iterable[Found]:
    made: dict[str, list[float]] = {}
    for kind in KINDS:
        yield from measure(place, kind, made)


def measure(place: Place, kind: str, made: dict[str, list[float]]) -> Iterable[Found]:
    name = f"vLLM, keys and values in {kind}, tokens per second; random 2b"
    if place.rehearsal and kind == "fp8":
        yield missing(name, "vLLM on CPUs has kernels for fp8 of some processors only")
        return
    sizes, where = place.sizes, models.directory(place, "2b")
    batch, length = max(sizes.batches) // 2, LONGER * sizes.prompt
    extra: dict[str, Any] = {} if kind == "auto" else {"kv_cache_dtype": kind}
    args = options(place, 0.3) | extra
    with VLLMEngine(where, dtype=dtype(place), max_context=length + sizes.tokens + 64, **args) as engine:
        rates = [
            rate(place, engine, where, max(1, batch), length, turn) for turn in range(min(3, sizes.turns) + 1)
        ]
        blocks = engine._config.cache_config.num_gpu_blocks or 0
        room = blocks * engine.block_size
    settings = f"{max(1, batch)} prompts of {length} tokens × {sizes.tokens} tokens, prefill included"
    made[kind] = rates[1:]  # the first warms up
    yield found(name, made[kind], "1/s", settings)
    held = f"kv_cache_memory_bytes={args['kv_cache_memory_bytes']}"
    title = f"vLLM, tokens that memory holds, keys and values in {kind}; random 2b"
    yield (
        found(title, room, "tokens", held) if room else missing(title, "vLLM does not tell its blocks", held)
    )
    if len(made) == len(KINDS):
        ratio = [a / b for a, b in zip(made["fp8"], made["auto"], strict=True)]
        yield found(
            "vLLM, keys and values in fp8 over bfloat16; random 2b",
            ratio,
            "×",
            f"{settings}; one after the other",
        )
    gc.collect()


def rate(place: Place, engine: VLLMEngine, where: Path, batch: int, length: int, turn: int) -> float:
    prompts = models.texts(where, batch, length, turn)
    answers: list[Any] = []
    seconds = place.seconds(
        lambda: answers.extend(engines.ask(engine, prompts, place.sizes.tokens, seed=turn))
    )
    return engines.generated(answers) / seconds
