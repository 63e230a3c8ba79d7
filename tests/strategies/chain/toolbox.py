"""A tool that the tests of tools share, and how it is called."""

from __future__ import annotations

from typing import Any

from metagen.strategies.tools import Tool
from metagen.testing import run


def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    More about it.
    """
    return a + b


def call(tool: Tool, arguments: dict[str, Any], **kwargs: Any) -> Any:
    return run(lambda s: tool.call(arguments, s.child("tool")), **kwargs)[0]
