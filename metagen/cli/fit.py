"""Tables in narrow terminals: nothing in them is cut.

A table that is wider than the terminal gets its long texts folded. Where that is not enough it is told in several
tables below each other, each with the first columns, which name the rows.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Column, Table
from rich.text import Text

#: Columns of text that are wider than this may be folded, to no less than the second.
LONG: Final = 24
FOLDED: Final = 18
#: Width of a table that nothing squeezes.
FREE: Final = 100_000


def fit(table: Table, console: Console, options: ConsoleOptions) -> list[RenderableType]:
    """The tables that tell what this one does, none wider than the options allow."""
    width = options.max_width
    if not table.columns or table.width is not None or _natural(table, console, options) <= width:
        return [table]
    if (whole := _folded(table, table.columns, console, options)) is not None:
        return [whole]
    if not table.show_header:
        return [_part(table, [replace(column, overflow="fold") for column in table.columns])]
    return _split(table, console, options)


def _split(table: Table, console: Console, options: ConsoleOptions) -> list[RenderableType]:
    """Several tables, each with as many columns beside those that name the rows as there is room for."""
    named, rest = _names(table)
    parts: list[RenderableType] = []
    while rest:
        most = next(
            (
                (count, part)
                for count in range(len(rest), 0, -1)
                if (part := _folded(table, [*named, *rest[:count]], console, options)) is not None
            ),
            None,
        )
        # One column that is too wide beside the names: the names are folded, too.
        count, part = most or (1, _part(table, [replace(c, overflow="fold") for c in (*named, rest[0])]))
        parts += [Text(), part] if parts and table.box is None else [part]
        rest = rest[count:]
    return parts


def _names(table: Table) -> tuple[list[Column], list[Column]]:
    """The columns that name the rows, and the others: as few texts that come first as tell all rows apart, at most two.

    A cell without text repeats the one above it.
    """
    columns = list(table.columns)
    texts = next((i for i, column in enumerate(columns) if column.justify == "right"), len(columns))
    most = max(1, min(texts, 2, len(columns) - 1))
    rows: list[tuple[str, ...]] = [()] * table.row_count
    for count in range(1, most):
        above = ""
        for i, cell in enumerate(columns[count - 1].cells):
            above = (str(cell) if isinstance(cell, str | Text) else "") or above
            rows[i] = (*rows[i], above)
        if len(set(rows)) == len(rows):
            return columns[:count], columns[count:]
    return columns[:most], columns[most:]


def _folded(
    table: Table, columns: Sequence[Column], console: Console, options: ConsoleOptions
) -> Table | None:
    """A table of these columns in which long texts are folded as far as need be; None where that is not enough."""
    widths = [_width(column, table, console, options) for column in columns]
    beside = _natural(_part(table, columns), console, options) - sum(widths)
    room = options.max_width - beside
    long = [i for i, width in enumerate(widths) if width > LONG]
    left = room - sum(width for i, width in enumerate(widths) if i not in long)
    if left < FOLDED * len(long):
        return None
    # The shortest first, so that one that needs less leaves more to the others.
    for place, i in enumerate(sorted(long, key=lambda i: widths[i])):
        widths[i] = min(widths[i], left // (len(long) - place))
        left -= widths[i]
    given = [
        replace(column, width=width, overflow="fold", no_wrap=False)
        for column, width in zip(columns, widths, strict=True)
    ]
    return _part(table, given)


def _width(column: Column, table: Table, console: Console, options: ConsoleOptions) -> int:
    """The columns that its widest cell takes."""
    cells: list[RenderableType] = [*column.cells, *([column.header] if table.show_header else [])]
    free = options.update(width=FREE, max_width=FREE)
    widest = max((console.measure(cell, options=free).maximum for cell in cells), default=0)
    return max(widest, column.width or 0, column.min_width or 0)


def _natural(table: Table, console: Console, options: ConsoleOptions) -> int:
    return console.measure(table, options=options.update(width=FREE, max_width=FREE)).maximum


def _part(table: Table, columns: Sequence[Column]) -> Table:
    """A table like this one with these columns."""
    part = copy.copy(table)
    part.columns = [replace(column, _index=i) for i, column in enumerate(columns)]
    return part
