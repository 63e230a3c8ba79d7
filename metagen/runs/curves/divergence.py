"""How far decoding at another temperature, with adapters or by a tilt goes from the model as written, and what it wins:
KL where it is known, and the scores of the verifier that alignment goes by.

The policies of the role `temperature` have probabilities token by token, so that KL(π ‖ p) is the mean of
log π(y) − log p(y) over their own samples, which lie in the journal. What blockwise decoding returned in the test lies
there too, and has a reward. Engines must be open; nothing is generated.
"""

from __future__ import annotations

import json
from collections import abc
from collections.abc import Coroutine, Iterable
from math import isfinite, nan
from typing import Any, TypeVar

import numpy as np

from metagen.errors import InputError, MetagenError, UnsupportedError
from metagen.generators.primitive import EngineGenerator
from metagen.journal import SQLiteJournal
from metagen.runs.curves.ratios import Law, kl_by_problem
from metagen.runs.curves.study import Floats
from metagen.runs.declare import plan
from metagen.runs.declare import schema as experiments
from metagen.runs.declare import study_schema as schema
from metagen.runs.declare.cells import configurations
from metagen.runs.declare.plan import Part, variants
from metagen.runs.declare.settings import words
from metagen.runs.declare.source import Source
from metagen.runs.declare.specs import EngineGeneratorSpec, Experiment
from metagen.runs.declare.study import Study
from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.table import costs
from metagen.runs.table.tables import read
from metagen.runs.work import build
from metagen.runs.work.allocation.shares import Shares
from metagen.runs.work.attempts import Recorded
from metagen.runs.work.build import Setup
from metagen.runs.work.together import together
from metagen.scope import Scope
from metagen.sequence import Sequence, digest
from metagen.strategies.base import wait
from metagen.strategies.candidates import Candidate
from metagen.tasks.base import Problem

T = TypeVar("T")
FILE = "divergence.json"
#: Problems that are read, and samples of each.
PROBLEMS, SAMPLES = 40, 4


def measure(part: Part, study: Study, directory: RunDirectory) -> None:
    """Write what is known of every policy of the role that an engine runs, unless it stands there already.

    Of the role `temperature`: KL, rewards, and wins against the model as written; of the test: by problem, the rewards
    of what blockwise decoding returned.
    """
    by, before = proxy(study), read_divergence(directory)
    # A run that has gone on, for problems that had failed or are new, ends in another state.
    made_of = digest(directory.experiment.read_bytes(), (directory.root / "state.json").read_bytes()).hex()
    if before.get("made_of") == made_of and before.get("proxy") == by:
        return
    blockwise = [cell for cell in configurations(part.experiment) if cell.kind == "blockwise"]
    tested = part.role == "test"
    # With shards the engines are in other processes.
    if tested and (by is None or not blockwise or part.experiment.executor.shards is not None):
        return
    passing: list[MetagenError] = []
    with (
        build.open_setup(_with_proxy(part, study, by)) as setup,
        SQLiteJournal(directory.journal, read_only=True) as journal,
    ):
        found = (
            {"rewards": _rewards(setup, Recorded(journal), directory, part, str(by), passing)}
            if tested
            else {"ratios": _ratios(setup, Recorded(journal), directory, part, study, by, passing)}
        )
    if passing:
        made_of = ""  # the next call tries again
    directory.write(FILE, json.dumps({"made_of": made_of, "proxy": by, **found}, indent=1) + "\n")


def read_divergence(directory: RunDirectory) -> dict[str, Any]:
    """Read the file that `measure` wrote; empty where there is none."""
    path = directory.root / FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def proxy(study: Study) -> str | None:
    """The verifier whose reward alignment goes by: as written, or the first that scores pools without the answers."""
    spec, experiment = study.spec.alignment, study.experiment
    if spec is None:
        return None
    if spec.proxy is not None:
        return spec.proxy
    scoring = schema.scoring(experiment, study.spec)
    return next((name for name in experiment.verifiers if name in scoring and name != spec.gold), None)


def _with_proxy(part: Part, study: Study, by: str | None) -> Experiment:
    """The role's experiment, with the proxy among the verifiers that it opens."""
    if by is None:
        return part.experiment
    data = plan.plain(part.experiment)
    name = "reward"
    while name in data["strategies"]:
        name += "-"
    data["strategies"][name] = {"kind": "best_of_n", "verifier": by, "n": 1}
    pairs = [list(cell) for cell in part.experiment.grid.cells]
    data["grid"] = {"n": data["grid"]["n"], "pairs": [*pairs, [pairs[0][0], name]]}
    return experiments.parse_experiment(Source(f"the rewards of {data['name']!r}", data), study.base)


