"""Reward against KL divergence: exactly where all can be enumerated, and measured on the embedded models.

    python examples/alignment.py [FOLDER [PROBLEMS OF EACH LEVEL [SAMPLES]]]

First two models that can be enumerated: what best-of-n, soft, pessimistic, blockwise and token-wise policies win, and
how far they go, beside the most that is possible. Then `tiny-0.5m`: policies whose probabilities are known, by the
log-likelihood ratios of their own samples, and best-of-n by a reward model, by its bound and estimator. Tables are
printed, and the figure goes to FOLDER (runs/alignment by default). A minute or two on two cores; 0 problems leave the
second part out.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import metagen as mg
from metagen.analysis import study_figures
from metagen.analysis.alignment import kl_bound, kl_estimate
from metagen.analysis.intervals import SHARES
from metagen.analysis.paired import paired_difference
from metagen.analysis.verifier_quality import chosen_shares
from metagen.generators.engine import SamplingParams
from metagen.generators.models.recipes import Tilted
from metagen.runs.curves.ratios import Law, kl_by_problem
from metagen.runs.questions.alignment.pools import ladder, mean_of
from metagen.runs.questions.alignment.shown import exact_plot, exact_table, number
from metagen.runs.words import difference, with_interval
from metagen.tasks.base import Problem

BASE, LARGER, JUDGE = "tiny-0.5m", "tiny-2m", "tiny-prm"
LEVELS, LONGEST = (1, 2, 3, 4, 5), 200
TEMPERATURES = (0.8, 0.6, 0.3)
PLAIN = SamplingParams(max_tokens=LONGEST)


@dataclass(frozen=True)
class Policy:
    """A policy whose probabilities are known."""

    name: str
    model: Any
    params: SamplingParams = PLAIN


def policies() -> list[Policy]:
    colder = [Policy(f"temperature {t:g}", BASE, SamplingParams(t, max_tokens=LONGEST)) for t in TEMPERATURES]
    # Values that know the next token: the logits of a larger model.
    return [
        Policy("p", BASE),
        *colder,
        Policy(f"p · exp(logits of {LARGER})", Tilted(BASE, (LARGER,), (1.0,))),
    ]


def drawn(policy: Policy, problems: Sequence[Problem], n: int) -> list[list[mg.Sequence]]:
    """So many samples of each problem."""

    async def write(generator: mg.Generator) -> list[list[mg.Sequence]]:
        return list(await asyncio.gather(*(
            generator.generate(mg.Sequence(p.prompt), n=n, scope=mg.Scope.root(p.prompt.problem_id)) for p in problems
        )))  # fmt: skip

    with mg.TorchEngine(policy.model, threads=1) as engine:
        params = policy.params
        return asyncio.run(
            write(engine.generator(temperature=params.temperature, max_tokens=params.max_tokens))
        )


def far(policy: Policy, groups: list[list[mg.Sequence]]) -> np.ndarray:
    """KL(π ‖ p) by problem."""
    with mg.TorchEngine(policy.model, threads=1) as ours, mg.TorchEngine(BASE, threads=1) as base:
        return kl_by_problem(Law(ours, policy.params), Law(base, PLAIN), groups)


def right(
    task: mg.ArithmeticTask, problems: Sequence[Problem], groups: list[list[mg.Sequence]]
) -> np.ndarray:
    """[problems, samples], 1 for a right answer."""

    async def graded(problem: Problem, group: list[mg.Sequence]) -> list[float]:
        answers = await task.answer.read(group)
        return [float(a is not None and a.key == problem.reference) for a in answers]

    async def every() -> list[list[float]]:
        return [await graded(problem, group) for problem, group in zip(problems, groups, strict=True)]

    return np.array(asyncio.run(every()))


def scores(groups: list[list[mg.Sequence]]) -> np.ndarray:
    """[problems, samples] of the reward model: the last step's, and −1 for what did not end."""

    async def judged() -> list[list[float]]:
        verifier = mg.ProcessRewardModel(judge)
        found = [await verifier.score(g, scope=mg.Scope.root(g[0].prompt.problem_id)) for g in groups]
        return [
            [score.value if y.finish == "eos" else -1.0 for score, y in zip(row, group, strict=True)]
            for row, group in zip(found, groups, strict=True)
        ]

    with mg.TorchEngine(JUDGE, threads=1) as judge:
        return np.array(asyncio.run(judged()))


def measured(per_level: int, samples: int) -> None:
    """The table of the embedded models."""
    task = mg.ArithmeticTask("validation", levels=LEVELS, per_level=per_level, seed=8)
    problems = list(task.problems())
    print(f"\n{BASE}, {len(problems)} problems, {samples} samples of each\n")
    print("| π | KL in nats | bound | right in % | − p, points |\n|---|---|---|---|---|")
    for policy in policies():
        groups = drawn(policy, problems, samples)
        graded = right(task, problems, groups)
        if policy.name == "p":
            pool, plain = scores(groups), graded
            logprob = np.array([[y.logprob for y in group] for group in groups], float)
        print(row(policy.name, number(*mean_of(far(policy, groups))), "", graded.mean(axis=1), plain))
    for n in ladder(samples, samples)[1:]:
        chosen = chosen_shares(pool, n)
        estimate = (chosen * kl_estimate(n, np.exp(np.minimum(logprob, 0.0)))).sum(axis=1)
        won = (chosen * plain).sum(axis=1)
        print(row(f"best of {n} by {JUDGE}", number(*mean_of(estimate)), f"{kl_bound(n):.3f}", won, plain))


def row(name: str, gone: str, bound: str, won: np.ndarray, plain: np.ndarray) -> str:
    """A row of the table; won: accuracy by problem, which is compared with p's, problem by problem."""
    gain = paired_difference(won, plain.mean(axis=1))
    cells = [
        name,
        gone,
        bound,
        with_interval(*mean_of(won, support=SHARES)),
        difference(gain.estimate, gain.low, gain.high),
    ]
    return f"| {' | '.join(cells)} |"


def main(folder: str = "runs/alignment", per_level: str = "8", samples: str = "16") -> None:
    table, plot = exact_table(), exact_plot()
    print(f"| {' | '.join(table.columns)} |\n|{'---|' * len(table.columns)}")
    for row in table.rows:
        print(f"| {' | '.join(row)} |")
    panels = {name: study_figures.Panel(lines) for name, lines in plot.panels.items()}
    frame = study_figures.Frame(plot.x, plot.y, plot.x_scale, marks=plot.marks)
    Path(folder).mkdir(parents=True, exist_ok=True)
    study_figures.save(study_figures.panels_figure(panels, frame), Path(folder) / "exact")
    if int(per_level):
        measured(int(per_level), int(samples))


if __name__ == "__main__":
    main(*sys.argv[1:])
