"""EAGLE through vLLM: an 8B shape with a head of random weights. Runs where vLLM is."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from benchmarks.gpu import engines, models
from benchmarks.gpu.pieces.vllm_kv import rate
from benchmarks.gpu.pieces.vllm_speed import dtype, options
from benchmarks.gpu.place import Place
from benchmarks.gpu.row import Found, found
from metagen.generators.vllm import VLLMEngine

GAMMA = 3


def tasks(place: Place) -> Iterator[tuple[str, Callable[[], Iterable[Found]]]]:
    yield "both", lambda: both(place)


def both(place: Place) -> Iterable[Found]:
    made: dict[str, Any] = {}
    for side in ("alone", "EAGLE"):
        yield from measure(place, side, made)


def measure(place: Place, side: str, made: dict[str, Any]) -> Iterable[Found]:
    """One after the other: two models of this size do not fit beside each other everywhere."""
    from benchmarks.gpu.pieces.greedy import first_flips

    sizes, where = place.sizes, models.directory(place, "8b")
    args = options(place, 0.05)
    if side == "EAGLE":
        head = {"method": "eagle", "model": str(models.eagle(place)), "num_speculative_tokens": GAMMA}
        args["speculative_config"] = head
    with VLLMEngine(where, dtype=dtype(place), max_context=1024, **args) as engine:
        rates = [rate(place, engine, where, 1, sizes.prompt, turn) for turn in range(min(3, sizes.turns) + 1)]
        prompts = models.texts(where, sizes.greedy, sizes.prompt, 3)
        greedy = [
            list(a.samples[0].ids or ()) for a in engines.ask(engine, prompts, sizes.tokens, temperature=0.0)
        ]
        extra = dict(engine.stats.extra)
    length = f"{sizes.prompt} tokens × {sizes.tokens} tokens"
    settings = f"8B shape of random weights in {dtype(place)}, one prompt of {length}"
    yield found(f"vLLM, {side}, tokens per second; random 8b, batch 1", rates[1:], "1/s", settings)
    made[side] = rates[1:], greedy
    if side == "EAGLE":
        yield found(
            "vLLM, EAGLE, drafted tokens that are counted; random 8b", extra["drafted"], "tokens",
            f"{settings}; {extra['accepted']:g} accepted, by chance, since the head's weights are random", "≥ 1",
        )  # fmt: skip
    if len(made) == 2:
        flips, total = first_flips(made["EAGLE"][1], made["alone"][1])
        yield found(
            "vLLM, greedy flips with EAGLE against without; random 8b",
            1000 * len(flips) / total,
            "of 1000 tokens",
            settings,
        )
    gc.collect()
