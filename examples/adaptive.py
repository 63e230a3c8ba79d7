"""Adaptive compute on an embedded model: as many samples as a problem needs, and one budget over many problems.

    python examples/adaptive.py [PROBLEMS OF EACH LEVEL]

All strategies share one journal: what one has drawn, no other pays for again. So the full vote is drawn once, and
everything else is what it *would* have cost. With few problems, the accuracies only show that nothing breaks; the study
is `examples/adaptive_replay.py`.
"""

from __future__ import annotations

import asyncio
import sys
from collections import abc

import numpy as np

from metagen import ArithmeticTask, Journal, MajorityVote, MemoryJournal, Problem, Strategy, TorchEngine
from metagen.generators.primitive import EngineGenerator
from metagen.runs.work.allocation.allocate import Difficulty, Plan
from metagen.strategies.adaptive.adaptive import Adaptive
from metagen.strategies.adaptive.consistency import AdaptiveConsistency, Beta
from metagen.strategies.adaptive.filtered import ConfidentVote
from metagen.strategies.adaptive.online import OnlineConfidence
from metagen.strategies.adaptive.stopping import Decided
from metagen.strategies.adaptive.window import EarlyStopping
from metagen.strategies.aggregators import Majority
from metagen.strategies.base import Result

LEVELS = (1, 3, 5)
MOST = 24


def strategies(generator: EngineGenerator, task: ArithmeticTask) -> dict[str, Strategy]:
    answer = task.answer
    watched = {"answer": answer, "keep": 0.5, "window": 8, "block": 8, "warmup": 8}
    return {
        "full vote": MajorityVote(generator, MOST, answer=answer),
        "decided": Adaptive(generator, MOST, Majority(answer), Decided(MOST)),
        "Adaptive-Consistency": AdaptiveConsistency(generator, MOST, answer=answer),
        "Dirichlet": AdaptiveConsistency(generator, MOST, answer=answer, posterior="dirichlet"),
        "ESC": EarlyStopping(generator, MOST, answer=answer, window=4),
        "the confident half": ConfidentVote(generator, MOST, answer=answer, keep=0.5),
        "the confident half, online": OnlineConfidence(generator, MOST, **watched),
        "the same, until it is enough": OnlineConfidence(generator, MOST, **watched, batch=4, rule=Beta()),
    }


async def solve(strategy: Strategy, problems: abc.Sequence[Problem], journal: Journal) -> list[Result]:
    """All problems at once: they never wait for each other."""
    return list(await asyncio.gather(*(strategy.asolve(p.prompt, journal=journal) for p in problems)))


async def right(
    task: ArithmeticTask, problems: abc.Sequence[Problem], results: abc.Sequence[Result]
) -> float:
    grades = [(await task.grade(p, [r.sequence]))[0] for p, r in zip(problems, results, strict=True)]
    return float(np.mean(grades))


def arrays(results: abc.Sequence[Result]) -> tuple[np.ndarray, np.ndarray]:
    """Classes and tokens of the candidates, [problems, MOST]; −1 and 0 where there are fewer."""
    classes, tokens = np.full((len(results), MOST), -1), np.zeros((len(results), MOST))
    for i, result in enumerate(results):
        names: dict[str, int] = {}
        for k, offer in enumerate(result.candidates):
            voted = offer.key is not None and offer.sequence.finish in ("eos", "stop")
            classes[i, k] = names.setdefault(offer.key or "", len(names)) if voted else -1
        drawn = [row for row in result.trace.rows if row.path == "0/sample"]
        tokens[i, : len(drawn)] = [row.usage.generated or 0 for row in drawn]
    return classes, tokens


async def one_by_one(generator: EngineGenerator, task: ArithmeticTask, journal: Journal) -> None:
    problems = list(task.problems())
    print(f"{len(problems)} problems, at most {MOST} samples each\n")
    print(f"{'':30} right  samples  tokens")
    for name, strategy in strategies(generator, task).items():
        results = await solve(strategy, problems, journal)
        samples = np.mean([len(r.candidates) for r in results])
        tokens = np.mean([r.usage.generated or 0 for r in results])
        print(f"{name:30} {await right(task, problems, results):5.0%}  {samples:7.1f}  {tokens:6.0f}")


async def one_budget(
    generator: EngineGenerator, task: ArithmeticTask, held_out: ArithmeticTask, journal: Journal
) -> None:
    """Rounds over the data set; the journal answers for the samples of earlier rounds."""
    full = MajorityVote(generator, MOST, answer=task.answer)
    known = list(held_out.problems())
    pools = await solve(full, known, MemoryJournal())
    classes, tokens = arrays(pools)
    correct = [
        await held_out.grade(p, [c.sequence for c in r.candidates]) for p, r in zip(known, pools, strict=True)
    ]
    looks = tuple(Difficulty.learn(classes, correct, first=k, groups=4) for k in (4, 8))
    problems = list(task.problems())
    plan = Plan(len(problems) * 10 * float(tokens.mean()), looks)
    print(f"\nOne budget of {plan.budget:.0f} tokens, ten samples a problem:")
    drawn, results = np.zeros(len(problems), dtype=np.int64), list[Result]()
    while ((wanted := plan.next(drawn, *now(results, len(problems)))) > drawn).any():
        drawn = wanted
        votes = [MajorityVote(generator, int(n), answer=task.answer) for n in drawn]
        results = list(
            await asyncio.gather(
                *(v.asolve(p.prompt, journal=journal) for v, p in zip(votes, problems, strict=True))
            )
        )
        by_level = [
            float(np.mean([n for n, p in zip(drawn, problems, strict=True) if p.level == at]))
            for at in LEVELS
        ]
        spent = sum(r.usage.generated or 0 for r in results)
        shown = ", ".join(f"level {at}: {n:.1f}" for at, n in zip(LEVELS, by_level, strict=True))
        print(f"  {spent:6} tokens, {await right(task, problems, results):4.0%} right; samples at {shown}")
    same = await solve(MajorityVote(generator, 10, answer=task.answer), problems, journal)
    spent = sum(r.usage.generated or 0 for r in same)
    print(f"  {spent:6} tokens, {await right(task, problems, same):4.0%} right with ten for all")


def now(results: abc.Sequence[Result], problems: int) -> tuple[np.ndarray, np.ndarray]:
    return arrays(results) if results else (np.full((problems, MOST), -1), np.zeros((problems, MOST)))


async def main(per_level: int) -> None:
    task = ArithmeticTask("validation", levels=LEVELS, per_level=per_level)
    held_out = ArithmeticTask("validation", levels=LEVELS, per_level=per_level, seed=1)
    journal = MemoryJournal()
    with TorchEngine("tiny-0.5m") as engine:
        # Log-probabilities cost nothing, and DeepConf reads them.
        generator = engine.generator(max_tokens=256, logprobs=True)
        await one_by_one(generator, task, journal)
        await one_budget(generator, task, held_out, journal)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8))
