"""The files beside a study's page: figures, tables as CSV, and a list of both."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Set
from io import StringIO
from pathlib import Path

from matplotlib.figure import Figure

from metagen.analysis import study_figures
from metagen.runs.page.draw import file_name
from metagen.runs.page.kept import Record, digest_drawing
from metagen.runs.questions.section import Table

#: The figures and tables that a report is made of, a path on each line.
WRITTEN = "files.txt"


def write_figures(
    root: Path, figures: Iterable[tuple[str, Figure]], before: Record, *, papers: bool
) -> list[Path]:
    """`figures/NAME.svg` of each; equal figures give equal bytes. Returns the paths.

    papers: `.png` and `.pdf` too; they are drawn only where something has changed since the report before.
    """
    (root / "figures").mkdir(exist_ok=True)
    same, files = before.drawn_by == digest_drawing(), []
    for name, figure in figures:
        stem = root / "figures" / name
        files.append(study_figures.save_svg(figure, stem))
        if papers:
            three = [f"figures/{name}.{ending}" for ending in ("svg", "png", "pdf")]
            if not (same and before.holds(root, three)):
                study_figures.save_printed(figure, stem)
            files += [root / path for path in three[1:]]
    return files


def write_tables(root: Path, tables: Iterable[tuple[str, Table]]) -> list[Path]:
    """`tables/NAME.csv` of each, by its name. Returns the paths."""
    (root / "tables").mkdir(exist_ok=True)
    files = []
    for name, table in tables:
        file = root / "tables" / f"{file_name(name)}.csv"
        written = StringIO()
        csv.writer(written, lineterminator="\n").writerows([table.columns, *table.rows])
        file.write_text(written.getvalue(), encoding="utf-8", errors="backslashreplace", newline="")
        files.append(file)
    return files


def listed(root: Path) -> list[str]:
    """The figures and tables of the last report in `root`."""
    record = root / WRITTEN
    return record.read_text(encoding="utf-8").splitlines() if record.is_file() else []


def renew(root: Path, files: Set[str]) -> None:
    """List what a report has written; remove what an earlier one did and this one does not."""
    for name in sorted(set(listed(root)) - files):
        if re.fullmatch(r"(figures|tables)/[\w.-]+", name):  # nothing else is a report's
            (root / name).unlink(missing_ok=True)
    (root / WRITTEN).write_text("".join(f"{name}\n" for name in sorted(files)), encoding="utf-8", newline="")
