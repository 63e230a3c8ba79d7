"""The picture of a light page as one for a dark page: the same shapes, in the dark colours of metagen's reports."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from metagen.analysis.figures import VARIABLES
from metagen.errors import InputError

COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")
CSS = files("metagen.runs.page").joinpath("page.css")


def dark_colours() -> dict[str, str]:
    """The dark colour for each colour that figures are drawn in. White becomes transparent."""
    told = CSS.read_text(encoding="utf-8").partition("prefers-color-scheme: dark")[2]
    found = dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6})", told))
    return {colour: found[variable] for colour, variable in VARIABLES.items()} | {"#ffffff": "none"}


def darken(svg: str) -> str:
    """A figure that `metagen.analysis.figures.save_svg` wrote, for a dark page.

    Raises InputError if it has a colour that no dark one stands for.
    """
    dark = {colour.lower(): other for colour, other in dark_colours().items()}
    if unknown := {colour for colour in COLOUR.findall(svg) if colour.lower() not in dark}:
        raise InputError(
            f"no dark colour for {sorted(unknown)!r}: expected those of metagen.analysis.figures.VARIABLES; "
            f"draw in these, or add the others there and to {CSS.name}"
        )
    turned = COLOUR.sub(lambda found: dark[found[0].lower()], svg)
    # Letters without a colour take that of the whole, which is black by itself.
    return turned.replace("<svg ", f'<svg fill="{dark["#333333"]}" ', 1)


def write_dark(svg: Path) -> Path:
    """`NAME-dark.svg` beside `NAME.svg`."""
    beside = svg.with_name(f"{svg.stem}-dark.svg")
    beside.write_text(darken(svg.read_text("utf-8")), "utf-8", newline="\n")
    return beside
