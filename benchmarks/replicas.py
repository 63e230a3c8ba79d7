"""Two replicas, each on a core of its own, beside one; and what they cost the driver. Runs where Ray is."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.row import Row
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.models.sources import resolve
from metagen.generators.torch import TorchEngine
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence

#: Sizes of the model; its weights are random.
WIDTH, FF, LAYERS, HEADS = 512, 1376, 10, 8
#: Where its tokenizer is from.
TOKENIZER = "tiny-0.5m"
PROBLEMS, SAMPLES, TOKENS = 32, 4, 64
#: Runs of each pool by turns: what they differ in is less than what single runs differ in.
TURNS = 5
#: Requests to an engine that answers at once, how many are under way, samples of each, and letters of a prompt.
REQUESTS, WINDOW, DRAWS, LETTERS = 8000, 256, 2, 600
INSTANT: dict[str, Any] = {"tokens": ("a", "b", "$"), "table": {(): [0, 0, 1]}}


def model(directory: Path) -> int:
    """Make a Llama of random weights there; its parameters."""
    import torch
    from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    own = AutoConfig.from_pretrained(resolve(TOKENIZER), trust_remote_code=False)
    config = LlamaConfig(
        vocab_size=own.vocab_size, hidden_size=WIDTH, intermediate_size=FF, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=512,
        bos_token_id=own.bos_token_id, eos_token_id=own.eos_token_id, pad_token_id=own.pad_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    made = LlamaForCausalLM(config)
    made.save_pretrained(directory)
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(resolve(TOKENIZER) / file, directory)
    return int(made.num_parameters())


def pinned(*, taken: str, cores: list[int], **options: Any) -> TorchEngine:
    """An engine whose process keeps to one core, the first that is not noted in the directory `taken`."""
    for core in cores:
        try:
            (Path(taken) / str(core)).touch(exist_ok=False)
        except FileExistsError:
            continue
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(thread.name), {core})
        return TorchEngine(**options)
    raise RuntimeError(f"more replicas than cores {cores}")


def run(pool: Any) -> tuple[float, float]:
    """Seconds, and seconds of the processor in this process."""
    writer = pool.generator(max_tokens=TOKENS, ignore_eos=True)

    async def one(number: int) -> None:
        prefix = Sequence(Prompt(f"p{number}", text=f"Q:{number:04}+{number * 7}"))
        await writer.generate(prefix, n=SAMPLES, scope=Scope.root(prefix.prompt.problem_id))

    async def together() -> None:
        await asyncio.gather(*map(one, range(PROBLEMS)))

    began, busy = time.perf_counter(), time.process_time()
    asyncio.run(together())
    return time.perf_counter() - began, time.process_time() - busy


def asked(pool: Any, requests: int) -> tuple[float, float]:
    """As `run`, of requests that cost nobody else anything."""
    writer, places = pool.generator(max_tokens=4), asyncio.Semaphore(WINDOW)

    async def one(number: int) -> None:
        async with places:
            prefix = Sequence(Prompt(f"p{number}", text=f"{number:08}".ljust(LETTERS, "?")))
            await writer.generate(prefix, n=DRAWS, scope=Scope.root(prefix.prompt.problem_id))

    async def together() -> None:
        await asyncio.gather(*map(one, range(requests)))

    began, busy = time.perf_counter(), time.process_time()
    asyncio.run(together())
    return time.perf_counter() - began, time.process_time() - busy


def rows(turns: int = TURNS) -> Iterator[Row]:
    """Tokens per second of a pool of one and of a pool of two, and their ratio."""
    cores = sorted(os.sched_getaffinity(0))[:2] if hasattr(os, "sched_getaffinity") else []
    if importlib.util.find_spec("ray") is None or len(cores) < 2:
        return
    from ray import cloudpickle

    from metagen.generators.ray import RayPool

    # Replicas do not have this module on their path.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    found: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        parameters = model(place / "model")
        pools = {}
        for replicas in found:
            (place / str(replicas)).mkdir()
            options = {
                "taken": str(place / str(replicas)),
                "cores": cores,
                "model": str(place / "model"),
                "threads": 1,
            }
            pools[replicas] = stack.enter_context(RayPool(pinned, options, replicas=replicas))
        for turn in range(turns + 1):
            for replicas, pool in pools.items():
                if turn == 0:
                    run(pool)
                else:
                    found[replicas].append(run(pool))
    how = (
        f"Llama of {parameters / 1e6:.0f}M random weights in float32, {PROBLEMS} prompts × {SAMPLES} samples × "
        f"{TOKENS} tokens, one thread in each replica, pinned to cores {cores}; {turns} runs each, by turns, median"
    )
    wall = {replicas: statistics.median(taken for taken, _ in runs) for replicas, runs in found.items()}
    busy = {replicas: statistics.median(spent for _, spent in runs) for replicas, runs in found.items()}
    for replicas, taken in wall.items():
        rate = PROBLEMS * SAMPLES * TOKENS / taken
        yield Row(f"pool, replicas pinned to cores: {replicas}, tokens per second", rate, "1/s", how)
    yield Row("pool, two pinned replicas over one", wall[1] / wall[2], "×", how, "≥ 1.6")
    share = 100 * busy[2] / (2 * wall[2])
    yield Row(
        "pool of two, the driver's share of two cores", share, "%", f"{how}; without Ray's own processes"
    )
    with RayPool(EnumerableEngine, INSTANT, replicas=2, codec=EnumerableEngine(**INSTANT)) as pool:
        asked(pool, REQUESTS // 10)
        taken, spent = asked(pool, REQUESTS)
    how = (
        f"two replicas of an engine that answers at once, {REQUESTS:,} requests of {DRAWS} samples, {WINDOW} at once, "
        f"prompts of {LETTERS} letters, journal in memory; without Ray's own processes"
    )
    yield Row("pool, the driver's core for a request", 1e6 * spent / REQUESTS, "µs", how)
    yield Row("pool, requests a second that one driver sends", REQUESTS / taken, "1/s", how)
