"""The embedded family, as Markdown, from a run of examples/family.yaml: `python examples/family_report.py RUN`.

Accuracies with 95% intervals; paired differences with p-values and the smallest difference that could have been
seen; accuracy by level; the AUC within problems; whether best-of-n over-optimises its reward model.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from metagen.analysis.intervals import SHARES, interval
from metagen.analysis.paired import paired_difference
from metagen.analysis.selection import over_optimisation, pooled_auc, within_problem_auc
from metagen.runs.curves.measured import Pool
from metagen.runs.directory import Cell, RunDirectory

SIZES = (4, 16, 64)
VERIFIERS = ("last", "min", "mean", "product", "orm", "weak")


def main(run: Path) -> None:
    directory = RunDirectory(run)
    lines = directory.final_state().lines
    pools = {name: Pool.of(directory, name) for name in dict.fromkeys(line.generator for line in lines)}
    for part in (accuracies, by_level, differences, over_optimised, aucs):
        print("\n".join(part(pools, lines)), end="\n\n")


def accuracies(pools: dict[str, Pool], lines: tuple[Cell, ...]) -> Iterator[str]:
    """Accuracy in % with 95% intervals."""
    yield from header("generator", "strategy", "1", *map(str, SIZES))
    for name, pool in pools.items():
        for strategy in dict.fromkeys(line.strategy for line in lines):
            cells = [cell(pool, lines, name, strategy, n) for n in (1, *SIZES)]
            yield row(name, strategy, *cells)


def cell(pool: Pool, lines: tuple[Cell, ...], generator: str, strategy: str, n: int) -> str:
    values = accuracy(pool, lines, generator, strategy, n)
    found = interval(values, support=SHARES)
    return f"{100 * values.mean():.1f} [{100 * float(found.low):.1f}, {100 * float(found.high):.1f}]"


def by_level(pools: dict[str, Pool], lines: tuple[Cell, ...]) -> Iterator[str]:
    """Accuracy in % by level."""
    levels = sorted(set(next(iter(pools.values())).levels.tolist()))
    yield from header("generator", "strategy", "n", *(f"level {level}" for level in levels))
    for name, pool in pools.items():
        for strategy, n in (
            ("single", 1),
            ("majority", 64),
            ("weighted.min", 64),
            ("best-of-n.min", 64),
            ("pass", 64),
        ):
            values = accuracy(pool, lines, name, strategy, n)
            yield row(
                name, strategy, str(n), *(f"{100 * values[pool.levels == at].mean():.0f}" for at in levels)
            )


def differences(pools: dict[str, Pool], lines: tuple[Cell, ...]) -> Iterator[str]:
    """Paired differences in points."""
    yield from header("generator", "difference", "n", "points", "p", "smallest that could be seen")
    pairs = [(f"weighted.{v}", "majority") for v in ("min", "orm")]
    pairs += [
        ("best-of-n.min", "majority"),
        ("weighted.min", "best-of-n.min"),
        ("weighted.min", "weighted.last"),
    ]
    pairs += [("best-of-n.min", "best-of-n.orm"), ("best-of-n.min", "single")]
    for name, pool in pools.items():
        for a, b in pairs:
            for n in SIZES:
                one, other = (accuracy(pool, lines, name, s, n) for s in (a, b))
                d = paired_difference(one, other)
                points = f"{100 * d.estimate:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}]"
                yield row(name, f"{a} − {b}", str(n), points, f"{d.p_value:.3f}", f"{100 * d.detectable:.1f}")


def over_optimised(pools: dict[str, Pool], lines: tuple[Cell, ...]) -> Iterator[str]:
    """Best-of-n at its peak against the largest n."""
    yield from header(
        "generator", "verifier", "peak n", "accuracy there, %", "change to n = 64 in points", "falls"
    )
    ks = [1, 2, 4, 8, 16, 32, 64]
    for name, pool in pools.items():
        for verifier in VERIFIERS:
            curve = np.stack([accuracy(pool, lines, name, f"best-of-n.{verifier}", k) for k in ks])
            fall = over_optimisation(curve, ks)
            d = fall.difference
            points = f"{100 * d.estimate:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}]"
            yield row(
                name,
                verifier,
                str(fall.peak),
                f"{100 * fall.at_peak:.1f}",
                points,
                "yes" if fall.found else "no",
            )


def aucs(pools: dict[str, Pool], lines: tuple[Cell, ...]) -> Iterator[str]:
    """AUC within problems, pooled AUC, and within problems where single samples are right 20 to 80% of the time."""
    yield from header("generator", "verifier", "within problems", "within, levels at 20–80%", "pooled")
    for name, pool in pools.items():
        single = {at: pool.correct[pool.levels == at].mean() for at in set(pool.levels.tolist())}
        middle = np.isin(pool.levels, [at for at, share in single.items() if 0.2 <= share <= 0.8])
        for verifier in VERIFIERS:
            scores = np.where(pool.classes >= 0, np.nan_to_num(pool.scores[verifier], nan=-1.0), -1.0)
            within = within_problem_auc(scores, pool.correct)
            inside = (
                within_problem_auc(scores[middle], pool.correct[middle]) if middle.any() else float("nan")
            )
            yield row(
                name, verifier, f"{within:.3f}", f"{inside:.3f}", f"{pooled_auc(scores, pool.correct):.3f}"
            )


def accuracy(pool: Pool, lines: tuple[Cell, ...], generator: str, strategy: str, n: int) -> np.ndarray:
    """Expected accuracy by problem, over random subsets of n."""
    line = next(x for x in lines if (x.generator, x.strategy) == (generator, strategy))
    return pool.accuracy(line.kind, n, line.verifier)[0]


def header(*names: str) -> Iterator[str]:
    yield row(*names)
    yield row(*["---"] * len(names))


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    main(parser.parse_args().run)
