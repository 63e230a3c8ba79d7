"""Where the steps of a solution end, for whoever keeps what ends them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from annotated_types import MinLen

from metagen.values import Expects

Delimiter: TypeAlias = Annotated[str, MinLen(1), Expects("the text that ends a step, such as '\\n'")]


def steps_of(text: str, delimiter: str) -> list[str]:
    """The steps of a text, their delimiters kept; together they are the text, unless all of it is blank.

    What follows the last delimiter is a step as well. A blank piece is none: it belongs to the step before it, and
    before the first step to that one. A text that is blank has no steps.
    """
    steps: list[str] = []
    before = ""
    *ended, last = text.split(delimiter)
    for piece, end in [*((piece, delimiter) for piece in ended), (last, "")]:
        if piece.strip():
            steps.append(before + piece + end)
            before = ""
        elif steps:
            steps[-1] += piece + end
        else:
            before += piece + end
    return steps


def whole(text: str) -> list[str]:
    """A text as its only step; none if it is blank."""
    return [text] if text.strip() else []
