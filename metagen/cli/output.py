"""What commands show: pages for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH = 110


def show(page: RenderableType, data: Any, as_json: bool) -> None:
    """For people, or for programs."""
    if as_json:
        typer.echo(json.dumps(data, indent=1))
    else:
        write(page)


def write(page: RenderableType) -> None:
    """On stdout."""
    from rich.console import Console

    # Into a file or a pipe: wide enough for the tables.
    Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH).print(page)
