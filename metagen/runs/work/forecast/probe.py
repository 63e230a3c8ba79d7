"""A probe: a few problems of an experiment, run for real to measure by."""

from __future__ import annotations

import tempfile
from collections import abc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random

from metagen.errors import InputError, MetagenError
from metagen.runs.declare.specs import Experiment
from metagen.runs.declare.specs.limits import BudgetSpec
from metagen.runs.declare.subset import Subset
from metagen.runs.directory import RunDirectory
from metagen.runs.work import build, runner
from metagen.runs.work.allocation.shares import Shares
from metagen.tasks.base import Problem

PROBE = "metagen-probe-"


#: Problems of a task that are worked on, by place; None for all.
Only = Callable[[int, Problem], bool] | None


@dataclass(frozen=True, slots=True)
class Trial:
    """A probe: its journal, while it is there, and how many problems took how many seconds.

    asked: ids of these problems. wanted: how many were to be run, of which the limit allowed `problems`. failure: what
    the first that failed says; empty if none did.
    """

    journal: Path
    asked: tuple[str, ...]
    wanted: int
    samples: int
    seconds: float
    failure: str = ""

    @property
    def problems(self) -> int:
        return len(self.asked)

    @property
    def size(self) -> str:
        """How many problems, in words."""
        return f"{self.problems:,} problem{'' if self.problems == 1 else 's'}"


@contextmanager
def run_probe(
    experiment: Experiment, problems: int | None, *, seconds: float | None = None, only: Only = None
) -> Iterator[Trial | None]:
    """Run some problems into a directory that lasts as long as the block.

    seconds: a limit. The first problem is run by itself, and as many others as are expected to fit behind it.
    """
    if problems is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix=PROBE) as folder:
        directory = RunDirectory(Path(folder))
        # This process is the only driver: others would read the whole task.
        here = experiment.executor.model_copy(update={"shards": None})
        with build.open_setup(experiment.model_copy(update={"executor": here})) as setup:
            setup = _with_share(setup)
            chosen = _choose(setup, problems, only)
            count = len(chosen) if seconds is None else 1
            states = [runner.run(restrict(setup, chosen[:count]), directory)]
            if seconds is not None and states[0].samples:
                count = max(1, min(len(chosen), int(seconds / max(states[0].seconds, 1e-9))))
                if count > 1:  # the first is answered by the journal
                    states.append(runner.run(restrict(setup, chosen[:count]), directory))
        failures, samples = states[-1].failures, states[-1].samples
        if not samples:
            why = failures[0].message if failures else "nothing was delivered"
            error = InputError if failures and failures[0].mendable else MetagenError
            raise error(f"the probe failed: {why}")
        yield Trial(
            directory.journal, tuple(problem.id for problem in chosen[:count]), len(chosen), samples,
            sum(state.seconds for state in states), failures[0].message if failures else "",
        )  # fmt: skip


def restrict(setup: build.Setup, problems: abc.Sequence[Problem]) -> build.Setup:
    """With these of the problems."""
    return replace(setup, task=Subset(setup.task, problems), problems=len(problems))


def _with_share(setup: build.Setup) -> build.Setup:
    """With the share of a total that a problem of the whole task has, in place of that of a few."""
    share = Shares(setup.experiment, setup.problems).largest
    limit = None if share is None else BudgetSpec(**asdict(share))
    return replace(
        setup,
        experiment=setup.experiment.model_copy(update={"allocation": None, "budget": limit}),
        difficulties={},
    )


def choose(setup: build.Setup, only: Only) -> list[Problem]:
    """The problems that are worked on."""
    return [
        problem for place, problem in enumerate(setup.task.problems()) if only is None or only(place, problem)
    ]


def _choose(setup: build.Setup, count: int, only: Only) -> list[Problem]:
    """So many of the problems, from all over the task. InputError if there are none."""
    problems = choose(setup, only)
    if not problems:
        raise InputError("there is no problem to probe; give more problems, or another share")
    chosen = Random(0).sample(range(len(problems)), min(count, len(problems)))
    return [problems[place] for place in sorted(chosen)]
