"""Many samples of one long prompt: the prompt is computed, kept and read once, not once a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import torch

from benchmarks.gpu import engines, models
from benchmarks.gpu.place import Place, ratios, turns
from benchmarks.gpu.row import Found, found, missing

#: Turns of it take long.
TURNS = 3


def tasks(place: Place) -> Iterator[tuple[str, Callable[[], Iterable[Found]]]]:
    yield "0.5b", partial(compare, place, models.directory(place, "0.5b"))


def compare(place: Place, where: Path) -> Iterable[Found]:
    sizes = place.sizes
    samples = f"{sizes.shared} samples × {sizes.behind} tokens"
    settings = f"random 0.5b in bfloat16, {samples} of one prompt of {sizes.long} tokens"
    asked: dict[str, int] = {}
    held: dict[str, float | None] = {}
    with engines.torch_engine(place, where, max_batch=sizes.shared) as engine:
        rival = engines.rival(place, where)

        def ours(turn: int) -> float:
            (text,) = prompt(place, where, turn)
            before = engine.stats.prefilled
            place.forget_peak()
            seconds = place.seconds(lambda: engines.ask(engine, [text], sizes.behind, sizes.shared, turn))
            held["torch engine"] = place.peak()
            asked.update(length=len(engine.encode(text)), computed=engine.stats.prefilled - before)
            return sizes.shared * sizes.behind / seconds

        def theirs(turn: int) -> float:
            given = prompt(place, where, turn)
            place.forget_peak()
            with torch.inference_mode():
                seconds = place.seconds(lambda: engines.write(*rival, given, sizes.behind, sizes.shared))
            held["transformers"] = place.peak()
            return sizes.shared * sizes.behind / seconds

        yield from rates(place, settings, ours, theirs)
    share = asked["computed"] / asked["length"]
    yield found("shared prefix, prompt tokens computed over its length", share, "×", settings, "≤ 1.01")
    for who, peak in held.items():
        if peak is not None:
            both = f"{settings}; weights of both are in memory, and the engine's keys and values"
            yield found(f"shared prefix, {who}, memory at most", peak, "GB", both)


def prompt(place: Place, where: Path, turn: int) -> list[str]:
    return models.texts(where, 1, place.sizes.long, 77 + turn)


def rates(
    place: Place, settings: str, ours: Callable[[int], float], theirs: Callable[[int], float]
) -> Iterable[Found]:
    count = min(TURNS, place.sizes.turns)
    try:
        made = turns({"ours": ours, "theirs": theirs}, count)
    except torch.OutOfMemoryError as error:
        yield missing(
            "shared prefix, transformers, tokens per second", f"out of memory: {str(error)[:200]}", settings
        )
        torch.cuda.empty_cache()
        made = turns({"ours": ours}, count)
    yield found(
        "shared prefix, torch engine, tokens per second", made["ours"], "1/s", f"{settings}; prefill included"
    )
    if "theirs" in made:
        by_turns = f"{settings}; prefill included; num_return_sequences, by turns"
        yield found("shared prefix, transformers, tokens per second", made["theirs"], "1/s", by_turns)
        yield found(
            "shared prefix, torch engine over transformers", ratios(made["ours"], made["theirs"]), "×", by_turns,
            "≥ 1",
        )  # fmt: skip
