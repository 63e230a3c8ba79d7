"""Two replicas of Ray that share one GPU, beside one."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks.gpu import engines, models
from benchmarks.gpu.place import Place, ratios, turns
from benchmarks.gpu.row import Found, Lacks, found
from metagen.errors import install
from metagen.generators.torch import TorchEngine

TURNS = 3


def tasks(place: Place) -> Iterator[tuple[str, Callable[[], Iterable[Found]]]]:
    yield "0.5b", partial(compare, place)


def compare(place: Place) -> Iterable[Found]:
    if importlib.util.find_spec("ray") is None:
        raise Lacks(f"Ray is missing; {install('ray')}")
    from metagen.generators.ray import RayPool
    from metagen.generators.ray.placement import Placement

    sizes, where = place.sizes, models.directory(place, "0.5b")
    batch = max(sizes.batches)
    # Together they hold as much as one.
    whole = place.share(0.2)
    with ExitStack() as stack:
        pools = {}
        for replicas in (1, 2):
            options = {
                "model": str(where), "device": place.device, "dtype": place.dtype, "threads": 1,
                "max_batch": max(1, batch // replicas), "kv_memory_bytes": whole // replicas,
            }  # fmt: skip
            # Three replicas in all are on the one GPU.
            need = Placement() if place.rehearsal else Placement(num_gpus=0.3)
            pools[replicas] = stack.enter_context(
                RayPool(TorchEngine, options, replicas=replicas, placement=need)
            )

        def rate(pool: RayPool, turn: int) -> float:
            prompts = models.texts(where, batch, sizes.prompt, turn)
            answers = []
            seconds = place.seconds(
                lambda: answers.extend(engines.ask(pool, prompts, sizes.tokens, seed=turn))
            )
            return engines.generated(answers) / seconds

        made = turns({str(n): partial(rate, pool) for n, pool in pools.items()}, min(TURNS, sizes.turns))
    settings = (
        f"random 0.5b in bfloat16, {batch} prompts of {sizes.prompt} tokens × {sizes.tokens} tokens, rows, "
        "keys and values of two are together those of one; by turns"
    )
    for replicas in pools:
        yield found(
            f"Ray, {replicas} replicas on one GPU, tokens per second", made[str(replicas)], "1/s", settings
        )
    yield found("Ray, two replicas on one GPU over one", ratios(made["2"], made["1"]), "×", settings)
