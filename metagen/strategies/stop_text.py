"""Stopping a generator at one text more."""

from __future__ import annotations

from typing import Any

from metagen.generators.base import Generator


def also_stopping(generator: Generator, text: str) -> Generator:
    """The generator, stopped before `text` and wherever it stops by itself.

    Raises UnsupportedError for a generator that cannot be told where to stop.
    """
    params: Any = getattr(generator, "params", None)
    own = params.stop if params is not None else ()
    return generator.replace(stop=tuple(dict.fromkeys((*own, text))))
