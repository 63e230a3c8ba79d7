"""A study's report: its sections asked for, the page written, and what a terminal shows of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from metagen.analysis.ties import ENOUGH
from metagen.runs import study as run
from metagen.runs.curves.study import Curve, StudyResult
from metagen.runs.declare import study_schema as schema
from metagen.runs.declare.study import Study
from metagen.runs.directory import RunDirectory, StudyDirectory
from metagen.runs.questions.section import Finding, Section
from metagen.runs.work.garbage import rarely
from metagen.runs.work.progress import Phase

#: Costs that the terminal shows, where they are known: in this order, so many.
SHOWN = ("flops", "tokens", "samples")
#: Notes that the terminal shows; the report has all.
NOTES = 5


def again(
    directory: StudyDirectory, phase: Phase | None = None, *, papers: bool = False
) -> tuple[StudyResult, list[Section]]:
    """Publish a study that has been run anew, collected again where that is needed; see `publish`.

    Raises InputError for one not finished.
    """
    study = schema.load(directory.study)
    return publish(directory, study, run.results(directory, study, phase), phase, papers=papers)


@rarely()
def publish(
    directory: StudyDirectory,
    study: Study,
    result: StudyResult,
    phase: Phase | None = None,
    *,
    papers: bool = False,
) -> tuple[StudyResult, list[Section]]:
    """Write the report of a result, with all that findings can tell of it. phase: is told how far this is.

    papers: draws figures as PDF and PNG, too. Sections and files of the last report stay where everything that they are
    made of is the same.
    """
    from metagen.runs.page import kept
    from metagen.runs.page import study_page as page
    from metagen.runs.page.workers import Workers

    phase, root = phase or Phase(), directory.root
    made_of = kept.digest_sections(result, study, run.extras(directory, study))
    with Workers.of(result) as workers:
        whole, looked = kept.digest_page(directory, made_of), None
        if (found := kept.load(root, made_of)) is None:
            looked, found = page.choose(root, workers), []

        def made() -> Iterator[Section]:
            if looked is None:
                yield from found
            else:
                for section in sections(result, study, directory, phase):
                    found.append(section)
                    yield section
                kept.save(root, made_of, found)
            phase.begin("page")

        coming = made()
        page.publish(root, result, coming, papers=papers, made_of=whole, workers=workers, looked=looked)
        for _ in coming:  # of a page that stays as it is
            pass
    return result, found


def sections(
    result: StudyResult, study: Study, directory: StudyDirectory, phase: Phase | None = None
) -> Iterator[Section]:
    """Every section of the report that these results can fill, each when it is asked for."""
    from metagen.runs.questions import ask as questions
    from metagen.runs.questions import efficiency
    from metagen.runs.questions.alignment import section as alignment

    extras = run.extras(directory, study)
    yield from questions.sections(result, extras, study.spec.alignment, phase)
    if study.spec.alignment is not None:
        yield alignment.section(result, study.spec.alignment)
    yield efficiency.section(result)


def data(result: StudyResult, found: Iterable[Section], directory: RunDirectory) -> dict[str, Any]:
    """For JSON: configurations with their means, and the answers; what is unknown is null."""
    return {
        "name": result.name, "directory": str(directory.root), "problems": len(result.problems), "seed": result.seed,
        "configurations": [
            {
                "name": curve.configuration(point), "model": curve.model, "strategy": curve.strategy,
                "setting": curve.setting, "n": int(n), "oracle": curve.oracle,
                "problems": int(np.isfinite(curve.accuracy[point]).sum()),
                "accuracy": _nan_to_none(_mean(curve.accuracy[point])),
                "costs": {name: _nan_to_none(_mean_cost(curve, name, point)) for name in curve.costs},
            }
            for curve in result.curves
            for point, n in enumerate(curve.ns)
        ],
        "findings": [
            {
                "question": one.question, "answer": one.sentence, "shown": one.shown, "details": list(one.details),
            }
            for one in _findings(found)
        ],
        "notes": [f"{note.about}: {note.text}" for note in result.notes], "failures": failures(result),
    }  # fmt: skip


def render(result: StudyResult, found: Iterable[Section], directory: StudyDirectory) -> RenderableType:
    """For the terminal: every strategy at the largest n that half of the problems have, answers and gaps."""
    known = _costs(result)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("model", "strategy", "n", "setting"):
        table.add_column(column, justify="right" if column == "n" else "left")
    for column in ("solved", *known):
        table.add_column(column, justify="right")
    for curve in result.curves:
        table.add_row(*_row(curve, known))
    answers = [Text.assemble((f"{one.question} ", "bold"), one.sentence) for one in _findings(found)]
    head = f"{result.name}: {len(result.problems):,} problems, seed {result.seed}"
    notes = [Text(f"note: {note.about}: {note.text}", style="dim") for note in result.notes[:NOTES]]
    if (more := len(result.notes) - NOTES) > 0:
        notes.append(Text(f"… and {more:,} more in the report", style="dim"))
    failed = [
        Text(f"{role}: {count:,} failure{'s' if count > 1 else ''}", style="red")
        for role, count in failures(result).items()
    ]
    where = Text(f"report: {directory.root / 'report.html'}")
    return Group(Text(head, style="bold"), table, *answers, *notes, *failed, where)


def failures(result: StudyResult) -> dict[str, int]:
    """How often the work on a problem failed, of each role where any did."""
    roles = result.facts.get("roles", {})
    return {name: role["failures"] for name, role in roles.items() if role.get("failures")}


def _costs(result: StudyResult) -> list[str]:
    """The cost to show: the first that most curves know, of any problem."""
    for name in SHOWN:
        known = [
            curve for curve in result.curves if name in curve.costs and np.isfinite(curve.costs[name]).any()
        ]
        if len(known) * 2 > len(result.curves):
            return [name]
    return []


def _row(curve: Curve, costs: Iterable[str]) -> list[str]:
    """A curve at the last point that half of the problems have; where none has, at the first."""
    strategy = f"{curve.strategy} (oracle)" if curve.oracle else curve.strategy
    counts, every = np.isfinite(curve.accuracy).sum(axis=1), curve.accuracy.shape[1]
    point = int(np.flatnonzero(counts >= ENOUGH * every).max(initial=0))
    n, solved, count = int(curve.ns[point]), _mean(curve.accuracy[point]), int(counts[point])
    spent = [_mean_cost(curve, name, point) for name in costs]
    share = "–" if math.isnan(solved) else f"{100 * solved:.1f}%"
    share += "" if count == every else f" ({count:,} of {every:,})"
    amounts = ["–" if math.isnan(value) else f"{value:.3g}" for value in spent]
    return [curve.model, strategy, str(n) if n else "", curve.setting, share, *amounts]


def _mean_cost(curve: Curve, cost: str, point: int) -> float:
    """The mean over the problems that have the result, and whose cost is known."""
    if cost not in curve.costs:
        return math.nan
    return _mean(curve.costs[cost][point, np.isfinite(curve.accuracy[point])])


def _findings(found: Iterable[Section]) -> list[Finding]:
    return [finding for section in found for finding in section.findings]


def _mean(values: Any) -> float:
    known = np.asarray(values)[np.isfinite(values)]
    return float(known.mean()) if known.size else math.nan


def _nan_to_none(value: float) -> float | None:
    return None if math.isnan(value) else value
