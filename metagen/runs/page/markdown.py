"""The report as Markdown, with its figures beside it, for papers and repositories."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from metagen.runs.page.draw import drawable, file_name
from metagen.runs.questions.section import Finding, Section, Table


def report(
    name: str,
    headline: Sequence[str],
    facts: str,
    sections: Iterable[Section],
    methods: Iterable[str],
    extra: Iterable[Table],
    files: Mapping[str, str],
    *,
    papers: bool = False,
) -> str:
    """Everything in the page but the chosen problems' candidates; the numbers of figures are linked as CSV.

    papers: whether figures are there as PDF, too.
    """
    parts = [f"# {escape(headline[0])}", *map(escape, headline[1:]), escape(facts)]
    for section in sections:
        parts += _section(section, papers)
    parts += ["## Methods, and how to reproduce this", *map(escape, methods)]
    parts += [part for table in extra for part in _table(table)]
    for file, text in files.items():
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
        parts += [f"`{file}`:", f"{fence}yaml\n{text.rstrip()}\n{fence}"]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """On one line, and taken for nothing but text."""
    return re.sub(r"([\\`*\[\]<>|#$])", r"\\\1", " ".join(text.split()))


def _section(section: Section, papers: bool) -> Iterator[str]:
    yield f"## {escape(section.title)}"
    yield escape(section.text)
    for finding in section.findings:
        yield from _finding(finding)
    for picture in section.pictures:
        if drawable(picture):
            stem = file_name(picture.name)
            yield f"### {escape(picture.whole_title)}"
            yield f"![{escape(picture.whole_title)}](figures/{stem}.svg)"
            pdf = f", [PDF](figures/{stem}.pdf)" if papers else ""
            yield f"{escape(picture.caption)} [Numbers](tables/figure-{stem}.csv){pdf}."
    for table in section.tables:
        yield from _table(table)
    if section.notes:
        yield "\n".join(
            f"- {f'**{escape(note.about)}**: ' if note.about else ''}{escape(note.text)}"
            for note in section.notes
        )


def _finding(finding: Finding) -> Iterator[str]:
    yield f"### {escape(finding.question)}"
    yield f"{'' if finding.shown else '**Not settled here.** '}{escape(finding.sentence)}"
    yield "\n".join(f"- {escape(line)}" for line in finding.details)
    if finding.claim or finding.source:
        source = f" ({escape(finding.source)})" if finding.source else ""
        yield f"Published: {escape(finding.claim)}{source}"


def _table(table: Table) -> Iterator[str]:
    yield escape(table.caption)
    head = [escape(column) or " " for column in table.columns]
    rule = ["---:" if i in table.numeric else "---" for i in range(len(head))]
    rows = [head, rule, *([escape(cell) or " " for cell in row] for row in table.rows)]
    yield "\n".join(f"| {' | '.join(row)} |" for row in rows)
