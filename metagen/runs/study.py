"""Runs a study: one ordinary run for each role, in directories of their own, resumable at any moment.

What is recorded is never paid for again: running a study again goes on with it, and a study with larger n, one more
model or one more strategy pays for what is new. Settings that were chosen stay, so that the test is seen once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from metagen.errors import ConfigError, InputError, JournalMismatch, MetagenError
from metagen.logs import logger
from metagen.runs.curves import collect, divergence, tune
from metagen.runs.curves.study import FILE, StudyResult
from metagen.runs.declare import plan, registry, source
from metagen.runs.declare import schema as experiments
from metagen.runs.declare import study_schema as schema
from metagen.runs.declare.plan import Part
from metagen.runs.declare.specs import Experiment
from metagen.runs.declare.study import Study
from metagen.runs.directory import Role, RunDirectory, State, StudyDirectory
from metagen.runs.names import STUDY
from metagen.runs.table.tables import read
from metagen.runs.work import build, runner
from metagen.runs.work.forecast.estimate import Estimate, estimate
from metagen.runs.work.makers import Makers, recorded
from metagen.runs.work.progress import Meter, Phase
from metagen.strategies.base import Observe

_LOG = logger(__name__)
#: Roles with results of their own, beside those of the test.
EXTRAS: tuple[Role, ...] = ("splitting", "temperature")
#: The file with the digest of the study, its runs and the code that read them.
COLLECTED = "collected.json"


def run(
    study: Study,
    root: Path,
    meter: Meter | None = None,
    *,
    begins: Callable[[str], None] | None = None,
    caution: Callable[[str], None] | None = None,
    observe: Observe | None = None,
) -> StudyResult:
    """Run, or go on with, a study in the directory `root`; its results are saved there, and no report is written.

    meter: counts the samples of one role after the other; begins: is told the name of each; caution: is told
    once what a reader of its results should know before. observe: opens what is told of the events of each problem and
    configuration. An interrupt leaves all journals sound.

    Raises ConfigError for development problems that are test problems, InputError for a role without problems and for a
    directory that holds a study of other data or seeds, JournalLocked while another process runs it, and the first
    error of a role that delivered nothing.
    """
    plan.check(study)
    directory = StudyDirectory.at(root)
    # A second one would give the first another study.yaml.
    with directory.files.hold("run"):
        return _run(study, directory, _Told(meter or Meter(), begins or _nobody, caution or _nobody, observe))


def _nobody(text: str) -> None:
    """Told where nobody listens."""


def _run(study: Study, directory: StudyDirectory, told: _Told) -> StudyResult:
    _same_seed(study, directory)
    before = directory.study.read_text(encoding="utf-8") if directory.study.exists() else None
    directory.files.write(STUDY, schema.dump(study))
    try:
        _every(study, directory, told)
    except JournalMismatch as error:
        # What lies there stays a study that can be gone on with and reported.
        if before is not None:
            directory.files.write(STUDY, before)
        raise InputError(
            f"{str(directory.root)!r} holds a study of other data or seeds than this one, and was left as it was: give "
            f"another directory by --out, or the old values ({error})"
        ) from error
    return results(directory, study, told.meter.after)


@dataclass(frozen=True)
class _Told:
    """What is told of the runs: see `run`."""

    meter: Meter
    begins: Callable[[str], None]
    caution: Callable[[str], None]
    observe: Observe | None
    cautioned: set[str] = field(default_factory=set)


def _every(study: Study, directory: StudyDirectory, told: _Told) -> None:
    """Run all roles."""
    frozen = tune.frozen(study, _choose_settings(study, directory, told))
    for part in plan.parts(study, frozen):
        _run_role(part, directory, told)
        if part.role in ("test", "temperature") and study.spec.alignment is not None:
            divergence.measure(part, study, directory.role(part.role))


def collect_results(directory: StudyDirectory, study: Study, phase: Phase | None = None) -> StudyResult:
    """The results of a study that has been run, saved beside its runs where files can be made there.

    phase: is told how far this is.
    """
    parts = tuple(plan.parts(study, tune.frozen(study, tune.read(directory, study))))
    made_of = collect.digest_inputs(directory, study, parts)
    result = collect.of_study(directory, study, phase)
    keeps = directory.files.writable
    if keeps:
        # Until the new results are there, those in the files are made of nothing.
        directory.files.write(COLLECTED, json.dumps({"made_of": ""}) + "\n")
    for part in parts:
        if part.role in EXTRAS:
            run = directory.role(part.role)
            extra = collect.of_role(directory, study, part, phase)
            if keeps:
                extra.save(run)
            new = (note for note in extra.notes if note not in result.notes)
            notes = (replace(note, about=f"{part.role}, {note.about}") for note in new)
            result = replace(result, notes=(*result.notes, *notes))
    if keeps:
        result.save(directory.files)
        directory.files.write(COLLECTED, json.dumps({"made_of": made_of}) + "\n")
    return result


def results(directory: StudyDirectory, study: Study, phase: Phase | None = None) -> StudyResult:
    """The results as they were collected, if they were from these runs by this code; otherwise collected anew."""
    chosen = tune.read(directory, study)
    frozen = tune.frozen(study, chosen)
    parts = tuple(plan.parts(study, frozen))
    with suppress(OSError, ValueError, KeyError, InputError):
        known = json.loads((directory.root / COLLECTED).read_text(encoding="utf-8"))
        if known["made_of"] == collect.digest_inputs(directory, study, parts):
            return StudyResult.load(directory.root)
    for part in parts:
        run = directory.role(part.role)
        if run.experiment.exists() and chosen.keys() >= set(frozen) and not _same(run, part.experiment):
            raise InputError(
                f"{str(run.root)!r} was run by another {STUDY} than the one beside it; {run.resume_hint}, or put the "
                f"old {STUDY} back"
            )
    return collect_results(directory, study, phase)


def extras(directory: StudyDirectory, study: Study | None = None) -> dict[str, StudyResult]:
    """The results of the roles that have their own, by role; of a study's, those that its file still has."""
    found: dict[str, StudyResult] = {}
    for role in EXTRAS:
        wanted = study is None or getattr(study.spec, role) is not None
        if wanted and (directory.role(role).root / FILE).exists():
            found[role] = StudyResult.load(directory.role(role).root)
    return found