# ------------------------------------------------------------------------------------------------ temperatures


def _ratios(
    setup: Setup,
    journal: Recorded,
    directory: RunDirectory,
    part: Part,
    study: Study,
    by: str | None,
    passing: list[MetagenError],
) -> list[dict[str, Any]]:
    """Every policy; wins need that the model as written is one of them. passing: takes errors that may pass."""
    tried = variants(study)
    drawn = {
        name: some
        for name, variant in tried.items()
        if (some := _samples(setup, journal, directory, name, variant["model"])) is not None
    }
    rewards: dict[str, dict[str, Floats]] = {}
    as_written: dict[str, str] = {}
    why = ""
    for name, (problems, samples, _) in drawn.items() if by is not None else ():
        try:
            values = _score(setup, str(by), list(zip(problems, samples, strict=True)))
        except MetagenError as error:
            why = str(error)
            _note_passing(error, passing)
            continue
        rewards[name] = {p.id: np.array(some) for p, some in zip(problems, values, strict=True)}
        model = tried[name]["model"]
        if part.experiment.generators[name] == study.experiment.generators[model]:
            as_written[model] = name
    found = []
    for name, (_, samples, gold) in drawn.items():
        model = tried[name]["model"]
        one = _measure_policy(setup, name, model, tried[name]["setting"], samples, gold)
        if "why" not in one and name in rewards:
            one["reward"] = [_plain(float(some.mean())) for some in rewards[name].values()]
            if model in as_written:
                base, none = rewards[as_written[model]], np.array([])
                one["wins"] = [_plain(wins(some, base.get(id, none))) for id, some in rewards[name].items()]
                one["plain"] = [
                    _plain(float(base[id].mean())) if id in base else None for id in rewards[name]
                ]
        elif why:
            one["unscored"] = why
        found.append(one)
    return found


def wins(ours: Floats, theirs: Floats) -> float:
    """P(above) + ½ P(equal) over pairs of different places, since those of one place share their random numbers.

    ours, theirs: rewards of samples, [samples] each. NaN for no such pair, and where a reward is unknown.
    """
    a, b = ours[:, None], theirs[None]
    apart = ~np.eye(len(ours), len(theirs), dtype=bool)
    if not apart.any() or not np.isfinite([*ours, *theirs]).all():
        return nan
    return float(((a > b) + 0.5 * (a == b))[apart].mean())


def _samples(
    setup: Setup, journal: Recorded, directory: RunDirectory, name: str, model: str
) -> tuple[list[Problem], list[list[Sequence]], list[float]] | None:
    """The problems that are read, some samples of each, and their shares of right samples."""
    policy = setup.generators.get(name)
    written = setup.experiment.generators[model]
    if not (isinstance(policy, EngineGenerator) and isinstance(written, EngineGeneratorSpec)):
        return None
    table = read(directory.table("candidates"), ["problem", "correct"], generator=name)
    right = table.group_by("problem").aggregate([("correct", "mean")])
    gold = dict(zip(right["problem"].to_pylist(), right["correct_mean"].to_pylist(), strict=True))
    problems = [problem for problem in setup.task.problems() if problem.id in gold][:PROBLEMS]
    sizes = min(SAMPLES, max(cell.n or 1 for cell in setup.configurations if cell.generator == name))
    drawn = [_read_samples(setup, journal, policy, name, problem, sizes) for problem in problems]
    return (problems, drawn, [gold[problem.id] for problem in problems]) if drawn else None


def _measure_policy(
    setup: Setup,
    name: str,
    model: str,
    setting: dict[str, Any],
    drawn: list[list[Sequence]],
    gold: list[float],
) -> dict[str, Any]:
    """KL and the share of right samples of one policy, problem by problem."""
    policy, written = setup.generators[name], setup.experiment.generators[model]
    assert isinstance(policy, EngineGenerator) and isinstance(written, EngineGeneratorSpec)
    known: dict[str, Any] = {"model": model, "policy": words(setting)}
    try:
        base = Law(setup.engines[written.engine], written.params)
        kl = kl_by_problem(Law(policy.engine, policy.params), base, drawn)
    except UnsupportedError as error:
        return {**known, "why": str(error)}
    return {**known, "kl": kl.tolist(), "gold": gold}


