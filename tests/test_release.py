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
    """They may try more: one is promised once it has passed."""
    jobs = {
        name: yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text("utf-8"))["jobs"]
        for name in ("test", "release")
    }
    tested = {*jobs["test"]["test"]["strategy"]["matrix"]["python"], "3.11"}
    tried = {*jobs["release"]["try"]["strategy"]["matrix"]["python"]}
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["classifiers"]
    promised = {
        version for one in classifiers if re.fullmatch(r"3\.\d+", version := one.rpartition(" :: ")[2])
    }
    assert {"3.11", "3.12", "3.13"} <= promised <= tested == tried


def test_nothing_is_published_before_it_was_checked_and_tried() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))["jobs"]
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}, "trusted publishing, and nothing else"
    assert ".ci/run" in commands(jobs["checks"])


def test_workflows_need_no_secret() -> None:
    for file in WORKFLOWS:
        assert "secrets." not in file.read_text("utf-8"), file.name


def test_the_citation_has_what_its_format_demands() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= cited.keys() and cited["authors"]


def test_no_address_is_promised_that_there_is_not() -> None:
    """The project has no public address yet: docs/decisions/0042-the-name.md."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert "urls" not in project and not {"url", "repository-code"} & cited.keys()
