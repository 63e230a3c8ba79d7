"""The figures of the page: panels side by side, one legend, and all numbers as a table as well."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

from markupsafe import Markup

from metagen.analysis import figures
from metagen.analysis.figures import Axis, Line
from metagen.runs.curves.measured import Results
from metagen.runs.page.panels import level_panels, panels
from metagen.runs.words import between, percent
from metagen.runs.words import cost_amount as amount

#: Curves that are told apart easily; beyond them looks mix anew.
LEVEL = "level of difficulty"


@dataclass(frozen=True, slots=True)
class PageFigure:
    """panels: title → SVG. legend: label → SVG. rows: panel, line, x, accuracy, interval."""

    name: str
    title: str
    caption: str
    across: str
    panels: Mapping[str, Markup]
    legend: Mapping[str, Markup]
    rows: abc.Sequence[tuple[str, str, str, str, str]]


def drawn(results: Results) -> list[PageFigure]:
    """Accuracy against samples, tokens, FLOPs and by level; nothing of costs that are unknown."""
    measured = results.configurations
    if not measured:
        return []
    found = [
        _figure(
            "samples",
            "Accuracy against samples",
            "One panel for each generator. Each point is the mean over random subsets of a problem’s samples.",
            panels(measured, "generator"),
            "samples",
        )
    ]
    if all(m.generated for m in measured):
        found.append(
            _figure(
                "tokens",
                "Accuracy against tokens",
                "Tokens that the generator wrote for a problem, on average.",
                panels(measured, "generator", "generated"),
                "tokens",
            )
        )
    if all(m.flops for m in measured):
        found.append(
            _figure(
                "flops",
                "Accuracy against FLOPs",
                "All floating-point operations for a problem, the verifier’s included: one panel for each "
                "strategy, so that models of different sizes can be compared at equal compute.",
                panels(measured, "strategy", "flops"),
                "flops",
            )
        )
    if results.levels:
        largest = max(level.n or 1 for level in results.levels)
        found.append(
            _figure(
                "levels",
                "Accuracy by level",
                f"Each strategy at its largest n (at most {largest}). Bars are 95% intervals.",
                level_panels(results.levels),
                LEVEL,
            )
        )
    return found


def _figure(
    name: str, title: str, caption: str, lines: Mapping[str, abc.Sequence[Line]], x: Axis | str
) -> PageFigure:
    labels = list(dict.fromkeys(line.label for ours in lines.values() for line in ours))
    seen = [v for ours in lines.values() for line in ours for v in _accuracies(line)]
    span = (min(seen), max(seen))
    svgs = {
        panel: Markup(
            figures.inline(
                figures.panel(ours, labels, span, x=x),
                f"{name}-{i}",
                f"{title}, {panel}: {_words(ours)}",
            )
        )
        for i, (panel, ours) in enumerate(lines.items())
    }
    legend = {
        label: Markup(figures.inline(figures.swatch(label, labels), f"{name}-key-{i}", ""))
        for i, label in enumerate(labels)
    }
    rows = [row for panel, ours in lines.items() for line in ours for row in _rows(panel, line, x)]
    return PageFigure(name, title, caption, str(x), svgs, legend, rows)


def _accuracies(line: Line) -> Iterable[float]:
    return (v for column in (line.y, line.low or (), line.high or ()) for v in column if isfinite(v))


def _words(lines: abc.Sequence[Line]) -> str:
    """From where to where each line goes."""
    return "; ".join(
        f"{line.label} from {percent(line.y[0])} to {percent(line.y[-1])}"
        if len(line.y) > 1
        else f"{line.label} {percent(line.y[0])}"
        for line in lines
    )


def _rows(panel: str, line: Line, x: Axis | str) -> Iterable[tuple[str, str, str, str, str]]:
    for i, value in enumerate(line.x):
        place = (
            f"{value:g}"
            if x in ("samples", LEVEL)
            else amount(value, "generated" if x == "tokens" else "flops")
        )
        known = line.low is not None and line.high is not None
        bounds = between(line.low[i], line.high[i]) if known and line.low and line.high else "–"
        yield panel, line.label, place, percent(line.y[i]), bounds