def _read_samples(
    setup: Setup, journal: Recorded, policy: EngineGenerator, name: str, problem: Problem, samples: int
) -> list[Sequence]:
    """The first samples of a pool, from its records."""
    root = Scope.root(problem.id, seed=setup.experiment.seed, journal=journal, label=name, began_by=name)
    scope = root.child(costs.POOL).child(costs.SAMPLING)
    return wait(policy.generate(Sequence.of(problem.prompt), n=samples, scope=scope))


# ------------------------------------------------------------------------------------------------ rewards


def _rewards(
    setup: Setup,
    journal: Recorded,
    directory: RunDirectory,
    part: Part,
    by: str,
    passing: list[MetagenError],
) -> dict[str, dict[str, Any]]:
    """By configuration, as curves call it: the reward by problem, or `why` there is none."""
    shares = Shares(setup.experiment, setup.problems, setup.difficulties)
    found: dict[str, dict[str, Any]] = {}
    for cell in setup.configurations:
        if cell.kind != "blockwise":
            continue
        model, strategy, _ = part.names.get(
            f"{cell.generator}/{cell.strategy}", (cell.generator, cell.strategy, "")
        )
        ended = read(directory.table("outcomes"), ["problem"], configuration=cell.name)
        done = set(ended["problem"].to_pylist())
        problems = [(i, problem) for i, problem in enumerate(setup.task.problems()) if problem.id in done]
        label = f"{model}/{strategy}" + (f"@{cell.n}" if cell.n is not None else "")
        try:
            again = _gather(setup, [_again(setup, journal, cell, shares, i, p) for i, p in problems])
            values = _score(setup, by, [(p, [one]) for (_, p), one in zip(problems, again, strict=True)])
        except MetagenError as error:
            found[label] = {"why": str(error)}
            _note_passing(error, passing)
            continue
        found[label] = {
            "reward": {p.id: _plain(one) for (_, p), (one,) in zip(problems, values, strict=True)}
        }
    return found


def _note_passing(error: MetagenError, passing: list[MetagenError]) -> None:
    """What nobody has to mend may be gone the next time, such as a server that did not answer."""
    if not isinstance(error, InputError):
        passing.append(error)


async def _again(
    setup: Setup, journal: Recorded, cell: Cell, shares: Shares, place: int, problem: Problem
) -> Sequence:
    """What a configuration returned, from its records."""
    budget = shares.of(cell.name, place)
    seed = setup.experiment.seed
    root = Scope.root(
        problem.id, seed=seed, journal=journal, budget=budget, label=cell.name, began_by=cell.name
    )
    with setup.asked.now(problem):
        (sequence,) = await setup.strategy(cell).generate(Sequence.of(problem.prompt), scope=root)
    return sequence


def _score(setup: Setup, by: str, every: abc.Sequence[tuple[Problem, list[Sequence]]]) -> list[list[float]]:
    """The rewards of the sequences of each problem; as in pools, what is not eligible has the least there is, 0."""

    async def one(problem: Problem, sequences: list[Sequence]) -> list[float]:
        scope = Scope.root(problem.id, seed=setup.experiment.seed, label=by)
        with setup.asked.now(problem):
            answers = await setup.task.answer.read(sequences)
            scores = await setup.verifiers[by].score(sequences, scope=scope)
        return [
            0.0 if not Candidate(s, a).eligible else nan if score.value is None else score.value
            for s, a, score in zip(sequences, answers, scores, strict=True)
        ]

    return _gather(setup, [one(*of) for of in every])


def _gather(setup: Setup, work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await the work, some at a time, and return the results in order. After an error nothing more is begun."""
    every, found = list(work), dict[int, T]()
    waiting = iter(enumerate(every))

    async def worker() -> None:
        for place, coroutine in waiting:
            found[place] = await coroutine

    try:
        wait(together(worker() for _ in range(setup.experiment.executor.concurrency)))
    finally:
        for coroutine in every:
            coroutine.close()
    return [found[place] for place in range(len(every))]


def _plain(value: float) -> float | None:
    """JSON has no NaN."""
    return value if isfinite(value) else None
