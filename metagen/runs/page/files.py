"""The files beside a study's page: figures, tables as CSV, and a list of both."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Set
from io import StringIO
from pathlib import Path

from metagen.analysis import study_figures
from metagen.runs.page import draw
from metagen.runs.page.draw import file_name
from metagen.runs.page.kept import Record, digest_drawing
from metagen.runs.page.workers import Workers
from metagen.runs.questions.section import Heat, Plot, Table

#: The figures and tables that a report is made of, a path on each line.
WRITTEN = "files.txt"


def write_figures(
    root: Path,
    pictures: Mapping[str, Plot | Heat | draw.Best],
    before: Record,
    *,
    papers: bool,
    workers: Workers,
) -> list[Path]:
    """`figures/NAME.svg` of each, by its name; equal pictures give equal bytes. Returns the paths.

    papers: `.png` and `.pdf` too; they are drawn only where something has changed since the report before.
    """
    (root / "figures").mkdir(exist_ok=True)
    same = before.drawn_by == digest_drawing()
    endings = ("svg", "png", "pdf") if papers else ("svg",)
    stems = [root / "figures" / name for name in pictures]
    kept = before if same else Record()
    pairs = zip(pictures.values(), stems, strict=True)
    workers.map(_write_figure, [(picture, stem, kept, papers) for picture, stem in pairs])
    return [stem.with_name(f"{stem.name}.{ending}") for stem in stems for ending in endings]


def _write_figure(given: tuple[Plot | Heat | draw.Best, Path, Record, bool]) -> None:
    """before: what need not be drawn anew for papers, where the SVG is the same."""
    picture, stem, before, papers = given
    figure = draw.whole(picture)
    study_figures.save_svg(figure, stem)
    names = [f"figures/{stem.name}.{ending}" for ending in ("svg", "png", "pdf")]
    if papers and not before.holds(stem.parent.parent, names):
        study_figures.save_printed(figure, stem)


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
