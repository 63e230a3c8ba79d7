"""Limits belong to the scope: no strategy and no verifier works with them, they only say what they are to be."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import metagen

ROOT = Path(metagen.__file__).parent
FILES = sorted(path for part in ("strategies", "verifiers") for path in (ROOT / part).rglob("*.py"))
#: What only the floor says: `Budget` declares a limit, and the others work with one.
NAMES, CALLED = {"Budget", "BudgetExhausted"}, {"reserve", "share", "left"}
#: Files that declare a limit for what they begin.
DECLARES = {"strategies/refine/collect.py": {"Budget"}}


def used(text: str) -> set[str]:
    """Which of these a program names or calls."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found |= {node.func.attr} & CALLED
        named = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "name", None)
        found |= {named} & NAMES
    return found


@pytest.mark.parametrize("path", FILES, ids=[path.relative_to(ROOT).as_posix() for path in FILES])
def test_no_strategy_and_no_verifier_works_with_limits(path: Path) -> None:
    found = used(path.read_text()) - DECLARES.get(path.relative_to(ROOT).as_posix(), set())
    assert not found, f"{path}: {found}; declare the limit to the scope, and let it say what fits"
    assert "BudgetExhausted" not in path.read_text(), f"{path}: say what is refused, and not how"


def test_such_a_name_would_be_found() -> None:
    text = "from metagen import Budget\ntry:\n    scope.left().share(2)\nexcept errors.BudgetExhausted:\n    pass"
    assert used(text) == {"Budget", "left", "share", "BudgetExhausted"}
    assert len(FILES) > 150
