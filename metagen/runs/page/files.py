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
    drawing: draw.Drawing,
    before: Record | None,
    workers: Workers,
) -> list[Path]:
    """`figures/NAME.svg` of each, by its name; equal pictures give equal bytes. Returns the paths.

    before: the last report, of which PNG and PDF stay where nothing has changed; None draws none.
    """
    (root / "figures").mkdir(exist_ok=True)
    stems = [root / "figures" / name for name in pictures]
    for picture, stem in zip(pictures.values(), stems, strict=True):
        Path(f"{stem}.svg").write_text(drawing.whole(picture), encoding="utf-8", newline="\n")
    endings = ["svg"]
    if before is not None:
        kept = before if before.drawn_by == digest_drawing() else Record()
        endings += ["png", "pdf"]
        pairs = zip(pictures.values(), stems, strict=True)
        workers.map(_print, [(picture, stem) for picture, stem in pairs if not _held(kept, stem, endings)])
    return [Path(f"{stem}.{ending}") for stem in stems for ending in endings]


def _held(kept: Record, stem: Path, endings: Iterable[str]) -> bool:
    return kept.holds(stem.parent.parent, [f"figures/{stem.name}.{ending}" for ending in endings])


def _print(given: tuple[Plot | Heat | draw.Best, Path]) -> None:
    picture, stem = given
    study_figures.save_printed(draw.whole(picture), stem)


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
