"""Where speculation pays, by rows and by context: measured on the embedded models, and by the roofline model.

    python examples/speculation_length.py [--batch 1 8 32] [--context 0 400 1200] [--gamma 4]

Contexts are solved problems before the one that is asked, cut to so many tokens. The embedded models have not learned
from such contexts, and agree less there: tokens per pass say how much. Each cell is measured by turns with and without
drafts, the median of three. Then a pair of 8 and 1 billion parameters on an H100, by rooflines alone.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Iterator

from metagen import ArithmeticTask, Prompt, Sequence, TorchEngine
from metagen.analysis.speculation import best_gamma, speedup
from metagen.cost import Hardware, ModelShape
from metagen.generators.decoding.draft import Draft
from metagen.generators.engine import GenerateRequest, SamplingParams

TARGET, DRAFT, TOKENS, TURNS = "tiny-2m", "tiny-0.1m", 60, 3
#: Llama 3.1 8B and Llama 3.2 1B.
LARGE = ModelShape(layers=32, width=4096, heads=32, kv_heads=8, head_dim=128, ff=14336, vocab=128256)
SMALL = ModelShape(layers=16, width=2048, heads=32, kv_heads=8, head_dim=64, ff=8192, vocab=128256, tied=True)


def ask(engine: TorchEngine, prompts: list[str]) -> tuple[list[str], int]:
    """A completion of each prompt, all at once, and the tokens generated."""

    async def go() -> list[tuple[str, int]]:
        params = SamplingParams()
        requests = [
            GenerateRequest(Sequence.of(Prompt(f"p{i}", text)), (i,), params, TOKENS)
            for i, text in enumerate(prompts)
        ]
        answers = await asyncio.gather(*map(engine.generate, requests))
        return [(answer.samples[0].text, answer.samples[0].generated or 0) for answer in answers]

    found = asyncio.run(go())
    return [text for text, _ in found], sum(count for _, count in found)


def measured(batches: list[int], contexts: list[int], gamma: int) -> Iterator[str]:
    questions = [p.prompt.text or "" for p in ArithmeticTask("validation", per_level=8, limit=32).problems()]
    yield "| rows | context | tokens per pass | times as fast | tokens per second, plain |"
    yield "|---|---|---|---|---|"
    for batch in batches:
        with (
            TorchEngine(TARGET, max_batch=batch) as plain,
            TorchEngine(TARGET, max_batch=batch, draft=Draft(DRAFT, gamma)) as drafted,
        ):
            solved, _ = ask(plain, questions)
            shots = "".join(q + a + "\n" for q, a in zip(questions, solved, strict=True))
            ids = plain.encode(shots * 4)
            for context in contexts:
                before = plain.decode(ids[:context])
                prompts = [before + questions[i % len(questions)] for i in range(max(batch, 4))]
                rates: dict[bool, list[float]] = {False: [], True: []}
                start = dict(drafted.stats.extra)
                for turn in range(TURNS + 1):
                    for drafts, engine in ((False, plain), (True, drafted)):
                        began = time.perf_counter()
                        _, tokens = ask(engine, prompts)
                        if turn:  # the first fills the prefix cache
                            rates[drafts].append(tokens / (time.perf_counter() - began))
                gained = {name: drafted.stats.extra[name] - start[name] for name in ("accepted", "blocks")}
                slow, fast = (statistics.median(rates[drafts]) for drafts in (False, True))
                yield (
                    f"| {batch} | {context} | {1 + gained['accepted'] / gained['blocks']:.2f} | {fast / slow:.2f} "
                    f"| {slow:.0f} |"
                )


def rooflines(alpha: float, gamma: int) -> Iterator[str]:
    h100, batches = Hardware.find("h100-sxm"), (1, 8, 32, 128, 512)
    yield f"| context | {' | '.join(f'{b} rows' for b in batches)} |"
    yield "|---" * (len(batches) + 1) + "|"
    for context in (100, 1_000, 8_000, 32_000):
        cells = []
        for batch in batches:
            fixed = speedup(LARGE, SMALL, h100, alpha=alpha, gamma=gamma, context=context, batch=batch)
            best, value = best_gamma(LARGE, SMALL, h100, alpha=alpha, context=context, batch=batch)
            cells.append(f"{fixed:.2f} ({value:.2f} at γ = {best})")
        yield f"| {context} | " + " | ".join(cells) + " |"


def main(batches: list[int], contexts: list[int], gamma: int, alpha: float) -> None:
    print(f"{TARGET}, draft {DRAFT}, γ = {gamma}, temperature 1\n")
    for line in measured(batches, contexts, gamma):
        print(line, flush=True)
    print(f"\n8B with a draft of 1B on an H100, α = {alpha:g}, by rooflines: times as fast at γ = {gamma}\n")
    print("\n".join(rooflines(alpha, gamma)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--context", type=int, nargs="+", default=[0, 400, 1200])
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--alpha", type=float, default=0.8)
    arguments = parser.parse_args()
    main(arguments.batch, arguments.context, arguments.gamma, arguments.alpha)
