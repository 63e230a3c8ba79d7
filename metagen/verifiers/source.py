"""Python source as data: parsed, never run."""

from __future__ import annotations

import ast
import warnings
from typing import Literal


def parse(text: str, mode: Literal["exec", "eval"] = "exec") -> ast.AST:
    """The syntax tree, without the warnings that the text of others deserves.

    Raises SyntaxError, ValueError (null bytes), MemoryError or RecursionError (nesting).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, mode=mode)
