"""Values as HTML for notebooks: tables, bars of characters, a tree of spans.

Whatever comes from outside (texts of models, names in files) is escaped here and nowhere else. Styles stand
inline and bars are made of characters, so that what viewers strip costs nothing; colours are the reader's.
Seconds are left out: equal runs look equal, and a notebook can be kept under version control.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any, Final

from metagen.cost import Usage

if TYPE_CHECKING:
    import networkx

    from metagen.trace import Trace

#: Characters of a full bar, and the eighths that its end is made of.
WIDTH: Final = 16
EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
#: Spans shown below one span; more are only counted.
SPANS: Final = 24
CELL: Final = '"text-align:left"'


def text(value: object, most: int | None = None) -> str:
    """Escaped; of more than `most` characters the beginning. What UTF-8 cannot hold becomes its escape."""
    words = str(value)
    if most is not None and len(words) > most:
        words = words[: most - 1] + "…"
    return escape(words.encode("utf-8", "backslashreplace").decode("utf-8"))


def block(value: object, most: int = 4000) -> str:
    """A text with its lines as they are, apart from what stands around it in whatever direction it is written."""
    return (
        '<pre style="white-space:pre-wrap;unicode-bidi:isolate;margin:.3em 0;padding-left:.8em;'
        f'border-left:2px solid">{text(value, most)}</pre>'
    )


def bar(share: float) -> str:
    """A share in [0, 1] as a bar of characters; the number belongs beside it."""
    eighths = round(8 * WIDTH * min(max(share, 0.0), 1.0))
    drawn = EIGHTHS[-1] * (eighths // 8) + EIGHTHS[eighths % 8].strip()
    return f'<span aria-hidden="true" style="font-family:monospace">{drawn}</span>'


def table(names: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Rows of cells that are HTML already, under names that are not."""
    head = _row("th", map(text, names))
    body = "".join(_row("td", row) for row in rows)
    return f'<table style="margin:.3em 0"><thead>{head}</thead><tbody>{body}</tbody></table>'


def _row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag} style={CELL}>{cell}</{tag}>' for cell in cells)}</tr>"


def fold(summary: str, inside: str) -> str:
    """HTML under a line of text that opens it."""
    return f"<details><summary>{text(summary)}</summary>{inside}</details>"


def amount(value: float | None) -> str:
    """A count in few characters: 12,500 is 12.5k; unknown is a question mark."""
    if value is None:
        return "?"
    for power, prefix in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 0.9995 * 10**power:
            return f"{value / 10**power:.3g}{prefix}"
    return f"{value:.3g}"


def usage(spent: Usage, physical: Usage, most: Usage, lost: int) -> str:
    """Logical and physical usage side by side; money where there may be any, the worst case where some was lost."""
    rows = {"logical": spent, "physical": physical}
    if lost:
        rows[f"at most, with {lost} lost"] = most
    names = {
        "prefilled": "prefilled",
        "cached": "cached",
        "generated": "generated",
        "calls": "calls",
        "flops": "FLOPs",
    }
    if any(one.money != 0 for one in rows.values()):
        names["money"] = "money"
    cells = [[text(row), *(amount(getattr(one, name)) for name in names)] for row, one in rows.items()]
    return table(["", *names.values()], cells)


def spans(trace: Trace) -> str:
    """The tree of spans, with the logical usage below each; records of one kind are counted together."""
    return f"<ul>{_span(trace.graph(), '')}</ul>"


def _span(graph: networkx.DiGraph[Any], node: str) -> str:
    data = graph.nodes[node]
    paths = [child for child in graph.successors(node) if graph.nodes[child]["kind"] == "path"]
    leaves = Counter(
        (graph.nodes[child]["kind"], graph.nodes[child]["status"])
        for child in graph.successors(node)
        if graph.nodes[child]["kind"] != "path"
    )
    spent = data.get("usage", Usage())
    costs = f"{amount(spent.tokens)} tokens, {amount(spent.flops)} FLOPs"
    inside = "".join(
        f"<li>{count} × {text(kind)}{'' if status == 'complete' else f', {text(status)}'}</li>"
        for (kind, status), count in leaves.items()
    )
    inside += "".join(_span(graph, child) for child in paths[:SPANS])
    if more := len(paths) - SPANS:
        inside += f"<li>… {more} more</li>" if more > 0 else ""
    return f"<li>{text(data['label'], 60)}: {costs}{f'<ul>{inside}</ul>' if inside else ''}</li>"
