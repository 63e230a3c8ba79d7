"""Mutate the package and see which tests notice: `make mutants ARGS='budget --count 10'`.

Works on a copy of the repository. For each module of a slice it draws mutants by a seed, writes each into the copy, and
runs the tests of the slice until one fails. A mutant that no test tells is listed as surviving; its line and its change
name it, also in `equivalent.json`, which lists those that change nothing, with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.mutants.mutate import Mutant, mutants
from tests.mutants.named import NAMED, Named
from tests.mutants.slices import ROOT, SLICES

HERE = Path(__file__).parent
#: Those that change nothing; and what became of each mutant that was tried, on this machine.
EQUIVALENT, RESULTS = HERE / "equivalent.json", ROOT / "runs" / "mutants.json"
Fate = Literal["killed", "timeout", "survived"]
#: A run of tests may take so many times as long as without a mutant, and so many seconds more.
TIMES, MORE = 4, 60


@dataclass
class Copy:
    """The repository, elsewhere: mutants are written there."""

    root: Path

    def tests(self, tests: list[str], seconds: float) -> Fate:
        """Run tests until one fails."""
        given = ("OMP_NUM_THREADS", "PATH", "HOME", "TMPDIR", "LANG")
        environment = {name: os.environ[name] for name in given if name in os.environ}
        # The copy, not what is installed; hypothesis draws the same examples each time.
        environment |= {"PYTHONPATH": str(self.root), "CI": "1"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        command += ["-m", "not slow", "-o", "addopts=--import-mode=importlib", *tests]
        process = subprocess.Popen(
            command, cwd=self.root, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return "timeout"
        finally:
            with_children(process)
        if code in (3, 4, 5):
            raise SystemExit(f"pytest ended with {code}: no test of {tests} ran; mend the slice")
        return "survived" if code == 0 else "killed"

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


def with_children(process: subprocess.Popen[bytes]) -> None:
    """End a run and what it has started, in its own session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


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
        yield Copy(Path(directory))


def drawn(path: str, count: int | None, seed: int, same: set[tuple[str, str]]) -> list[Mutant]:
    """So many mutants of a module, none of them known to be equivalent; all for None."""
    every = [m for m in mutants(path, (ROOT / path).read_text()) if (path, m.name) not in same]
    if count is None or count >= len(every):
        return every
    chosen = random.Random(f"{seed}:{path}").sample(range(len(every)), count)
    return [every[i] for i in sorted(chosen)]


def left(name: str, path: str) -> list[Mutant]:
    """The mutants of a module that survived when they were last tried."""
    fates = results().get(name, {}).get(path, {})
    return [m for m in mutants(path, (ROOT / path).read_text()) if fates.get(m.name) == "survived"]


