"""How well a judge tells right solutions from wrong ones of the same problem, and what that is worth.

    python examples/train/words/measure.py --judge judge/adapter --reference solver/adapter --solutions rollouts.jsonl
    python examples/train/words/measure.py --judge judge/adapter --reference solver/adapter --solutions runs/words

Solutions are those that `rollouts.py` wrote for problems that are held out, or the samples of a run. A vote is among
all solutions of a problem, a tie counts as its share, and intervals are over problems (bootstrap, 95%).
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy.stats import binomtest

from candidates import ANSWER, is_right
from metagen import EquationVerifier, Prompt, Sequence, TorchEngine
from metagen.analysis.selection import problem_aucs
from metagen.scope import Scope
from metagen.sequence import Message
from metagen.verifiers.base import Verifier
from metagen.verifiers.implicit import ImplicitProcessRewardModel
from rewards import BEGAN, BETA, weights_of

#: The weight of a solution with a false equation, in votes with a calculator.
FALSE = 0.01
DRAWS = 10_000


@dataclass
class Solutions:
    """Of one problem. scores: of each verifier."""

    question: str
    texts: list[str]
    right: list[bool]
    scores: dict[str, list[float]]


def of_rollouts(path: Path) -> list[Solutions]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    found = []
    for record in records:
        if record["held_out"]:
            texts = [s["text"] for s in record["solutions"] for _ in range(s["count"])]
            right = [is_right(text, record["answer"]) for text in texts]
            found.append(Solutions(record["question"], texts, right, {}))
    return found


def of_run(directory: Path) -> list[Solutions]:
    columns = ["problem", "text", "correct"]
    samples = pq.read_table(directory / "candidates.parquet", columns=columns).to_pylist()
    problems = pq.read_table(directory / "problems.parquet", columns=["problem", "prompt"]).to_pylist()
    grouped = defaultdict(list)
    for sample in samples:
        grouped[sample["problem"]].append(sample)
    return [
        Solutions(
            problem["prompt"].removeprefix("user: "), [s["text"] for s in own], [bool(s["correct"]) for s in own], {}
        )
        for problem in problems
        if (own := grouped[problem["problem"]])
    ]  # fmt: skip


async def score(verifier: Verifier, name: str, problems: list[Solutions]) -> None:
    """Set `scores[name]` of each problem. A solution without a score, such as one without an equation, gets 0."""
    scope = Scope.root("measure")
    for start in range(0, len(problems), 8):
        some = problems[start : start + 8]
        asked = [
            Sequence(Prompt(str(start + i), messages=(Message("user", p.question),)), text)
            for i, p in enumerate(some)
            for text in dict.fromkeys(p.texts)
        ]
        values = [s.value or 0.0 for s in await verifier.score(asked, scope=scope)]
        known = {(a.prompt.problem_id, a.text): value for a, value in zip(asked, values, strict=True)}
        for i, p in enumerate(some):
            p.scores[name] = [known[str(start + i), text] for text in p.texts]


def answer_of(text: str) -> str | None:
    found = ANSWER.search(text.strip())
    return found[1].replace(",", "") if found else None


def vote(p: Solutions, weights: list[float]) -> float:
    """The share of right answers among those with most weight."""
    total: Counter[str] = Counter()
    right = {}
    for text, is_correct, weight in zip(p.texts, p.right, weights, strict=True):
        answer = answer_of(text)
        if answer is not None:
            total[answer] += weight
            right[answer] = is_correct
    best = [a for a in total if math.isclose(total[a], max(total.values()))]
    return sum(right[a] for a in best) / len(best) if best else 0.0


def interval(values: list[float]) -> str:
    x = np.asarray(values)[~np.isnan(values)]
    draws = np.random.default_rng(0).integers(len(x), size=(DRAWS, len(x)))
    low, high = np.quantile(x[draws].mean(1), (0.025, 0.975))
    return f"{x.mean():.3f} [{low:.3f}, {high:.3f}] of {len(x)}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--judge", required=True, help="an adapter's directory")
    parser.add_argument("--reference", default="smollm2-135m-solver", help="the solver that it began as")
    parser.add_argument("--beta", type=float, default=BETA)
    parser.add_argument("--solutions", type=Path, required=True)
    args = parser.parse_args()
    began = Path(args.judge) / BEGAN
    if began.exists() and began.read_text() != weights_of(args.reference):
        raise SystemExit(
            f"--reference {args.reference}: {args.judge} began as another adapter; give what rewards.py had as --begin"
        )
    problems = of_run(args.solutions) if args.solutions.is_dir() else of_rollouts(args.solutions)
    asyncio.run(score(EquationVerifier(wrong=FALSE), "calculator", problems))
    with (
        TorchEngine(args.judge, max_batch=64) as engine,
        TorchEngine(args.reference, max_batch=64) as reference,
    ):
        judge = ImplicitProcessRewardModel(engine, reference, beta=args.beta, cumulative=True)
        asyncio.run(score(judge, "judge", problems))
    for name in ("calculator", "judge"):
        for kind, least in (("all", 0.0), ("true equations", 1.0)):
            aucs = [auc(p, name, least) for p in problems]
            if not all(map(math.isnan, aucs)):
                print(f"AUC within problems, {name}, {kind}: {interval(aucs)}")
    weights: dict[str, Callable[[Solutions], list[float]]] = {
        "majority": lambda p: [1.0] * len(p.texts),
        "calculator": lambda p: p.scores["calculator"],
        "judge": lambda p: p.scores["judge"],
        "calculator, judge": lambda p: list(map(min, p.scores["calculator"], p.scores["judge"])),
    }
    found = {
        f"{how}, {name}": [take(p, weigh(p)) for p in problems]
        for name, weigh in weights.items()
        for how, take in (("vote", vote), ("best of n", best))
    }
    for name, values in found.items():
        print(f"{name}: {interval(values)}")
        for other in ("vote, majority", "vote, calculator", "best of n, calculator"):
            difference = np.subtract(values, found[other])
            won, lost = int((difference > 0).sum()), int((difference < 0).sum())
            if won + lost:
                p_value = binomtest(won, won + lost).pvalue
                print(
                    f"  less {other}: {interval(difference.tolist())}; won {won}, lost {lost}, p = {p_value:.3g}"
                )


def best(p: Solutions, weights: list[float]) -> float:
    """The share of right ones among the solutions with most weight: with equal weights, that of one sample."""
    most = max(weights)
    chosen = [right for right, weight in zip(p.right, weights, strict=True) if weight == most]
    return sum(chosen) / len(chosen)


def auc(p: Solutions, name: str, least: float) -> float:
    kept = [i for i, value in enumerate(p.scores["calculator"]) if value >= least]
    right = np.array([[p.right[i] for i in kept]])
    if not kept or right.all() or not right.any():
        return math.nan
    return float(problem_aucs(np.array([[p.scores[name][i] for i in kept]]), right)[0])


if __name__ == "__main__":
    main()
