"""A large model whose tokens a small one drafts, beside the large one alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu import engines, models
from benchmarks.gpu.place import Place, ratios, turns
from benchmarks.gpu.row import Found, found
from metagen.generators.decoding.draft import Draft
from metagen.generators.torch import TorchEngine

#: Tokens drafted at once.
GAMMA = 4
TURNS = 3


def tasks(place: Place) -> Iterator[tuple[str, Callable[[], Iterable[Found]]]]:
    large, small = models.directory(place, "8b"), models.directory(place, "1b")
    batches = (1, min(32, max(place.sizes.batches)))
    options: dict[str, Any] = {"max_batch": max(batches)}
    # One after the other, so that both fit beside each other into a GPU of 80 GB: the weights are in memory once.
    memory = place.share(0.08)
    with (
        engines.torch_engine(place, large, kv_memory_bytes=memory, **options) as alone,
        engines.torch_engine(
            place, large, kv_memory_bytes=memory, draft=Draft(small, GAMMA), **options
        ) as drafted,
    ):
        for batch in batches:
            yield f"batch {batch}", partial(compare, place, large, alone, drafted, batch)
        yield "greedy", partial(greedy, place, large, alone, drafted)


def compare(
    place: Place, large: Path, alone: TorchEngine, drafted: TorchEngine, batch: int
) -> Iterable[Found]:
    sizes = place.sizes
    counts = dict.fromkeys(("blocks", "drafted", "accepted"), 0.0)

    def rate(engine: TorchEngine, turn: int) -> float:
        prompts = models.texts(large, batch, sizes.prompt, 10 * batch + turn)
        before = dict(engine.stats.extra)
        seconds = place.seconds(lambda: engines.ask(engine, prompts, sizes.tokens, seed=turn))
        if engine is drafted and turn:
            for name in counts:
                counts[name] += engine.stats.extra[name] - before[name]
        return batch * sizes.tokens / seconds

    count = min(TURNS, sizes.turns)
    made = turns({"alone": partial(rate, alone), "drafted": partial(rate, drafted)}, count)
    settings = (
        f"8B and 1B shapes of random weights in bfloat16, {GAMMA} tokens drafted, {batch} prompts of {sizes.prompt} "
        f"tokens × {sizes.tokens} tokens, temperature 1; by turns"
    )
    title = f"8b by 1b, batch {batch}"
    yield found(f"speculation, tokens per second; {title}", made["drafted"], "1/s", settings)
    yield found(f"the same without a draft, tokens per second; {title}", made["alone"], "1/s", settings)
    yield found(
        f"speculation over plain decoding; {title}", ratios(made["drafted"], made["alone"]), "×", settings
    )
    share = counts["accepted"] / max(1.0, counts["drafted"])
    yield found(
        f"drafted tokens that are accepted; {title}",
        share,
        "share",
        f"{settings}; models of random weights agree by chance",
    )
    # A pass that verifies gives one token more than it accepts.
    a_pass = 1 + counts["accepted"] / max(1.0, counts["blocks"])
    worth = [ratio / a_pass for ratio in ratios(made["drafted"], made["alone"])]
    yield found(
        f"speculation, a plain step's time over that of a pass with its drafts; {title}", worth, "×",
        f"{settings}; {a_pass:.3g} tokens a pass; at full agreement it would gain {GAMMA + 1} times as much",
    )  # fmt: skip


def greedy(place: Place, large: Path, alone: TorchEngine, drafted: TorchEngine) -> Iterable[Found]:
    from benchmarks.gpu.pieces.greedy import first_flips

    sizes = place.sizes
    prompts = models.texts(large, sizes.greedy, sizes.prompt, 3)
    plain, quick, again = (
        [
            list(answer.samples[0].ids or ())
            for answer in engines.ask(engine, given, sizes.tokens, temperature=0.0)
        ]
        for engine, given in ((alone, prompts), (drafted, prompts), (alone, prompts[::-1]))
    )
    settings = (
        f"8B and 1B shapes of random weights in bfloat16, {sizes.greedy} prompts × {sizes.tokens} tokens"
    )
    for what, ids in (("with a draft", quick), ("in another order of prompts", again[::-1])):
        flips, total = first_flips(ids, plain)
        yield found(
            f"greedy flips {what} against plain decoding; 8b by 1b",
            1000 * len(flips) / total,
            "of 1000 tokens",
            settings,
        )
