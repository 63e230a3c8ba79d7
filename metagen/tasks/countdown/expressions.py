"""Answers that are expressions, such as `(6-4)*(5+7)`: read without being executed, and played as moves."""

from __future__ import annotations

import ast
import re
from typing import Final

from metagen.tasks.countdown.game import Move, Number

#: Longer expressions, and larger numbers, are not read.
LONGEST, DIGITS = 200, 9
_OPS: Final = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_SIGNS: Final = str.maketrans(
    {"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "[": "(", "]": ")", "{": "(", "}": ")"}
)
_WRITTEN: Final = re.compile(r"[0-9+\-*/() ]+")


def read(text: str) -> list[Move] | None:
    """The moves that an expression stands for, innermost first; None for anything but + − × ÷ over whole numbers.

    What follows an equals sign is left out.
    """
    written = text.translate(_SIGNS).split("=")[0].strip()
    if len(written) > LONGEST or not _WRITTEN.fullmatch(written) or "**" in written or "//" in written:
        return None
    if re.search(rf"\d{{{DIGITS + 1},}}|\b0\d", written):
        return None
    try:
        tree = ast.parse(written, mode="eval").body
        played: list[Move] = []
        _play(tree, played)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return played


def _play(node: ast.expr, played: list[Move]) -> Number:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return int(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPS:
        left, right = _play(node.left, played), _play(node.right, played)
        move = Move(left, _OPS[type(node.op)], right)
        if move.result is None:
            raise ValueError("a division by zero")
        played.append(move)
        return move.result
    raise ValueError("something other than numbers and operations")
