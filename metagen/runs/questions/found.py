"""What lies at a path, a study or a finished run: what was found, and the run that measured it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from metagen.runs import directory
from metagen.runs.curves.study import StudyResult
from metagen.runs.declare import source
from metagen.runs.directory import RunDirectory


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """result: all that is known. run: of a study, its `test`; root: of the study, or of the run."""

    root: Path
    result: StudyResult
    run: RunDirectory

    @property
    def study(self) -> bool:
        return self.root != self.run.root


def find(path: str | Path) -> Found:
    """The study or run at `path`, or of that name below `runs`; InputError for none, and for one that is not finished.

    A study's results are collected again where something has changed since.

    A plain run has no accelerators and no sizes: what needs them is unknown.
    """
    from metagen.runs import study as studies
    from metagen.runs.curves import collect
    from metagen.runs.curves.recorded import add_critique_costs
    from metagen.runs.declare import study_schema

    at = directory.find(path)
    if isinstance(at, RunDirectory):
        result = collect.of_run(at)
        return Found(at.root, add_critique_costs(result) if _is_replay(at) else result, at)
    # Results that came without a note of what they are made of are taken as they are.
    noted = (at.root / studies.COLLECTED).exists()
    result = studies.results(at, study_schema.load(at.study)) if noted else StudyResult.load(at.root)
    return Found(at.root, result, at.role("test"))


def _is_replay(run: RunDirectory) -> bool:
    """Whether its samples were recorded elsewhere, so that its verifiers cost it nothing."""
    generators = source.read(run.experiment).data.get("generators")
    kinds = generators.values() if isinstance(generators, dict) else ()
    return any(isinstance(spec, dict) and spec.get("kind") == "replay" for spec in kinds)
