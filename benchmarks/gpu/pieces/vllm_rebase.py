"""REBASE on vLLM: what its prefix cache gives of what whole blocks allow. Runs where vLLM is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from benchmarks import vllm_engine
from benchmarks.gpu.pieces.vllm_speed import dtype, options
from benchmarks.gpu.place import Place
from benchmarks.gpu.row import Found, found
from metagen.generators.vllm import VLLMEngine
from metagen.tasks.arithmetic.task import ArithmeticTask


def tasks(place: Place) -> Iterator[tuple[str, Callable[[], Iterable[Found]]]]:
    yield "cache", lambda: cache(place)


def cache(place: Place) -> Iterable[Found]:
    """On the embedded models, whose steps a search can judge."""
    sizes = place.sizes
    task = ArithmeticTask("validation", levels=[2, 3, 4], per_level=40, limit=sizes.problems)
    prompts = [one.prompt for one in task.problems()]
    args = options(place, 0.02)
    vllm_engine.WIDTH = sizes.width
    with (
        VLLMEngine(vllm_engine.MODEL, dtype=dtype(place), **args) as model,
        VLLMEngine(vllm_engine.JUDGE, dtype=dtype(place), **args) as judge,
    ):
        for row in vllm_engine.cache(model, judge, prompts):
            yield found(
                row.name, row.value, row.unit, f"{row.how}; {dtype(place)} on {place.device}", row.bound
            )
