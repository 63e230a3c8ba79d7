"""Greedy texts of the torch engine beside transformers': equal up to what rounding decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import engines, models
from benchmarks.gpu.place import Place
from benchmarks.gpu.row import Found, Lacks, found, missing

Ids = list[list[int]]


def tasks(place: Place) -> Iterator[tuple[str, Callable[[], Iterable[Found]]]]:
    yield "random 0.5b", lambda: compare(place, "random 0.5b", models.directory(place, "0.5b"))
    where = engines.fetched()
    yield engines.REAL, partial(compare, place, engines.REAL, where)


def compare(place: Place, name: str, where: Path | None) -> Iterable[Found]:
    if where is None:
        raise Lacks(engines.FETCH)
    sizes = place.sizes
    prompts = models.texts(where, sizes.greedy, sizes.prompt, 0)
    model, read = engines.rival(place, where)
    together = engines.write(model, read, prompts, sizes.tokens, do_sample=False).tolist()
    alone = [engines.write(model, read, [one], sizes.tokens, do_sample=False)[0].tolist() for one in prompts]
    del model
    with engines.torch_engine(place, where) as engine:
        answers = engines.ask(engine, prompts, sizes.tokens, temperature=0.0)
    ours = [list(answer.samples[0].ids or ()) for answer in answers]
    heads = [list(answer.prefix_ids or ()) for answer in answers]
    settings = (
        f"{name} in bfloat16, {sizes.greedy} prompts of {sizes.prompt} tokens × {sizes.tokens} tokens; tokens up to "
        "the first that differs"
    )
    for what, found_ids in (("torch engine", ours), ("transformers, all prompts at once,", together)):
        flips, total = first_flips(found_ids, alone)
        yield found(
            f"greedy flips of {what} against transformers, one prompt at a time; {name}",
            1000 * len(flips) / total,
            "of 1000 tokens",
            settings,
        )
    flips, _ = first_flips(ours, alone)
    exact, _ = engines.rival(place, where, torch.float32)
    near = [
        within_rounding(exact, place, heads[i] + alone[i][:at], alone[i][at], ours[i][at]) for i, at in flips
    ]
    title = f"greedy flips that rounding explains; {name}"
    how = (
        f"{settings}; both tokens lie within {ROUNDING:g} of the largest logit, in float32; {len(near)} flips"
    )
    yield (
        found(title, sum(near) / len(near), "share", how, "≥ 1")
        if near
        else missing(title, "no text differs", how)
    )


#: Of the largest logit: four units in the last place of bfloat16, which keeps 8 bits.
ROUNDING = 4 / 256


def first_flips(ours: Ids, theirs: Ids) -> tuple[list[tuple[int, int]], int]:
    """Where texts first differ, as (text, place), and tokens compared up to there, these included."""
    flips, total = [], 0
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        length = min(len(a), len(b))
        at = next((j for j in range(length) if a[j] != b[j]), None)
        total += length if at is None else at + 1
        if at is not None:
            flips.append((i, at))
    return flips, total


def within_rounding(exact: Any, place: Place, ids: list[int], one: int, other: int) -> bool:
    """Whether two tokens behind these ids have nearly equal logits in float32."""
    with torch.inference_mode():
        logits = exact(torch.tensor([ids], device=place.device)).logits[0, -1].float()
    gap = abs(float(logits[one] - logits[other]))
    return gap <= ROUNDING * float(logits.abs().max())
