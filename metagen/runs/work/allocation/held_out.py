"""What another run tells of shares: how accurate a vote becomes with more samples, by what the first of them say."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from metagen.errors import InputError
from metagen.runs.declare.specs import Experiment
from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.table.pools import Pool
from metagen.runs.table.tables import read
from metagen.runs.work.allocation.allocate import Difficulty
from metagen.tasks.base import Task


def learn_difficulties(experiment: Experiment, cells: Iterable[Cell], task: Task) -> dict[str, Difficulty]:
    """By the name of a configuration whose shares go by difficulty; nothing for an experiment without such shares.

    Raises InputError for a held-out run that is not finished, that has a problem of this task (its curves would have
    seen what they are used on), or that has no pool as large as a configuration, of the same generator and verifier.
    """
    spec = experiment.allocation
    if spec is None or spec.held_out is None:
        return {}
    run = RunDirectory(Path(spec.held_out))
    run.final_state()
    apart(run, task, "allocation.held_out")
    return {
        cell.name: _learn(run, cell, spec.first, spec.groups)
        for cell in cells
        if cell.strategy in spec.strategies
    }


def apart(run: RunDirectory, task: Task, field: str) -> None:
    """Raises InputError, naming the field, for a run that has a problem of this task."""
    known = set(read(run.table("problems"), ["salt"])["salt"].to_pylist())
    shared = [problem.id for problem in task.problems() if problem.prompt.digest.hex() in known]
    if shared:
        raise InputError(
            f"{field} = {str(run.root)!r}: {len(shared)} of this experiment's problems are in that run "
            f"({shared[0]!r}, …), and what is learned on a problem must not be used on it; give a run on other problems"
        )


def _learn(run: RunDirectory, cell: Cell, first: int, groups: int) -> Difficulty:
    generators = read(run.table("candidates"), ["generator"])["generator"].unique().to_pylist()
    if cell.generator not in generators:
        raise _lacks(
            run, f"no pool of the generator {cell.generator!r} ({', '.join(generators) or 'of none'})"
        )
    pool, n = Pool.of(run, cell.generator), cell.n or 1
    if cell.verifier is not None and cell.verifier not in pool.scores:
        raise _lacks(run, f"no scores of the verifier {cell.verifier!r}")
    # Of problems with unequal numbers of samples, as many as all have.
    if (least := int(pool.sizes.min())) < n:
        raise _lacks(run, f"{least} samples of some problem, where {cell.name} may draw {n}")
    weights = (
        None
        if cell.verifier is None
        else np.where(pool.eligible, pool.scores[cell.verifier], np.nan)[:, :least]
    )
    return Difficulty.learn(
        pool.classes[:, :least], pool.correct[:, :least], first=first, weights=weights, groups=groups
    )


def _lacks(run: RunDirectory, what: str) -> InputError:
    return InputError(
        f"allocation.held_out = {str(run.root)!r}: it has {what}; run the same generators, strategies and n there, "
        "without budget and allocation, so that they share a pool"
    )
