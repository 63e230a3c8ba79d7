"""How good the verifiers of a run are, by generator: a report of its own, from the pools that the run left behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.text import Text

from metagen.analysis import diagrams, figures
from metagen.analysis.calibration import reliability
from metagen.analysis.first_error import NONE
from metagen.analysis.verifier_quality import VerifierQuality, verifier_quality
from metagen.errors import InputError
from metagen.experiments import registry, schema, unfinished
from metagen.experiments.directory import RunDirectory, nearest, writing
from metagen.experiments.tables import read
from metagen.tasks.base import Task

#: Solutions of a problem whose steps are checked, at most.
CHECKED = 16
NOTES = """\
AUC: how often a right sample scores above a wrong one of the same problem. Regret: what an oracle would choose from
the same n, less the verifier's choice. Predicted: what the scores of right and wrong samples promise if a problem's
samples erred independently; where less is measured, errors are shared. Accepted: a random one of what scores at least
the threshold, which is chosen on these data and flatters. Intervals: 95%, bootstrap over problems.
"""


@dataclass(frozen=True, slots=True)
class Report:
    """One verifier on the pool of one generator; `wanting` says why there is none."""

    generator: str
    verifier: str
    quality: VerifierQuality | None
    scores: np.ndarray[Any, Any]
    correct: np.ndarray[Any, Any]
    wanting: str = ""

    @property
    def name(self) -> str:
        return f"{self.generator}, {self.verifier}"


def publish(directory: RunDirectory, verifiers: Ordered[str] = ()) -> RenderableType:
    """The reports of a run, for the terminal; `quality.md` and figures beside its tables.

    verifiers: by default all that scored a pool. Raises InputError for a run without scores, and for a name that is
    none of its verifiers.
    """
    with unfinished.tables(directory) as (found, _):
        reports = list(examine(found, directory, verifiers))
    text = markdown(reports)
    directory.write("quality.md", text)
    with writing(directory.root, "the figures"):
        drawn = draw([report for report in reports if report.quality], directory.figures)
    places = Text.assemble(("report  ", "dim"), str(directory.root / "quality.md"))
    places.append("".join(f"\n        {path}" for path in drawn))
    return Group(Markdown(text), Text(), places)


def examine(tables: RunDirectory, run: RunDirectory, verifiers: Ordered[str] = ()) -> Iterator[Report]:
    """Every verifier on every pool; `tables` is where the tables of `run` are."""
    path = tables.table("candidates")
    names = pq.read_schema(path).names
    known = [name.removeprefix("score.") for name in names if name.startswith("score.")]
    if not known:
        raise InputError(
            f"no verifier of {str(run.root)!r} scored a pool; run it with a strategy that has one, such as best_of_n"
        )
    for name in verifiers:
        if name not in known:
            raise InputError(
                f"{name!r} scored no pool of {str(run.root)!r}; {nearest(name, known, 'verifiers')}"
            )
    checker = StepChecker.of(run)
    columns = ["place", "problem", "generator", "sample", "text", "finish", "correct", "generated"]
    for verifier in verifiers or known:
        table = read(path, [*columns, f"score.{verifier}", f"steps.{verifier}"])
        for generator in pc.unique(table["generator"]).to_pylist():
            pool = table.filter(pc.field("generator") == generator)
            yield _report(
                pool.sort_by([("place", "ascending"), ("sample", "ascending")]), generator, verifier, checker
            )


def _report(pool: pa.Table, generator: str, verifier: str, checker: StepChecker) -> Report:
    samples = int(pc.max(pool["sample"]).as_py()) + 1

    def array(name: str) -> np.ndarray[Any, Any]:
        values = pc.cast(pool[name], pa.float64()).to_numpy()
        return np.asarray(values, dtype=np.float64).reshape(-1, samples)

    scores, correct = array(f"score.{verifier}"), array("correct") > 0.5
    lengths = array("generated")
    steps, places = checker.first_errors(pool, verifier)
    try:
        quality = verifier_quality(
            scores,
            correct,
            lengths=None if np.isnan(lengths).any() else lengths,
            steps=steps or None,
            first_errors=places or None,
        )
    except InputError as error:
        return Report(generator, verifier, None, scores, correct, str(error))
    return Report(generator, verifier, quality, scores, correct)


class StepChecker:
    """Which step of a solution is the first wrong one, where the task can tell."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._problems = {problem.id: problem for problem in task.problems()}

    @classmethod
    def of(cls, run: RunDirectory) -> StepChecker:
        spec = schema.load(run.experiment).task
        return cls(registry.make("task", spec.kind, spec.options(), {}))

    def first_errors(self, pool: pa.Table, verifier: str) -> tuple[list[list[float]], list[int]]:
        """Scores of steps, and the place of the first wrong one, -1 for none, of up to CHECKED solutions a problem."""
        some = pool.filter(pc.field("sample") < CHECKED).select(
            ["problem", "text", "finish", f"steps.{verifier}"]
        )
        found: list[list[float]] = []
        places = []
        for row in some.to_pylist():
            steps, problem = row[f"steps.{verifier}"], self._problems.get(row["problem"])
            if not steps or problem is None:
                continue
            right = self._task.check_steps(problem, row["text"], finished=row["finish"] in ("eos", "stop"))
            # A verifier that cuts steps otherwise than the task cannot be held against it.
            if right is not None and len(right) == len(steps):
                found.append(steps)
                places.append(right.index(False) if False in right else NONE)
        return found, places


def markdown(reports: Iterable[Report]) -> str:
    """All reports as one text."""
    parts = ["# Verifiers\n"]
    for report in reports:
        body = report.quality.markdown() if report.quality else f"No report: {report.wanting}\n"
        parts.append(f"## {report.name}\n\n{body}")
    return "\n".join([*parts, NOTES])


def draw(reports: Ordered[Report], folder: Path) -> list[Path]:
    """Reliability, and the best of n beside what was to be expected; PNG and SVG each."""
    if not reports:
        return []
    panels = {r.name: reliability(r.scores, r.correct) for r in reports}
    lines = {r.name: diagrams.best_of_n_lines(r.quality) for r in reports if r.quality}
    folder.mkdir(exist_ok=True)
    drawn: list[Path] = []
    for name, figure in (
        ("reliability", diagrams.reliability_diagram(panels)),
        ("verifiers", figures.curves(lines)),
    ):
        drawn += figures.save(figure, folder / name)
    return drawn
