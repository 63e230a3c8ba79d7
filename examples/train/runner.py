"""Runs a recipe: its stages in order, each done as a whole or gone on with, with what is left of the time.

A recipe is a list of stages (`family.py`, `rewards.py`, `programs/programs_family.py`). What a stage makes is
kept, so that a second call goes on where the first one stopped.
"""

from __future__ import annotations

import setting  # before torch: what it says to OpenMP is read when torch is imported

# isort: split
import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from setting import Setting

CORES = 2
SPEED_UP = 1.6
"""What a second thread makes of one, in training."""


@dataclass(frozen=True)
class Stage:
    """A part of a recipe. seconds: expected on two idle cores, from its beginning; done: it is there already."""

    name: str
    work: str
    seconds: float
    run: Callable[[], object]
    done: bool = False

    @property
    def left(self) -> float:
        """Seconds still expected, at most."""
        return 0.0 if self.done else self.seconds


def training(name: str, steps: int, cost: float, run: Callable[[], object], *, done: bool = False) -> Stage:
    """A stage of so many steps of training, each of so many seconds of one thread."""
    return Stage(name, f"{steps:,} steps", cost * steps / SPEED_UP, run, done)


def making(name: str, work: str, seconds: float, run: Callable[[], object], *, done: bool = False) -> Stage:
    """A stage in parts, two at a time; seconds of one thread in all."""
    return Stage(name, work, seconds / CORES, run, done)


def table(stages: list[Stage]) -> Table:
    """What is to come."""
    found = Table("stage", "work", "minutes", title="Expected on two idle cores")
    for stage in stages:
        found.add_row(stage.name, stage.work, "done" if stage.done else f"{stage.seconds / 60:.1f}")
    found.add_row("all", "", f"{sum(stage.left for stage in stages) / 60:.0f}")
    return found


def carry_out(stages: list[Stage], console: Console) -> None:
    """All stages, and after each what is left."""
    began = time.monotonic()
    for number, stage in enumerate(stages, 1):
        start = time.monotonic()
        stage.run()
        now = time.monotonic()
        left = sum(later.left for later in stages[number:])
        console.print(
            f"[{number}/{len(stages)}] {stage.name}: {(now - start) / 60:.1f} minutes; "
            f"{(now - began) / 60:.0f} so far, {left / 60:.0f} more expected",
            markup=False,
        )


def main(about: str | None, recipe: Callable[[Setting], list[Stage]], home: Path = setting.HOME) -> None:
    """The command line of a recipe; `home` is where its run lies by default."""
    parser = setting.parser(about, home)
    parser.add_argument("--plan", action="store_true", help="say what would be done, and how long it takes")
    parser.add_argument("--only", nargs="+", metavar="STAGE", help="do these stages, and no others")
    arguments = parser.parse_args()
    run, console = setting.of(arguments), Console()
    stages = chosen(recipe(run), arguments)
    console.print(table(stages))
    if arguments.plan:
        return
    setting.begin(arguments, run)
    carry_out(stages, console)
    console.print(f"The models are in {run.models}", soft_wrap=True)


def chosen(stages: list[Stage], arguments: argparse.Namespace) -> list[Stage]:
    """Those that were asked for. SystemExit if there is no such stage."""
    if arguments.only is None:
        return stages
    names = [stage.name for stage in stages]
    if unknown := [name for name in arguments.only if name not in names]:
        raise SystemExit(f"--only {unknown[0]}: expected stages among {', '.join(names)}")
    return [stage for stage in stages if stage.name in arguments.only]
