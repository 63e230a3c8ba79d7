"""Tokens per pass of the target, by token and by block verification, on the embedded models, as Markdown.

    python examples/block_efficiency.py [--problems 40] [--samples 4] [--gamma 2 4 8] [--temperature 1.0]

Problems of all levels of the validation split; 95% intervals over problems, differences paired by
problem. The last table is the wall clock of one sample at a time against plain decoding, both by turns.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from metagen import ArithmeticTask, Prompt, Sequence, TorchEngine
from metagen.analysis.intervals import interval
from metagen.analysis.paired import paired_difference
from metagen.generators.decoding.draft import Draft
from metagen.generators.engine import GenerateRequest, SamplingParams

TARGET, DRAFTS, TOKENS = "tiny-2m", ("tiny-0.1m", "tiny-0.5m"), 200
Floats = NDArray[np.float64]


def ask(engine: TorchEngine, prompt: Prompt, samples: int, temperature: float) -> int:
    """Tokens generated."""
    params = SamplingParams(temperature=temperature)
    request = GenerateRequest(Sequence.of(prompt), tuple(range(samples)), params, TOKENS)
    return sum(sample.generated or 0 for sample in asyncio.run(engine.generate(request)).samples)


def per_pass(
    draft: Draft, prompts: list[Prompt], samples: int, temperature: float
) -> tuple[Floats, float, float]:
    """Of each problem the tokens per pass of the target; and over all the share accepted, and E Σ min(p, q)."""
    found = []
    with TorchEngine(TARGET, draft=draft, max_batch=samples) as engine:
        counts = engine.stats.extra
        for prompt in prompts:
            before = dict(counts)
            ask(engine, prompt, samples, temperature)
            found.append(
                1 + (counts["accepted"] - before["accepted"]) / (counts["blocks"] - before["blocks"])
            )
        return np.array(found), counts["accepted"] / counts["tested"], counts["overlap"] / counts["tested"]


def efficiency(prompts: list[Prompt], samples: int, gammas: list[int], temperature: float) -> Iterator[str]:
    yield "| draft | γ | token | block | block less token | p | accepted, token | E Σ min(p, q) | independent |"
    yield "|---" * 9 + "|"
    for name in DRAFTS:
        for gamma in gammas:
            token, accepted, alpha = per_pass(Draft(name, gamma, "token"), prompts, samples, temperature)
            block, *_ = per_pass(Draft(name, gamma, "block"), prompts, samples, temperature)
            cells = []
            for values in (token, block):
                i = interval(values)
                cells.append(f"{float(i.estimate):.2f} [{float(i.low):.2f}, {float(i.high):.2f}]")
            d = paired_difference(block, token, support=None)
            cells.append(f"{d.estimate:+.3f} [{d.low:+.3f}, {d.high:+.3f}] | {d.p_value:.4f}")
            expected = (1 - alpha ** (gamma + 1)) / (1 - alpha)
            yield (
                f"| {name} | {gamma} | "
                + " | ".join(cells)
                + (f" | {accepted:.3f} | {alpha:.3f} | {expected:.2f} |")
            )


def wall_clock(prompts: list[Prompt], gammas: list[int], temperature: float) -> Iterator[str]:
    """Tokens per second of one sample at a time, over those of plain decoding."""
    drafts: dict[str, Draft | None] = {"plain": None}
    for name in DRAFTS:
        drafts |= {f"{name}, γ = {gamma}": Draft(name, gamma) for gamma in gammas}
        drafts[f"{name}, γ adapts from 4"] = Draft(name, 4, adapt=True)
    drafts["lookup, ngram 3, 8 tokens"] = Draft.lookup()
    drafts[f"{DRAFTS[0]}, γ = 4, 3 drafts"] = Draft(DRAFTS[0], 4, drafts=3)
    seconds: dict[str, list[float]] = {name: [] for name in drafts}
    engines = {name: TorchEngine(TARGET, draft=draft, max_batch=1) for name, draft in drafts.items()}
    for engine in engines.values():
        engine.__enter__()
        ask(engine, prompts[0], 1, temperature)
    for prompt in prompts:
        for name, engine in engines.items():
            began = time.perf_counter()
            tokens = ask(engine, prompt, 1, temperature)
            seconds[name].append((time.perf_counter() - began) / tokens)
    for engine in engines.values():
        engine.close()
    yield "| one sample at a time | ms per token | times as fast as plain |"
    yield "|---|---|---|"
    plain = np.array(seconds["plain"])
    for name, taken in seconds.items():
        # Of each problem the ratio; its logarithm is symmetric.
        ratio = interval(np.log(plain / np.array(taken)))
        low, middle, high = (float(np.exp(x)) for x in (ratio.low, ratio.estimate, ratio.high))
        yield f"| {name} | {1e3 * float(np.median(taken)):.2f} | {middle:.2f} [{low:.2f}, {high:.2f}] |"


def main(problems: int, samples: int, gammas: list[int], temperature: float) -> None:
    prompts = [
        p.prompt for p in ArithmeticTask("validation", per_level=-(-problems // 6), limit=problems).problems()
    ]
    print(f"{TARGET}, {len(prompts)} problems, {samples} samples each, temperature {temperature:g}\n")
    print("\n".join(efficiency(prompts, samples, gammas, temperature)), end="\n\n")
    print("\n".join(wall_clock(prompts, gammas, temperature)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--gamma", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--temperature", type=float, default=1.0)
    arguments = parser.parse_args()
    main(arguments.problems, arguments.samples, arguments.gamma, arguments.temperature)
