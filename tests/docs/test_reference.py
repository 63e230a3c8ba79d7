"""What is public has a place in the reference."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, get_origin

import pytest
import yaml

import metagen
from metagen import values
from metagen.runs.declare import registry

DOCS = Path(__file__).parents[2] / "docs"
PACKAGES = sorted(p.parent.name for p in Path(metagen.__file__).parent.glob("*/__init__.py"))


def covered() -> set[str]:
    """Modules that the reference shows, with all that is below them."""
    found: set[str] = set()
    for page in (DOCS / "reference").glob("*.md"):
        for name, options in re.findall(
            r"^::: (\S+)\n((?: {4}.*\n)*)", page.read_text("utf-8"), re.MULTILINE
        ):
            members = (yaml.safe_load(options) or {}).get("options", {}).get("members")
            found |= {f"{name}.{member}" for member in members} if members else {name}
    return found


def public() -> Iterator[tuple[str, str, str]]:
    """Module that offers a name, the name, and the module that defines it."""
    for package in ("metagen", *(f"metagen.{name}" for name in PACKAGES)):
        for name in getattr(import_module(package), "__all__", ()):
            if not name.startswith("_"):
                value = getattr(import_module(package), name)
                home = metagen._HOMES.get(name) if package == "metagen" else None
                yield package, name, home or getattr(value, "__module__", package)


def documented(module: str) -> set[str]:
    """Names of a module with a docstring; what has none is left out of the reference."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    body = ast.parse(Path(spec.origin).read_text("utf-8")).body
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in body if isinstance(node, kinds) and ast.get_docstring(node)}


PUBLIC = sorted(set(public()))


@pytest.mark.parametrize(("package", "name", "home"), PUBLIC, ids=[f"{p}.{n}" for p, n, _ in PUBLIC])
def test_public_names_are_in_the_reference(package: str, name: str, home: str) -> None:
    places = [module for module in covered() if home == module or home.startswith(f"{module}.")]
    assert places, f"{package}.{name} is defined in {home}, and no page of docs/reference shows that"
    # An instance, such as a ready-made rule, is a line of its module.
    if isinstance(getattr(import_module(package), name), type) or callable(
        getattr(import_module(package), name)
    ):
        assert name in documented(home), f"{home}.{name} has no docstring, and so no entry in the reference"


def test_there_are_names_to_check() -> None:
    packages = {package for package, _, _ in PUBLIC}
    assert {"metagen", "metagen.testing"} <= packages
    assert len(PUBLIC) > 50


def test_authors_are_told_the_types_of_fields() -> None:
    text = (DOCS / "how-to" / "own-package.md").read_text("utf-8")
    section = text[text.index("## Fields\n") : text.index("## Fields that must")]
    told = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE))
    found = {
        name: values.describe(hint.__metadata__)
        for name, hint in vars(values).items()
        if get_origin(hint) is Annotated
    }
    assert told.keys() == found.keys()
    for name, words in told.items():
        assert words.removesuffix(f", at most {values.MOST:,}") == found[name]


def test_authors_are_told_the_groups_of_entry_points() -> None:
    for page in ("how-to/own-package.md", "guide/experiments.md"):
        told = set(re.findall(r"`metagen\.(\w+)`", (DOCS / page).read_text("utf-8")))
        groups = {"tasks" if section == "task" else section for section in registry.KINDS}
        assert groups - told == set(), page
