"""The report as one HTML page: everything in it, nothing fetched, and safe whatever models wrote.

What is read first (the headline, figures with their numbers, costs, what it takes to reproduce them) is plain HTML; the
browser of problems is a small script over compressed data. Texts of models and data sets reach the page escaped,
or as data that the script shows as text; a content security policy lets no other script run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter, abc
from collections.abc import Mapping
from importlib import resources
from math import isnan
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from metagen.analysis.paired import paired_difference
from metagen.errors import DataError
from metagen.journal import SQLiteJournal
from metagen.runs import words
from metagen.runs.curves.measured import FEW, Measured, Results, most_accurate
from metagen.runs.directory import RunDirectory, State
from metagen.runs.page import browser, figure
from metagen.runs.page.panels import accuracies_by_size
from metagen.runs.questions import compare
from metagen.runs.table import audit
from metagen.runs.table.audit import Audited
from metagen.runs.table.problem import Examiner
from metagen.runs.words import between, duration, percent, plus_minus
from metagen.runs.words import cost_amount as amount
from metagen.runs.work import spans
from metagen.runs.work.makers import Makers
from metagen.runs.work.spans import Span

NAME = "report.html"
#: Bytes of a page at most.
LIMIT = 5_000_000
#: Of these, what the data of problems leave to the rest.
SPARE = 50_000
#: What a page leaves out, and says so, where its configurations are too many: tried in this order.
LEFT_OUT: tuple[tuple[str, ...], ...] = (
    (),
    ("the tables below figures",),
    ("the tables below figures", "the figures"),
    ("the tables below figures", "the figures", "the table of configurations"),
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
    with Examiner(found, state.lines) as examiner:
        trees: list[Span | None] = [None] * len(examiner)
        data = ""
        if directory.journal.exists():
            with SQLiteJournal(directory.journal, read_only=True) as journal:
                data = journal.data().hex()
                trees = list(spans.trees(journal, examiner.ids, Makers.recorded(directory)))
        with browser.Pieces(generators, len(browser.sampled(len(examiner)))) as some:
            for at, number in enumerate(browser.sampled(len(examiner))):
                some.add(at, examiner[number], trees[number])
            kept = some.fitting(LIMIT, len(examiner))
        with browser.Pieces(generators, len(examiner), kept) as pieces:
            passed: Counter[str] = Counter()
            candidates = False
            for number, problem in examiner.each():
                pieces.add(number, problem, trees[number])
                passed.update(browser.passed(problem))
                candidates = candidates or any(pool.size > 1 for pool in problem.pools)
            levels = sorted({level for level in examiner.levels if level is not None})
            context = {
                "counts": {name: passed[name] for name in browser.FILTERS},
                "generators": generators,
                "levels": levels,
                "total": len(examiner),
                "candidates": candidates,
                "data": data,
                "parts": spans.parts(trees),
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
    files = resources.files("metagen.runs.page")
    script, style = (files.joinpath(name).read_text(encoding="utf-8") for name in ("page.js", "page.css"))
    context: dict[str, Any] = {
        **problems,
        "state": state,
        "directory": directory,
        "few": FEW if results.few else 0,
        "noted": state.noted,
        "headline": headline(found, state, results),
        "missing": state.problems - min(m.problems for m in results.configurations),
        "audited": audit.said(audited),
        "looked_at": sum(one.counts.samples for one in audited),
        "figures": figure.drawn(results),
        "sizes": sorted({m.n or 1 for m in results.configurations}),
        "accuracies": accuracies_by_size(results.configurations),
        "filters": browser.FILTERS,
        "experiment": directory.experiment.read_text(encoding="utf-8"),
        "environment": _environment(directory),
        "count": len(results.configurations),
        "limit": LIMIT // 1_000_000,
        "oracle": any(m.oracle for m in results.configurations),
        "pooled": any(line.pooled for line in state.lines),
        "style": Markup(style),
        "script": Markup(script),
        "hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }
    template = _environment_of_templates().get_template("page.html.jinja")
    room = 0
    for left_out in LEFT_OUT:
        context["left_out"] = left_out
        without = template.render(context, embedded=browser.Embedded("", None, 0))
        room = LIMIT - SPARE - len(without.encode("utf-8", "backslashreplace"))
        if room >= 0:
            break
    embedded = pieces.embed(room)
    page = template.render(context, embedded=embedded)
    if (size := len(page.encode("utf-8", "backslashreplace"))) > LIMIT:
        raise DataError(
            f"the page of {str(directory.root)!r} would take {size / 1e6:.1f} MB, more than {LIMIT / 1e6:.0f}, even "
            "without figures and tables: its experiment.yaml is too long; the tables are written, read those"
        )
    return page


def headline(directory: RunDirectory, state: State, results: Results) -> list[str]:
    """What was found, as sentences with their uncertainty: the best, and what it adds to one sample."""
    honest = [m for m in results.configurations if not m.oracle]
    best = most_accurate(honest)
    if best is None:
        return ["Every configuration of this run knows the answers: what it found are upper bounds."]
    found = [
        f"{best.configuration} solves {percent(best.accuracy)} of {best.problems:,} problems"
        f"{_interval(best)}{_most(best, honest)}."
    ]
    by_name = {line.name: line for line in state.lines}
    single = next(
        (m for m in honest if m.generator == best.generator and by_name[m.configuration].kind == "sample"),
        None,
    )
    if single is None or single is best:
        return found
    solved = compare.solved(directory, [by_name[best.configuration], by_name[single.configuration]])
    one, many = solved[single.configuration], solved[best.configuration]
    shared = [id for id in one if id in many]
    gain = paired_difference([many[id] for id in shared], [one[id] for id in shared])
    least = "" if isnan(gain.detectable) else f" (smallest detectable difference {words.least(gain)} points)"
    sure = "" if gain.low > 0 else f", not shown to differ{least}"
    bounds = (
        f" (95% interval {words.signed(gain.low)} to {words.signed(gain.high)})"
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


def _environment_of_templates() -> Environment:
    made = Environment(
        loader=PackageLoader("metagen.runs", "page"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "percent": percent,
        "duration": duration,
        "amount": lambda value: "unknown" if value is None else amount(value, "generated"),
        "between": lambda m: between(m.low, m.high),
        "stderr": lambda m: plus_minus(m.stderr),
    }
    return made
