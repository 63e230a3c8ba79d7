"""Pages of help of commands, in the layout of `face`: no sentence is cut, names are coloured on a terminal."""

from __future__ import annotations

import sys
from typing import Any

from typer.core import TyperCommand, TyperGroup

from metagen.cli import face


class Command(TyperCommand):
    """A command with such a page."""

    def get_help(self, ctx: Any) -> str:
        return page(self, ctx)


class Group(TyperGroup):
    """A command with commands, and such a page."""

    def get_help(self, ctx: Any) -> str:
        return page(self, ctx)


def page(command: Any, context: Any) -> str:
    """Usage, what the command does, its arguments, its options, and its commands."""
    width = face.columns()
    parts = [f"Usage: {' '.join([context.command_path, *command.collect_usage_pieces(context)])}"]
    for paragraph in (command.help or "").split("\n\n"):
        parts += ["", *face.wrap(paragraph, width, 2)] if paragraph else []
    for title, rows in sections(command, context).items():
        parts += ["", f"{title}:", *face.table(rows, width)] if rows else []
    return face.paint("\n".join(parts), sys.stdout)


def sections(command: Any, context: Any) -> dict[str, list[tuple[str, str]]]:
    """Rows of names with what they mean."""
    rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], "Commands": []}
    for parameter in command.get_params(context):
        if record := parameter.get_help_record(context):
            rows["Arguments" if parameter.param_type_name == "argument" else "Options"].append(record)
    for name in command.list_commands(context) if isinstance(command, TyperGroup) else ():
        inner: Any = command.get_command(context, name)
        rows["Commands"].append((name, summary(inner.help or "")))
    return rows


def summary(text: str) -> str:
    """The first sentence of a help text, without its full stop."""
    first = " ".join(text.split("\n\n")[0].split())
    return first.partition(". ")[0].rstrip(".")
