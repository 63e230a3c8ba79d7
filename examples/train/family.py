"""Train the whole embedded family: `python examples/train/family.py`. Call again to go on after an interruption."""

from __future__ import annotations

import setting  # first: what it says to OpenMP is read when torch is imported

# isort: split
import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from rich.console import Console
from rich.table import Table

import cards
import corpus
import train_generator
import train_reward
from setting import Setting

CORES = 2
SPEED_UP = 1.6
"""What a second thread makes of one, in training."""
#: Seconds of one thread for one unit of work: a step of training, or a thing made. Measured on a server's core.
COST = {
    "corpus": 0.00014,
    "tiny-0.1m": 0.074,
    "tiny-0.5m": 0.27,
    "tiny-2m": 0.93,
    "tiny-bpe": 0.115,
    "sample tiny-0.1m": 0.0035,
    "sample tiny-0.5m": 0.0077,
    "sample tiny-2m": 0.025,
    "score": 0.0161,
    "tiny-prm": 1.05,
    "tiny-orm": 0.42,
    "tiny-prm-weak": 0.31,
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
    size = run.share(corpus.SHARD)
    examples = train_generator.SHARDS * size
    write = partial(corpus.write, run.corpus, run.seed, train_generator.SHARDS, size)
    found = [Stage("corpus", f"{examples:,} examples", COST["corpus"] * examples / CORES, write)]
    for name, plan in train_generator.PLANS.items():
        steps = run.share(plan.recipe.steps)
        train = partial(train_generator.generator, name, plan, run)
        found.append(Stage(name, f"{steps:,} steps", COST[name] * steps / SPEED_UP, train))
    count = run.share(train_reward.PROBLEMS)
    each = train_reward.SAMPLES * sum(COST[f"sample {name}"] for name in train_reward.GENERATORS)
    label = partial(train_reward.labelled, run)
    found.append(Stage("solutions", f"{count:,} problems", count * each / CORES, label))
    found += [reward(name, plan, run) for name, plan in train_reward.PLANS.items()]
    return [*found, Stage("cards", "", 0.0, partial(cards.write, run.models))]


def reward(name: str, plan: train_reward.Plan, run: Setting) -> Stage:
    """A reward model with its round on hard examples, if it has one."""
    steps = run.share(plan.recipe.steps)
    seconds, work = COST[name] * steps / SPEED_UP, f"{steps:,} steps"
    if plan.round is not None:
        more = run.share(plan.round.steps)
        count = run.share(train_reward.HARD_PROBLEMS)
        each = sum(COST["score"] + COST[f"sample {g}"] for g in train_reward.GENERATORS[1:])
        seconds += COST[name] * more / SPEED_UP + count * train_reward.HARD_SAMPLES * each / CORES
        work += f", {count:,} problems searched, {more:,} steps"
    return Stage(name, work, seconds, partial(train_reward.reward, name, plan, run))


def plan(found: list[Stage]) -> Table:
    """What is to come."""
    table = Table("stage", "work", "minutes", title="Expected on two idle cores")
    for stage in found:
        table.add_row(stage.name, stage.work, f"{stage.seconds / 60:.1f}")
    table.add_row("all", "", f"{sum(stage.seconds for stage in found) / 60:.0f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    setting.add_arguments(parser)
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
    console.print(f"The family is in {run.models}", soft_wrap=True)


if __name__ == "__main__":
    main()
