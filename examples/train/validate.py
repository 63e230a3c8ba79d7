"""Validation figures of the family: `python examples/train/validate.py --problems 60 --samples 64`.

One pool of samples per generator serves every figure. Accuracy of a rule at n is its expectation over subsets.
The test problems stay untouched.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

from candidates import Candidates, Floats
from llama import load
from metagen.analysis.selection import within_problem_auc
from metagen.tasks.arithmetic import LEVELS, Form, Problem, Split, problems, prompt
from metagen.verifiers.aggregation import AGGREGATIONS, aggregate
from metagen.verifiers.numbers import canonical
from pools import Solution, judge
from sample import sample
from scoring import scores
from setting import SHIPPED

GENERATORS = ("tiny-0.1m", "tiny-0.5m", "tiny-2m")
REWARDS = ("tiny-prm", "tiny-both", "tiny-prm-weak")
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


def chosen(candidates: Candidates, score: Floats) -> dict[str, dict[int, float]]:
    """Accuracy of best-of-n and of weighted voting, per n."""
    return {
        "best-of-n": by_n(candidates, candidates.best(score)),
        "weighted": by_n(candidates, candidates.vote(score)),
    }


def within(score: Floats, right: np.ndarray, some: np.ndarray) -> float:
    """AUC within some of the problems; NaN if there are none."""
    return within_problem_auc(score[some], right[some]) if some.any() else float("nan")


def by_n(candidates: Candidates, accuracy: Floats) -> dict[int, float]:
    return {n: float(row.mean()) for n, row in zip(candidates.ns, accuracy, strict=True)}


def pool(folder: Path, asked: list[Problem], samples: int, temperature: float) -> list[list[Solution]]:
    model, tokenizer = load(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompts = [prompt(p) for p in asked for _ in range(samples)]
    outputs = sample(model, tokenizer, prompts, temperature=temperature, seed=1)
    judged = [judge(asked[i // samples], Form.STEPS, t, finished=e) for i, (t, e) in enumerate(outputs)]
    return [judged[i : i + samples] for i in range(0, len(judged), samples)]


def score_pool(folder: Path, found: list[list[Solution]]) -> dict[str, Floats]:
    """Scores of all candidates, shape [problems, samples], by aggregation, and `outcome` of a model that reads whole
    solutions (too); equal candidates are scored once.
    """
    model, tokenizer = load(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    config = json.loads((folder / "config.json").read_text())
    distinct = list(dict.fromkeys(s for candidates in found for s in candidates))

    def of(steps: list[list[float]], how: str) -> Floats:
        known = {s: aggregate(each, how) for s, each in zip(distinct, steps, strict=True)}
        return np.array([[known[s] for s in row] for row in found])

    scored: dict[str, Floats] = {}
    if config["metagen"]["kind"] == "prm":
        steps = scores(model, tokenizer, distinct)
        scored |= {how: of(steps, how) for how in AGGREGATIONS}
    if config["metagen"]["kind"] == "orm" or "metagen_orm" in config:
        scored["outcome"] = of(scores(model, tokenizer, distinct, outcome=True), "last")
    return scored


def answer_of(solution: Solution) -> str | None:
    """The canonical answer, if the solution came to one."""
    last = solution.steps[-1] if solution.steps else ""
    return canonical(last[2:]) if last.startswith("A:") and last.endswith("\n") else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=SHIPPED, help="default: those that ship")
    parser.add_argument("--problems", type=int, default=60, help="per level")
    parser.add_argument("--seed", type=int, default=0, help="of the problems")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--generators", nargs="*", default=GENERATORS)
    parser.add_argument("--rewards", nargs="*", default=REWARDS)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", type=Path, help="append the figures here as JSON lines")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    console = Console(width=150)
    asked = [
        p for level in LEVELS for p in problems(Split.VALIDATION, level, arguments.problems, arguments.seed)
    ]
    levels = np.array([p.level for p in asked])
    for name in arguments.generators:
        found = pool(arguments.models / name, asked, arguments.samples, arguments.temperature)
        right = np.array([[s.correct for s in candidates] for candidates in found])
        keys = [[answer_of(s) for s in candidates] for candidates in found]
        candidates = Candidates.of(right, keys, SIZES)
        figures: dict[str, object] = {
            "generator": name,
            "problems": len(asked),
            "samples": arguments.samples,
            "temperature": arguments.temperature,
            "single": float(right.mean()),
            "single by level": [round(float(right[levels == k].mean()), 3) for k in LEVELS],
            "any by level": [round(float(right[levels == k].any(1).mean()), 3) for k in LEVELS],
            "majority": by_n(candidates, candidates.vote()),
        }
        middle = (right.mean(1) >= 0.2) & (right.mean(1) <= 0.8)
        by_level = [k for k in LEVELS if 0.2 <= right[levels == k].mean() <= 0.8]
        for reward in arguments.rewards:
            if not (arguments.models / reward).exists():
                continue
            for how, score in score_pool(arguments.models / reward, found).items():
                some = np.isin(levels, by_level)
                answered = candidates.answered(score)
                score = np.nan_to_num(answered)  # for the AUC, who comes to no answer is the worst
                figures[f"{reward} {how}"] = {
                    "auc within": within_problem_auc(score, right),
                    "auc within, levels 20-80%": within(score, right, some),
                    "auc within, problems 20-80%": within(score, right, middle),
                    **chosen(candidates, answered),
                }
        show(console, figures, candidates.ns)
        if arguments.write:
            with arguments.write.open("a") as file:
                file.write(json.dumps(figures) + "\n")


def show(console: Console, figures: dict[str, object], sizes: tuple[int, ...]) -> None:
    console.print(*(f"{k}: {v}" for k, v in figures.items() if not isinstance(v, dict)), sep="\n")
    table = Table("rule", *map(str, sizes), "AUC", "AUC levels", "AUC problems")
    percent = lambda by_n: [f"{100 * by_n[n]:.1f}" for n in sizes]  # noqa: E731
    table.add_row("majority", *percent(figures["majority"]))
    for key, value in figures.items():
        if isinstance(value, dict) and "auc within" in value:
            aucs = [f"{value[k]:.3f}" for k in value if k.startswith("auc")]
            table.add_row(f"{key} best-of-n", *percent(value["best-of-n"]), *aucs)
            table.add_row(f"{key} weighted", *percent(value["weighted"]))
    console.print(table)


if __name__ == "__main__":
    main()
