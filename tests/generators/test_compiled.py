"""How steps are compiled: once for a machine, in the background, and never in the way of an engine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
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
    build.begin()
    assert build.state()[0] == "failed"
    assert build.extension() is None or build._loaded is not None
    # Somebody who asks for it tries again.
    assert "no such header" in str(build.build())


def test_after_a_failure_another_compiler_tries_again(fresh: Path, compiler: Callable[[str], None]) -> None:
    compiler("exit 1")
    assert build.build() is not None
    assert build.state()[0] == "failed"
    compiler('echo made > "$out"')
    assert build.state()[0] == "none"
    build.begin()
    until(build.library().exists)


def test_another_c_library_has_a_library_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    key = build._key()
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.2"))
    assert build._key.__wrapped__() != key


def test_a_build_waits_for_one_under_way(fresh: Path, compiler: Callable[[str], None]) -> None:
    compiler(
        f'echo turn >> {fresh}/turns; while [ ! -e {fresh}/go ]; do sleep 0.05; done; echo made > "$out"'
    )
    build.begin()
    until((fresh / "turns").exists)
    found: list[str | None] = []
    waiting = threading.Thread(target=lambda: found.append(build.build()))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    (fresh / "go").touch()
    waiting.join()
    assert found == [None]
    assert (fresh / "turns").read_text() == "turn\n"


def test_a_build_tells_the_failure_of_one_under_way(fresh: Path, compiler: Callable[[str], None]) -> None:
    compiler(f'echo turn >> {fresh}/turns; sleep 0.3; echo "an error" >&2; exit 1')
    build.begin()
    assert build.build() == "an error"
    assert (fresh / "turns").read_text() == "turn\n"


def test_others_wait_for_a_build_that_was_asked_for(fresh: Path, compiler: Callable[[str], None]) -> None:
    compiler(f'cp {build.library().with_suffix(".claim")} {fresh}/claimed && echo made > "$out"')
    assert build.build() is None
    assert (fresh / "claimed").exists()


def test_a_build_that_somebody_stops_is_not_waited_for(
    fresh: Path, compiler: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler('echo made > "$out"')

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as stopped:
        stopped.setattr(subprocess, "run", stop)
        with pytest.raises(KeyboardInterrupt):
            build.build()
    assert build.state()[0] == "none"
    assert build.build() is None


def test_a_build_that_was_killed_is_not_waited_for_long(
    fresh: Path, compiler: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler('echo made > "$out"')
    build.library().parent.mkdir()
    build.library().with_suffix(".claim").touch()
    monkeypatch.setattr(build, "WAIT", 0.0)
    assert build.build() is None


def test_no_two_builds_write_one_file() -> None:
    file = build.library()
    one, other = (set(str(build._command(file)).split()) for _ in range(2))
    assert {Path(word).suffix for word in one - other if word.startswith(str(file.parent))} >= {".so"}


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


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has loaded nothing, and looks each time. What it loads is a name."""
    monkeypatch.setattr(build, "_loaded", None)
    monkeypatch.setattr(build, "LOOK", 0.0)
    monkeypatch.setattr(build, "_load", lambda file: f"loaded {file.name}")
    build._warn.cache_clear()
    yield
    build._broken.clear()


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_library_that_others_may_write_is_not_loaded(
    fresh: Path, compiler: Callable[[str], None], loading: None, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    compiler('echo made > "$out"')
    assert build.build() is None
    build.library().parent.chmod(mode)
    assert build.extension() is None
    assert build.state() == ("failed", f"others may write {fresh}/compiled; run chmod go-w {fresh}/compiled")
    build.library().parent.chmod(0o755)
    build.library().chmod(mode)
    assert build.extension() is None
    assert build.extension() is None
    told = [record.reason for record in caplog.records]  # type: ignore[attr-defined]  # it is a field of ours
    assert told == [
        f"others may write {file}; run chmod go-w {file}" for file in (fresh / "compiled", build.library())
    ]
    build.library().chmod(0o755)
    assert build.extension() == f"loaded {build.library().name}"


@pytest.mark.parametrize("umask", [0o002, 0o000, 0o077])
@pytest.mark.parametrize("how", ["begin", "build"])
def test_a_build_is_loaded_whatever_the_umask(
    fresh: Path, compiler: Callable[[str], None], loading: None, umask: int, how: str
) -> None:
    """A linker lets everybody write whom the umask lets; many systems let the user's group."""
    compiler('echo made > "$out"; chmod $(printf %o $((0777 & ~0$(umask)))) "$out"')
    before = os.umask(umask)
    try:
        getattr(build, how)()
        until(lambda: build.state()[0] != "building")
    finally:
        os.umask(before)
    assert build.state() == ("ready", str(build.library()))
    assert build.extension() == f"loaded {build.library().name}"
    assert not build.library().stat().st_mode & umask


def test_a_library_that_cannot_be_loaded_is_tried_once(
    fresh: Path,
    compiler: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    load, tried = build._load, []
    monkeypatch.setattr(build, "_loaded", None)
    monkeypatch.setattr(build, "LOOK", 0.0)
    monkeypatch.setattr(build, "_load", lambda file: tried.append(file) or load(file))  # type: ignore[func-returns-value]
    compiler('echo made > "$out"')
    assert build.build() is None
    assert [build.extension() for _ in range(3)] == [None] * 3
    assert tried == [build.library()]
    assert len(caplog.records) == 1
    state, told = build.state()
    assert state == "failed"
    assert told.startswith(f"{build.library()} cannot be loaded: ")
    assert build.build() == told


def test_a_cache_that_may_not_be_looked_at_is_no_error(fresh: Path) -> None:
    """As of another user, whose home stays in the environment."""
    line = (
        "import os; from metagen.generators.compiled import build; build.library(); build._missing = lambda: None\n"
        "if os.getuid() == 0: os.setresuid(65534, 65534, 65534)\n"
        "build.begin(); print(build.extension(), build.state()[0], build.build())"
    )
    (fresh / "closed").mkdir(mode=0o000)
    environment = {**os.environ, "METAGEN_CACHE": str(fresh / "closed" / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", line], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        f"None none {fresh}/closed/cache/compiled cannot be written (Permission denied)"
    )
