"""More samples, a larger model or a deeper search by difficulty, against one configuration for all, as Markdown.

    python examples/learned_tables/compare.py KNOWN FRESH [--generator 0.1M] [--first 4] [--verifier prm] [--cost flops]
                                                 [--budgets 5e8 1e9] [--figures FOLDER]

KNOWN and FRESH are runs of the same configurations on different problems (`examples/by_difficulty.yaml`). The generator
draws the first samples. Tables, and the best configuration for all, are chosen on KNOWN for several mean costs,
verifiers included, and compared on FRESH; then the other way round. What tables cost includes the first samples.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from choose import Measured, Table
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from options import Options

from metagen.analysis.figures import STYLES, save, small_multiples, style
from metagen.analysis.paired import Difference, paired_difference
from metagen.errors import InputError
from metagen.runs.directory import RunDirectory
from metagen.runs.work import unfinished

#: Mean costs of the picture, between the cheapest and the dearest configuration.
DRAWN = 24


@dataclass(frozen=True)
class Reached:
    """By problem, mean over orders of its pool."""

    accuracy: np.ndarray
    cost: np.ndarray


@dataclass(frozen=True)
class Study:
    """The options of both runs."""

    known: Options
    fresh: Options

    @classmethod
    def of(
        cls,
        runs: tuple[RunDirectory, RunDirectory],
        generator: str | None,
        *,
        first: int = 4,
        verifier: str | None = None,
        cost: str = "flops",
    ) -> Study:
        """Of runs that are not finished, the problems that are."""
        with ExitStack() as stack:
            (one, known), (two, fresh) = (stack.enter_context(unfinished.tables(run)) for run in runs)
            names = {line.name for line in fresh.lines}
            lines = [line for line in known.lines if line.name in names and not line.oracle]
            if not lines:
                raise InputError(
                    f"{str(runs[0].root)!r} and {str(runs[1].root)!r} share no configuration; run the same file"
                )
            maker = generator or lines[0].generator
            a, b = (
                Options.of(run, maker, lines, first=first, verifier=verifier, limit=cost)
                for run in (one, two)
            )
        return cls(a, b)

    @cached_property
    def alone(self) -> Mapping[str, Reached]:
        """Configurations by themselves, on the fresh problems: they do not pay for the first samples."""
        return alone(self.fresh)

    @cached_property
    def alone_known(self) -> Mapping[str, Reached]:
        return alone(self.known)

    @property
    def before(self) -> float:
        """What the first samples cost, on average over the known problems."""
        (first, *_) = self.known.measured.values()
        return float(np.asarray(first.cost).mean())

    def table(self, budget: float) -> Table:
        return Table.learn(self.known.values, self.known.measured, budget=budget)

    def best(self, budget: float) -> str:
        """The most accurate configuration for all that keeps to the budget on the known problems."""
        means = {
            name: one.accuracy.mean() for name, one in self.alone_known.items() if one.cost.mean() <= budget
        }
        return max(means, key=means.__getitem__)

    def mixed(self, budget: float) -> tuple[str, Reached]:
        """Two configurations, given to problems by lot so that the mean cost is the budget: the most accurate pair.

        What allocation without any look at a problem can do. Chosen on the known problems, reached on the fresh ones.
        """
        means = {name: (one.cost.mean(), one.accuracy.mean()) for name, one in self.alone_known.items()}
        found = []
        for a, (less, low) in means.items():
            for b, (more, high) in means.items():
                if less <= budget and (more > budget or a == b):
                    share = (budget - less) / (more - less) if a != b else 0.0
                    found.append(((1.0 - share) * low + share * high, a, b, share))
        _, a, b, share = max(found)
        one, two = self.alone[a], self.alone[b]
        name = a if a == b else f"{1 - share:.0%} {a}, {share:.0%} {b}"
        return name, Reached(
            (1.0 - share) * one.accuracy + share * two.accuracy, (1.0 - share) * one.cost + share * two.cost
        )

    def reached(self, table: Table) -> Reached:
        """On the fresh problems."""
        chosen, measured = table.choose(self.fresh.values), self.fresh.measured
        found = {}
        for what in ("accuracy", "cost"):
            all_ = np.stack(
                [np.broadcast_to(getattr(measured[o], what), chosen.shape) for o in table.options]
            )
            found[what] = np.take_along_axis(all_, chosen[None], axis=0)[0].mean(axis=0)
        return Reached(**found)

    def frontier(self) -> dict[str, float]:
        """Configurations than which no cheaper one is as accurate on the known problems, with their costs."""
        ordered = sorted(self.alone_known.items(), key=lambda item: item[1].cost.mean())
        found: dict[str, float] = {}
        most = -1.0
        for name, one in ordered:
            if one.accuracy.mean() > most:
                most, found[name] = one.accuracy.mean(), float(one.cost.mean())
        return found


def alone(options: Options) -> dict[str, Reached]:
    (first, *_) = options.measured.values()
    before, found = np.asarray(first.cost), {}
    for name, way in options.ways.items():
        if not isinstance(way, int):
            one: Measured = options.measured[name]
            found[name] = Reached(np.asarray(one.accuracy), np.asarray(one.cost) - before)
    return found


# ---------------------------------------------------------------------------------------------------- page


def configurations(study: Study) -> Iterator[str]:
    yield "## Configurations, each for all problems\n"
    yield from header(
        "configuration", "known, %", "fresh, %", "cost of a problem, fresh", "frontier of known"
    )
    frontier = study.frontier()
    for name, one in sorted(study.alone.items(), key=lambda item: item[1].cost.mean()):
        known = study.alone_known[name]
        yield row(
            name, percent(known.accuracy.mean()), percent(one.accuracy.mean()), f"{one.cost.mean():.2e}",
            "yes" if name in frontier else "",
        )  # fmt: skip


def compared(study: Study, costs: Iterable[float]) -> Iterator[str]:
    problems = study.fresh.values.shape[1]
    yield f"## Learned on {study.known.values.shape[1]} problems, compared on {problems} others\n"
    yield from header(
        "mean cost", "groups", "by difficulty, %", "cost", "best for all", "%", "cost ", "difference, points",
        "two by lot", "% ", "difference, points ",
    )  # fmt: skip
    for budget in costs:
        table, name = study.table(budget), study.best(budget)
        ours, theirs, (pair, lot) = study.reached(table), study.alone[name], study.mixed(budget)
        yield row(
            f"{budget:.2e}", str(len(table.edges) + 1), percent(ours.accuracy.mean()), f"{ours.cost.mean():.2e}",
            name, percent(theirs.accuracy.mean()), f"{theirs.cost.mean():.2e}",
            points(paired_difference(ours.accuracy, theirs.accuracy)),
            pair, percent(lot.accuracy.mean()), points(paired_difference(ours.accuracy, lot.accuracy)),
        )  # fmt: skip


def budgets(study: Study) -> list[float]:
    """What three configurations on the frontier cost, so that the best for all leaves nothing of them unused."""
    costs = [cost * (1 + 1e-9) for cost in study.frontier().values() if cost > study.before]
    return sorted({costs[round(q * (len(costs) - 1))] for q in (0.25, 0.5, 0.75)})


def chosen(study: Study, budget: float) -> Iterator[str]:
    """Who gets what."""
    table, name = study.table(budget), study.best(budget)
    group = np.searchsorted(table.edges, study.fresh.values, side="right")
    (stop, *_), single = study.fresh.measured.values(), study.alone[name]
    yield f"### {budget:.2e} on average, {name} for all\n"
    yield from header(
        "first samples", "problems, %", "goes on with", "%", "cost", "first samples alone, %", f"{name}, %"
    )
    bounds = [*(f"below {edge:.2f}" for edge in table.edges), "above" if len(table.edges) else "all"]
    for g, option in enumerate(table.names):
        here, found = group == g, study.fresh.measured[option]
        accuracy, cost, first, same = (
            np.broadcast_to(what, here.shape)[here].mean()
            for what in (found.accuracy, found.cost, stop.accuracy, single.accuracy)
        )
        yield row(
            bounds[g], percent(here.mean()), option, percent(accuracy), f"{cost:.2e}", percent(first), percent(same)
        )  # fmt: skip


def picture(study: Study) -> Figure:
    """Accuracy against mean FLOPs on the fresh problems: every configuration, the best for all, and tables."""
    costs = list(study.frontier().values())
    cheapest = study.before
    lines: dict[str, list[tuple[float, float]]] = {"one configuration for all": [], "by difficulty": []}
    for budget in np.geomspace(min(costs) * 1.001, max(costs) * 1.001, DRAWN):
        one = study.alone[study.best(budget)]
        lines["one configuration for all"].append((one.cost.mean(), one.accuracy.mean()))
        if budget > cheapest:
            ours = study.reached(study.table(float(budget)))
            lines["by difficulty"].append((ours.cost.mean(), ours.accuracy.mean()))
    with style():
        figure, (axes,) = small_multiples(1, "", 1)
        x, y = np.array([(one.cost.mean(), one.accuracy.mean()) for one in study.alone.values()]).T
        axes.plot(x, y, color="#999999", marker="o", linestyle="none", markersize=3, label="configurations")
        for (label, drawn), (colour, marker, dashes) in zip(
            lines.items(), (STYLES[1], STYLES[0]), strict=True
        ):
            x, y = np.array(sorted(set(drawn))).T
            axes.plot(x, y, color=colour, marker=marker, linestyle=dashes, markersize=3.5, label=label)
        axes.set_xscale("log")
        axes.set_xlabel("cost of a problem, verifier and first samples included")
        axes.set_ylabel("accuracy")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.legend()
    return figure


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def points(d: Difference) -> str:
    return f"{100 * d.estimate:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}]"


def header(*names: str) -> Iterator[str]:
    yield row(*names)
    yield row(*["---"] * len(names))


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("known")
    parser.add_argument("fresh")
    parser.add_argument("--generator")
    parser.add_argument("--first", type=int, default=4)
    parser.add_argument("--verifier")
    parser.add_argument("--cost", default="flops", help="a column of usage, such as generated")
    parser.add_argument("--budgets", type=float, nargs="*", help="by default, what three configurations cost")
    parser.add_argument("--figures", type=Path)
    given = parser.parse_args(arguments)
    runs = RunDirectory.find(given.known), RunDirectory.find(given.fresh)
    study = Study.of(runs, given.generator, first=given.first, verifier=given.verifier, cost=given.cost)
    print("\n".join(configurations(study)), end="\n\n")
    for one in (study, Study(study.fresh, study.known)):
        print("\n".join(compared(one, given.budgets or budgets(one))), end="\n\n")
    for budget in given.budgets or budgets(study):
        print("\n".join(chosen(study, budget)), end="\n\n")
    if given.figures is not None:
        given.figures.mkdir(parents=True, exist_ok=True)
        save(picture(study), given.figures / "by_difficulty")


if __name__ == "__main__":
    main()
