"""Adaptive compute by replay of one recorded pool, as Markdown.

    python examples/adaptive_replay.py RUN [GENERATOR] [--figures FOLDER]
    python examples/adaptive_replay.py pool.jsonl

RUN is the directory of a run of `metagen run` whose strategies share a pool; of several generators the one with the
largest pool is taken unless it is named, and the others are larger models to choose from. A JSONL file has a problem
a line, {"id": …, "keys": […], "correct": […], "tokens": […]}: the key of each sample's answer or null, in sample order.

1. Stopping rules against the full vote: samples and tokens saved, agreement, accuracy; 95% intervals over problems.
2. One budget over the data set, allocated by what the first samples say, against as many for all at equal tokens.
   Curves are learned on one half of the problems and used on the other, and the other way round.
3. With several generators: the best of stopping, more samples and a larger model for each difficulty, against the
   best single one at equal FLOPs; learned and used likewise.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from metagen.analysis.adaptive import savings, spending
from metagen.analysis.bootstrap import Difference, interval, paired_difference
from metagen.analysis.figures import save
from metagen.analysis.stopping import Replayed, replay, running_vote
from metagen.errors import DataError, InputError
from metagen.experiments.allocation.allocate import Difficulty, Plan, accuracy_at, uniform
from metagen.experiments.allocation.choose import Measured, Table
from metagen.experiments.directory import RunDirectory
from metagen.experiments.results import Pool
from metagen.experiments.tables import read
from metagen.strategies.adaptive.consistency import Beta, Dirichlet
from metagen.strategies.adaptive.difficulty import agreement
from metagen.strategies.adaptive.predictive import Predictive
from metagen.strategies.adaptive.stopping import Decided, StoppingRule
from metagen.strategies.adaptive.window import Unanimous

#: Samples of the full vote (the paper's), and random orders of each pool.
MOST, ORDERS = 40, 20
#: Samples that tell how hard a problem is, and where the estimates are renewed.
LOOKS = (4, 12)
#: Mean samples a problem of the budgets, and groups of difficulty.
BUDGETS, GROUPS = (6, 8, 12, 16, 24), 5


@dataclass(frozen=True)
class Recorded:
    """A pool: all arrays [problems, samples]. flops: of a sample; NaN where unknown."""

    places: np.ndarray
    classes: np.ndarray
    correct: np.ndarray
    tokens: np.ndarray
    flops: np.ndarray

    def rows(self, rows: np.ndarray) -> Recorded:
        return Recorded(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def ordered(self, rng: np.random.Generator) -> Recorded:
        order = rng.permuted(np.broadcast_to(np.arange(self.classes.shape[1]), self.classes.shape), axis=1)
        arrays = (self.classes, self.correct, self.tokens, self.flops)
        return Recorded(self.places, *(np.take_along_axis(a, order, axis=1) for a in arrays))

    def curves(self) -> np.ndarray:
        """[problems, samples + 1]: whether the vote over the first n is right, from n = 0."""
        return np.pad(running_vote(self.classes, self.correct), ((0, 0), (1, 0)))


# ------------------------------------------------------------------------------------------------ reading


def of_run(directory: RunDirectory, generator: str) -> Recorded:
    pool = Pool.of(directory, generator)
    columns = ["place", "sample", "generated", "flops"]
    table = read(directory.table("candidates"), columns, generator=generator)
    table = table.sort_by([("place", "ascending"), ("sample", "ascending")])
    shape = pool.classes.shape
    arrays = {name: table[name].to_numpy().astype(np.float64).reshape(shape) for name in columns}
    return Recorded(arrays["place"][:, 0], pool.classes, pool.correct, arrays["generated"], arrays["flops"])


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
    unknown = np.full(tokens.shape, np.nan)
    return Recorded(np.arange(len(problems)), np.array(classes, dtype=np.int64), correct, tokens, unknown)


def pools(source: str, generator: str | None) -> dict[str, Recorded]:
    """By generator, the one to be studied first."""
    path = Path(source)
    if path.suffix == ".jsonl":
        return {path.stem: of_jsonl(path)}
    directory = RunDirectory.find(source)
    made = pq.read_table(directory.table("candidates"), columns=["generator"])["generator"]
    found = {name: of_run(directory, name) for name in dict.fromkeys(made.to_pylist())}
    if generator is not None and generator not in found:
        raise InputError(f"generator {generator!r}: expected one of {', '.join(found)}")
    first = generator or max(found, key=lambda name: found[name].classes.shape[1])
    return {first: found[first], **{name: pool for name, pool in found.items() if name != first}}


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
        fewer, agree, drawn = r.fewer_interval(), interval(r.agreement, proportion=True), r.drawn.mean()
        yield row(
            name, f"{drawn:.1f}", f"{r.fewer:.2f} [{float(fewer.low):.2f}, {float(fewer.high):.2f}]",
            f"{r.cheaper:.2f}", f"{100 * r.accuracy.mean():.2f}", f"{100 * r.full_accuracy.mean():.2f}",
            points(r.gained()),
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


# --------------------------------------------------------------------------------------------- 3. choosing


def options(found: Mapping[str, Recorded], first: int) -> dict[str, Measured]:
    """Stop after the first samples, go on to more, or ask another model: accuracy, and FLOPs after the first.

    Votes that begin with the first samples are in the order of the record, as the samples that tell the difficulty are.
    """
    (small, pool), *others = found.items()
    curve, flops = pool.curves(), pool.flops.mean(axis=1)
    made = {f"{small}@{first} and stop": Measured(curve[:, first], np.zeros(len(curve)))}
    for n in (16, 32, 64):
        if first < n < curve.shape[1]:
            made[f"{small}@{n}"] = Measured(curve[:, n], (n - first) * flops)
    for name, other in others:
        theirs, cost = mean_curve(other), other.flops.mean(axis=1)
        for n in (1, 4, 16):
            if n < theirs.shape[1]:
                made[f"{name}@{n}"] = Measured(theirs[:, n], n * cost)
    return made


def choosing(found: Mapping[str, Recorded]) -> Iterator[str]:
    """The table against the best single option within the same FLOPs, both chosen on the other half."""
    shared = sorted(set.intersection(*(set(p.places.tolist()) for p in found.values())))
    found = {name: p.rows(np.isin(p.places, shared)) for name, p in found.items()}
    first, pool = LOOKS[0], next(iter(found.values()))
    made = options(found, first)
    # The very samples that are drawn first, in the order of the record.
    values = agreement(pool.classes[:, :first], np.ones((len(shared), first)))
    probe = first * pool.flops.mean(axis=1)
    yield f"## By difficulty: agreement of the first {first} of {next(iter(found))}, {len(shared)} problems\n"
    yield from header(
        "budget, FLOPs a problem", "table, hardest first", "table, %", "best single option", "alone, %",
        "difference, points", "p",
    )  # fmt: skip
    totals = sorted(float(np.mean(np.asarray(m.cost) + probe)) for m in made.values())
    for budget in np.quantile(totals, [0.3, 0.5, 0.7, 0.9]):
        ours, alone, tables, singles = np.zeros(len(shared)), np.zeros(len(shared)), [], []
        for learn, use in halves(len(shared)):
            edges = np.unique(np.quantile(values[learn], [0.25, 0.5, 0.75]))
            edges = edges[edges > values[learn].min()]
            held_out = {
                n: Measured(np.asarray(m.accuracy)[learn], np.asarray(m.cost)[learn]) for n, m in made.items()
            }
            left = float(budget - probe[learn].mean())
            best = best_alone(held_out, f"{next(iter(found))}@", float(probe[learn].mean()), budget)
            if left < 0 or best is None:
                break
            table = Table.learn(values[learn], held_out, budget=left, edges=edges.tolist())
            accuracy = np.stack([np.asarray(m.accuracy) for m in made.values()])
            ours[use] = accuracy[table.choose(values[use]), use]
            alone[use] = np.asarray(made[best].accuracy)[use]
            tables.append(" · ".join(table.names))
            singles.append(best)
        else:
            d = paired_difference(ours, alone)
            yield row(
                f"{budget:.2e}", " / ".join(dict.fromkeys(tables)), f"{100 * ours.mean():.2f}",
                " / ".join(dict.fromkeys(singles)), f"{100 * alone.mean():.2f}", points(d), f"{d.p_value:.3f}",
            )  # fmt: skip


def best_alone(held_out: Mapping[str, Measured], small: str, probe: float, budget: float) -> str | None:
    """The most accurate option within the budget. Those of the same model pay for the first samples, others do not."""
    affordable = {
        name: float(np.mean(m.accuracy))
        for name, m in held_out.items()
        if float(np.mean(m.cost)) + probe * name.startswith(small) <= budget
    }
    return max(affordable, key=affordable.__getitem__, default=None)


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
    found = pools(given.source, given.generator)
    name, pool = next(iter(found.items()))
    most = min(MOST, pool.classes.shape[1])
    replayed = stopped(pool, most)
    print(f"# {name}\n")
    print("\n".join(stopping(pool, most, replayed)), end="\n\n")
    budgets = {b: allocated(pool, b) for b in BUDGETS if b < pool.classes.shape[1]}
    print("\n".join(allocation(pool, budgets)), end="\n\n")
    if len(found) > 1 and all(np.isfinite(p.flops).all() for p in found.values()):
        print("\n".join(choosing(found)), end="\n\n")
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
