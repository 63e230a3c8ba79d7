"""Solutions of the solver to the problems of `problems.py`: what a judge is asked about, and learns from.

    python examples/train/words/rollouts.py --problems problems.jsonl --solver smollm2-135m-solver --into rollouts.jsonl

Call it again to go on after an interruption, with the same solver and settings: a file is of one kind.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import track

from metagen import TorchEngine
from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.sequence import Message, Prompt
from metagen.sequence import Sequence as Continued

#: Problems that are worked on at once, and written down together.
TOGETHER = 32
LONGEST = 120


class Sampler:
    """Solutions, those cut at `LONGEST` tokens among them; each call draws anew."""

    def __init__(self, engine: TorchEngine, temperature: float, seed: str) -> None:
        self._engine, self._params, self._random = (
            engine,
            SamplingParams(temperature=temperature),
            random.Random(seed),
        )

    async def __call__(self, question: str, count: int) -> Counter[str]:
        prefix = Continued(Prompt("rollout", messages=(Message("user", question),)))
        seeds = tuple(self._random.getrandbits(62) for _ in range(count))
        done = await self._engine.generate(GenerateRequest(prefix, seeds, self._params, LONGEST))
        return Counter(sample.text for sample in done.samples)


def recorded(path: Path, drawn: dict[str, Any]) -> set[str]:
    """The questions in a file; a last line that was not written to its end is taken out of it.

    Exits where its solutions were not drawn like these.
    """
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    if lines and not lines[-1].endswith("\n"):
        path.write_text("".join(lines[:-1]), encoding="utf-8")
        del lines[-1]
    records = [json.loads(line) for line in lines]
    for record in records:
        if (others := record.get("drawn", "unknown settings")) != drawn:
            raise SystemExit(f"{path} has solutions of {others}, not of {drawn}; give another --into")
    return {record["question"] for record in records}


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """What the solutions depend on, besides the problem."""
    return {name: getattr(args, name) for name in ("solver", "samples", "temperature", "seed")}


async def work(args: argparse.Namespace, problems: Sequence[dict[str, Any]], engine: TorchEngine) -> None:
    with args.into.open("a", encoding="utf-8") as file:
        for start in track(range(0, len(problems), TOGETHER), "problems", disable=args.quiet):
            some = problems[start : start + TOGETHER]
            sample = Sampler(engine, args.temperature, f"{args.seed}/{some[0]['question']}")
            found = await asyncio.gather(*(sample(problem["question"], args.samples) for problem in some))
            for problem, texts in zip(some, found, strict=True):
                solutions = [{"text": text, "count": count} for text, count in texts.items()]
                file.write(json.dumps(problem | {"drawn": settings(args), "solutions": solutions}) + "\n")
            file.flush()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=Path, required=True, help="what problems.py wrote")
    parser.add_argument("--solver", required=True, help="an adapter's directory, or smollm2-135m-solver")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--count", type=int, default=1560, help="problems; those held out come first")
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quiet", action="store_true")
    args = parser.parse_args()
    problems = [json.loads(line) for line in args.problems.read_text(encoding="utf-8").splitlines()]
    problems.sort(key=lambda problem: not problem["held_out"])
    done = recorded(args.into, settings(args))
    with TorchEngine(args.solver, max_batch=128) as engine:
        chosen = [problem for problem in problems[: args.count] if problem["question"] not in done]
        asyncio.run(work(args, chosen, engine))


if __name__ == "__main__":
    main()
