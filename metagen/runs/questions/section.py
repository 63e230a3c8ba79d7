"""What the report is made of: questions with answers, plots and tables, in sections that any part may give.

Values, no drawing: the page draws them as SVG, the paper's figures as PDF, and Markdown takes the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import Literal

from metagen.analysis.figures import Line
from metagen.runs.curves.study import Floats
from metagen.runs.note import Note
from metagen.runs.words import PER_PROBLEM


def has_band(panels: Mapping[str, Sequence[Line]]) -> bool:
    """Whether a line has bounds, which are drawn as a band."""
    return any(line.low is not None for lines in panels.values() for line in lines)


@dataclass(frozen=True, slots=True)
class Finding:
    """One question, and what these data say.

    sentence: the answer with its number and interval. estimate, low, high: in `unit`, such as points of accuracy.
    p_value: corrected by Holm within its family; NaN if it is no test. detectable: where nothing is shown, the least
    difference that would have been found with probability 0.8; inf where so few problems can show none of any size.
    claim, source: what was published, and where.
    shown: whether the data answer the question; False: they cannot tell. details: the other comparisons, a line each.
    """

    question: str
    sentence: str
    estimate: float = nan
    low: float = nan
    high: float = nan
    unit: str = ""
    p_value: float = nan
    detectable: float = nan
    claim: str = ""
    source: str = ""
    shown: bool = True
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """name: a file's. columns; rows of words, as many in each. numeric: columns that are set right."""

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines in panels. x, y: labels of the axes, with units. y_log: for errors. marks: x → words, as vertical lines;
    points: label → (x, y), such as limits, drawn hollow. steps: lines are steps (frontiers).
    """

    name: str
    title: str
    caption: str
    x: str
    y: str
    panels: Mapping[str, Sequence[Line]]
    x_scale: Literal["log", "log2", "linear"] = "log"
    y_log: bool = False
    steps: bool = False
    marks: Mapping[float, str] = field(default_factory=dict)
    points: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)

    @property
    def whole_title(self) -> str:
        """With the cost that it is drawn against: plots of one quantity share their title."""
        return f"{self.title}, against {self.x}" if self.x.endswith(PER_PROBLEM) else self.title


@dataclass(frozen=True, slots=True, eq=False)
class Heat:
    """A matrix as a picture: values [rows, columns], NaN stays blank; words for each cell are made by `form`."""

    name: str
    title: str
    caption: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Floats
    form: str = "{:.1%}"
    axes: tuple[str, str] = ("", "")

    @property
    def whole_title(self) -> str:
        return self.title


@dataclass(frozen=True, slots=True)
class Section:
    """name: its anchor in the page. text: a paragraph of method, plain words."""

    name: str
    title: str
    text: str = ""
    findings: tuple[Finding, ...] = ()
    pictures: tuple[Plot | Heat, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[Note, ...] = ()
