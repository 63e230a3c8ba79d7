"""What the Makefile installs by hash is what constraints.txt pins, for every set of extras."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "requirements").glob("*.txt"))
#: Every build of it is another file, so it is installed by its version.
UNHASHED = re.compile(r"torch|triton|nvidia-.*|cuda-.*")


def requirements(file: Path) -> list[tuple[Requirement, list[str]]]:
    """Each with its hashes."""
    found = re.findall(r"^[^#\s].*(?:\n    .*)*", file.read_text("utf-8"), re.MULTILINE)
    return [
        (Requirement(one.split(" \\")[0]), re.findall(r"--hash=sha256:([0-9a-f]{64})", one)) for one in found
    ]


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = (Requirement(line) for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(pin.name): str(pin.specifier) for pin in pins}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_hashed_packages_are_those_that_are_pinned(file: Path) -> None:
    found, pins = requirements(file), pinned()
    assert found
    for one, hashes in found:
        assert hashes, f"{one.name} has no hash"
        assert pins.get(canonicalize_name(one.name), str(one.specifier)) == str(one.specifier)
        assert re.fullmatch(r"==[^,*]+", str(one.specifier)) and not UNHASHED.fullmatch(one.name)
    assert "://" not in file.read_text("utf-8"), "an index is the machine's own affair"


def test_every_pin_is_hashed_but_those_of_torch() -> None:
    hashed = {canonicalize_name(one.name) for file in FILES for one, _ in requirements(file)}
    assert sorted(name for name in pinned() if name not in hashed) == ["torch"]


def test_the_makefile_names_all_files() -> None:
    named = re.findall(r"^HASHED_\w+ := (.*)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert {name for line in named for name in line.split()} == {file.stem for file in FILES}
