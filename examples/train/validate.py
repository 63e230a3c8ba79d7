"""Validation figures of the family: `python examples/train/validate.py --problems 60 --samples 64`.

One pool of samples per generator serves every figure. Accuracy of a rule at n is the mean over random subsets.
The test problems stay untouched.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

from llama import load
from metagen.tasks.arithmetic import LEVELS, Form, Problem, Split, problems, prompt, reference_answer
from metagen.verifiers.numbers import canonical
from pools import Solution, judge
from sample import sample
from setting import SHIPPED
from train_reward import scores

GENERATORS = ("tiny-0.1m", "tiny-0.5m", "tiny-2m")
REWARDS = ("tiny-prm", "tiny-orm", "tiny-prm-weak")
SUBSETS = 40
Array = NDArray[np.float64]


def aggregations(steps: list[float]) -> dict[str, float]:
    values = steps or [0.0]
    return {
        "last": values[-1],
        "min": min(values),
        "mean": float(np.mean(values)),
        "product": float(np.prod(values)),
    }


def within_auc(right: NDArray[np.bool_], score: Array) -> float:
    """The chance that a right candidate of a problem outscores a wrong one of the same problem, ties counted half."""
    areas = []
    for r, s in zip(right, score, strict=True):
        good, bad = s[r], s[~r]
        if len(good) and len(bad):
            areas.append(np.mean((good[:, None] > bad) + 0.5 * (good[:, None] == bad)))
    return float(np.mean(areas)) if areas else float("nan")


def vote(keys: list[str | None], weights: Array) -> str | None:
    """The class with the greatest weight; candidates without an answer don't vote."""
    ballot: dict[str, float] = defaultdict(float)
    for key, weight in zip(keys, weights, strict=True):
        if key is not None:
            ballot[key] += weight
    return max(ballot, key=lambda key: ballot[key]) if ballot else None


def curves(
    keys: list[list[str | None]], truth: list[str], score: Array | None, sizes: tuple[int, ...]
) -> dict[str, dict[int, float]]:
    """Accuracy of majority, and with scores of best-of-n and weighted voting, per n."""
    rng = np.random.default_rng(0)
    found: dict[str, dict[int, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for row, (candidates, answer) in enumerate(zip(keys, truth, strict=True)):
        for n in sizes:
            for _ in range(SUBSETS if n < len(candidates) else 1):
                chosen = rng.permutation(len(candidates))[:n]
                names = [candidates[i] for i in chosen]
                if score is None:
                    found["majority"][n].append(vote(names, np.ones(n)) == answer)
                    continue
                weights = score[row, chosen]
                found["best-of-n"][n].append(names[int(np.argmax(weights))] == answer)
                found["weighted"][n].append(vote(names, weights) == answer)
    mean = lambda by_n: {n: float(np.mean(np.array(v).reshape(-1))) for n, v in by_n.items()}  # noqa: E731
    return {rule: mean(by_n) for rule, by_n in found.items()}


def pool(folder: Path, asked: list[Problem], samples: int, temperature: float) -> list[list[Solution]]:
    model, tokenizer = load(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompts = [prompt(p) for p in asked for _ in range(samples)]
    outputs = sample(model, tokenizer, prompts, temperature=temperature, seed=1)
    judged = [judge(asked[i // samples], Form.STEPS, t, finished=e) for i, (t, e) in enumerate(outputs)]
    return [judged[i : i + samples] for i in range(0, len(judged), samples)]


def score_pool(folder: Path, found: list[list[Solution]]) -> dict[str, Array]:
    """Scores of all candidates by aggregation, shape [problems, samples]; equal candidates are scored once."""
    model, tokenizer = load(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    outcome = json.loads((folder / "config.json").read_text())["metagen"]["kind"] == "orm"
    distinct = list(dict.fromkeys(s for candidates in found for s in candidates))
    values = dict(zip(distinct, map(aggregations, scores(model, tokenizer, distinct, outcome)), strict=True))
    kinds = ("last",) if outcome else ("last", "min", "mean", "product")
    has = np.array([[answer_of(s) is not None for s in candidates] for candidates in found])
    return {k: np.where(has, np.array([[values[s][k] for s in row] for row in found]), 0.0) for k in kinds}


def answer_of(solution: Solution) -> str | None:
    """The canonical answer, if the solution came to one."""
    last = solution.steps[-1] if solution.steps else ""
    return canonical(last[2:]) if last.startswith("A:") and last.endswith("\n") else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=SHIPPED, help="default: those that ship")
    parser.add_argument("--problems", type=int, default=60, help="per level")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--generators", nargs="*", default=GENERATORS)
    parser.add_argument("--rewards", nargs="*", default=REWARDS)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", type=Path, help="append the figures here as JSON lines")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    console = Console(width=150)
    asked = [p for level in LEVELS for p in problems(Split.VALIDATION, level, arguments.problems)]
    levels = np.array([p.level for p in asked])
    sizes = tuple(n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n <= arguments.samples)
    for name in arguments.generators:
        found = pool(arguments.models / name, asked, arguments.samples, arguments.temperature)
        right = np.array([[s.correct for s in candidates] for candidates in found])
        keys = [[answer_of(s) for s in candidates] for candidates in found]
        truth = [reference_answer(p) for p in asked]
        figures: dict[str, object] = {
            "generator": name,
            "problems": len(asked),
            "single": float(right.mean()),
            "single by level": [round(float(right[levels == k].mean()), 3) for k in LEVELS],
            "pass@n by level": [round(float(right[levels == k].any(1).mean()), 3) for k in LEVELS],
            "majority": curves(keys, truth, None, sizes)["majority"],
        }
        middle = (right.mean(1) >= 0.2) & (right.mean(1) <= 0.8)
        by_level = [k for k in LEVELS if 0.2 <= right[levels == k].mean() <= 0.8]
        for reward in arguments.rewards:
            if not (arguments.models / reward).exists():
                continue
            for how, score in score_pool(arguments.models / reward, found).items():
                chosen = np.isin(levels, by_level)
                figures[f"{reward} {how}"] = {
                    "auc within": within_auc(right, score),
                    "auc within, levels 20-80%": within_auc(right[chosen], score[chosen]),
                    "auc within, problems 20-80%": within_auc(right[middle], score[middle]),
                    **curves(keys, truth, score, sizes),
                }
        show(console, figures, sizes)
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