def estimates(
    study: Study,
    root: Path | None = None,
    *,
    hardware: str | None = None,
    probe: int | None = None,
    seconds: float | None = None,
    anew: bool = False,
) -> Iterator[tuple[Role, Estimate]]:
    """What each role would take; what is not tuned yet is taken to be run as written.

    hardware, probe: see `estimate`; each role has a probe of its own. seconds: a limit of all probes together. A role
    for which nothing of it is left is not probed, and says so. anew: nothing counts as recorded, as in a probe.
    """
    plan.check(study)
    directory = StudyDirectory(root) if root is not None else None
    chosen = tune.read(directory, study) if directory is not None else {}
    began = time.monotonic()
    for part in (*_developing(study, chosen), *plan.parts(study, tune.frozen(study, chosen))):
        out = None if directory is None or anew else directory.role(part.role).root
        left = None if seconds is None else seconds - (time.monotonic() - began)
        count = probe if left is None or left > 0.0 else None
        found = estimate(part.experiment, out, hardware=hardware, probe=count, seconds=left, only=part.only)
        if count is None and probe is not None:
            found = replace(found, notes=(*found.notes, "not probed: the time of the probes was over"))
        yield part.role, found


def _same_seed(study: Study, directory: StudyDirectory) -> None:
    """InputError where a study with another seed lies, before anything of it is changed."""
    if not directory.study.exists():
        return
    seed = source.read(directory.study).data.get("seed", 0)
    if seed != study.experiment.seed:
        raise InputError(
            f"{str(directory.root)!r} holds a study with seed {seed}, and this one's is {study.experiment.seed}; give "
            "another directory by --out"
        )


