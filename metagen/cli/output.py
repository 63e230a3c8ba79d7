"""What commands show: pages for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import typer

from metagen.cli import face
from metagen.cli.face import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType
    from rich.segment import Segment
    from rich.text import Text

#: Columns of a page that goes into a file or a pipe, unless COLUMNS says otherwise: enough for most tables.
WIDTH = 110


def show(page: RenderableType, data: Any, as_json: bool) -> None:
    """For people, or for programs."""
    if as_json:
        typer.echo(json.dumps(data, indent=1))  # which escapes all that is not ASCII
    else:
        write(page)


def write(page: RenderableType) -> None:
    """On stdout."""
    width = face.told_columns() or (None if sys.stdout.isatty() else WIDTH)
    console(width=width).print(page)


def console(**options: Any) -> Console:
    """A console that draws every text through `plain`, and cuts no table."""
    from rich.console import Console
    from rich.segment import Segment
    from rich.table import Table

    from metagen.cli.fit import fit

    class Plain(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(plain(text), **options)  # before its place in a table is measured

        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            options = options or self.options
            tables = fit(renderable, self, options) if isinstance(renderable, Table) else [renderable]
            for part in tables:
                for segment in super().render(part, options):
                    yield segment if segment.control else Segment(plain(segment.text), segment.style)

    return Plain(highlight=False, **options)


def say(text: str, label: str = "") -> None:
    """A line on stderr, behind a label."""
    typer.echo(label + plain(text), err=True)


def fail(text: str) -> None:
    """An error on stderr."""
    say(text, face.mark("error: ", sys.stderr))


def note(text: str) -> None:
    """A note on stderr."""
    say(text, face.note(sys.stderr))
