"""Train the programs family: `python examples/train/programs/programs_family.py`.

Call again to go on after an interruption. `--plan` says what would be done and how long it takes on two idle cores.
"""

from __future__ import annotations

import first  # noqa: F401 - first

# isort: split
import setting  # before torch: what it says to OpenMP is read when torch is imported

# isort: split
import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import judged
import programs_cards
import specs
import torch
import train_corrector
import train_generator_of_programs as generators
import validate_programs
import wrong
from rich.console import Console
from rich.table import Table

from metagen.tasks.programs.problems import LEVELS
from setting import Setting

CORES, SPEED_UP = 2, 1.6
"""Cores; and what a second thread makes of one, in training."""
#: Seconds of one core for one unit of work: a step of training, an example, or a sample.
COST = {
    "example": 0.00025,
    "tiny-code-0.5m": 0.23,
    "tiny-code-2m": 0.6,
    "tiny-code-corrector": 0.6,
    "sample tiny-code-0.5m": 0.004,
    "sample tiny-code-2m": 0.012,
}


@dataclass(frozen=True)
class Stage:
    """A part of the recipe that is done as a whole, or gone on with."""

    name: str
    work: str
    seconds: float
    """Expected, on two idle cores, from its beginning."""
    run: Callable[[], object]


def stages(run: Setting) -> list[Stage]:
    """The recipe in order; a later stage reads what the earlier ones wrote."""
    size = run.share(specs.SHARD)
    examples = specs.SHARDS * size
    write = partial(specs.write, run.corpus, run.seed, specs.SHARDS, size)
    found = [Stage("corpus", f"{examples:,} examples", COST["example"] * examples / CORES, write)]
    for name, plan in generators.PLANS.items():
        steps = sum(run.share(recipe.steps) for recipe in plan.lessons)
        train = partial(generators.generator, name, plan, run)
        found.append(Stage(name, f"{steps:,} steps", COST[name] * steps / SPEED_UP, train))
    count = run.share(wrong.CHUNK) * (wrong.PROBLEMS // wrong.CHUNK)
    each = sum(n * COST[f"sample {name}"] for name, n in wrong.SAMPLES.items())
    found.append(
        Stage("wrong programs", f"{count:,} problems", count * each / CORES, partial(wrong.wrong, run))
    )
    name, steps = train_corrector.NAME, run.share(train_corrector.RECIPE.steps)
    train = partial(train_corrector.corrector, run)
    found.append(Stage(name, f"{steps:,} steps", COST[name] * steps / SPEED_UP, train))
    count = run.share(judged.PER_LEVEL) * len(LEVELS)
    # All samples of both generators, and at most all corrections, told and blind.
    large = judged.SAMPLES + 2 * judged.CHAINS * judged.DEPTH
    each = large * COST["sample tiny-code-2m"] + judged.SAMPLES * COST["sample tiny-code-0.5m"]
    figures = partial(validate_programs.figures, run)
    found.append(Stage("validation", f"{count:,} problems", count * each / CORES + 60, figures))
    return [*found, Stage("cards", "", 0.0, partial(programs_cards.write, run))]


def plan(found: list[Stage]) -> Table:
    """What is to come."""
    table = Table("stage", "work", "minutes", title="Expected on two idle cores")
    for stage in found:
        table.add_row(stage.name, stage.work, f"{stage.seconds / 60:.1f}")
    table.add_row("all", "", f"{sum(stage.seconds for stage in found) / 60:.0f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    setting.add_arguments(parser)
    parser.set_defaults(into=generators.HOME)
    parser.add_argument("--plan", action="store_true", help="say what would be done, and how long it takes")
    arguments = parser.parse_args()
    run, console = setting.of(arguments), Console()
    todo = stages(run)
    console.print(plan(todo))
    if arguments.plan:
        return
    torch.set_num_threads(arguments.threads)
    run.prepare()
    began = time.monotonic()
    for number, stage in enumerate(todo, 1):
        start = time.monotonic()
        stage.run()
        now = time.monotonic()
        left = sum(later.seconds for later in todo[number:])
        console.print(
            f"[{number}/{len(todo)}] {stage.name}: {(now - start) / 60:.1f} minutes; "
            f"{(now - began) / 60:.0f} so far, {left / 60:.0f} more expected",
            markup=False,
        )
    validate_programs.show(console, validate_programs.figures(run))
    console.print(f"The family is in {run.models}", soft_wrap=True)


if __name__ == "__main__":
    main()