def results() -> dict[str, dict[str, dict[str, Fate]]]:
    """By slice, module and mutant."""
    found: dict[str, dict[str, dict[str, Fate]]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def equivalents() -> set[tuple[str, str]]:
    return {(one["path"], one["mutant"]) for one in json.loads(EQUIVALENT.read_text())}


@dataclass
class Tried:
    """Tests in two parts, those named like the module first; what survives these meets the rest."""

    copy: Copy
    limits: dict[tuple[str, ...], float] = field(default_factory=dict)

    def fate(self, mutant: Mutant, parts: list[list[str]]) -> Fate:
        for tests in parts:
            limit = self._limit(tests)
            with self.copy.mutated(mutant.path, mutant.source):
                fate = self.copy.tests(tests, limit)
            if fate != "survived":
                return fate
        return "survived"

    def _limit(self, tests: list[str]) -> float:
        """Seconds that they may take. Without a mutant they must pass."""
        key = tuple(tests)
        if key not in self.limits:
            started = time.monotonic()
            if self.copy.tests(tests, 3600) != "survived":
                raise SystemExit(f"without a mutant {' '.join(tests)} fail; mend them first")
            self.limits[key] = TIMES * (time.monotonic() - started) + MORE
        return self.limits[key]


def run_slice(copy: Copy, name: str, options: argparse.Namespace) -> list[str]:
    """The mutants of a slice that survived."""
    one, same, survived = SLICES[name], equivalents(), list[str]()
    tried = Tried(copy)
    paths = [p for p in one.paths() if options.module is None or options.module in p]
    share = options.count
    for number, path in enumerate(paths):
        if options.total:  # of the slice, shared out among its modules
            share = options.total * (number + 1) // len(paths) - options.total * number // len(paths)
        for mutant in left(name, path) if options.again else drawn(path, share, options.seed, same):
            fate = tried.fate(mutant, one.of(path))
            keep(name, mutant, fate)
            if fate == "survived":
                survived.append(f"{mutant}  # {mutant.context}")
            print(f"{fate:9} {mutant}", flush=True)
    return survived


def keep(name: str, mutant: Mutant, fate: Fate) -> None:
    """Write what became of a mutant beside what is known of others; those that are no more are dropped."""
    known = results()
    module = known.setdefault(name, {}).setdefault(mutant.path, {})
    module[mutant.name] = fate
    current = {m.name for m in mutants(mutant.path, (ROOT / mutant.path).read_text())}
    known[name][mutant.path] = {one: module[one] for one in sorted(module) if one in current}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(known, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def run_named(copy: Copy, names: tuple[Named, ...]) -> list[str]:
    """The named mutants that no test kills."""
    survived = []
    for one in names:
        source = (ROOT / one.path).read_text()
        with copy.mutated(one.path, source.replace(one.before, one.after)):
            fate = copy.tests([one.test], 600)
        print(f"{fate:9} {one.law}: {one.path}  {one.before} → {one.after}", flush=True)
        if fate == "survived":
            survived.append(one.law)
    return survived


def table() -> str:
    """By slice: mutants tried and killed, those left out that are equivalent; and the survivors."""
    same = equivalents()
    rows = ["| slice | modules | mutants | killed | share |", "|---|---|---|---|---|"]
    left, whole = [], [0, 0]
    for name, modules in results().items():
        tried = [
            (path, one, fate)
            for path, fates in modules.items()
            for one, fate in fates.items()
            if (path, one) not in same
        ]
        survived = [f"{path}: {one}" for path, one, fate in tried if fate == "survived"]
        left += survived
        killed = len(tried) - len(survived)
        whole = [whole[0] + len(tried), whole[1] + killed]
        rows.append(
            f"| {name} | {len(modules)} | {len(tried)} | {killed} | {killed / max(1, len(tried)):.0%} |"
        )
    rows.append(f"| all | | {whole[0]} | {whole[1]} | {whole[1] / max(1, whole[0]):.0%} |")
    return "\n".join([*rows, "", "Survivors:" if left else "No survivors.", *left])


def main() -> None:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "slices", nargs="*", metavar="SLICE", help=f"named, or of {', '.join(SLICES)}; all by default"
    )
    parser.add_argument("--count", type=int, default=10, help="mutants of each module; 0 for all of them")
    parser.add_argument(
        "--total", type=int, help="mutants of each slice, instead, shared out among its modules"
    )
    parser.add_argument("--module", help="only modules whose path holds this")
    parser.add_argument(
        "--again", action="store_true", help="only those that survived when they were last tried"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--report", action="store_true", help="print the table of the last runs, and run nothing"
    )
    options = parser.parse_args()
    options.count = options.count or None
    if options.report:
        print(table())
        return
    if unknown := set(options.slices) - {*SLICES, "named"}:
        parser.error(f"no slice {', '.join(sorted(unknown))}; there are: named, {', '.join(SLICES)}")
    survived: list[str] = []
    with copied() as copy:
        for name in options.slices or ["named", *SLICES]:
            if name == "named":
                survived += run_named(copy, NAMED)
                continue
            survived += run_slice(copy, name, options)
    print("\n".join([f"{len(survived)} survived in this run:", *survived]) if survived else "all killed")
    sys.exit(bool(survived))


if __name__ == "__main__":
    main()
