"""More tokens in one line of thought, or in several: a study on an embedded model, as Markdown.

    python examples/sequential.py                              about ten minutes
    python examples/sequential.py --per-level 5                a first look
    python examples/sequential.py --figures FOLDER             with the picture of docs/strategies/sequential.md

1. Thinking against answering at once, and against a vote over as many answers at once as the thought has tokens for.
2. Thoughts cut at a number of tokens.
3. Thoughts that are sent on, once, twice and four times, against a vote that may generate as many tokens.

Problems of the validation split; right in percent with 95% intervals, and differences paired by problem.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from rich.progress import Progress

import metagen as mg
from metagen.analysis.figures import Line, curves, save
from metagen.analysis.intervals import SHARES, interval
from metagen.analysis.paired import paired_difference
from metagen.strategies.sequential.budget_forcing import BudgetForcing, Thinking
from metagen.strategies.sequential.equal_compute import at_equal_compute

SEED, LEVELS = 44, (1, 2, 3, 4)
#: Tokens at which a thought is cut, how often one is sent on, and samples that a vote has at most.
CUTS, WAITS, MOST = (5, 10, 20, 30, 40, 60, 80, 120), (1, 2, 4), 64
#: Tokens of thought and answer.
LONGEST = 320


@dataclass(frozen=True)
class Solved:
    """One way over all problems, arrays [problems]: whether it is right, and the tokens it generated."""

    right: np.ndarray
    tokens: np.ndarray

    def rows(self, rows: np.ndarray) -> Solved:
        return Solved(self.right[rows], self.tokens[rows])

    def __str__(self) -> str:
        found = interval(self.right, support=SHARES)
        bounds = f"[{100 * found.low:.0f}, {100 * found.high:.0f}]"
        return f"{100 * found.estimate:.1f} {bounds} | {self.tokens.mean():.0f}"


async def graded(task: mg.Task, results: Iterable[mg.Result]) -> Solved:
    """Results of all problems of the task, in their order."""
    pairs = list(zip(task.problems(), results, strict=True))
    right = [(await task.grade(problem, [result.sequence]))[0] for problem, result in pairs]
    tokens = [result.usage.generated or 0 for _, result in pairs]
    return Solved(np.array(right), np.array(tokens, dtype=float))


async def solved(task: mg.Task, strategy: mg.Strategy, budgets: Iterable[int] | None = None) -> Solved:
    """Every problem of the task; budgets: tokens that each may generate."""
    prompts = [problem.prompt for problem in task.problems()]
    limits = [None] * len(prompts) if budgets is None else [mg.Budget(generated=n) for n in budgets]
    calls = [strategy.asolve(p, budget=b) for p, b in zip(prompts, limits, strict=True)]
    return await graded(task, await asyncio.gather(*calls))


def row(name: str, one: Solved, other: Solved | None = None) -> str:
    """A line of a table; other: what the difference is taken from."""
    cells = [name, str(one)]
    if other is not None:
        d = paired_difference(one.right, other.right)
        cells.append(f"{100 * d.estimate:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}]")
    return f"| {' | '.join(cells)} |"


def head(*names: str) -> Iterator[str]:
    yield ""
    yield f"| {' | '.join(names)} |"
    yield "|---" * len(names) + "|"


class Study:
    """The parts of all three questions."""

    def __init__(self, engine: mg.TorchEngine, per_level: int, figures: Path | None) -> None:
        self.figures = figures
        ask = partial(mg.ArithmeticTask, "validation", levels=LEVELS, per_level=per_level, seed=SEED)
        self.steps, self.direct = ask(), ask(form="direct")
        self.greedy = engine.generator(temperature=0.0, max_tokens=LONGEST)
        self.sampled = engine.generator(max_tokens=LONGEST)
        self.levels = np.array([problem.level for problem in self.steps.problems()])

    async def thinking(self) -> Iterator[str]:
        thought = await solved(self.steps, mg.Sample(self.greedy))
        at_once = await solved(self.direct, mg.Sample(self.greedy))
        vote = mg.MajorityVote(self.sampled, MOST, answer=self.direct.answer)
        votes = await solved(self.direct, vote, map(int, thought.tokens))
        names = ("level", "at once, %", "tokens", "vote over answers at once", "tokens", "thought", "tokens")
        lines = list(head(*names))
        for name, rows in self._groups():
            lines.append(f"| {name} | {at_once.rows(rows)} | {votes.rows(rows)} | {thought.rows(rows)} |")
        return iter(lines)

    async def cuts(self) -> Iterator[str]:
        found = {}
        for most in CUTS:
            cut = BudgetForcing(self.greedy, Thinking(most=most), end="A:")
            found[most] = await solved(self.steps, cut)
        if self.figures is not None:
            self._picture(found, self.figures)
        lines = list(head("thought cut at", "right, %", "tokens"))
        return iter(lines + [row(str(most), one) for most, one in found.items()])

    async def waits(self) -> Iterator[str]:
        plain = await solved(self.steps, mg.Sample(self.sampled))
        lines = [
            *head("thought", "right, %", "tokens", "less the vote, points"),
            f"| one sample | {plain} | |",
        ]
        vote = mg.MajorityVote(self.sampled, MOST, answer=self.steps.answer)
        for waits in WAITS:
            longer = BudgetForcing(
                self.sampled,
                Thinking(least=LONGEST // 2, most=LONGEST - 40, waits=waits),
                end="A:",
                wait="a=",
                answer=self.steps.answer,
            )
            pairs = await at_equal_compute(longer, vote, [p.prompt for p in self.steps.problems()])
            sent_on = await graded(self.steps, [pair.sequential for pair in pairs])
            voted = await graded(self.steps, [pair.parallel for pair in pairs])
            lines.append(row(f"sent on, {waits}×", sent_on, voted))
            lines.append(f"| … a vote over as many tokens | {voted} | |")
        return iter(lines)

    def _groups(self) -> Iterator[tuple[str, np.ndarray]]:
        for level in LEVELS:
            yield str(level), self.levels == level
        yield "all", self.levels > 0

    def _picture(self, found: dict[int, Solved], folder: Path) -> None:
        lines = []
        for level in LEVELS:
            rows = self.levels == level
            bounds = interval(np.stack([one.right[rows] for one in found.values()]), support=SHARES)
            x = [one.tokens[rows].mean() for one in found.values()]
            lines.append(
                Line(f"level {level}", x, list(bounds.estimate), list(bounds.low), list(bounds.high))
            )
        figure = curves({"a thought that is cut": lines}, x="tokens")
        folder.mkdir(parents=True, exist_ok=True)
        print("figures:", *save(figure, folder / "thought"))


async def study(about: Study) -> None:
    print(f"{len(about.levels)} validation problems of levels {LEVELS[0]} to {LEVELS[-1]}, seed {SEED}")
    with Progress(transient=True) as progress:
        for part in progress.track((about.thinking, about.cuts, about.waits), description="study"):
            print(*await part(), sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="tiny-0.5m", help="one of the embedded models")
    parser.add_argument("--per-level", type=int, default=100, help="problems of each of four levels")
    parser.add_argument("--figures", type=Path, default=None, help="folder for the picture")
    options = parser.parse_args()
    with mg.TorchEngine(options.model) as engine:
        asyncio.run(study(Study(engine, options.per_level, options.figures)))


if __name__ == "__main__":
    main()
