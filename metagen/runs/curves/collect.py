"""From the directories of finished runs to the arrays of a study. Engines stay closed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import metagen
from metagen.errors import InputError
from metagen.generators.pool import PoolFile
from metagen.runs.curves import divergence, tune
from metagen.runs.curves.reading import Names, Run
from metagen.runs.curves.study import StudyResult, Votes
from metagen.runs.declare import baselines, plan, study_schema
from metagen.runs.declare.plan import APART
from metagen.runs.declare.specs import ReplaySpec
from metagen.runs.declare.study import Study
from metagen.runs.directory import Role, RunDirectory, StudyDirectory
from metagen.runs.names import STUDY
from metagen.runs.note import Note
from metagen.runs.work.progress import Phase
from metagen.sequence import digest

if TYPE_CHECKING:
    from metagen.runs.curves.curve_costs import Accelerator
    from metagen.runs.declare.study import SizeSpec

#: Layers of `runs` that lie above this one: imports point down only, so results do not depend on them.
ABOVE = frozenset({"page", "questions"})


def of_run(
    directory: RunDirectory,
    *,
    names: Names | None = None,
    accelerators: Iterable[Accelerator] = (),
    sizes: Mapping[str, SizeSpec] | None = None,
    phase: Phase | None = None,
) -> StudyResult:
    """Curves and votes of a finished run, `metagen grade`'s included.

    names: how configurations that are variants are called in a study; others have their own names. accelerators: give
    modelled costs. sizes: by model, the 2N rule of what has no counts. phase: is told how far this is. Raises
    InputError for a run that is not finished, DataError for a score that is infinite.
    """
    return Run(directory, names, accelerators, sizes, phase=phase).result()


def of_study(directory: StudyDirectory, study: Study, phase: Phase | None = None) -> StudyResult:
    """The test of a finished study, with its independent pools, what was tuned, and what the other roles took.

    Raises InputError where a role has not been run to its end.
    """
    chosen = tune.read(directory, study)
    frozen = tune.frozen(study, chosen)
    if left := [cell for cell in frozen if cell not in chosen]:
        raise InputError(
            f"the study {str(directory.root)!r} is not finished: no setting of {'/'.join(left[0])} is chosen yet for "
            f"its {STUDY}; go on with: metagen resume {directory.root}"
        )
    spec, accelerators = study.spec, processors(study)
    halves = study.experiment.seed if spec.limit is not None and spec.limit.halves else None
    tested = plan.test(study, frozen)
    run = Run(directory.role("test"), tested.names, accelerators, spec.sizes, halves=halves, phase=phase)
    result = run.result()
    votes, notes = list(result.votes), list(result.notes)
    if (part := plan.limit(study, frozen)) is not None:
        independent = Run(directory.role("limit"), part.names)
        votes += _align(independent, result)
        notes += independent.notes
    facts = {**result.facts, **_facts(directory, study), "efficiency": _efficiency(run, result)}
    whole = replace(
        result, name=study.experiment.name, votes=tuple(votes), notes=tuple(dict.fromkeys(notes)), facts=facts,
        tuned=tuple(chosen[cell] for cell in study.experiment.grid.cells if cell in chosen),
        budgets=dict(spec.budgets),
    )  # fmt: skip
    whole = replace(whole, notes=(*whole.notes, *baselines.notes(study.experiment, spec)))
    return _add_critique_costs(whole, study)


def of_role(
    directory: StudyDirectory, study: Study, part: plan.Part, phase: Phase | None = None
) -> StudyResult:
    """The curves of a role by itself, such as `splitting`, whose problems or samples are not those of the test."""
    result = of_run(
        directory.role(part.role), names=part.names, accelerators=processors(study), sizes=study.spec.sizes,
        phase=phase,
    )  # fmt: skip
    notes = (*result.notes, *_note_unverified(part))
    return _add_critique_costs(
        replace(result, notes=notes, facts={**result.facts, **_facts(directory, study)}), study
    )


def _note_unverified(part: plan.Part) -> Iterator[Note]:
    """Recorded samples that a role leaves out because nobody verified them."""
    for model in part.experiment.grid.generators:
        spec = part.experiment.generators[model]
        if not isinstance(spec, ReplaySpec) or spec.scored is None:
            continue
        pool = PoolFile(Path(spec.path), spec.fields, spec.where)
        there = [[sample.scores[spec.scored] is not None for sample in pool[problem]] for problem in pool]
        taken, every = sum(map(sum, there)), sum(map(len, there))
        if taken < every:
            none = sum(not any(row) for row in there)
            without = f", of {none:,} of {len(there):,} problems none" if none else ""
            yield Note(
                model,
                f"{taken:,} of {every:,} samples are taken, those that {spec.scored} has scored{without}",
            )


def _add_critique_costs(result: StudyResult, study: Study) -> StudyResult:
    """Add the cost of recorded critiques, where samples were recorded: such scores cost a run nothing."""
    from metagen.runs.curves.recorded import add_critique_costs

    generators = study.experiment.generators
    replayed = any(isinstance(generators[model], ReplaySpec) for model in study.experiment.grid.generators)
    return add_critique_costs(result) if replayed else result


def digest_inputs(directory: StudyDirectory, study: Study, parts: Iterable[plan.Part]) -> str:
    """Names all that the results of a study are made of: its file, its runs, and the code that reads them."""
    code = (path.read_bytes() for path in code_files())
    said: list[str | bytes] = [metagen.__version__, *code, study_schema.dump(study)]
    for role in ("development", *(part.role for part in parts)):
        run = directory.role(role)
        said += [
            path.read_bytes()
            for path in (run.root / "state.json", run.root / divergence.FILE)
            if path.exists()
        ]
        said += [
            f"{table.name} {table.stat().st_size} {table.stat().st_mtime_ns}"
            for table in sorted(run.root.glob("*.parquet"))
        ]
    if directory.frozen.exists():
        said.append(directory.frozen.read_bytes())
    return digest(*said).hex()


def code_files() -> list[Path]:
    """The code that results depend on: a change of it may change them. Files that draw are left out."""
    root = Path(metagen.__file__).parent
    runs = (path for path in sorted((root / "runs").rglob("*.py")) if ABOVE.isdisjoint(path.parts))
    files = (*sorted((root / "analysis").rglob("*.py")), *runs, root / "cost.py")
    return [path for path in files if b"\nfrom matplotlib" not in path.read_bytes()]


def processors(study: Study) -> tuple[Accelerator, ...]:
    """The accelerators that a study models."""
    from metagen.runs.curves.curve_costs import Accelerator

    return tuple(
        Accelerator(name, spec.to_hardware(name), spec.batch)
        for name, spec in study.spec.accelerators.items()
    )


def _align(run: Run, result: StudyResult) -> tuple[Votes, ...]:
    """The pools of a role on the same problems."""
    if run.problems.ids != result.problems:
        raise InputError(
            f"the run {str(run.directory.root)!r} has other problems than the test; run the study again to complete it"
        )
    return tuple(run.votes("limit"))


def _efficiency(run: Run, result: StudyResult) -> dict[str, Any]:
    """What hardware makes of the configurations on the frontier; nothing for a study without accelerators."""
    from metagen.runs.curves.efficiency.measure import measure
    from metagen.runs.curves.frontier import main_cost, pareto

    if not run.accelerators or (cost := main_cost(result)) is None:
        return {}
    labels = run.labels
    try:
        best = {cell.curve.configuration(cell.point) for cell in pareto(result, cost)}
    except InputError:
        # Curves without a problem in common: findings say so.
        return {}
    chosen = [name for name, label in labels.items() if label in best]
    return measure(run.directory, chosen, run.accelerators, run.shapes, labels=labels, phase=run.phase)


def _facts(directory: StudyDirectory, study: Study) -> dict[str, Any]:
    """What the roles took, and what findings need to know of the file."""
    roles: tuple[Role, ...] = tuple(part.role for part in plan.parts(study, tune.frozen(study, {})))
    found: dict[str, Any] = {"roles": {}}
    for role in ("development", *roles):
        run = directory.role(role)
        if not (run.root / "state.json").exists():
            continue
        state = run.state()
        found["roles"][role] = {
            "problems": state.problems, "samples": state.samples, "seconds": state.seconds, "seed": state.seed,
            "failures": len(state.failures), "mendable": all(failure.mendable for failure in state.failures),
        }  # fmt: skip
    spec = study.spec
    if rewards := divergence.read_divergence(directory.role("test")).get("rewards"):
        found["rewards"] = rewards
    if spec.development is not None:
        found["development"] = spec.development.model_dump(mode="json", exclude_none=True)
    if spec.splitting is not None:
        critiques = {str(k): verifier for k, verifier in sorted(spec.splitting.critiques.items())}
        found["splitting"] = {"critiques": critiques, "aggregate": spec.splitting.aggregate}
        if spec.splitting.cost_of_critique is not None:
            found["critique_cost"] = spec.splitting.cost_of_critique
    if spec.temperature is not None:
        found["temperature"] = plan.variants(study)
        found[APART] = plan.has_own_temperature_problems(study)
        if ratios := divergence.read_divergence(directory.role("temperature")).get("ratios"):
            found["ratios"] = ratios
    if spec.alignment is not None:
        found["proxy"] = divergence.proxy(study)
    return found
