"""How far decoding at another temperature, with adapters or by a tilt goes from the model as written: KL, where it is
known.

The policies of the role `temperature` have probabilities token by token, so that KL(π ‖ p) is the mean of
log π(y) − log p(y) over their own samples, which lie in the journal. Engines must be open.
"""

from __future__ import annotations

import json
from typing import Any

from metagen.errors import UnsupportedError
from metagen.experiments import build, costs
from metagen.experiments.attempts import Recorded
from metagen.experiments.build import Setup
from metagen.experiments.directory import RunDirectory
from metagen.experiments.specs import EngineGeneratorSpec
from metagen.experiments.tables import read
from metagen.generators.primitive import EngineGenerator
from metagen.journal import SQLiteJournal
from metagen.scope import Scope
from metagen.sequence import Sequence, digest
from metagen.strategies.base import wait
from metagen.studies.alignment.ratios import Law, kl_by_problem
from metagen.studies.plan import Part, variants
from metagen.studies.settings import words
from metagen.studies.spec import Study
from metagen.tasks.base import Problem

FILE = "divergence.json"
#: Problems that are read, and samples of each.
PROBLEMS, SAMPLES = 40, 4


def measure(part: Part, study: Study, directory: RunDirectory) -> None:
    """Write what is known of every policy of the role that an engine runs, unless it stands there already."""
    made_of = digest(directory.experiment.read_text(encoding="utf-8")).hex()
    if recorded(directory).get("made_of") == made_of:
        return
    with (
        build.opened(part.experiment) as setup,
        SQLiteJournal(directory.journal, read_only=True) as journal,
    ):
        found = [
            one
            for name, variant in variants(study).items()
            if (one := _measured(setup, Recorded(journal), directory, name, **variant)) is not None
        ]
    directory.write(FILE, json.dumps({"made_of": made_of, "ratios": found}, indent=1) + "\n")


def recorded(directory: RunDirectory) -> dict[str, Any]:
    """What `measure` wrote; nothing where it has not."""
    path = directory.root / FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _measured(
    setup: Setup, journal: Recorded, directory: RunDirectory, name: str, model: str, setting: dict[str, Any]
) -> dict[str, Any] | None:
    """KL and the share of right samples of one policy, problem by problem."""
    policy = setup.generators.get(name)
    written = setup.experiment.generators[model]
    if not (isinstance(policy, EngineGenerator) and isinstance(written, EngineGeneratorSpec)):
        return None
    table = read(directory.table("candidates"), ["problem", "correct"], generator=name)
    right = table.group_by("problem").aggregate([("correct", "mean")])
    gold = dict(zip(right["problem"].to_pylist(), right["correct_mean"].to_pylist(), strict=True))
    problems = [problem for problem in setup.task.problems() if problem.id in gold]
    sizes = min(SAMPLES, max(cell.n or 1 for cell in setup.configurations if cell.generator == name))
    drawn = [_drawn(setup, journal, policy, name, problem, sizes) for problem in problems[:PROBLEMS]]
    if not drawn:
        return None
    known: dict[str, Any] = {"model": model, "policy": words(setting)}
    try:
        base = Law(setup.engines[written.engine], written.params)
        kl = kl_by_problem(Law(policy.engine, policy.params), base, drawn)
    except UnsupportedError as error:
        return {**known, "why": str(error)}
    return {**known, "kl": kl.tolist(), "gold": [gold[problem.id] for problem in problems[:PROBLEMS]]}


def _drawn(
    setup: Setup, journal: Recorded, policy: EngineGenerator, name: str, problem: Problem, samples: int
) -> list[Sequence]:
    """The first samples of a pool, from its records."""
    root = Scope.root(problem.id, seed=setup.experiment.seed, journal=journal, label=name)
    scope = root.child(costs.POOL).child(costs.SAMPLING)
    return wait(policy.generate(Sequence.of(problem.prompt), n=samples, scope=scope))
