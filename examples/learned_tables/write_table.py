"""Learn a table for the strategy `by_difficulty` from a finished run, and print its definition.

    python examples/learned_tables/write_table.py FILE RUN --mean flops=5e8 [--generator 0.1M] [--first 4] [--groups 5]
                                                          [--verifier prm] [--predictor agreement]

FILE is the experiment that the table is for. RUN is a finished run of several configurations on other problems: a
directory, or a name in `runs`. Each of its configurations whose parts FILE defines alike is an option. The mean cost of
a problem counts the first samples and the verifiers. Put the definition among the strategies of FILE.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import yaml
from choose import Table
from options import Options

from metagen.errors import InputError
from metagen.runs.declare import registry
from metagen.runs.declare.parts import Part, definitions_of, of_cells
from metagen.runs.declare.schema import load
from metagen.runs.declare.specs import Experiment
from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.work.allocation.held_out import apart


def learn(
    experiment: Experiment,
    run: RunDirectory,
    mean: float,
    limit: str,
    *,
    generator: str | None = None,
    first: int = 4,
    groups: int = 5,
    verifier: str | None = None,
    predictor: str = "agreement",
) -> dict[str, object]:
    """The definition of a strategy of kind `by_difficulty`, for a mean cost of a problem in one dimension of usage.

    generator: draws the first samples; by default the only one of the grid. Raises InputError for a run that is not
    finished, has a problem of this experiment, or lacks what the table needs; and for parts that are defined otherwise
    there.
    """
    if generator is None and len(experiment.grid.generators) > 1:
        raise InputError(
            f"a table is learned for one generator, and grid.generators are {', '.join(experiment.grid.generators)}; "
            "name one of them by --generator"
        )
    drawn = generator or experiment.grid.generators[0]
    lines = [line for line in run.final_state().lines if is_option(line, experiment)]
    apart(run, registry.make("task", experiment.task.kind, experiment.task.options(), {}), "RUN")
    compare(experiment, load(run.experiment), drawn, lines, verifier)
    options = Options.of(run, drawn, lines, first=first, limit=limit, verifier=verifier, predictor=predictor)
    table = Table.learn(options.values, options.measured, budget=mean, groups=groups)
    # Neighbours with the same option are one group.
    ends = [i for i in range(len(table.edges)) if table.names[i] != table.names[i + 1]]
    ways = [options.ways[table.names[i]] for i in (*ends, len(table.edges))]
    named = {"predictor": predictor} | ({"verifier": verifier} if verifier else {})
    edges = [float(table.edges[i]) for i in ends]
    return {"kind": "by_difficulty", "first": first, **named, "edges": edges, "then": [*map(written, ways)]}


def written(way: int | Cell) -> int | dict[str, object]:
    """A way to go on as an experiment file has it."""
    if isinstance(way, int):
        return way
    own = {"n": way.n} if way.n is not None else {}
    return {"generator": way.generator, "strategy": way.strategy, **own}


def is_option(line: Cell, experiment: Experiment) -> bool:
    """Whether it is made of parts that are defined here, ignorant of the answers, and itself no table."""
    if line.oracle or line.generator not in experiment.generators:
        return False
    if line.strategy not in experiment.strategies:
        return False
    parts = definitions_of(experiment, ("strategies", line.strategy))
    return not any(spec.kind == "by_difficulty" for spec in parts.values())


def compare(
    experiment: Experiment, there: Experiment, generator: str, lines: Iterable[Cell], verifier: str | None
) -> None:
    """InputError unless the options and the first samples are made of parts that both experiments define alike."""
    roots: list[Part] = [("generators", generator)]
    roots += [("verifiers", verifier)] if verifier else []
    roots += of_cells((line.generator, line.strategy) for line in lines)
    for (section, name), spec in definitions_of(experiment, *roots).items():
        other = getattr(there, section).get(name)
        # How an engine computes may differ, its model may not.
        ours, theirs = (getattr(one, "model", one) if section == "engines" else one for one in (spec, other))
        if other is not None and ours != theirs:
            raise InputError(
                f"{section}.{name} is defined otherwise in that run ({theirs}, here {ours}); define it as there, or "
                "give it another name"
            )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file")
    parser.add_argument("run")
    parser.add_argument("--mean", required=True, metavar="LIMIT=NUMBER", help="such as flops=5e8")
    parser.add_argument("--generator")
    parser.add_argument("--first", type=int, default=4)
    parser.add_argument("--groups", type=int, default=5)
    parser.add_argument("--verifier")
    parser.add_argument("--predictor", choices=("agreement", "mean_score"), default="agreement")
    given = vars(parser.parse_args(arguments))
    limit, _, mean = given.pop("mean").partition("=")
    experiment, run = load(given.pop("file")), RunDirectory.find(given.pop("run"))
    table = learn(experiment, run, float(mean), limit, **given)
    print(yaml.safe_dump(table, default_flow_style=True, sort_keys=False, width=1000).strip())


if __name__ == "__main__":
    main()
