"""How good the verifiers of a run are, by generator: a report of its own, from the pools that the run left behind."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.text import Text

from metagen.analysis import diagrams, figures
from metagen.analysis.calibration import fit_temperature, log_loss, reliability
from metagen.analysis.first_error import NONE
from metagen.analysis.ragged import Bools, Floats
from metagen.analysis.verifier_quality import FEW, VerifierQuality, verifier_quality
from metagen.errors import InputError
from metagen.runs.declare import registry, schema
from metagen.runs.directory import Cell, RunDirectory, writing
from metagen.runs.names import nearest
from metagen.runs.table.tables import floats, integers, read
from metagen.runs.work import unfinished
from metagen.tasks.base import Task

#: Solutions of a problem whose steps are checked, at most.
CHECKED = 16
NOTES = """\
AUC: how often a right sample scores above a wrong one of the same problem. Regret: what an oracle would choose from
the same n, less the verifier's choice. Predicted: what the scores of right and wrong samples (of one level, where the
task has levels) promise if a problem's samples erred independently; where less is measured, errors are shared.
Accepted: a random one of what scores at least the threshold, which is chosen on these data and flatters. Intervals:
95%, over problems; none for fewer than {few} problems. Best of n goes by scores alone; in a run, samples that were cut,
or lack an answer that is needed, come behind all others, and equal scores are told apart by the raw ones.
"""


@dataclass(frozen=True, slots=True)
class Report:
    """One verifier on the pool of one generator; `wanting` says why there is none.

    scores, correct: an array for each problem, as long as its pool. note: what else is to be said. calibration: as an
    experiment file has it.
    """

    generator: str
    verifier: str
    quality: VerifierQuality | None
    scores: list[Floats]
    correct: list[Bools]
    wanting: str = ""
    note: str = ""
    calibration: str = ""

    @property
    def name(self) -> str:
        return f"{self.generator}, {self.verifier}"


def publish(
    directory: RunDirectory, verifiers: abc.Sequence[str] = (), *, calibrate: bool = False
) -> RenderableType:
    """The reports of a run, for the terminal; `quality.md` and figures beside its tables.

    verifiers: by default all that scored a pool, but for oracles. calibrate: fit a map of the scores as well. Raises
    InputError for a run without scores, and for a name that is none of its verifiers.
    """
    with unfinished.tables(directory) as (found, state):
        reports = list(examine(found, directory, verifiers, lines=state.lines, calibrate=calibrate))
    text = markdown(reports)
    directory.write("quality.md", text)
    with writing(directory.root, "the figures"):
        drawn = draw([report for report in reports if report.quality], directory.figures)
    places = Text.assemble(("report  ", "dim"), str(directory.root / "quality.md"))
    places.append("".join(f"\n        {path}" for path in drawn))
    return Group(Markdown(text), Text(), places)


def examine(
    tables: RunDirectory,
    run: RunDirectory,
    verifiers: abc.Sequence[str] = (),
    *,
    lines: abc.Sequence[Cell] | None = None,
    calibrate: bool = False,
) -> Iterator[Report]:
    """Every verifier on every pool; `tables` is where the tables of `run` are, `lines` its configurations."""
    path, lines = tables.table("candidates"), run.state().lines if lines is None else lines
    names = pq.read_schema(path).names
    known = [name.removeprefix("score.") for name in names if name.startswith("score.")]
    _check(run, verifiers, known, lines)
    oracles = {line.verifier for line in lines if line.oracle}
    checker, note = _checker(run)
    columns = ["place", "problem", "level", "generator", "sample", "text", "finish", "correct", "generated"]
    for verifier in verifiers or [name for name in known if name not in oracles]:
        table = read(path, [*columns, f"score.{verifier}", f"steps.{verifier}"])
        for generator in pc.unique(table["generator"]).to_pylist():
            pool = table.filter(pc.field("generator") == generator)
            ordered = pool.sort_by([("place", "ascending"), ("sample", "ascending")])
            found = _report(ordered, generator, verifier, checker)
            stepwise = ordered[f"steps.{verifier}"].null_count < len(ordered)
            fitted = _calibration(found) if calibrate else ""
            yield replace(found, note=note if stepwise else "", calibration=fitted)


def _check(
    run: RunDirectory, verifiers: abc.Sequence[str], known: abc.Sequence[str], lines: abc.Sequence[Cell]
) -> None:
    """InputError, with the remedy, unless there is something to report on."""
    if not known and any(line.verifier and not line.pooled for line in lines):
        raise InputError(
            f"no verifier of {str(run.root)!r} scored a pool: under a budget, and in a search, every configuration "
            "runs by itself; run it once without budget, with best_of_n or weighted"
        )
    if not known:
        raise InputError(
            f"no verifier of {str(run.root)!r} scored a pool; run it with a strategy that has one, such as best_of_n"
        )
    for name in verifiers:
        if name not in known:
            raise InputError(
                f"{name!r} scored no pool of {str(run.root)!r}; {nearest(name, known, 'verifiers')}"
            )
    if not verifiers and {line.verifier for line in lines if line.oracle} >= set(known):
        raise InputError(
            f"{', '.join(map(repr, known))}: whoever knows the right answer is no verifier to report on; give another, "
            f"such as scores that were recorded, or ask for it by --verifier {known[0]}"
        )


def _checker(run: RunDirectory) -> tuple[StepChecker | None, str]:
    """Who knows of first errors, or why nobody does: only that needs the run's data, which may be gone."""
    try:
        return StepChecker.of(run), ""
    except InputError as error:
        return None, f"First errors are not known, since the run's problems cannot be read: {error}"


def _calibration(report: Report) -> str:
    """The temperature and bias of highest likelihood, as an experiment file has them."""
    try:
        fit = fit_temperature(report.scores, report.correct, bias=True)
    except InputError as error:
        return f"No calibration: {error}"
    mapped = [fit(row) for row in report.scores]
    before, after = (log_loss(s, report.correct) for s in (report.scores, mapped))
    numbers = f"temperature: {fit.temperature:.4g}, bias: {fit.bias:.4g}"
    return (
        f"Calibrated on these samples, and meant for other problems (log loss {before:.3f}, then {after:.3f}):\n\n"
        f"    {report.verifier}-calibrated: {{kind: calibrated, verifier: {report.verifier}, {numbers}}}"
    )


def _report(pool: pa.Table, generator: str, verifier: str, checker: StepChecker | None) -> Report:
    first = np.flatnonzero(pool["sample"].to_numpy() == 0)

    def rows(name: str) -> list[Floats]:
        return np.split(floats(pool[name]), first[1:])

    scores, correct = rows(f"score.{verifier}"), [row > 0.5 for row in rows("correct")]
    lengths = rows("generated")
    levels = integers(pool["level"])[first]
    steps, places = checker.first_errors(pool, verifier) if checker else ([], [])
    try:
        quality = verifier_quality(
            scores,
            correct,
            lengths=None if any(np.isnan(row).any() for row in lengths) else lengths,
            steps=steps or None,
            first_errors=places or None,
            groups=levels if len(set(levels.tolist())) > 1 else None,
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
        more = "".join(f"\n{text}\n" for text in (report.note, report.calibration) if text)
        parts.append(f"## {report.name}\n\n{body}{more}")
    return "\n".join([*parts, NOTES.format(few=FEW)])


def draw(reports: abc.Sequence[Report], folder: Path) -> list[Path]:
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
