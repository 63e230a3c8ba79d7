"""A report as one HTML page: everything in it, nothing fetched, and safe whatever models wrote.

What is read first is plain HTML; the scripts make it handier. Texts of models and data sets reach the page escaped, or
as data that a script shows as text; a content security policy lets no other script run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from metagen.errors import DataError
from metagen.runs.directory import pieces
from metagen.runs.page.browser import FILTERS, Embedded
from metagen.runs.words import between, cost_amount, duration, percent, plus_minus

NAME = "report.html"
#: Bytes of a page at most.
LIMIT = 5_000_000
#: Of these, what the data of problems leave to the rest.
SPARE = 50_000
#: What a page may leave out where it would be too large.
TABLES, FIGURES = "the tables below figures", "the figures"


def render(
    template: str,
    context: Mapping[str, Any],
    embed: Callable[[int], Embedded],
    *,
    left_out: Sequence[tuple[str, ...]],
    scripts: Sequence[str],
    styles: Sequence[str],
    advice: str,
) -> str:
    """The page, with as little left out as keeps it below `LIMIT`.

    embed: the data of problems, in so many bytes. left_out: parts of the page to leave out, tried in this order.
    scripts, styles: names of files beside this one. Raises DataError, which ends with `advice`, where nothing helps.
    """
    sources = [_read(name) for name in scripts]
    known = {
        **context,
        "filters": FILTERS,
        "limit": LIMIT // 1_000_000,
        "style": Markup("".join(map(_read, styles))),
        "scripts": [Markup(source) for source in sources],
        "hashes": [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in sources],
    }
    found = _templates().get_template(template)
    room = 0
    for parts in left_out:
        known["left_out"] = parts
        room = LIMIT - SPARE - _size(found.render(known, embedded=Embedded("", None, 0)))
        if room >= 0:
            break
    page = found.render(known, embedded=embed(room))
    if (size := _size(page)) > LIMIT:
        raise DataError(
            f"the page would take {size / 1e6:.1f} MB, more than {LIMIT / 1e6:.0f}, even {advice}"
        )
    return page


def _read(name: str) -> str:
    return resources.files("metagen.runs.page").joinpath(name).read_text(encoding="utf-8")


def _size(page: str) -> int:
    """Bytes, with lone surrogates as their escapes."""
    return sum(len(piece.encode("utf-8", "backslashreplace")) for piece in pieces(page))


def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("metagen.runs", "page"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "percent": percent,
        "duration": duration,
        "amount": lambda value: "unknown" if value is None else cost_amount(value, "generated"),
        "between": lambda m: between(m.low, m.high),
        "stderr": lambda m: plus_minus(m.stderr),
    }
    return made