def _choose_settings(study: Study, directory: StudyDirectory, told: _Told) -> tune.Chosen:
    """Take the settings that are frozen already, and let development choose the others."""
    chosen = tune.read(directory, study)
    for part in _developing(study, chosen):
        try:
            _run_role(part, directory, told)
        except JournalMismatch:
            # Other problems than it was tuned on before: these are chosen on from now on, and the old run is kept.
            directory.set_aside("development")
            _run_role(part, directory, told)
        result = collect.of_run(directory.role("development"), names=part.names)
        wanted = tune.frozen(study, {})
        curves = [curve for curve in result.curves if (curve.model, curve.strategy) in wanted]
        chosen = {**{(one.model, one.strategy): one for one in tune.choose(curves)}, **chosen}
        if left := [cell for cell in wanted if cell not in chosen]:
            raise InputError(
                f"development: {'/'.join(left[0])} finished no problem, so no setting can be chosen; look at the "
                f"failures of {str(directory.role('development').root)!r}, or leave out its settings"
            )
        tune.write(directory, study, chosen)
    return chosen


def _developing(study: Study, chosen: tune.Chosen) -> Iterator[Part]:
    """Development, if anything is still to be chosen."""
    part = plan.development(study)
    if part is not None and any(cell not in chosen for cell in tune.frozen(study, {})):
        yield part


def _run_role(part: Part, study: StudyDirectory, told: _Told) -> State:
    """Run one role to its end."""
    directory = study.role(part.role)
    if (state := _complete(part, directory)) is not None:
        _LOG.info("role is complete", extra={"role": part.role, "run": str(directory.root)})
        return state
    told.begins(part.role)
    meter = told.meter
    meter.after.begin("")
    meter.done = meter.fresh = meter.problems = meter.failures = 0
    with build.open_setup(part.experiment) as setup:
        if part.only is not None and not any(
            part.only(place, problem) for place, problem in enumerate(setup.task.problems())
        ):
            raise InputError(
                f"study.development.share leaves no problem for {part.role}: there are {setup.problems} in all; give "
                "another share, or more problems"
            )
        for text in build.cautions(setup, grid=False):
            if text not in told.cautioned:
                told.cautioned.add(text)
                told.caution(text)
        state = runner.run(
            setup, RunDirectory.at(directory.root), meter, only=part.only, calls=True, observe=told.observe
        )
    if state.status != "complete":
        why = f": {state.failures[0].message}" if state.failures else ""
        error = InputError if state.failures and state.failures[0].mendable else MetagenError
        raise error(f"the role {part.role} delivered nothing{why}")
    return state


def _same(directory: RunDirectory, experiment: Experiment) -> bool:
    """Whether a run is of this experiment; what neither needs may be defined in one of them."""
    if directory.experiment.read_text(encoding="utf-8") == experiments.dump(experiment):
        return True
    try:
        before = experiments.load(directory.experiment)
    except ConfigError:
        return False
    return plan.prune_definitions(before) == plan.prune_definitions(experiment)


def _complete(part: Part, directory: RunDirectory) -> State | None:
    """How the role ended, if it has been run as it is now, on the same problems and without failures."""
    if not directory.experiment.exists():
        return None
    try:
        state = directory.final_state()
    except InputError:
        return None
    if (
        not _same(directory, part.experiment)
        or state.status != "complete"
        or state.failures
        or (part.experiment.executor.shards is None and not directory.table("calls").exists())
        or Makers.of_run(directory).files != recorded(part.experiment)
    ):
        return None
    task = registry.make("task", part.experiment.task.kind, part.experiment.task.options(), {})
    asked = {
        (problem.id, problem.prompt.digest.hex(), problem.reference, problem.level)
        for place, problem in enumerate(task.problems())
        if part.only is None or part.only(place, problem)
    }
    table = read(directory.table("problems"), ["problem", "salt", "reference", "level"])
    known = set(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return state if asked == known else None
