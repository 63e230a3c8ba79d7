"""How steps are compiled: once for a machine, in the background, and never in the way of an engine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from metagen.errors import InputError
from metagen.generators.compiled import build

NEEDS = build._missing()
pytestmark = pytest.mark.skipif(NEEDS is not None, reason=str(NEEDS))


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which nothing is compiled."""
    monkeypatch.setenv("METAGEN_CACHE", str(tmp_path))
    monkeypatch.setenv(build.SETTING, "auto")
    return tmp_path


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """`compiler(script)`: a compiler that runs this shell script; $out is the file that it is to leave."""

    def make(script: str) -> None:
        file = tmp_path / "compiler"
        find = 'while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done\n'
        file.write_text(f"#!/bin/sh\n{find}{script}\n")
        file.chmod(0o755)
        monkeypatch.setenv("CXX", str(file))

    return make


def until(what: Callable[[], bool]) -> None:
    for _ in range(1200):
        if what():
            return
        time.sleep(0.05)
    pytest.fail("it did not happen")


def test_a_build_leaves_a_library_and_nothing_else(
    fresh: Path, compiler: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler('echo made > "$out"')
    assert build.state()[0] == "none"
    assert build.build() is None
    assert build.state() == ("ready", str(build.library()))
    assert [file.name for file in (fresh / "compiled").iterdir()] == [build.library().name]
    compiler("exit 1")  # what is there is not built again
    assert build.build() is None


def test_a_failure_is_told_and_not_repeated(fresh: Path, compiler: Callable[[str], None]) -> None:
    compiler('echo "in file included" >&2; echo "extension.cpp:1: error: no such header" >&2; exit 1')
    build.begin()
    until(lambda: build.state()[0] == "failed")
    assert "no such header" in build.state()[1]
    compiler('echo made > "$out"')
    build.begin()
    assert build.state()[0] == "failed"
    assert build.extension() is None or build._loaded is not None
    # Somebody who asks for it tries again.
    assert build.build() is None
    assert build.state()[0] == "ready"


def test_one_process_builds_and_the_others_go_on(fresh: Path, compiler: Callable[[str], None]) -> None:
    compiler(
        f'echo turn >> {fresh}/turns; while [ ! -e {fresh}/go ]; do sleep 0.05; done; echo made > "$out"'
    )
    build.begin()
    until((fresh / "turns").exists)
    assert build.state()[0] == "building"
    line = "from metagen.generators.compiled import build; build.begin(); print(build.state()[0])"
    said = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "building"
    (fresh / "go").touch()
    until(build.library().exists)
    assert (fresh / "turns").read_text() == "turn\n"


def test_a_build_outlives_the_process_that_began_it(fresh: Path, compiler: Callable[[str], None]) -> None:
    compiler(f'while [ ! -e {fresh}/go ]; do sleep 0.05; done; echo made > "$out"')
    line = "from metagen.generators.compiled import build; build.begin()"
    # Its output ends with it, though the compiler goes on.
    subprocess.run([sys.executable, "-c", line], check=True, capture_output=True, timeout=120)
    assert build.state()[0] == "building"
    (fresh / "go").touch()
    until(build.library().exists)


def test_a_build_that_was_killed_is_begun_again(fresh: Path, compiler: Callable[[str], None]) -> None:
    compiler('echo made > "$out"')
    claim = build.library().with_suffix(".claim")
    claim.parent.mkdir()
    claim.touch()
    build.begin()
    assert build.state()[0] == "building"
    before = time.time() - build.LOST - 1
    os.utime(claim, (before, before))
    build.begin()
    until(build.library().exists)


@pytest.mark.parametrize("setting", ["ready", "off"])
def test_nothing_is_built_where_nothing_is_wanted(
    fresh: Path, compiler: Callable[[str], None], setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler('echo made > "$out"')
    monkeypatch.setenv(build.SETTING, setting)
    build.begin()
    assert not (fresh / "compiled").exists()


def test_other_settings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build.SETTING, "yes")
    with pytest.raises(InputError, match="METAGEN_COMPILED='yes'; set it to one of auto, ready, off"):
        build.extension()


def test_a_machine_without_a_compiler_says_what_to_install(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(fresh))
    monkeypatch.delenv("CXX", raising=False)
    build.begin()
    assert build.state()[0] == "none"
    assert "install g++" in build.state()[1]
    assert "install g++" in str(build.build())
    assert not (fresh / "compiled").exists()


def test_a_cache_that_cannot_be_written_is_no_error(
    fresh: Path, compiler: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler('echo made > "$out"')
    (fresh / "file").touch()
    monkeypatch.setenv("METAGEN_CACHE", str(fresh / "file"))
    build.begin()
    assert build.state()[0] == "none"


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_library_that_others_may_write_is_not_loaded(
    fresh: Path, compiler: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    compiler('echo made > "$out"')
    monkeypatch.setattr(build, "_loaded", None)
    monkeypatch.setattr(build, "LOOK", 0.0)
    monkeypatch.setattr(build, "_load", lambda file: f"loaded {file.name}")
    assert build.build() is None
    build.library().parent.chmod(mode)
    assert build.extension() is None
    build.library().parent.chmod(0o755)
    build.library().chmod(mode)
    assert build.extension() is None
    build.library().chmod(0o755)
    assert build.extension() == f"loaded {build.library().name}"
