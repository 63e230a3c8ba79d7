"""What a program defines, without what only tries it: small chat models print examples below their function."""

from __future__ import annotations

import ast
import re
from collections import abc
from itertools import islice
from typing import Final, TypeAlias

from metagen.sequence import Sequence, digest
from metagen.verifiers.code.program import ProgramRule
from metagen.verifiers.source import parse

#: Longer programs stay as they are.
LONGEST: Final = 50_000
#: So many beginnings of a text are tried, and for each so many ends, from the last one on.
STARTS, TRIES = 4, 64
_BEGINS: Final = re.compile(r"^(?:(?:async def|def|class|import|from)\b|@\w)", re.MULTILINE)
#: What a line of code begins with, or holds: sentences have nothing of it.
_CODE: Final = re.compile(
    r"^\s*(?:async def|def|class|import|from|for|while|if|elif|else|try|except|with|raise|assert|print|@\w|#)\b.*[:(=]"
    r"|^\s*return\b|^\s*[\w.\[\]]+\s*[-+*/|&]?=[^=]|^\s*[\w.]+\(",
    re.MULTILINE,
)
_FENCE: Final = re.compile(r"^\s*```(?:python3?|py)?[ \t]*|[ \t]*```\s*\Z")
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_KEPT: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


class Definitions:
    """A program as another rule reads it, up to the last of the prompt's `entry_points`, and what is defined below.

    Calls, loops, assertions and `if __name__` below the function try it, and might fail or wait for input where the
    function is right; they are left out. So is an assignment there that calls the function, or reads input. Where
    code stands between sentences without a fence, or was cut within what follows the function, it is the part that is
    Python. A program that defines none of the entry points stays as it is, as does one whose fence is closed around
    something else than Python. Sentences without any code are no program.
    """

    def __init__(self, program: ProgramRule) -> None:
        self._program = program

    @property
    def fingerprint(self) -> str:
        return digest("definitions", "2", self._program.fingerprint).hex()

    def read(self, sequence: Sequence) -> str | None:
        program = self._program.read(sequence)
        points = sequence.prompt.public.get("entry_points") or ()
        if program is None or len(program) > LONGEST:
            return program
        tree = _tree(program)
        if tree is None and _is_open(sequence.text):
            program, tree = _longest(_FENCE.sub("", program), points)
            if tree is None and "```" not in sequence.text and not _CODE.search(program):
                return None
        return program if tree is None else _without_trials(program, tree, points)


def _is_open(text: str) -> bool:
    """Whether code has no fence around it, or one that was not closed, or that of one line."""
    fences = text.count("```")
    return fences % 2 == 1 or not fences or len(text.strip().splitlines()) == 1


def _tree(program: str) -> ast.Module | None:
    try:
        found = parse(program)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    assert isinstance(found, ast.Module)
    return found


def _defines(node: ast.stmt, points: abc.Collection[str]) -> bool:
    return isinstance(node, _Function) and (not points or node.name in points)


def _longest(text: str, points: abc.Collection[str]) -> tuple[str, ast.Module | None]:
    """The longest piece of a text, from a definition or import on, that is Python and defines what is asked for.

    It ends before a line that begins a statement, or a sentence. The text itself, and no tree, where there is none.
    """
    ends = [len(text), *reversed([line.start() for line in re.finditer(r"^\S", text, re.MULTILINE)])]
    for begin in islice(_BEGINS.finditer(text), STARTS):
        for end in [end for end in ends if end > begin.start()][:TRIES]:
            piece = text[begin.start() : end]
            if (tree := _tree(piece)) is not None and any(_defines(node, points) for node in tree.body):
                return piece, tree
    return text, None


def _without_trials(program: str, tree: ast.Module, points: abc.Collection[str]) -> str:
    """The program without the statements below its last entry point that define nothing."""
    last = max((i for i, node in enumerate(tree.body) if _defines(node, points)), default=None)
    if last is None:
        return program
    dropped = [node for node in tree.body[last + 1 :] if not _is_kept(node, points)]
    lines = {n for node in dropped for n in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    others = [node for node in tree.body if node not in dropped]
    if not dropped or any({node.lineno, node.end_lineno} & lines for node in others):
        return program
    kept = [line for n, line in enumerate(program.splitlines(keepends=True), 1) if n not in lines]
    found = "".join(kept)
    return found if _tree(found) is not None else program


def _is_kept(node: ast.stmt, points: abc.Collection[str]) -> bool:
    if isinstance(node, _KEPT):
        return True
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    calls = [
        one.func.id for one in ast.walk(node) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)
    ]
    return not {"input", *points} & set(calls)
