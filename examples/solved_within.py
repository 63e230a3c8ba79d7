"""Who solves most within a budget, as Markdown, from a run of examples/countdown.yaml or examples/programs.yaml.

    python examples/solved_within.py RUN [--tokens 100 300 600] [--gflops 0.1 0.3 0.6]

Every strategy of these runs begins anew until a solution is found, so that what it has spent by then is what the
problem costs it: one run gives the share of problems solved within any smaller budget. 95% intervals over problems;
differences from `--against` are paired by problem, and their p-values corrected by Holm for all that stand in one
column.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from metagen.analysis.comparison import holm
from metagen.analysis.intervals import SHARES, interval
from metagen.analysis.paired import paired_difference
from metagen.runs.directory import RunDirectory
from metagen.runs.table.tables import read

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Spent:
    """What a strategy spent on each problem until it was solved; infinite where it was not."""

    levels: NDArray[np.int64]
    tokens: Floats
    flops: Floats


def spent(run: Path) -> tuple[dict[str, Spent], int]:
    """By strategy, over the problems that all of them have, in one order; and how many are left out.

    A problem on which a strategy failed has no outcome there. Raises SystemExit if there is no problem that all have.
    """
    directory = RunDirectory(run)
    names = {line.name: line.strategy for line in directory.final_state().lines}
    columns = ["problem", "level", "configuration", "correct", "generated", "flops"]
    outcomes = read(run / "outcomes.parquet", columns).to_pylist()
    rows = {(row["configuration"], row["problem"]): row for row in outcomes}
    asked = [row["problem"] for row in read(run / "problems.parquet", ["problem"]).to_pylist()]
    shared = [problem for problem in sorted(asked, key=str) if all((name, problem) in rows for name in names)]
    if not shared:
        raise SystemExit(
            f"{run}: no problem has an outcome of every strategy; go on with it: metagen resume {run}"
        )
    found = {}
    for name, strategy in names.items():
        mine = [rows[name, problem] for problem in shared]
        cost = [[row[what] if row["correct"] else np.inf for row in mine] for what in ("generated", "flops")]
        found[strategy] = Spent(np.array([row["level"] for row in mine]), *np.array(cost, np.float64))
    return found, len(asked) - len(shared)


def solved(cost: Floats, budget: float) -> Floats:
    """1 for each problem that was solved within the budget."""
    return (cost <= budget).astype(np.float64)


def shares(costs: dict[str, Floats], budgets: list[float], against: str, unit: str) -> Iterator[str]:
    """Percent solved within each budget, and the difference from one of the strategies at the largest."""
    yield "| strategy | " + " | ".join(f"{b:g} {unit}" for b in budgets) + f" | less {against} | p, Holm |"
    yield "|---" * (len(budgets) + 3) + "|"
    most = budgets[-1] * (1e9 if "FLOPs" in unit else 1)
    ranked = sorted(costs, key=lambda name: -solved(costs[name], most).sum())
    others = [name for name in ranked if name != against]
    differences = {
        name: paired_difference(solved(costs[name], most), solved(costs[against], most)) for name in others
    }
    corrected = dict(zip(others, holm([differences[name].p_value for name in others]), strict=True))
    for name in ranked:
        cells = []
        for budget in budgets:
            share = interval(solved(costs[name], budget * (1e9 if "FLOPs" in unit else 1)), support=SHARES)
            estimate, low, high = (100 * float(x) for x in (share.estimate, share.low, share.high))
            cells.append(f"{estimate:.1f} [{low:.0f}, {high:.0f}]")
        if name == against:
            cells += ["–", "–"]
        else:
            d = differences[name]
            cells.append(f"{100 * d.estimate:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}]")
            cells.append("<0.001" if corrected[name] < 0.0005 else f"{corrected[name]:.3f}")
        yield f"| {name} | " + " | ".join(cells) + " |"


def by_level(found: dict[str, Spent], tokens: float, gflops: float) -> Iterator[str]:
    """Percent solved at each level, within the largest budget of each kind."""
    levels = sorted(set(next(iter(found.values())).levels.tolist()))
    head = [f"level {level}, {what}" for what in ("tokens", "FLOPs") for level in levels]
    yield "| strategy | " + " | ".join(head) + " |"
    yield "|---" * (len(head) + 1) + "|"
    for name, mine in found.items():
        within = (solved(mine.tokens, tokens), solved(mine.flops, 1e9 * gflops))
        cells = [f"{100 * ok[mine.levels == level].mean():.0f}" for ok in within for level in levels]
        yield f"| {name} | " + " | ".join(cells) + " |"


def main(run: Path, tokens: list[float], gflops: list[float], against: str) -> None:
    found, left_out = spent(run)
    if against not in found:
        raise SystemExit(
            f"--against {against}: this run has no such strategy; expected one of {', '.join(found)}"
        )
    more = f", without {left_out} that not all strategies have" if left_out else ""
    print(f"{len(next(iter(found.values())).levels)} problems{more}\n")
    for part in (
        shares({name: s.tokens for name, s in found.items()}, tokens, against, "tokens"),
        shares({name: s.flops for name, s in found.items()}, gflops, against, "·10⁹ FLOPs"),
        by_level(found, tokens[-1], gflops[-1]),
    ):
        print("\n".join(part), end="\n\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--tokens", type=float, nargs="+", default=[100, 200, 400])
    parser.add_argument("--gflops", type=float, nargs="+", default=[0.1, 0.2, 0.4])
    parser.add_argument("--against", default="best-of-n")
    arguments = parser.parse_args()
    main(arguments.run, sorted(arguments.tokens), sorted(arguments.gflops), arguments.against)
