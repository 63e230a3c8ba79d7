"""Weights in fewer bits: a step's time, what the weights take, and how near the log-probabilities stay."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.gpu import models
from benchmarks.gpu.place import Place
from benchmarks.gpu.row import Found, Lacks, found, missing
from metagen.errors import UnsupportedError
from metagen.generators.torch.gpu import steps
from metagen.generators.torch.models.compression import check_place
from metagen.generators.torch.models.llama import LlamaModel

KINDS = ("int8", "int4", "nf4")
STEPS = 8
#: Tokens whose log-probabilities are compared.
READ = 256


def tasks(place: Place) -> Iterator[tuple[str, Callable[[], Iterable[Found]]]]:
    where = models.directory(place, "2b")
    dense: dict[str, object] = {}
    for kind in KINDS:
        yield kind, partial(compare, place, where, kind, dense)


def compare(place: Place, where: Path, kind: str, dense: dict[str, object]) -> Iterable[Found]:
    title = f"random 2b, {kind}"
    try:
        check_place(kind, torch.bfloat16, torch.device(place.device))
        if not dense:
            dense.update(zip(("times", "bytes", "logprobs"), measure(place, where, None), strict=True))
        times, size, logprobs = measure(place, where, kind)
    except UnsupportedError as error:
        if isinstance(error.__cause__, ImportError):
            raise Lacks(str(error)) from None
        yield missing(f"a step, dense over {kind}; random 2b", str(error))
        return
    base: dict[int, list[float]] = dense["times"]  # type: ignore[assignment]
    for batch, taken in times.items():
        middle = sorted(base[batch])[len(base[batch]) // 2]
        yield found(
            f"a step, dense over {kind}; random 2b, batch {batch}",
            [middle / one for one in taken],
            "×",
            f"{STEPS} steps, bfloat16, one after the other; dense takes {1e3 * middle:.3g} ms",
            "≥ 1" if batch == 1 else None,
        )
    own: torch.Tensor = dense["logprobs"]  # type: ignore[assignment]
    whole: float = dense["bytes"]  # type: ignore[assignment]
    if whole:
        yield found(
            f"weights in memory, dense over {kind}; random 2b",
            whole / size,
            "×",
            "embedding and head stay dense",
        )
    settings = f"{title}; {READ} random tokens of a prefix"
    change = float((logprobs - own).abs().mean())
    yield found(f"mean change of a log-probability by {kind}; random 2b", change, "nats", settings)
    same = float((logprobs.argmax(-1) == own.argmax(-1)).float().mean())
    yield found(f"best tokens that stay the best under {kind}; random 2b", same, "share", settings)


@torch.inference_mode()
def measure(
    place: Place, where: Path, kind: str | None
) -> tuple[dict[int, list[float]], float, torch.Tensor]:
    """Seconds of a step by batch, bytes of the weights (0 on a CPU), and log-probabilities [READ, V]."""
    sizes = place.sizes
    batches = [batch for batch in sizes.batches if batch <= 32]
    device = torch.device(place.device)
    gc.collect()
    kv = 1 << (26 if place.rehearsal else 31)
    model = LlamaModel(
        where, dtype=torch.bfloat16, device=device, batch=max(batches), kv_bytes=kv, quantization=kind
    )
    steps.wait()
    held = 0 if place.rehearsal else torch.cuda.memory_allocated() - keys_and_values(model)
    times: dict[int, list[float]] = {}
    for batch in batches:
        rows, tokens = np.arange(batch), np.full(batch, 7)
        model.open(rows, [])

        def some(rows: np.ndarray = rows, tokens: np.ndarray = tokens) -> None:
            for _ in range(STEPS):
                model.extend(rows, tokens)

        some()
        times[batch] = [place.seconds(some) / STEPS for _ in range(5)]
        model.close(rows)
    ids = np.random.default_rng(0).integers(3, model.vocab_size, min(READ, model.chunk))
    model.open(np.array([0]), [])
    logits = model.extend(np.array([0]), ids, np.array([len(ids)]), np.arange(len(ids)))
    return times, float(held), torch.log_softmax(logits, -1).cpu()


def keys_and_values(model: LlamaModel) -> int:
    """Bytes that the model took for the tails and slots of its rows."""
    return (
        model._kv._regions.all[0].kv.untyped_storage().nbytes()
    ) + model._kv._chains.slots.kv.untyped_storage().nbytes()
