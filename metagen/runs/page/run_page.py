"""The page of a run: its headline, figures with their numbers, costs, problems, and how to reproduce it."""

from __future__ import annotations

import json
from collections import Counter, abc
from collections.abc import Mapping
from contextlib import ExitStack
from math import isnan
from typing import Any

from metagen.analysis.paired import paired_difference
from metagen.journal import SQLiteJournal
from metagen.runs import words
from metagen.runs.curves.measured import FEW, Measured, Results, comparable, most_accurate
from metagen.runs.directory import RunDirectory, State
from metagen.runs.page import bought, browser, figure, html_page
from metagen.runs.page.figure import accuracies_by_size
from metagen.runs.page.html_page import FIGURES, LIMIT, NAME, TABLES
from metagen.runs.questions import compare
from metagen.runs.table import audit, efforts
from metagen.runs.table.audit import Audited
from metagen.runs.table.problem import Examiner
from metagen.runs.words import between, percent
from metagen.runs.words import cost_amount as amount
from metagen.runs.work import spans
from metagen.runs.work.makers import Makers
from metagen.runs.work.spans import Span

#: What a page leaves out, and says so, where its configurations are too many: tried in this order.
LEFT_OUT: tuple[tuple[str, ...], ...] = (
    (),
    (TABLES,),
    (TABLES, FIGURES),
    (TABLES, FIGURES, "the table of configurations"),
)


def write(
    directory: RunDirectory,
    found: RunDirectory,
    state: State,
    results: Results,
    audited: abc.Sequence[Audited] = (),
) -> None:
    """Write `report.html` into a run. found: where its tables are. audited: its recorded pools."""
    generators = list(dict.fromkeys(line.generator for line in state.lines))
    with ExitStack() as stack:
        examiner = stack.enter_context(Examiner(found, state.lines))
        journal, makers, data = None, Makers.of_run(directory), ""
        if directory.journal.exists():
            journal = stack.enter_context(SQLiteJournal(directory.journal, read_only=True))
            data = journal.data().hex()

        def tree_of(number: int) -> Span | None:
            if journal is None:
                return None
            return next(spans.trees(journal, [examiner.id(number)], makers))

        spending = spans.Spending()
        with browser.Pieces(generators, len(browser.spread_numbers(len(examiner)))) as some:
            for at, number in enumerate(browser.spread_numbers(len(examiner))):
                some.add(at, examiner[number], tree_of(number))
            kept = some.fitting(LIMIT, len(examiner))
        with browser.Pieces(generators, len(examiner), kept) as pieces:
            passed: Counter[str] = Counter()
            candidates = False
            for number, problem in examiner.each():
                tree = tree_of(number)
                spending.add(number, tree.leaves() if tree else ())
                pieces.add(number, problem, tree)
                passed.update(browser.matching_filters(problem))
                candidates = candidates or any(pool.size > 1 for pool in problem.pools)
            context = {
                "counts": {name: passed[name] for name in browser.FILTERS},
                "generators": generators,
                "levels": examiner.levels,
                "total": len(examiner),
                "candidates": candidates,
                "data": data,
                "spent": spending.parts,
            }
            directory.write(NAME, _page(directory, found, state, results, audited, context, pieces))


def _page(
    directory: RunDirectory,
    found: RunDirectory,
    state: State,
    results: Results,
    audited: abc.Sequence[Audited],
    problems: Mapping[str, Any],
    pieces: browser.Pieces,
) -> str:
    """problems: what is said of them outside their browser."""
    measured = results.configurations
    context: dict[str, Any] = {
        **problems,
        "name": state.name,
        "state": state,
        "directory": directory,
        "browsed": True,
        "few": FEW if results.few else 0,
        "noted": [*state.sample_notes, *efforts.effort_lines(found)],
        "headline": headline(found, results),
        "answer": bought.answer(measured),
        "missing": results.missing(state.problems, state.lines),
        "audited": audit.report_lines(audited),
        "looked_at": sum(one.counts.samples for one in audited),
        "figures": [figure.draw_figure(plot) for plot in figure.plots(results)],
        "sizes": sorted({m.cell.n or 1 for m in measured}),
        "accuracies": accuracies_by_size(measured),
        "experiment": directory.experiment.read_text(encoding="utf-8"),
        "environment": _environment(directory),
        "study": directory.study.study if directory.study else None,
        "count": len(measured),
        "oracle": any(m.cell.oracle for m in measured),
        "pooled": any(line.pooled for line in state.lines),
    }
    advice = (
        f"without figures and tables: the experiment.yaml of {str(directory.root)!r} is too long; the tables are "
        "written, read those"
    )
    return html_page.render(
        "run.html.jinja", context, pieces.embed, left_out=LEFT_OUT, scripts=["page.js"], styles=["page.css"],
        advice=advice,
    )  # fmt: skip


def headline(directory: RunDirectory, results: Results) -> list[str]:
    """What was found, as sentences with their uncertainty: the best, and what it adds to one sample."""
    honest = comparable(results.configurations)
    best = most_accurate(honest)
    if best is None:
        return ["Every configuration of this run knows the answers: what it found are upper bounds."]
    found = [
        f"{best.cell.name} solves {percent(best.accuracy)} of {best.problems:,} problems"
        f"{_interval(best)}{_most(best, honest)}."
    ]
    if thin := sum(not m.cell.oracle for m in results.configurations) - len(honest):
        found.append(f"Not among them: {thin} that fewer than half of the problems have.")
    alike = (m for m in honest if m.cell.generator == best.cell.generator and m.cell.kind == "sample")
    single = next(alike, None)
    if single is None or single is best:
        return found
    solved = compare.accuracy_by_problem(directory, [best.cell, single.cell])
    one, many = solved[single.cell.name], solved[best.cell.name]
    shared = [id for id in one if id in many]
    gain = paired_difference([many[id] for id in shared], [one[id] for id in shared], fewest=FEW)
    least = "" if isnan(gain.detectable) else f" (smallest detectable difference {words.least(gain)} points)"
    sure = "" if gain.low > 0 else f", not shown to differ{least}"
    bounds = (
        f" (95% interval {words.signed_points(gain.low)} to {words.signed_points(gain.high)})"
        if not isnan(gain.low)
        else ""
    )
    found.append(
        f"One sample of the same model solves {percent(single.accuracy)}: "
        f"a gain of {100 * gain.estimate:.1f} points{bounds}{sure}."
    )
    if best.flops and single.flops:
        found.append(
            f"It costs {best.flops / single.flops:.3g} times the FLOPs: {amount(best.flops, 'flops')} a problem."
        )
    return found


def _most(best: Measured, honest: list[Measured]) -> str:
    """What the best is among its rivals."""
    if len(honest) < 2:
        return ""
    if best.accuracy >= max(m.accuracy for m in honest):
        return f", the most of {len(honest)} configurations"
    return f", the cheapest that ties with the most of {len(honest)} configurations"


def _interval(m: Measured) -> str:
    # A word joiner on both sides of the dash keeps the bounds on one line.
    bounds = between(m.low, m.high).replace("–", "\u2060–\u2060")
    return "" if isnan(m.low) else f" (95% interval {bounds}%)"


def _environment(directory: RunDirectory) -> dict[str, Any]:
    try:
        known: dict[str, Any] = json.loads(directory.environment.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}
    return known
