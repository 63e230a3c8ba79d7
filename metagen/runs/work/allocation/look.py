"""The first samples of a problem, drawn before anything else to see how hard it is; the run then begins with them."""

from __future__ import annotations

from functools import partial

import numpy as np

from metagen.errors import JournalError, MetagenError
from metagen.journal import Journal
from metagen.runs.directory import Cell
from metagen.runs.table import costs
from metagen.runs.work import attempts
from metagen.runs.work.allocation.shares import Look, Shares
from metagen.runs.work.attempts import Unrecorded
from metagen.runs.work.build import Setup
from metagen.runs.work.together import together
from metagen.runs.work.window import shuffle
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.strategies.adaptive.adaptive import ballots
from metagen.strategies.candidates import Drawing
from metagen.tasks.base import Problem


async def looks(
    setup: Setup, shares: Shares, journal: Journal, *, workers: int
) -> dict[str, list[Look | None]]:
    """By configuration whose shares go by difficulty, what its first samples of each problem say, in the task's order.

    None where they do not fit the problem's equal share, fail, or cost nobody knows what. workers: problems at a time.
    Raises Unrecorded where nothing may be drawn and something is missing.
    """
    cells = [c for c in setup.configurations if c.name in setup.difficulties]
    found: dict[str, list[Look | None]] = {c.name: [None] * setup.problems for c in cells}
    waiting = shuffle(enumerate(setup.task.problems())) if cells else iter(())
    root = partial(Scope.root, seed=setup.experiment.seed, journal=journal)

    async def work() -> None:
        for place, problem in waiting:
            with setup.asked.now(problem):
                for c in cells:
                    scope = root(problem.id, budget=shares.first(place), label=c.name)
                    found[c.name][place] = await _look(setup, c, problem, scope, shares.limit)

    await together(work() for _ in range(workers))
    return found


async def _look(setup: Setup, configuration: Cell, problem: Problem, root: Scope, limit: str) -> Look | None:
    """Draw, and score where the strategy does, as many samples as the configuration's difficulty looks at."""
    first, verifier = (
        setup.difficulties[configuration.name].first,
        setup.verifiers.get(configuration.verifier or ""),
    )
    # The paths of the parallel strategies, so that the run finds these samples in its journal.
    scope = root.child(costs.POOL)
    drawing = Drawing(
        setup.generators[configuration.generator], Sequence.of(problem.prompt), scope,
        scope.child(costs.SAMPLING), scope.child(costs.SCORING), answer=setup.task.answer, verifier=verifier,
    )  # fmt: skip
    try:
        candidates = await drawing.to(first)
    except (JournalError, Unrecorded):
        raise
    except MetagenError:
        return None  # the run meets the same error, and notes it
    spent = getattr(root.usage, limit)
    own = [getattr(usage, limit) for _, usage in attempts.read_samples(problem, root.trace.rows)]
    if root.exhausted or len(candidates) < first or spent is None or None in own:
        return None
    classes, weights = ballots(candidates, verifier is not None)
    scoring = (spent - sum(own)) / first
    return Look(float(spent), np.asarray(own, dtype=np.float64) + scoring, classes[0], weights[0])
