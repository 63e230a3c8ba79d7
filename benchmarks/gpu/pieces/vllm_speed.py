"""metagen over vLLM beside vLLM alone, and the torch engine beside both, by turns. Runs where vLLM is."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu import engines, models
from benchmarks.gpu.pieces.speed import roofline
from benchmarks.gpu.place import Place, ratios, turns
from benchmarks.gpu.row import Found, Lacks, found
from metagen.generators.vllm import VLLMEngine
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence

#: Samples of a prompt, at most, in a comparison of metagen over vLLM with vLLM.
SAMPLES = 16
#: Times as many turns where few sequences are written at once.
LIVELY = 4


def options(place: Place, share: float) -> dict[str, Any]:
    """Engine arguments of both sides alike. share: of the GPU's memory, for keys and values."""
    if place.rehearsal:
        return {"enforce_eager": True, "kv_cache_memory_bytes": 1 << 26, "block_size": 32}
    # What vLLM wants to find free when it starts, if others are there already.
    return {"kv_cache_memory_bytes": place.share(share), "gpu_memory_utilization": 0.3}


def dtype(place: Place) -> Any:
    return "float32" if place.rehearsal else "bfloat16"


def tasks(place: Place, name: str) -> Iterator[tuple[str, Callable[[], Iterable[Found]]]]:
    from vllm import LLM

    where = engines.fetched() if name == engines.REAL else models.directory(place, name)
    if where is None:
        raise Lacks(engines.FETCH)
    shown = name if name == engines.REAL else f"random {name}"
    plain = LLM(
        str(where), dtype=dtype(place), max_model_len=1024, max_num_seqs=256, max_num_batched_tokens=8192, seed=0,
        enable_prefix_caching=True, disable_log_stats=True, **options(place, 0.1),
    )  # fmt: skip
    with ExitStack() as stack:
        ours = stack.enter_context(
            VLLMEngine(
                where,
                dtype=dtype(place),
                max_context=1024,
                max_num_batched_tokens=8192,
                **options(place, 0.1),
            )
        )
        memory = place.share(0.25)
        torch_engine = stack.enter_context(engines.torch_engine(place, where, kv_memory_bytes=memory))
        for batch in place.sizes.batches:
            yield f"batch {batch}", partial(compare, place, shown, where, plain, ours, torch_engine, batch)
    del plain
    gc.collect()


def compare(
    place: Place, name: str, where: Path, plain: Any, ours: VLLMEngine, torch_engine: Any, batch: int
) -> Iterable[Found]:
    from vllm import SamplingParams

    sizes = place.sizes
    samples = min(SAMPLES, batch)
    many = max(1, batch // samples)
    tokens = many * samples * sizes.tokens
    writer = ours.generator(max_tokens=sizes.tokens, ignore_eos=True)

    def prompts(turn: int) -> list[str]:
        return models.texts(where, many, sizes.prompt, 100 * batch + turn)

    def alone(turn: int) -> float:
        asked = SamplingParams(n=samples, temperature=1.0, max_tokens=sizes.tokens, ignore_eos=True)
        given = prompts(turn)
        made: list[Any] = []
        seconds = place.seconds(lambda: made.extend(plain.generate(given, asked, use_tqdm=False)))
        written = sum(len(one.token_ids) for answer in made for one in answer.outputs)
        assert written == tokens, (written, tokens)
        return written / seconds

    def through(turn: int) -> float:
        given = [Sequence(Prompt(f"{turn}/{i}", text=text)) for i, text in enumerate(prompts(turn))]

        async def together() -> None:
            await asyncio.gather(
                *(
                    writer.generate(one, n=samples, scope=Scope.root(one.prompt.problem_id, seed=turn))
                    for one in given
                )
            )

        return tokens / place.seconds(lambda: asyncio.run(together()))

    def by_torch(turn: int) -> float:
        given = prompts(turn)
        return tokens / place.seconds(lambda: engines.ask(torch_engine, given, sizes.tokens, samples, turn))

    # A turn of few sequences takes a third of a second, and such short ones differ by a third.
    count = sizes.turns * (1 if batch == max(sizes.batches) else LIVELY)
    made = turns({"alone": alone, "through": through, "torch": by_torch}, count)
    settings = (
        f"{name} in {dtype(place)}, {many} prompts of {sizes.prompt} tokens × {samples} samples × {sizes.tokens} "
        "tokens, temperature 1; by turns, other prompts each turn"
    )
    title = f"{name}, batch {many * samples}"
    yield found(f"vLLM alone, tokens per second; {title}", made["alone"], "1/s", settings)
    yield found(f"metagen over vLLM, tokens per second; {title}", made["through"], "1/s", settings)
    yield found(
        f"metagen over vLLM over vLLM; {title}",
        ratios(made["through"], made["alone"]),
        "×",
        settings,
        "≥ 0.97",
    )
    yield found(f"torch engine beside vLLM, tokens per second; {title}", made["torch"], "1/s", settings)
    yield found(f"torch engine over vLLM; {title}", ratios(made["torch"], made["alone"]), "×", settings)
    if ours.shape is not None:
        yield from roofline(place, "vLLM alone", title, settings, ours.shape, many * samples, made["alone"])
