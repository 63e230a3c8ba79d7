"""Parts of a study's report that stay as they are while nothing that they are made of has changed.

`sections.json` holds the sections, `reported.json` a digest of each file of the report. Both name what they are made
of: the results, the study, the records beside them, the code of metagen and the versions of its numerics.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

import metagen
from metagen.analysis.figures import Line
from metagen.runs.curves.study import StudyResult
from metagen.runs.declare import registry, study_schema
from metagen.runs.declare.study import Study
from metagen.runs.directory import RunDirectory, StudyDirectory, environment
from metagen.runs.note import Note
from metagen.runs.questions.section import Finding, Heat, Plot, Section, Table
from metagen.sequence import digest

SECTIONS, RECORD = "sections.json", "reported.json"
#: Files of the package that a report depends on.
CODE = (".py", ".jinja", ".css", ".js")
#: Endings of the files of a run that its page is made of: tables, journal, state.
BESIDE = (".parquet", ".sqlite", ".sqlite-wal", ".json", ".yaml")
#: Traits of kinds of strategies, for which sections ask.
TRAITS = ("adaptive", "chooses", "poolable", "searches", "thinks", "votes")


@dataclass(frozen=True, slots=True)
class Record:
    """The last report: all that it was made of and all that drew its figures, as digests, and that of each file.

    papers: whether it drew figures for papers.
    """

    made_of: str = ""
    drawn_by: str = ""
    papers: bool = False
    files: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> Record:
        """That of the last report in `root`; one of nothing, where there is none that can be read."""
        with suppress(OSError, ValueError, TypeError):
            return cls(**json.loads((root / RECORD).read_text(encoding="utf-8")))
        return cls()

    def write(self, root: Path) -> None:
        RunDirectory(root).write(RECORD, json.dumps(asdict(self), indent=1) + "\n")

    def holds(self, root: Path, names: Iterable[str]) -> bool:
        """Whether the report wrote these files, and all are as it wrote them."""
        return all(self.files.get(name) == digest_file(root / name) != "" for name in names)


def forget(root: Path) -> None:
    """While a report is being made, nothing says what its files are made of."""
    (root / RECORD).unlink(missing_ok=True)


def digest_file(path: Path) -> str:
    """Of its content; empty for a file that is not there."""
    try:
        return digest(path.read_bytes()).hex()
    except OSError:
        return ""


def digest_drawing() -> str:
    """Of what draws figures: a change of it may change them where their data are the same."""
    root = Path(metagen.__file__).parent / "analysis"
    return digest(matplotlib.__version__, *(path.read_bytes() for path in sorted(root.glob("*.py")))).hex()


def digest_sections(result: StudyResult, study: Study, extras: Mapping[str, StudyResult]) -> str:
    """Names all that the sections of a study are made of."""
    results = [result, *extras.values()]
    kinds = sorted({curve.kind for one in results for curve in one.curves})
    said = [f"{kind} {trait} {registry.says(kind, trait)}" for kind in kinds for trait in TRAITS]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "scipy")]
    contents = [one.digest() for one in results]
    return digest(_code(), *versions, *said, study_schema.dump(study), *extras, *contents).hex()


def digest_page(directory: StudyDirectory, made_of: str) -> str:
    """Names all that the page of a study is made of. made_of: of its sections."""
    test = directory.role("test")
    beside = sorted(path for path in test.root.glob("*") if path.suffix in BESIDE and path.stat().st_size)
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("matplotlib", "jinja2")]
    if not test.environment.exists():  # the page then tells of this machine
        versions.append(json.dumps(environment()))
    files = [digest_file(path) for path in (directory.study, directory.frozen)]
    return digest(made_of, str(directory.root), *versions, *map(_stat, beside), *files).hex()


def load(root: Path, made_of: str) -> list[Section] | None:
    """The sections that were kept, if they are made of the same; otherwise None."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        data = json.loads((root / SECTIONS).read_text(encoding="utf-8"))
        if data["made_of"] == made_of:
            return [_section(one) for one in data["sections"]]
    return None


def save(root: Path, made_of: str, sections: Sequence[Section]) -> None:
    """Keep sections for the next report."""
    data = {"made_of": made_of, "sections": [_plain(section) for section in sections]}
    RunDirectory(root).write(SECTIONS, json.dumps(data) + "\n")


def _stat(path: Path) -> str:
    known = path.stat()
    return f"{path.name} {known.st_size} {known.st_mtime_ns}"


def _code() -> bytes:
    root = Path(metagen.__file__).parent
    files = sorted(path for path in root.rglob("*") if path.suffix in CODE)
    return digest(metagen.__version__, *(path.read_bytes() for path in files))


# ------------------------------------------------------------------------------------------------ as JSON


def _plain(section: Section) -> dict[str, Any]:
    return {
        **asdict(section),
        "pictures": [_plain_plot(one) if isinstance(one, Plot) else _plain_heat(one) for one in section.pictures],
        "tables": [{**asdict(one), "numeric": sorted(one.numeric)} for one in section.tables],
    }  # fmt: skip


def _plain_plot(plot: Plot) -> dict[str, Any]:
    # Keys of JSON are words.
    return {**asdict(plot), "marks": [[at, words] for at, words in plot.marks.items()]}


def _plain_heat(heat: Heat) -> dict[str, Any]:
    return {**asdict(heat), "values": np.asarray(heat.values).tolist()}


def _section(data: Mapping[str, Any]) -> Section:
    return Section(
        data["name"], data["title"], data["text"],
        tuple(Finding(**{**one, "details": tuple(one["details"])}) for one in data["findings"]),
        tuple(_plot(one) if "panels" in one else _heat(one) for one in data["pictures"]),
        tuple(_table(one) for one in data["tables"]),
        tuple(Note(**one) for one in data["notes"]),
    )  # fmt: skip


def _plot(data: Mapping[str, Any]) -> Plot:
    panels = {name: [Line(**line) for line in lines] for name, lines in data["panels"].items()}
    points = {
        name: {label: (x, y) for label, (x, y) in ours.items()} for name, ours in data["points"].items()
    }
    return Plot(**{**data, "panels": panels, "marks": dict(data["marks"]), "points": points})


def _heat(data: Mapping[str, Any]) -> Heat:
    lists = {name: tuple(data[name]) for name in ("rows", "columns", "axes")}
    return Heat(**{**data, **lists, "values": np.array(data["values"], dtype=np.float64)})


def _table(data: Mapping[str, Any]) -> Table:
    rows = tuple(tuple(row) for row in data["rows"])
    return Table(data["name"], data["caption"], tuple(data["columns"]), rows, frozenset(data["numeric"]))
