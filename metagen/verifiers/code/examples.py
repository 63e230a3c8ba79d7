"""Tests that the text of a problem gives away: the examples in a docstring, and which function they call."""

from __future__ import annotations

import ast
import builtins
import doctest
from collections import abc


def docstring_examples(text: str) -> list[str]:
    """The `>>>` examples in a text as assertions: `>>> f(2)` with `4` below it is `assert (f(2)) == (4)`.

    Those that print, raise, or are no single expression are left out. Of a text in Python its docstrings are
    read, of another all. Public tests of HumanEval's kind.
    """
    try:
        examples = [e for part in _docstrings(text) for e in doctest.DocTestParser().get_examples(part)]
    except ValueError:  # an example that is not written as doctest wants it
        return []
    pairs = [(e.source.strip(), e.want.strip()) for e in examples if e.exc_msg is None]
    return [f"assert ({call}) == ({want})" for call, want in pairs if _is_value(call) and _is_value(want)]


def _docstrings(text: str) -> list[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return [text]
    kinds = (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef, ast.Module)
    return [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]


def entry_points(tests: abc.Sequence[str]) -> tuple[str, ...]:
    """The names that every test calls, which the candidate must define; builtins only if there are no others.

    For data sets that do not name it, such as MBPP, of whose candidates one defines a `sum` of its own.
    Raises SyntaxError for a test that is no Python.
    """
    called = [_calls(test) for test in tests]
    common = [name for name in called[0] if all(name in names for names in called)] if called else []
    own = [name for name in common if not hasattr(builtins, name)]
    return tuple(own or common[:1])


def _is_value(code: str) -> bool:
    try:
        value = ast.parse(code, mode="eval").body
    except (SyntaxError, ValueError):
        return False
    return not (isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print")


def _calls(test: str) -> list[str]:
    """Names of functions called, outermost first."""
    calls = [node.func for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Call)]
    return list(dict.fromkeys(func.id for func in calls if isinstance(func, ast.Name)))
