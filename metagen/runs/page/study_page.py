"""The report of a study: one HTML page that fetches nothing, Markdown with figures for papers, and tables as CSV.

Sections come from the questions and from the curves; they are drawn here, all alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

from metagen.runs import words
from metagen.runs.curves.measured import FEW
from metagen.runs.curves.study import StudyResult
from metagen.runs.directory import FROZEN, RunDirectory, environment, writing
from metagen.runs.names import STUDY
from metagen.runs.note import Note
from metagen.runs.page import chosen, draw, files, html_page, kept, markdown, measured
from metagen.runs.page.answer import answer, gist
from metagen.runs.page.browser import Embedded
from metagen.runs.page.chosen import Chosen
from metagen.runs.page.headline import headline
from metagen.runs.page.html_page import FIGURES, NAME, TABLES
from metagen.runs.page.kept import Record
from metagen.runs.page.workers import Workers
from metagen.runs.questions.section import Finding, Heat, Plot, Section, Table
from metagen.runs.words import duration

MARKDOWN = "report.md"
FINDINGS, CURVES = "findings.json", "curves.csv"
#: The figure of what each budget buys.
BEST = "best"
#: Where sections of these names stand; one of another name follows what it was given behind.
ORDER = (
    "answers", "questions", "frontier", "curves", "difficulty", "equal-compute", "adaptive", "splitting", "temperature",
    "alignment", "saturation", "efficiency", "breakdown",
)  # fmt: skip
#: What stands behind the chosen problems.
LAST = ("tuned", "notes")
#: Rows below a figure at most; longer tables are beside the page.
ROWS = 400
#: Rows of a table that a section shows before it is opened further.
FOLDED = 12
#: What a page leaves out, and says so, where it would be too large: tried in this order.
LEFT_OUT: tuple[tuple[str, ...], ...] = ((), (TABLES,), (TABLES, FIGURES))


@dataclass(frozen=True, slots=True)
class View:
    """A section with what its template draws. gist: what is in it. folded: tables that a reader opens."""

    anchor: str
    gist: str
    section: Section
    groups: Sequence[draw.Group]
    tables: Sequence[Table]
    folded: Sequence[Table]


def publish(
    root: Path,
    result: StudyResult,
    sections: Iterable[Section],
    *,
    papers: bool = False,
    made_of: str = "",
    workers: Workers | None = None,
    looked: Future[Chosen | None] | None = None,
) -> None:
    """Write `report.html`, `report.md`, `figures/`, `tables/`, `findings.json` and `curves.csv` into `root`.

    sections: any of them, in any order; those that curves alone can give are added. The pictures of one are drawn while
    the next is made. papers: draw figures as PDF and PNG too; later reports do so as well. made_of: names all that the
    report is made of, if given: a report of the same that is whole stays. `files.txt` lists the figures and tables, so
    that those of an earlier report which are no longer part of it are removed. workers: who draws. looked: the chosen
    problems (`choose`), where somebody has begun to look for them. Raises DataError if the page would be too large even
    without figures.
    """
    workers = workers or Workers()
    before = Record.of(root)
    whole = bool(made_of) and before.made_of == made_of and before.holds(root, before.files)
    papers = papers or any(name.endswith(".pdf") for name in files.listed(root))
    if whole and papers == before.papers:
        return
    drawing = draw.Drawing(workers, page=not whole)
    ordered = _made(sections, result, drawing if workers.beside else None)
    pictures = _pictures(ordered, result)
    drawing.begin(pictures.values())
    directory = RunDirectory.at(root)
    written = _texts(root, result, ordered, papers)
    with writing(root, "the figures and tables of the report"):
        kept.forget(root)
        paths = files.write_tables(root, _tables(ordered))
        paths += files.write_figures(root, pictures, drawing, before if papers else None, workers)
        names = [path.relative_to(root).as_posix() for path in paths]
        files.renew(root, set(names))
    if not whole:
        written[NAME] = _page(root, result, ordered, drawing, looked or choose(root, workers))
    for name, text in written.items():
        directory.write(name, text)
    digests = {name: kept.digest_file(root / name) for name in (*names, *written, NAME)}
    Record(made_of, kept.digest_drawing(), papers, digests).write(root)


def choose(root: Path, workers: Workers) -> Future[Chosen | None]:
    """Begin to look for the problems of a study that the page shows."""
    test = RunDirectory(root / "test")
    lines = test.state().lines if test.table("problems").exists() else ()
    return workers.begin(chosen.choose, test, chosen.searches(lines))


def _made(sections: Iterable[Section], result: StudyResult, drawing: draw.Drawing | None) -> list[Section]:
    """All sections in order. drawing: begins their pictures as they come, the many of the curves first."""

    def begun(section: Section) -> Section:
        named = tuple(_named(one, draw.file_name(one.name)) for one in section.pictures)
        if drawing is not None:
            drawing.begin(named)
        return replace(section, pictures=named)

    own = [begun(section) for section in measured.sections(result)]
    return arrange([*map(begun, sections), *own, _notes(result)])


def _pictures(sections: Iterable[Section], result: StudyResult) -> dict[str, Plot | Heat | draw.Best]:
    """Every picture that is drawn, by the name of its files."""
    every = [picture for section in sections for picture in section.pictures if draw.drawable(picture)]
    found: dict[str, Plot | Heat | draw.Best] = {draw.file_name(picture.name): picture for picture in every}
    if (best := draw.best(result)) is not None:
        found[BEST] = best
    return found


def _tables(sections: Iterable[Section]) -> Iterator[tuple[str, Table]]:
    """Every table, and the numbers of every figure, with names."""
    for section in sections:
        yield from ((table.name, table) for table in (*section.tables, *_answers(section)))
        yield from ((f"figure-{one.name}", draw.numbers(one)) for one in section.pictures)


def _texts(root: Path, result: StudyResult, sections: Sequence[Section], papers: bool) -> dict[str, str]:
    """The other files of a report, by name, but the page."""
    written = {
        CURVES: measured.tidy(result),
        FINDINGS: json.dumps(_findings(sections), indent=1, ensure_ascii=False) + "\n",
    }
    if "audit" in result.facts:
        audit = json.dumps(result.facts["audit"], indent=1, ensure_ascii=False) + "\n"
        written[RunDirectory(root).audit.name] = audit
    tables = [table for table in (_roles(result), _versions(root, result)) if table]
    said, facts, methods = headline(result), _facts(result), _methods(result)
    written[MARKDOWN] = markdown.report(
        result.name, said, facts, sections, methods, tables, _files(root), papers=papers
    )
    return written


def arrange(sections: Iterable[Section]) -> list[Section]:
    """In the order of a report: of equal names the first, without what is empty, all names of pictures different."""
    named: dict[str, Section] = {}
    for section in sections:
        if section.findings or section.pictures or section.tables or section.notes:
            named.setdefault(section.name, section)
    ranks: dict[str, float] = {}
    before = -1.0
    for name in named:
        known = name in ORDER or name in LAST
        before = float((*ORDER, *LAST).index(name)) if known else before
        ranks[name] = before if known else min(before, len(ORDER) - 1) + 0.5
    taken = {BEST: 1}
    return [_distinct(named[name], taken) for name in sorted(named, key=ranks.__getitem__)]


def _named(picture: Plot | Heat, name: str) -> Plot | Heat:
    """A picture of that name: itself, if it has it, since what was begun of it is found by identity."""
    return picture if picture.name == name else replace(picture, name=name)


def _distinct(section: Section, taken: dict[str, int]) -> Section:
    """Pictures and tables whose names make files of their own."""

    def name(given: str) -> str:
        file = draw.file_name(given)
        taken[file] = taken.get(file, 0) + 1
        return file if taken[file] == 1 else f"{file}-{taken[file]}"

    return replace(
        section,
        pictures=tuple(_named(one, name(one.name)) for one in section.pictures),
        tables=tuple(
            replace(one, name=name(f"table-{one.name}").removeprefix("table-")) for one in section.tables
        ),
    )


# ------------------------------------------------------------------------------------------------ HTML


def _page(
    root: Path,
    result: StudyResult,
    sections: Sequence[Section],
    drawing: draw.Drawing,
    looking: Future[Chosen | None],
) -> str:
    views = [
        View(
            f"section-{draw.file_name(s.name)}",
            gist(s),
            s,
            draw.groups(s.pictures, drawing),
            s.tables,
            _answers(s),
        )
        for s in sections
    ]
    looked = looking.result()
    context: dict[str, Any] = {
        "name": result.name,
        "browsed": looked is not None,
        "headline": headline(result),
        "facts": _facts(result),
        "before": [view for view in views if view.section.name not in LAST],
        "after": [view for view in views if view.section.name in LAST],
        "chosen": looked,
        "of_a_kind": chosen.OF_A_KIND,
        "kinds": chosen.KINDS,
        "methods": _methods(result),
        "roles": _roles(result),
        "versions": _versions(root, result),
        "files": _files(root),
        "most_rows": ROWS,
        "few_rows": FOLDED,
        "answer": answer(result),
    }
    return html_page.render(
        "study.html.jinja", context, looked.embed_data if looked else lambda room: Embedded("", None, 0),
        left_out=LEFT_OUT, scripts=[*(["page.js"] if looked else []), "study.js"], styles=["page.css", "study.css"],
        advice=f"without figures: the tables of {str(root)!r} are too long; read those in tables/",
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ words


def _facts(result: StudyResult) -> str:
    count = len(result.problems)
    models = words.join_words([m.name for m in result.models])
    points = sum(len(c.ns) for c in result.curves)
    elsewhere = "Expected accuracies are measured on problems that had no part in the choice."
    if count < FEW:
        elsewhere = (
            f"With fewer than {FEW} problems there are no intervals. The expected accuracy is then the mean of the "
            "problems of the choice; expect less on others."
        )
    return (
        f"{count:,} problems; {models}; {points:,} configurations; seed {result.seed}. Intervals are 95%, "
        f"over problems. {elsewhere}"
    )


def _methods(result: StudyResult) -> list[str]:
    """How all of it was measured."""
    said = [
        "Parallel strategies share one pool of samples of each model and problem. Accuracies at n are averages over "
        "random subsets of the pool. They are exact if a formula exists; otherwise curves.csv gives their Monte-Carlo "
        "error. Searches ran by themselves at every n.",
        "Intervals are over problems, and allow for unseen kinds of problems. If all answers are right or all wrong, "
        "they are the exact binomial bounds. Differences are paired over the same problems and tested by the exact "
        "randomisation test. The p-values of one section are corrected together (Holm 1979); the interval of each "
        "comparison is uncorrected. Where a difference is not shown, the smallest detectable one stands beside it. "
        + words.DETECTABLE,
        f"Two accuracies tie if they differ by at most {words.TIED}. A configuration must win by more to be on a "
        "frontier or to be recommended. Of ties, the cheapest is named.",
        f"{_explain_worth(len(result.problems))} Frontiers are drawn as measured, so they look a little too good.",
        "Costs in samples, tokens, FLOPs and money are accounted: the spending of a configuration by itself, with its "
        "verifiers. Seconds are measured for configurations that ran by themselves: the summed wall time of their "
        "calls, with waits for the batch. Roofline seconds and latencies are modelled, and marked so. Equal cost mixes "
        "two neighbouring n by a coin, so the mean cost is the budget.",
    ]
    if result.tuned:
        said.append(f"Settings were tuned on development problems, and frozen. {measured.tuning(result)}")
    return [*said, f"Random numbers descend from seed {result.seed}; the same files give the same report."]


def _explain_worth(problems: int) -> str:
    """Explain how the accuracy of a picked configuration is measured."""
    if problems < FEW:
        return (
            "The accuracy of a picked configuration is its mean on these problems: cross-fitting needs "
            f"{FEW} problems or more."
        )
    return (
        "The accuracy of a recommended configuration is measured by cross-fitting, on problems that had no part in "
        "the choice."
    )


def _roles(result: StudyResult) -> Table | None:
    """What each run of the study was for, and how large it was."""
    roles = result.facts.get("roles")
    if not isinstance(roles, Mapping) or not roles:
        return None
    rows = tuple(
        (str(name), *(_count(one.get(key)) for key in ("problems", "samples")), _seconds(one.get("seconds")))
        for name, one in roles.items()
        if isinstance(one, Mapping)
    )
    columns = ("role", "problems", "samples", "last call took")
    return Table("roles", "The runs of the study.", columns, rows, frozenset({1, 2, 3}))


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "–"


def _seconds(value: Any) -> str:
    return duration(float(value)) if isinstance(value, int | float) else "–"


def _versions(root: Path, result: StudyResult) -> Table:
    """Of what measured, as far as that is recorded; else of what makes the report."""
    recorded = RunDirectory(root / "test").environment
    if recorded.exists():
        known = json.loads(recorded.read_text(encoding="utf-8"))
    else:
        known = result.facts.get("environment") or environment()
    machine = {name: known[name] for name in ("platform", "machine", "processor", "cores") if known.get(name)}
    rows = tuple((str(k), str(v)) for k, v in {**known.get("versions", {}), **machine}.items())
    return Table("versions", "Versions and machine.", ("what", "version"), rows)


def _notes(result: StudyResult) -> Section:
    """What could not be computed, and why."""
    from metagen.runs.curves import checks

    notes: tuple[Note, ...] = tuple(dict.fromkeys((*result.notes, *checks.notes(result))))
    return Section("notes", "Figures that could not be computed", notes=notes)


def _answers(section: Section) -> tuple[Table, ...]:
    """The numbers of a section's findings."""
    if not section.findings:
        return ()
    columns = ("question", "estimate", "low", "high", "unit", "p (Holm)", "detectable", "told")
    rows = tuple(
        (
            f.question, *(_number(v) for v in (f.estimate, f.low, f.high)), f.unit, _number(f.p_value),
            _number(f.detectable), "yes" if f.shown else "no",
        )
        for f in section.findings
    )  # fmt: skip
    caption = f"{section.title}: numbers"
    return (Table(f"findings-{section.name}", caption, columns, rows, frozenset({1, 2, 3, 5, 6})),)


def _number(value: float) -> str:
    return f"{value:.3g}" if isfinite(value) else "–"


def _findings(sections: Iterable[Section]) -> list[dict[str, Any]]:
    """For programs; what is not known is null."""

    def plain(finding: Finding) -> dict[str, Any]:
        found = asdict(finding).items()
        return {k: None if isinstance(v, float) and not isfinite(v) else v for k, v in found}

    return [{"section": section.name, **plain(f)} for section in sections for f in section.findings]


def _files(root: Path) -> dict[str, str]:
    """What reproduces the study, as far as it is there."""
    return {
        name: (root / name).read_text(encoding="utf-8") for name in (STUDY, FROZEN) if (root / name).is_file()
    }
