"""Where a decoding step's time goes: the model, and the engine around it; and how often the CPU waits."""

from __future__ import annotations

import gc
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.gpu import engines, models
from benchmarks.gpu.place import Place, ratios
from benchmarks.gpu.row import Found, found, missing
from metagen.generators.torch.gpu import shared
from metagen.generators.torch.gpu import steps as compiled
from metagen.generators.torch.models.llama import LlamaModel

STEPS = 8


def tasks(place: Place) -> Iterator[tuple[str, Callable[[], Iterable[Found]]]]:
    for name in ("0.5b", "2b"):
        yield f"steps {name}", partial(steps, place, name, models.directory(place, name))
    yield "shared", partial(behind, place, models.directory(place, "0.5b"))
    yield "waits", partial(waits, place, models.directory(place, "0.5b"))


@torch.inference_mode()
def steps(place: Place, name: str, where: Path) -> Iterable[Found]:
    most = max(place.sizes.batches)
    model = LlamaModel(
        where, dtype=torch.bfloat16, device=torch.device(place.device), batch=most,
        kv_bytes=place.share(0.25),
    )  # fmt: skip
    compiled.wait()
    for batch in place.sizes.batches:
        rows, tokens = np.arange(batch), np.full(batch, 7)
        model.open(rows, [])

        def some(rows: np.ndarray = rows, tokens: np.ndarray = tokens) -> None:
            for _ in range(STEPS):
                model.extend(rows, tokens)

        some()
        taken = [1e3 * place.seconds(some) / STEPS for _ in range(5)]
        yield found(
            f"a step of the model alone, random {name}, batch {batch}",
            taken,
            "ms",
            f"{STEPS} steps, bfloat16",
        )
        model.close(rows)
    gc.collect()


@torch.inference_mode()
def behind(place: Place, where: Path) -> Iterable[Found]:
    """Steps of rows behind one long prefix: read once for several rows, and by each row for itself."""
    sizes = place.sizes
    model = LlamaModel(
        where, dtype=torch.bfloat16, device=torch.device(place.device), batch=sizes.shared, kv_bytes=place.share(0.1)
    )  # fmt: skip
    compiled.wait()
    one, rows, tokens = np.zeros(1, np.int64), np.arange(sizes.shared), np.full(sizes.shared, 7)
    model.open(one, [])
    for begin in range(0, sizes.long, model.chunk):
        read = np.full(min(model.chunk, sizes.long - begin), 7)
        model.extend(one, read, np.array([len(read)]))
    prefix = model.save(0, 0, sizes.long)
    model.close(one)

    def some() -> None:
        for _ in range(STEPS):
            model.extend(rows, tokens)

    taken: dict[str, list[float]] = {}
    for way, worth in (("once for several rows", shared.WORTH), ("by each row for itself", math.inf)):
        shared.WORTH = worth
        model.open(rows, [prefix])
        some()
        taken[way] = [1e3 * place.seconds(some) / STEPS for _ in range(5)]
        model.close(rows)
    settings = f"random 0.5b, bfloat16, {sizes.shared} rows behind {sizes.long} tokens; {STEPS} steps"
    for way, found_there in taken.items():
        yield found(f"a step behind a shared prefix, read {way}", found_there, "ms", settings)
    once, alone = taken.values()
    yield found(
        "a step behind a shared prefix, each row for itself over once for several", ratios(alone, once), "×", settings,
        "≥ 1",
    )  # fmt: skip
    gc.collect()


def waits(place: Place, where: Path) -> Iterable[Found]:
    """By torch's own report of operations that wait for the device."""
    name = "waits of the CPU for the device in a decoding step"
    settings = f"random 0.5b, torch.cuda.set_sync_debug_mode; {place.sizes.tokens} tokens, temperature 0.7, top_p 0.9"
    if place.rehearsal:
        yield missing(name, "torch reports them on CUDA only", settings)
        return
    with engines.torch_engine(place, where) as engine:
        prompts = models.texts(where, 8, place.sizes.prompt, 5)
        engines.ask(engine, prompts, place.sizes.tokens, temperature=0.7, top_p=0.9)
        before = engine.stats.extra["steps"]
        with reports() as made:
            engines.ask(engine, prompts, place.sizes.tokens, seed=1, temperature=0.7, top_p=0.9)
        count = engine.stats.extra["steps"] - before
    yield found(
        name, len(made) / count, "waits", settings, "≤ 1.2", "; ".join(sorted(set(made)))[:300] or None
    )


@contextmanager
def reports() -> Iterator[list[str]]:
    """Where in the code the CPU waited, once for each time."""
    made: list[str] = []
    before = warnings.showwarning

    def show(message: object, category: object, file: str, line: int, *_: object) -> None:
        if "synchroniz" in str(message):
            made.append(f"{Path(file).name}:{line}")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show  # type: ignore[assignment]
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield made
        finally:
            torch.cuda.set_sync_debug_mode("default")
            warnings.showwarning = before
