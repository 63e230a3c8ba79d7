"""What a release needs says the same as the project does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import metagen

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def commands(value: Any) -> list[str]:
    """What the steps of a workflow run."""
    if isinstance(value, dict):
        own = [value["run"]] if isinstance(value.get("run"), str) else []
        return own + [one for inner in value.values() for one in commands(inner)]
    return [one for inner in value for one in commands(inner)] if isinstance(value, list) else []


def test_the_citation_names_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (cited["version"], cited["license"]) == (metagen.__version__, project["license"])


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_workflows_run_what_there_is(file: Path) -> None:
    run = "\n".join(commands(yaml.safe_load(file.read_text("utf-8"))))
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z]+)", run)) <= set(targets)
    assert all((ROOT / path).exists() for path in re.findall(r"(?<!\S)\.ci/\S+", run))
    assert run


@pytest.mark.parametrize("file", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda file: file.name)
def test_files_of_the_repository_can_be_read(file: Path) -> None:
    assert yaml.safe_load(file.read_text("utf-8"))


def test_workflows_test_the_pythons_that_are_promised() -> None:
    test = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8"))["jobs"]
    tested = {*test["test"]["strategy"]["matrix"]["python"], "3.11"}
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["classifiers"]
    assert tested == {
        version for one in classifiers if re.fullmatch(r"3\.\d+", version := one.rpartition(" :: ")[2])
    }
