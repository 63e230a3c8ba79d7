"""Tokens per second of the torch engine and of transformers, by turns, and the share of the roofline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import engines, models
from benchmarks.gpu.place import Place, hardware, ratios, turns
from benchmarks.gpu.row import Found, Lacks, found, missing
from metagen.cost import ModelShape, roofline_seconds
from metagen.generators.torch import TorchEngine


def tasks(place: Place, name: str) -> Iterator[tuple[str, Callable[[], Iterable[Found]]]]:
    """name: of a random model, or of the real one."""
    where = engines.fetched() if name == engines.REAL else models.directory(place, name)
    if where is None:
        raise Lacks(engines.FETCH)
    shown = name if name == engines.REAL else f"random {name}"
    with engines.torch_engine(place, where) as engine:
        rival = engines.rival(place, where)
        for batch in place.sizes.batches:
            yield f"batch {batch}", partial(compare, place, shown, where, engine, rival, batch)


def compare(
    place: Place, name: str, where: Path, engine: TorchEngine, rival: tuple[Any, Any], batch: int
) -> Iterable[Found]:
    sizes = place.sizes
    held: dict[str, float | None] = {}

    def prompts(turn: int) -> list[str]:
        return models.texts(where, batch, sizes.prompt, 1000 * batch + turn)

    def ours(turn: int) -> float:
        given = prompts(turn)
        place.forget_peak()
        seconds = place.seconds(lambda: engines.ask(engine, given, sizes.tokens, seed=turn))
        held["ours"] = place.peak()
        return batch * sizes.tokens / seconds

    def theirs(turn: int) -> float:
        given = prompts(turn)
        place.forget_peak()
        with torch.inference_mode():
            seconds = place.seconds(lambda: engines.write(*rival, given, sizes.tokens))
        held["theirs"] = place.peak()
        return batch * sizes.tokens / seconds

    settings = (
        f"{name} in bfloat16, {batch} prompts of {sizes.prompt} tokens × {sizes.tokens} tokens, temperature 1"
    )
    title = f"{name}, batch {batch}"
    sides = {"ours": ours, "theirs": theirs}
    try:
        rates = turns(sides, sizes.turns)
    except torch.OutOfMemoryError as error:
        yield missing(
            f"transformers, tokens per second; {title}", f"out of memory: {str(error)[:200]}", settings
        )
        rates = turns({"ours": ours}, sizes.turns)
    yield found(f"torch engine, tokens per second; {title}", rates["ours"], "1/s", settings)
    if "theirs" in rates:
        by_turns = f"{settings}; by turns; generate with sdpa, all prompts in one batch"
        yield found(f"transformers, tokens per second; {title}", rates["theirs"], "1/s", by_turns)
        yield found(
            f"torch engine over transformers; {title}",
            ratios(rates["ours"], rates["theirs"]),
            "×",
            by_turns,
            "≥ 1",
        )
    assert engine.shape is not None
    yield from roofline(place, "torch engine", title, settings, engine.shape, batch, rates["ours"])
    if held["ours"] is not None:
        both = f"{settings}; weights of both are in memory, and the engine's keys and values"
        yield found(f"torch engine, memory at most; {title}", held["ours"], "GB", both)
        if held.get("theirs") is not None:
            yield found(f"transformers, memory at most; {title}", held["theirs"] or 0.0, "GB", both)


def roofline(
    place: Place, who: str, title: str, settings: str, shape: ModelShape, batch: int, rates: list[float]
) -> Iterator[Found]:
    """Rates over what the device's bandwidth and arithmetic allow at most."""
    sizes, sheet = place.sizes, hardware(place)
    least = roofline_seconds(shape, sheet, sizes.prompt, sizes.tokens, sizes.prompt, batch)
    most = batch * sizes.tokens / least
    yield found(
        f"{who}, share of the roofline; {title}",
        [rate / most for rate in rates],
        "share",
        f"{settings}; {sheet.name}: {sheet.bandwidth / 1e12:.3g} TB/s, {sheet.peak / 1e12:.3g} TFLOP/s",
    )
