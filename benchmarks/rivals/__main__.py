"""The table of docs/explanation/rivals.md: who is right how often, for how many tokens, requests and seconds.

    .venv-vllm/bin/python -m pip install 'its_hub[lm]==1.2.0'
    .venv-vllm/bin/python -m benchmarks.rivals [--problems 100] [--turns 3] [--writer URL --judge URL]

All take turns on the same problems and the same two servers, whose prefix caches stay as they are. Before they do, each
is shown to see the reward model's values as the others do. Accuracy is of all turns, its interval over problems.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from contextlib import ExitStack
from typing import Any

from benchmarks.rivals.hub import Hub, Values
from benchmarks.rivals.plain import Asking, best_of, majority
from benchmarks.rivals.servers import JUDGE, WRITER, served
from benchmarks.rivals.table import TOKENS, Line, key, markdown
from metagen.generators.openai import OpenAIEngine
from metagen.scope import Scope
from metagen.sequence import Sequence, Step
from metagen.strategies.base import Strategy
from metagen.strategies.parallel import BestOfN, MajorityVote
from metagen.strategies.tree.beam import BeamSearch
from metagen.strategies.tree.dvts import DVTS
from metagen.strategies.tree.particles import ParticleFilter
from metagen.strategies.tree.rebase import Rebase
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.tasks.base import Problem
from metagen.verifiers.reward import ProcessRewardModel

N = 16


async def main(problems: list[Problem], turns: int, writer: str, judge: str) -> list[Line]:
    task = ArithmeticTask()
    with ExitStack() as stack:
        engines = [
            stack.enter_context(
                OpenAIEngine(name, base_url=url, api="completions", dialect="vllm", tokenizer=name)
            )
            for name, url in ((WRITER, writer), (JUDGE, judge))
        ]
        generator, verifier = engines[0].generator(max_tokens=TOKENS), ProcessRewardModel(engines[1])
        async with Asking(writer, judge, engines[1]) as asking:
            hub = Hub(asking, TOKENS, "A:", key)
            parts: dict[str, Any] = {
                "verifier": verifier, "answer": task.answer, "until": Step("\n", 256, task.mark)
            }  # fmt: skip
            ours: dict[str, Strategy] = {
                "majority": MajorityVote(generator, N, answer=task.answer),
                "best of n": BestOfN(generator, N, verifier=verifier),
                "beams": BeamSearch(generator, N, m=4, **parts),
                "particles": ParticleFilter(generator, N, **parts),
                "DVTS": DVTS(generator, N, m=4, **parts),
                "REBASE": Rebase(generator, N, **parts),
            }
            await agree(asking, hub, verifier, problems[:3])
            lines = [
                Line("majority", "bare loop", lambda p, _: majority(asking, p, N, TOKENS, key)),
                Line("best of n", "bare loop", lambda p, _: best_of(asking, p, N, TOKENS, key)),
            ]
            for method in ours:
                if method in hub._made:
                    lines.append(Line(method, "its_hub", lambda p, _, m=method: hub.solve(m, p, N)))  # type: ignore[misc]

                async def solve(prompt: str, seed: int, strategy: Strategy = ours[method]) -> str:
                    return (await strategy.asolve(prompt, seed=seed)).text

                lines.append(Line(method, "metagen", solve))
            for turn in range(-1, turns):  # the first of each warms up, on few problems
                for line in lines:
                    await once(line, problems if turn >= 0 else problems[:4], turn, asking, engines)
            await hub.close()
    return lines


async def agree(asking: Asking, hub: Hub, verifier: ProcessRewardModel, problems: list[Problem]) -> None:
    """All see the same values."""
    for problem in problems:
        prompt = problem.prompt.text or ""
        text = (await asking.samples(prompt, 1, 40))[0].rpartition("\n")[0] + "\n"
        plain = await asking.value(prompt, text)
        theirs = await Values(asking).ascore(prompt, [text])
        (ours,) = await verifier.score([Sequence(problem.prompt, text)], scope=Scope.root("agree"))
        if abs(plain - (ours.value or 0.0)) > 1e-3 or abs(plain - theirs[0]) > 1e-3:
            raise RuntimeError(
                f"{text!r} is worth {plain}, {theirs[0]} and {ours.value}: not the same reward model"
            )


async def once(
    line: Line, problems: list[Problem], turn: int, asking: Asking, engines: list[OpenAIEngine]
) -> None:
    """All problems side by side."""

    def counted() -> tuple[int, int]:
        requests = asking.requests + sum(int(engine.stats.extra["attempts"]) for engine in engines)
        return asking.generated + engines[0].stats.generated, requests

    tokens, requests = counted()
    began = time.perf_counter()
    texts = await asyncio.gather(*(line.solve(problem.prompt.text or "", turn) for problem in problems))
    taken = time.perf_counter() - began
    if turn >= 0:
        line.add(taken, texts, problems)
        if line.who != "its_hub":  # which counts neither
            line.generated.append(counted()[0] - tokens)
            line.requests.append(counted()[1] - requests)


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--problems", type=int, default=100)
    asked.add_argument("--turns", type=int, default=3)
    asked.add_argument("--writer", help="address of a server of the generator, such as http://host:8000/v1")
    asked.add_argument("--judge", help="address of a server of the reward model")
    given = asked.parse_args()
    some = ArithmeticTask("validation", seed=47, levels=[2, 3, 4, 5], per_level=-(-given.problems // 4))
    chosen = list(some.problems())[: given.problems]
    with served(given.writer, given.judge) as (one, other):
        print(f"n = {N}")
        print(markdown(asyncio.run(main(chosen, given.turns, one, other)), len(chosen)))
