"""The reference shows the constructor that a part has."""

from __future__ import annotations

import dataclasses
import inspect
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from metagen.runs.declare import registry
from metagen.values import fits

ROOT = Path(__file__).parents[2]
EXTENSION = "tests/docs/griffe_parts.py"
griffe = pytest.importorskip("griffe")


@cache
def package() -> Any:
    extensions = griffe.load_extensions(str(ROOT / EXTENSION))
    return griffe.load("metagen", search_paths=[str(ROOT)], extensions=extensions, allow_inspection=False)


def parts() -> list[str]:
    """Classes behind kinds, whose constructor is made of their fields."""
    found = []
    for section in ("strategies", "aggregators", "verifiers", "task"):
        for place in registry.KINDS[section].values():
            module, _, name = place.partition(":")
            made = getattr(import_module(module), name)
            if isinstance(made, type) and dataclasses.is_dataclass(made) and "__init__" in vars(made):
                found.append(f"{made.__module__}.{made.__qualname__}")
    return sorted(set(found))


def needed(parameter: inspect.Parameter) -> bool:
    """Nothing else is accepted in place of a default None that comes from an attribute of the base class."""
    absent = parameter.default is None and not fits(None, parameter.annotation, strict=True)
    return parameter.default is parameter.empty or absent


@pytest.mark.parametrize("path", parts())
def test_the_reference_shows_its_constructor(path: str) -> None:
    module, _, name = path.rpartition(".")
    real = inspect.signature(getattr(import_module(module), name)).parameters.values()
    shown = list(package()[path.removeprefix("metagen.")].members["__init__"].parameters)[1:]
    assert [(one.name, one.kind.name) for one in shown] == [
        (one.name, griffe.ParameterKind(one.kind.description).name) for one in real
    ]
    assert [one.default is None for one in shown] == [needed(one) for one in real]


def test_the_site_is_built_with_it() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert (
        yaml.safe_load(text)["plugins"][1]["mkdocstrings"]["handlers"]["python"]["options"]["extensions"][0]
        == EXTENSION
    )
