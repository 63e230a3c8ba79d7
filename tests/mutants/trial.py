"""Run tests of a copy of the repository, each time in a forked child.

The parent has imported the large libraries and nothing of metagen, so that a child imports what may be mutated and has
the rest at once. A child is a session of its own: it ends with all that its tests have started. A mutant is tried on
the test files that run its lines, one after the other; a test that runs them in another process only is not seen.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NoReturn

import pytest
from hypothesis import Phase, settings

from tests.mutants.mutate import Mutant
from tests.mutants.slices import ROOT

#: What takes seconds to import. Without one of them its children import it themselves.
LIBRARIES = (
    "torch",
    "transformers",
    "scipy.stats",
    "scipy.optimize",
    "sympy",
    "networkx",
    "matplotlib.figure",
    "hypothesis.stateful",
    "pydantic",
    "yaml",
    "typer",
    "tokenizers",
    "safetensors.torch",
    "sacrebleu",
)
#: "stillborn": some test file could not be read, so that no test told anything.
Fate = Literal["killed", "timeout", "survived", "stillborn"]
#: A test may take so many times as long as without a mutant, and so many seconds more.
TIMES, MORE = 4, 20
#: Seconds in which a child imports, collects, or ends.
AROUND = 300


def import_libraries() -> None:
    """Import what the children share."""
    os.environ["CI"] = "1"  # hypothesis draws the same examples each time
    for name in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(name)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    gc.freeze()  # a collection in a child would copy their pages


@dataclass(frozen=True)
class Run:
    """Of one file of tests. `seconds` of each test; `lines` of each module that ran, on import too."""

    fate: Fate
    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, set[int]] = field(default_factory=dict)


@dataclass
class Copy:
    """The repository, elsewhere: mutants are written there."""

    root: Path
    #: Of files of tests, without a mutant.
    whole: dict[str, Run] = field(default_factory=dict)

    def check(self, tests: list[str], modules: list[str]) -> None:
        """Run files of tests, which must pass, and note which lines of modules each of them runs."""
        with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
            said = Path(directory) / "said"
            for one in tests:
                if one in self.whole and all(module in self.whole[one].lines for module in modules):
                    continue
                run = self._run(one, said, AROUND, modules)
                if run.fate != "survived":
                    told = said.read_text(errors="replace")[-4000:]
                    raise SystemExit(f"without a mutant {one} fails ({run.fate}); mend it first\n{told}")
                self.whole[one] = run

    def fate(self, mutant: Mutant, tests: list[str], more: int = MORE) -> Fate:
        """Run those of the files that run the lines of the mutant, all if it has none, until a test fails."""
        found: Fate = "survived"
        with self.mutated(mutant.path, mutant.source):
            for one in tests:
                if mutant.lines and mutant.lines.isdisjoint(self.whole[one].lines[mutant.path]):
                    continue
                fate = self._run(one, Path(os.devnull), more, []).fate
                if fate in ("killed", "timeout"):
                    return fate
                found = "stillborn" if fate == "stillborn" else found
        return found

    def _run(self, tests: str, said: Path, more: int, modules: list[str]) -> Run:
        with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
            report = Path(directory) / "report.json"
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                self._child(tests, said, report, more, modules)
            try:
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(child, signal.SIGKILL)
            if code == -signal.SIGALRM:
                return Run("timeout")
            if not report.exists():  # it has crashed
                return Run("killed")
            told = json.loads(report.read_text())
        if told["code"] == 0:
            return Run("survived", told["seconds"], {path: {*lines} for path, lines in told["lines"].items()})
        return Run("killed" if told["code"] in (1, 2) and not told["unread"] else "stillborn")

    def _child(self, tests: str, said: Path, report: Path, more: int, modules: list[str]) -> NoReturn:
        """Run pytest in the copy, as if it had been started there, and write what became of it."""
        try:
            os.setsid()
            for stream, place in ((0, os.devnull), (1, said), (2, said)):
                os.dup2(os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND), stream)
            os.chdir(self.root)
            os.environ["PYTHONPATH"] = str(self.root)
            sys.path[:] = [str(self.root), *(p for p in sys.path if Path(p).resolve() != ROOT)]
            for name in [n for n in sys.modules if n.partition(".")[0] in ("metagen", "tests")]:
                del sys.modules[name]
            sys.modules["__main__"] = types.ModuleType(
                "__main__"
            )  # what `spawn` would import in its children
            sys.argv[:] = ["pytest"]
            known = self.whole[tests].seconds if tests in self.whole else {}
            watch = Watch({test: TIMES * seconds for test, seconds in known.items()}, more)
            lines = Lines({str(self.root / module): module for module in modules})
            signal.alarm(AROUND)
            options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow"]
            options += ["-o", "addopts=--import-mode=importlib"]
            with lines:
                code = int(pytest.main([*options, tests], plugins=[watch]))
            told = {"code": code, "unread": watch.unread, "seconds": watch.seconds, "lines": lines.ran()}
            report.write_text(json.dumps(told))
        finally:
            sys.stdout.flush()
            os._exit(0)

    @contextmanager
    def mutated(self, path: str, source: str) -> Iterator[None]:
        place = self.root / path
        whole = place.read_bytes()
        self._write(place, source.encode())
        try:
            yield
        finally:
            self._write(place, whole)

    def _write(self, place: Path, data: bytes) -> None:
        place.write_bytes(data)
        # Compiled code is known by the size of its source and the second in which that was written.
        for compiled in place.parent.glob(f"__pycache__/{place.stem}.*.pyc"):
            compiled.unlink()


class Watch:
    """A plug-in of pytest: ends the process when a test takes too long, and notes what could not be read."""

    def __init__(self, limits: dict[str, float], more: int) -> None:
        self.limits, self.more = limits, more
        self.unread = False
        self.seconds: dict[str, float] = {}

    def pytest_sessionstart(self) -> None:
        """An example that fails need not be the smallest."""
        settings.register_profile("mutants", settings(), phases=[Phase.explicit, Phase.generate])
        settings.load_profile("mutants")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.unread |= report.failed

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        started = time.monotonic()
        signal.alarm(round(self.limits.get(item.nodeid, 0)) + self.more)
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.monotonic() - started
            signal.alarm(AROUND)


class Lines:
    """Which lines of some files run, in any thread of this process."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files
        self._found: dict[str, set[int]] = {file: set() for file in files}
        self._left: dict[types.CodeType, set[int]] = {}

    def __enter__(self) -> None:
        if self.files:
            threading.settrace(self._call)
            sys.settrace(self._call)

    def __exit__(self, *_: object) -> None:
        threading.settrace(None)  # type: ignore[arg-type]
        sys.settrace(None)

    def ran(self) -> dict[str, list[int]]:
        return {name: sorted(self._found[file] - {0}) for file, name in self.files.items()}

    def _call(self, frame: types.FrameType, event: str, _: object) -> Callable[..., object] | None:
        code = frame.f_code
        if code.co_filename not in self._found:
            return None
        if code not in self._left:
            self._left[code] = {line for *_, line in code.co_lines() if line is not None}
        self._note(code, frame.f_lineno)
        return self._line if self._left[code] else None

    def _line(self, frame: types.FrameType, event: str, _: object) -> Callable[..., object] | None:
        self._note(frame.f_code, frame.f_lineno)
        return self._line

    def _note(self, code: types.CodeType, line: int) -> None:
        self._left[code].discard(line)
        self._found[code.co_filename].add(line)


@contextmanager
def copied() -> Iterator[Copy]:
    """The files that git knows or would add, in a temporary directory."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        for name in filter(None, names):
            source, target = ROOT / name, Path(directory) / name
            if source.is_symlink() or not source.is_file():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        yield Copy(Path(directory).resolve())
