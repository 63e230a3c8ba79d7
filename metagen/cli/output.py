"""What commands show: pages for people, JSON for programs."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType
    from rich.segment import Segment
    from rich.text import Text

WIDTH = 110
#: C0 and C1 controls but tab and newline, and what changes the direction of the text around it.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def show(page: RenderableType, data: Any, as_json: bool) -> None:
    """For people, or for programs."""
    if as_json:
        typer.echo(json.dumps(data, indent=1))  # which escapes all that is not ASCII
    else:
        write(page)


def write(page: RenderableType) -> None:
    """On stdout."""
    # Into a file or a pipe: wide enough for the tables.
    console(width=None if sys.stdout.isatty() else WIDTH).print(page)


def console(**options: Any) -> Console:
    """A console that draws every text through `plain`."""
    from rich.console import Console
    from rich.segment import Segment

    class Plain(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(plain(text), **options)  # before its place in a table is measured

        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(plain(segment.text), segment.style)

    return Plain(highlight=False, **options)


def say(text: str) -> None:
    """A line on stderr."""
    typer.echo(plain(text), err=True)


def plain(text: str) -> str:
    """The text without what would command a terminal: escape sequences, control characters, marks of direction.

    Data, prompts and what models write may hold them; they are shown as Python writes them.
    """
    return _COMMANDS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
