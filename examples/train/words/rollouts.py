"""Solutions of the solver with a value for each step, as Math-Shepherd has it (Wang et al. 2024, arXiv:2312.08935).

    python examples/train/words/rollouts.py --data data/ --solver solver/adapter --into rollouts.jsonl

Call it again to go on after an interruption.

The value of a step is the share of right answers among the solutions that begin with the steps up to it: those that
were sampled alike, and completions from there until there are `--completions` of them. Nobody checks a step itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

from data import Example, read
from rich.progress import track

from metagen import TorchEngine
from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.sequence import Message, Prompt
from metagen.sequence import Sequence as Continued

#: Problems that are worked on at once, and written down together.
TOGETHER = 32
LONGEST = 120
ANSWER = re.compile(r"The answer is (-?\d[\d,]*(?:\.\d+)?)\.?$")


def is_right(solution: str, reference: str) -> bool:
    found = ANSWER.search(solution.strip())
    return found is not None and number(found[1]) == number(reference)


def number(text: str) -> Fraction:
    return Fraction(text.replace(",", ""))


class Sampler:
    """Solutions, those cut at `LONGEST` tokens among them; each call draws anew."""

    def __init__(self, engine: TorchEngine, temperature: float, seed: str) -> None:
        self._engine, self._params, self._random = (
            engine,
            SamplingParams(temperature=temperature),
            random.Random(seed),
        )

    async def __call__(self, question: str, begun: str, count: int) -> list[str]:
        prefix = Continued(Prompt("rollout", messages=(Message("user", question),)), begun)
        seeds = tuple(self._random.getrandbits(62) for _ in range(count))
        done = await self._engine.generate(GenerateRequest(prefix, seeds, self._params, LONGEST))
        return [begun + sample.text for sample in done.samples]


def prefixes(solution: str) -> list[str]:
    """The texts up to each line's end, the whole last."""
    lines = solution.splitlines(keepends=True)
    return ["".join(lines[:k]) for k in range(1, len(lines) + 1)]


async def valued(example: Example, sample: Sampler, samples: int, completions: int) -> dict[str, object]:
    """The problem with its different solutions, and the value of each of their steps."""
    solutions = await sample(example.question, "", samples)
    outcomes: defaultdict[str, list[bool]] = defaultdict(list)
    for solution in solutions:
        for prefix in prefixes(solution):
            outcomes[prefix].append(is_right(solution, example.answer))
    distinct = Counter(solutions)
    wanted = {p for solution in distinct for p in prefixes(solution)[:-1] if len(outcomes[p]) < completions}

    async def complete(prefix: str) -> None:
        ends = await sample(example.question, prefix, completions - len(outcomes[prefix]))
        outcomes[prefix] += [is_right(end, example.answer) for end in ends]

    await asyncio.gather(*map(complete, sorted(wanted)))
    share = {prefix: sum(found) / len(found) for prefix, found in outcomes.items()}
    return {
        **{name: value for name, value in asdict(example).items() if name != "steps"},
        "solutions": [
            {"text": text, "count": count, "values": [share[p] for p in prefixes(text)]}
            for text, count in distinct.items()
        ],
    }


def recorded(path: Path) -> set[str]:
    """The questions in a file; a last line that was not written to its end is taken out of it."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    if lines and not lines[-1].endswith("\n"):
        path.write_text("".join(lines[:-1]), encoding="utf-8")
        del lines[-1]
    return {json.loads(line)["question"] for line in lines}


async def work(args: argparse.Namespace, examples: Sequence[Example], engine: TorchEngine) -> None:
    with args.into.open("a", encoding="utf-8") as file:
        for start in track(range(0, len(examples), TOGETHER), "problems", disable=args.quiet):
            some = examples[start : start + TOGETHER]
            sample = Sampler(engine, args.temperature, f"{args.seed}/{some[0].question}")
            found = await asyncio.gather(*(valued(e, sample, args.samples, args.completions) for e in some))
            file.write("".join(json.dumps(one) + "\n" for one in found))
            file.flush()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="the directory that data.py made")
    parser.add_argument("--solver", required=True, help="an adapter's directory, or smollm2-135m-solver")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--split", default="train")
    parser.add_argument("--gsm8k", type=int, default=500, help="problems of each data set")
    parser.add_argument("--mawps", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--completions", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quiet", action="store_true")
    args = parser.parse_args()
    examples = read(args.data / f"{args.split}.jsonl")
    random.Random(args.seed).shuffle(examples)
    limits = {"gsm8k": args.gsm8k, "mawps": args.mawps}
    chosen = [e for name, limit in limits.items() for e in [e for e in examples if e.source == name][:limit]]
    random.Random(args.seed).shuffle(chosen)
    done = recorded(args.into)
    with TorchEngine(args.solver, max_batch=128) as engine:
        asyncio.run(work(args, [e for e in chosen if e.question not in done], engine))


if __name__ == "__main__":
    main()
