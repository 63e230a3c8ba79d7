"""Adaptive compute by replay of one recorded pool, as Markdown.

    python examples/adaptive_replay.py RUN [GENERATOR] [--figures FOLDER]
    python examples/adaptive_replay.py pool.jsonl

RUN is the directory of a run of `metagen run` whose strategies share a pool; of several generators the one with the
largest pool is taken unless it is named. A JSONL file has a problem a line, {"id": …, "keys": […], "correct": […],
"tokens": […]}: the key of each sample's answer or null, in sample order.

1. Stopping rules against the full vote: samples and tokens saved, agreement, accuracy; 95% intervals over problems.
2. One budget over the data set, allocated by what the first samples say, against as many for all at equal tokens.
   Curves are learned on one half of the problems and used on the other, and the other way round.

`learned_tables` chooses between stopping, more samples and a larger model.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from figures.adaptive import savings, spending

from metagen.analysis.figures import save
from metagen.analysis.intervals import SHARES, interval
from metagen.analysis.paired import Difference, paired_difference
from metagen.analysis.stopping import Replayed, replay, running_vote
from metagen.errors import DataError, InputError
from metagen.runs.curves.measured import Pool
from metagen.runs.directory import RunDirectory
from metagen.runs.table.tables import read
from metagen.runs.work.allocation.allocate import Difficulty, Plan, accuracy_at, uniform
from metagen.strategies.adaptive.consistency import Beta, Dirichlet
from metagen.strategies.adaptive.stopping import Decided, Predictive, StoppingRule
from metagen.strategies.adaptive.window import Unanimous

#: Samples of the full vote (the paper's), and random orders of each pool.
MOST, ORDERS = 40, 20
#: Samples that tell how hard a problem is, and where the estimates are renewed.
LOOKS = (4, 12)
#: Mean samples a problem of the budgets, and groups of difficulty.
BUDGETS, GROUPS = (6, 8, 12, 16, 24), 5


@dataclass(frozen=True)
class Recorded:
    """A pool: all arrays [problems, samples]."""

    classes: np.ndarray
    correct: np.ndarray
    tokens: np.ndarray

    def rows(self, rows: np.ndarray) -> Recorded:
        return Recorded(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def ordered(self, rng: np.random.Generator) -> Recorded:
        order = rng.permuted(np.broadcast_to(np.arange(self.classes.shape[1]), self.classes.shape), axis=1)
        arrays = (self.classes, self.correct, self.tokens)
        return Recorded(*(np.take_along_axis(a, order, axis=1) for a in arrays))

    def curves(self) -> np.ndarray:
        """[problems, samples + 1]: whether the vote over the first n is right, from n = 0."""
        return np.pad(running_vote(self.classes, self.correct), ((0, 0), (1, 0)))


# ------------------------------------------------------------------------------------------------ reading


def of_run(directory: RunDirectory, generator: str) -> Recorded:
    pool = Pool.of(directory, generator)
    table = read(directory.table("candidates"), ["place", "sample", "generated"], generator=generator)
    table = table.sort_by([("place", "ascending"), ("sample", "ascending")])
    tokens = table["generated"].to_numpy().astype(np.float64).reshape(pool.classes.shape)
    return Recorded(pool.classes, pool.correct, tokens)


def of_jsonl(path: Path) -> Recorded:
    problems = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    sizes = {len(p[name]) for p in problems for name in ("keys", "correct", "tokens")}
    if len(sizes) != 1:
        raise DataError(
            f"{str(path)!r}: lists of {sorted(sizes)} entries; expected as many samples everywhere"
        )
    classes = []
    for problem in problems:
        names: dict[str, int] = {}
        keys = problem["keys"]
        classes.append([-1 if key is None else names.setdefault(str(key), len(names)) for key in keys])
    tokens = np.array([p["tokens"] for p in problems], dtype=np.float64)
    correct = np.array([p["correct"] for p in problems], dtype=bool)
    return Recorded(np.array(classes, dtype=np.int64), correct, tokens)


def pool_of(source: str, generator: str | None) -> tuple[str, Recorded]:
    """The pool to be studied, and its name."""
    path = Path(source)
    if path.suffix == ".jsonl":
        return path.stem, of_jsonl(path)
    directory = RunDirectory.find(source)
    made = pq.read_table(directory.table("candidates"), columns=["generator"])["generator"]
    sizes = Counter(made.to_pylist())
    if generator is not None and generator not in sizes:
        raise InputError(f"generator {generator!r}: expected one of {', '.join(sizes)}")
    name = generator or max(sizes, key=sizes.__getitem__)
    return name, of_run(directory, name)


# --------------------------------------------------------------------------------------------- 1. stopping


def rules(most: int) -> dict[str, StoppingRule]:
    return {
        "Beta .90": Beta(0.9),
        "Beta .95 (Adaptive-Consistency)": Beta(0.95),
        "Beta .99": Beta(0.99),
        "Dirichlet .95": Dirichlet(0.95),
        "ESC, windows of 4": Unanimous(4),
        "ESC, windows of 8": Unanimous(8),
        "decided (lossless)": Decided(most),
        "Beta .95, or decided": Beta(0.95) | Decided(most),
        "predictive .97": Predictive(most, 0.97),
    }


def stopped(pool: Recorded, most: int) -> dict[str, Replayed]:
    found = {}
    for name, rule in rules(most).items():
        batch = rule.size if isinstance(rule, Unanimous) else 1
        if batch <= most:
            found[name] = replay(
                rule, pool.classes, pool.correct, tokens=pool.tokens, most=most, batch=batch, orders=ORDERS
            )
    return found


def stopping(pool: Recorded, most: int, found: Mapping[str, Replayed]) -> Iterator[str]:
    yield f"## Stopping: {len(pool.classes)} problems, at most {most} samples, mean of {ORDERS} orders\n"
    yield from header(
        "rule", "samples", "× fewer", "× fewer tokens", "accuracy, %", "full vote, %", "difference, points",
        "agreement, %", "as many for all, %",
    )  # fmt: skip
    curve = mean_curve(pool)
    for name, r in found.items():
        fewer, agree, drawn = r.fewer_interval(), interval(r.agreement, support=SHARES), r.drawn.mean()
        yield row(
            name, f"{drawn:.1f}", f"{r.fewer:.2f} [{float(fewer.low):.2f}, {float(fewer.high):.2f}]",
            f"{r.cheaper:.2f}", f"{100 * r.accuracy.mean():.2f}", f"{100 * r.full_accuracy.mean():.2f}",
            points(r.gain()),
            f"{100 * r.agreement.mean():.2f} [{100 * float(agree.low):.2f}, {100 * float(agree.high):.2f}]",
            f"{100 * accuracy_at(curve, np.full(len(curve), drawn)).mean():.2f}",
        )  # fmt: skip


def mean_curve(pool: Recorded) -> np.ndarray:
    """[problems, samples + 1]: accuracy of the vote over n samples, mean over orders."""
    rng = np.random.default_rng(0)
    return np.mean([pool.ordered(rng).curves() for _ in range(ORDERS)], axis=0)


# ------------------------------------------------------------------------------------------- 2. allocation


@dataclass(frozen=True)
class Allocated:
    """By problem, the mean over orders: samples, tokens, accuracy; and the accuracy of as many tokens for all."""

    samples: np.ndarray
    tokens: np.ndarray
    accuracy: np.ndarray
    uniform: np.ndarray


def halves(problems: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Learn on one, use on the other; both ways."""
    order = np.random.default_rng(0).permutation(problems)
    a, b = np.sort(order[: problems // 2]), np.sort(order[problems // 2 :])
    return [(a, b), (b, a)]


def allocated(pool: Recorded, budget: int) -> Allocated:
    """budget: samples of mean length for each problem."""
    out = {name: np.zeros(len(pool.classes)) for name in Allocated.__dataclass_fields__}
    looks = [k for k in LOOKS if k < budget]
    for learn, use in halves(len(pool.classes)):
        held_out = pool.rows(learn)
        known = tuple(
            Difficulty.learn(held_out.classes, held_out.correct, first=k, groups=GROUPS) for k in looks
        )
        ours = pool.rows(use)
        curve, cost = mean_curve(ours), float(ours.tokens.mean())
        rng = np.random.default_rng(1)
        for _ in range(ORDERS):
            one = ours.ordered(rng)
            given = Plan(budget * cost * len(use), known).replay(one.classes, one.tokens)
            spent = np.cumsum(one.tokens, axis=1)[np.arange(len(use)), given - 1]
            same = np.minimum(uniform(len(use), float(spent.sum()), cost), curve.shape[1] - 1)
            parts = (given, spent, accuracy_at(one.curves(), given), accuracy_at(curve, same))
            for name, values in zip(out, parts, strict=True):
                out[name][use] += values / ORDERS
    return Allocated(**out)


def allocation(pool: Recorded, found: Mapping[int, Allocated]) -> Iterator[str]:
    looks = ", then at ".join(str(k) for k in LOOKS)
    yield f"## One budget: estimated at {looks} samples, {GROUPS} groups, mean of {ORDERS} orders\n"
    yield from header(
        "budget, samples a problem", "samples, mean", "10% · 50% · 90%", "allocated, %", "as many for all, %",
        "difference, points", "p", "could have been seen",
    )  # fmt: skip
    for budget, a in found.items():
        d = paired_difference(a.accuracy, a.uniform)
        spread = " · ".join(f"{q:.0f}" for q in np.quantile(a.samples, [0.1, 0.5, 0.9]))
        yield row(
            str(budget), f"{a.samples.mean():.1f}", spread, f"{100 * a.accuracy.mean():.2f}",
            f"{100 * a.uniform.mean():.2f}", points(d), f"{d.p_value:.3f}", f"{100 * d.detectable:.2f}",
        )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- page


def points(d: Difference) -> str:
    return f"{100 * d.estimate:+.2f} [{100 * d.low:+.2f}, {100 * d.high:+.2f}]"


def header(*names: str) -> Iterator[str]:
    yield row(*names)
    yield row(*["---"] * len(names))


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source")
    parser.add_argument("generator", nargs="?")
    parser.add_argument("--figures", type=Path)
    given = parser.parse_args(arguments)
    name, pool = pool_of(given.source, given.generator)
    most = min(MOST, pool.classes.shape[1])
    replayed = stopped(pool, most)
    print(f"# {name}\n")
    print("\n".join(stopping(pool, most, replayed)), end="\n\n")
    budgets = {b: allocated(pool, b) for b in BUDGETS if b < pool.classes.shape[1]}
    print("\n".join(allocation(pool, budgets)), end="\n\n")
    if given.figures is not None:
        given.figures.mkdir(parents=True, exist_ok=True)
        curve = mean_curve(pool)[:, 1 : most + 1].mean(axis=0)
        save(savings(curve, replayed, title="Stopping when it is enough"), given.figures / "stopping")
        hard = Difficulty.learn(pool.classes, pool.correct, first=LOOKS[0], groups=GROUPS)
        names = [f"agreement < {edge:.2f}" for edge in hard.edges] + ["at least that"]
        given_ = {f"{b} on average": a.samples for b, a in budgets.items()}
        save(
            spending(hard.groups(pool.classes), given_, names, title="Whom the budget goes to"),
            given.figures / "allocation",
        )


if __name__ == "__main__":
    main()
