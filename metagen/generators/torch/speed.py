"""How fast a model writes on this CPU, by number format and threads, measured when somebody asks for it.

The best number of threads is remembered (`threads.py`). A number format decides what is sampled: it is never changed by
a measurement, only recommended.
"""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from metagen.errors import UnsupportedError
from metagen.generators.compiled import build
from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.generators.torch.engine import TorchEngine
from metagen.generators.torch.numbers import multiplies_bfloat16
from metagen.generators.torch.threads import cores, remember
from metagen.sequence import Prompt, Sequence

#: Rows that write side by side: one text, a small vote, a large one.
ROWS = (1, 32, 128)
#: Tokens of each row in one measurement, and measurements of which the best counts: other work only ever delays.
TOKENS, TIMES = 16, 2


@dataclass(frozen=True, slots=True)
class Timing:
    """One way to run a model. rates: tokens per second, by rows. default: the engine's own choice, if told nothing."""

    dtype: str
    quantization: str | None
    threads: int
    rates: tuple[float, ...]
    default: bool = False

    def over(self, other: Timing) -> float:
        """How many times as fast as another: the geometric mean over the numbers of rows."""
        pairs = zip(self.rates, other.rates, strict=True)
        return prod(mine / theirs for mine, theirs in pairs) ** (1 / len(self.rates))


@dataclass(frozen=True, slots=True)
class Speed:
    """All timings of a model. kept: engines will know of them."""

    model: str
    timings: tuple[Timing, ...]
    kept: bool = True

    @property
    def default(self) -> Timing:
        """The engine's own choice before this measurement."""
        return next(one for one in self.timings if one.default)

    @property
    def best(self) -> Timing:
        return max(self.timings, key=lambda one: one.over(self.default))

    def to_dict(self) -> dict[str, Any]:
        return {"model": self.model, "rows": ROWS, "timings": [asdict(one) for one in self.timings]}


def measure(model: str, told: Callable[[str], None] = lambda _: None) -> Speed:
    """Time all ways to run a model, and remember the best threads of each number format.

    told: hears what is measured next. Raises what TorchEngine raises for the model, and UnsupportedError for one that
    scores, or that runs on a GPU.
    """
    with TorchEngine(model) as engine:
        if engine.device.type != "cpu":
            raise UnsupportedError(
                f"{model!r} runs on {engine.device}, where threads are of no account; --speed is for CPUs"
            )
        usual = str(engine.dtype)[6:], None, engine.threads
    told("the steps, which are compiled first")
    reason = build.build()
    if build.extension() is None and (reason := reason or build.build()):
        told(f"torch's own steps, for there are no compiled ones: {reason}")
    formats: list[tuple[str, str | None]] = [("float32", None)]
    if multiplies_bfloat16() or usual[0] == "bfloat16":
        formats.append(("bfloat16", None))
        if importlib.util.find_spec("torchao") is not None:
            formats += [("bfloat16", "int8"), ("bfloat16", "int4")]
    found: list[Timing] = []
    kept = True
    for dtype, quantization in formats:
        alike: list[tuple[str, Timing]] = []
        for threads in sorted({1, cores(), usual[2]}):
            told(", ".join(filter(None, (dtype, quantization, f"threads: {threads}"))))
            try:
                with TorchEngine(model, dtype=dtype, quantization=quantization, threads=threads) as engine:  # type: ignore[arg-type]
                    rates = tuple(_rate(engine, rows) for rows in ROWS)
                    fingerprint = engine.fingerprint
            except UnsupportedError:
                if quantization is None:
                    raise
                break  # matrices of sizes that it does not fit
            here = Timing(dtype, quantization, threads, rates, (dtype, quantization, threads) == usual)
            alike.append((fingerprint, here))
        if alike:
            fingerprint, best = max(alike, key=lambda one: one[1].over(alike[0][1]))
            kept &= remember(fingerprint, best.threads)
        found += [timing for _, timing in alike]
    return Speed(model, tuple(found), kept)


def _rate(engine: TorchEngine, rows: int) -> float:
    """Tokens per second."""
    params = SamplingParams(max_tokens=TOKENS, ignore_eos=True)

    def once(turn: int) -> float:
        seeds = tuple(range(turn << 20, (turn << 20) + rows))
        request = GenerateRequest(Sequence(Prompt(f"speed/{turn}", text="The")), seeds, params, TOKENS)
        began = time.perf_counter()
        asyncio.run(engine.generate(request))
        return rows * TOKENS / (time.perf_counter() - began)

    once(0)
    return max(once(turn) for turn in range(1, TIMES + 1))
