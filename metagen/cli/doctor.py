"""What is installed, what is missing and how to get it, and what this machine can do.

An examination imports neither torch nor transformers, so that it takes a moment; `trial` runs a model for real.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from packaging.requirements import Requirement
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

import metagen
from metagen.cli import models
from metagen.errors import MetagenError, install, lacks
from metagen.generators import tiny
from metagen.generators.compiled import build
from metagen.generators.models import sources
from metagen.generators.openai.keys import redact
from metagen.journal import SQLiteJournal
from metagen.runs.declare import registry
from metagen.runs.directory import RUNS
from metagen.runs.work import served

Status = Literal["ok", "note", "missing", "fault"]
STYLES: dict[Status, str] = {"ok": "green", "note": "yellow", "missing": "red", "fault": "bold red"}
#: The names of this project on a package index, and of one that only has the same import name.
DISTRIBUTION, OTHER = "metageneration", "metagen"
#: Distributions of the extra `torch` without which no local model runs; the rest render chat templates.
ENGINE = ("torch", "tokenizers", "safetensors")
#: What else metagen can work with: distributions, and programs with the names that they go by.
DISTRIBUTIONS = {"vllm": "serves models on a GPU", "ray": "engines on many machines"}
PROGRAMS = {
    "chromium": (
        ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
        "opens reports",
    ),
    "bubblewrap": (("bwrap",), "isolates code that models write"),
}
MANAGERS = {
    "apt-get": "sudo apt-get install",
    "dnf": "sudo dnf install",
    "pacman": "sudo pacman -S",
    "brew": "brew install",
}
#: How the states of the torch engine's compiled steps read.
STEPS: dict[str, Status] = {"ready": "ok", "building": "ok", "failed": "fault", "none": "note"}
#: Bytes that a run should find free.
ROOM = 1e9
#: File systems that other machines write too: SQLite's locks cannot be relied upon there.
REMOTE = ("nfs", "cifs", "smb", "9p", "lustre", "gpfs", "beegfs", "ceph", "afs", "fuse.sshfs")
PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    needed: the main job cannot run unless it is all right. found: what is there. remedy: what mends it, a command
    where there is one.
    """

    group: str
    name: str
    status: Status
    found: str
    remedy: str = ""
    needed: bool = False


@dataclass(frozen=True, slots=True)
class Examination:
    """All checks, in the order in which people read them."""

    checks: tuple[Check, ...]

    @property
    def ready(self) -> bool:
        """Whether an experiment on an embedded model can run here."""
        return not self.wrong

    @property
    def wrong(self) -> tuple[Check, ...]:
        """What keeps the main job from running."""
        return tuple(c for c in self.checks if c.needed and c.status in ("missing", "fault"))

    def to_dict(self) -> dict[str, Any]:
        return {"ready": self.ready, "checks": [asdict(check) for check in self.checks]}


def examine(runs: Path = RUNS, *, attempt: bool = False, servers: Iterable[str] = ()) -> Examination:
    """Look at everything; `attempt` runs an embedded model as well, which takes seconds.

    servers: addresses such as http://localhost:8000/v1, whose metrics are read. InputError for one that is none.
    """
    parts: list[Callable[[], Iterable[Check]]] = [
        _software, _optional, _plugins, _machine, lambda: _storage(runs), _models, lambda: map(_server, servers),
    ]  # fmt: skip
    checks = [check for part in parts for check in part()]
    if attempt and not any(c.needed and c.status in ("missing", "fault") for c in checks):
        checks.append(trial())
    return Examination(tuple(checks))


def render(found: Examination) -> RenderableType:
    """A section for each group, and a verdict."""
    parts: list[RenderableType] = []
    for group in dict.fromkeys(check.group for check in found.checks):
        grid = Table.grid(padding=(0, 2))
        grid.add_column(min_width=14, no_wrap=True)
        grid.add_column(min_width=7, no_wrap=True)
        grid.add_column()
        for check in (c for c in found.checks if c.group == group):
            told = Text(check.found)
            if check.remedy:
                told.append(f"{': ' if check.found else ''}{check.remedy}", "bold")
            calm = check.status == "missing" and not check.needed
            grid.add_row(check.name, Text(check.status, "yellow" if calm else STYLES[check.status]), told)
        parts += [Text(group, "bold"), grid, Text()]
    if found.ready:
        parts.append(Text("Ready. Try: metagen new votes.yaml, then: metagen run votes.yaml", "bold green"))
    else:
        names = ", ".join(check.name for check in found.wrong)
        parts.append(Text(f"Not ready: mend {names}", "bold red"))
    return Group(*parts)


# --------------------------------------------------------------------------------------------------- servers


def _server(url: str) -> Check:
    """Whether a server answers, and whether it shows vLLM's default blocks on a CPU, which suit no search."""
    where = redact(url)
    try:
        told = served.metrics(url)
    except OSError as error:
        return Check(
            "Servers", "server", "note", f"{where} does not answer ({error})", "start it, or mend the address"
        )
    if told is not None and served.default_blocks(served.cache(told)):
        return Check(
            "Servers", "server", "note", f"{where} is a vLLM on a CPU with default blocks of {served.BLOCK} tokens: "
            "shorter prefixes are not shared, and a request with a seed beside a prompt that is read in parts ends it",
            "start it with --block-size 32 --max-num-batched-tokens 16384",
        )  # fmt: skip
    return Check("Servers", "server", "ok", f"{where} answers")


# -------------------------------------------------------------------------------------------------- software


def _software() -> Iterator[Check]:
    enough = sys.version_info >= (3, 11)
    yield Check(
        "Software", "python", "ok" if enough else "fault", f"{platform.python_version()}, {sys.executable}",
        "" if enough else "install Python 3.11 or later", needed=True,
    )  # fmt: skip
    yield Check("Software", "metagen", "ok", f"{metagen.__version__}, {Path(metagen.__file__).parent}")
    yield from _other()
    for requirement, extra in _requirements():
        yield _distribution(requirement, needed=not extra or requirement.name in ENGINE)


def _requirements() -> Iterator[tuple[Requirement, bool]]:
    """What metagen asks for, and whether only its extra `torch` does; of a clone that is not installed too."""
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        lines = _project()
    for requirement in map(Requirement, lines):
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}):
            yield requirement, False
        elif marker.evaluate({"extra": "torch"}):
            yield requirement, True


def _project() -> list[str]:
    """The requirements in the clone's pyproject.toml; of a package without one, those of the extra `torch`."""
    file = Path(metagen.__file__).parents[1] / "pyproject.toml"
    if not file.is_file():
        return [f"{name}; extra == 'torch'" for name in ENGINE]
    project = tomllib.loads(file.read_text("utf-8"))["project"]
    engine = [f"{line}; extra == 'torch'" for line in project["optional-dependencies"]["torch"]]
    return [*project["dependencies"], *engine]


def _other() -> Iterator[Check]:
    """Another project of the public index has metagen's import name and its command."""
    if (version := _version(OTHER)) is not None:
        found = f"the distribution {OTHER} {version} has this import name and command; take it out, then install again"
        command = _pip(OTHER).replace(" install ", " uninstall ")
        yield Check("Software", "another metagen", "fault", found, f"{command}, then {install('torch')}")


def _distribution(requirement: Requirement, needed: bool) -> Check:
    name = requirement.name
    wanted = f"{name}{requirement.specifier}"
    version = _version(name)
    if version is None:
        return Check("Software", name, "missing", "", _pip(wanted), needed)
    if not requirement.specifier.contains(version, prereleases=True):
        return Check(
            "Software", name, "fault", f"{version}, expected {requirement.specifier}", _pip(wanted), needed
        )
    if name == "torch":
        return _torch(version, wanted)
    return Check("Software", name, "ok", version, needed=needed)


def _torch(version: str, wanted: str) -> Check:
    """The engine's library, and what it was built for, as its files have it."""
    build = _torch_build()
    found = f"{version}, {build}"
    if build == "CPU only" and _gpus():
        # What is installed satisfies the requirement, so pip would leave it as it is.
        remedy = (
            f"{_pip('torch').replace(' install ', ' install --force-reinstall ')} --index-url URL, "
            "the index of CUDA builds that pytorch.org names"
        )
        return Check("Software", "torch", "note", f"{found}; there is a GPU", remedy, needed=True)
    return Check("Software", "torch", "ok", found, needed=True)


def _torch_build() -> str:
    """`CUDA 13.0`, `ROCm 7.1` or `CPU only`, as torch/version.py has it."""
    spec = importlib.util.find_spec("torch")
    with contextlib.suppress(OSError):
        text = (Path(spec.origin).parent / "version.py").read_text("utf-8") if spec and spec.origin else ""
        for field, name in (("cuda", "CUDA"), ("hip", "ROCm")):
            if found := re.search(rf"^{field}\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE):
                return f"{name} {found[1]}"
    return "CPU only"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _pip(wanted: str) -> str:
    """The command that installs a distribution for this interpreter."""
    found = shutil.which("python")
    here = (
        "python" if found and os.path.realpath(found) == os.path.realpath(sys.executable) else sys.executable
    )
    command = f"{shlex.quote(here)} -m pip install {shlex.quote(wanted)}"
    if wanted.startswith("torch") and sys.platform == "linux" and not _gpus():
        command += " --index-url https://download.pytorch.org/whl/cpu"
    return command


def _optional() -> Iterator[Check]:
    for name, purpose in DISTRIBUTIONS.items():
        version = _version(name)
        if version is None:
            yield Check("Optional", name, "missing", f"{purpose}; get it by", _pip(name))
        else:
            yield Check("Optional", name, "ok", f"{version}, {purpose}")
    manager = next((command for name, command in MANAGERS.items() if shutil.which(name)), "install")
    for name, (commands, purpose) in PROGRAMS.items():
        path = next(filter(None, map(shutil.which, commands)), None)
        if path is None:
            yield Check("Optional", name, "missing", f"{purpose}; get it by", f"{manager} {name}")
        elif name == "bubblewrap" and (refusal := _find_refusal(path)):
            yield Check("Optional", name, "fault", f"{path} is refused: {refusal}")
        else:
            yield Check("Optional", name, "ok", f"{path}, {purpose}")


def _find_refusal(bwrap: str) -> str:
    """Why bubblewrap cannot make a sandbox here; nothing if it can. Kernels and containers may forbid it."""
    command = [bwrap, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip() if done.returncode else ""


def _plugins() -> Iterator[Check]:
    """Kinds that other packages bring by entry points; they are looked for, not imported."""
    for section in get_args(registry.Section):
        for name, point in registry.plugins(section).items():
            package = point.module.partition(".")[0]
            there = importlib.util.find_spec(package) is not None
            of = f", of {point.dist.name} {point.dist.version}" if point.dist else ""
            yield Check(
                "Plugins", name, "ok" if there else "fault", f"{section}: {point.value}{of}",
                "" if there else f"there is no package {package!r}; install the plugin again",
            )  # fmt: skip


# --------------------------------------------------------------------------------------------------- machine


def _machine() -> Iterator[Check]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Check("Machine", "cores", "ok", f"{usable} usable of {os.cpu_count()}, {platform.machine()}")
    yield Check("Machine", "memory", "ok", _memory())
    for gpu in _gpus():
        yield Check("Machine", "GPU", "ok", gpu)
    if not _gpus():
        yield Check("Machine", "GPU", "note", "none found; models run on the processor")
    if _version("torch") is not None:
        state, told = build.state()
        yield Check("Machine", "steps", STEPS[state], f"{state}; {told}")
        if _gpus():
            yield _gpu_steps()


def _gpu_steps() -> Check:
    """What the torch engine's kernels for a GPU are compiled with: Triton, and a C compiler with Python's headers."""
    slow = "steps on the GPU run operation by operation, several times slower"
    if (triton := _version("triton")) is None:
        return Check("Machine", "GPU steps", "note", f"Triton is missing; {slow}", _pip("triton"))
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        remedy = "install gcc (Debian: apt-get install gcc)"
        return Check("Machine", "GPU steps", "note", f"Triton {triton} finds no C compiler; {slow}", remedy)
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        remedy = "install Python's headers (Debian: apt-get install python3-dev)"
        return Check("Machine", "GPU steps", "note", f"Triton {triton} finds no Python.h; {slow}", remedy)
    return Check("Machine", "GPU steps", "ok", f"compiled by Triton {triton} when a model is first opened")


def _memory() -> str:
    try:
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
        kib = {line.partition(":")[0]: int(line.split()[1]) for line in lines if line.endswith(" kB")}
        return f"{_gigabytes(1024 * kib['MemTotal'])}, {_gigabytes(1024 * kib['MemAvailable'])} available"
    except (OSError, KeyError, ValueError):
        return _gigabytes(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


@cache
def _gpus() -> tuple[str, ...]:
    """NVIDIA's GPUs with their memory, as the driver names them; torch is not asked, it takes seconds to import."""
    query = [
        "nvidia-smi",
        "--query-gpu=name,memory.total,memory.free,driver_version",
        "--format=csv,noheader,nounits",
    ]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return gpus(done.stdout) if done.returncode == 0 else ()


def gpus(answer: str) -> tuple[str, ...]:
    """What `nvidia-smi` answered: name, MiB in all and free, and the driver's version, one GPU a line."""
    found = []
    for line in answer.splitlines():
        name, *numbers = (part.strip() for part in line.split(","))
        if len(numbers) == 3 and numbers[0].isdecimal() and numbers[1].isdecimal():
            total, free = (_gigabytes(int(mib) * 2**20) for mib in numbers[:2])
            found.append(f"{name}, {total}, {free} free, driver {numbers[2]}")
    return tuple(found)


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:,.1f} GB"


# --------------------------------------------------------------------------------------------------- storage


def _storage(runs: Path) -> Iterator[Check]:
    """Where runs are written: may one write there, how does the journal work there, and how much fits."""
    place = runs.absolute()
    while not place.is_dir():
        place = place.parent
    where = f"{runs}/" if place == runs.absolute() else f"{runs}/, to be made in {place}"
    try:
        with (
            tempfile.TemporaryDirectory(prefix=".metagen-doctor-", dir=place) as folder,
            SQLiteJournal(Path(folder) / "journal.sqlite") as journal,
        ):
            wal = journal.wal
    except (OSError, sqlite3.Error, MetagenError) as error:
        remedy = "make it writable, or give another place: metagen run FILE --out DIR"
        yield Check("Storage", "runs", "fault", f"{where} cannot be written ({error})", remedy, needed=True)
    else:
        yield _journal(where, wal, _file_system(place))
    free = shutil.disk_usage(place).free
    enough = free >= ROOM
    yield Check(
        "Storage", "disk", "ok" if enough else "note", f"{_gigabytes(free)} free", "" if enough else "free some space"
    )  # fmt: skip


def _journal(where: str, wal: bool, kind: str) -> Check:
    on = f"{where} on {kind or 'an unknown file system'}"
    if kind.startswith(REMOTE):
        remedy = "write runs to a local disk: metagen run FILE --out DIR"
        return Check("Storage", "runs", "note", f"{on}, which other machines may write too", remedy)
    if not wal:
        return Check(
            "Storage", "runs", "note", f"{on}: no write-ahead log, so the journal is durable but slower"
        )
    return Check("Storage", "runs", "ok", f"{on}, journal with write-ahead log")


def _file_system(place: Path) -> str:
    """The type of the file system that a directory lies on, where Linux tells it."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    except OSError:
        return ""
    here = place.resolve()
    # The mount nearest to it; of those at one place, the last.
    over = [(len(Path(at).parts), kind) for at, kind in mounts if here.is_relative_to(at)]
    return max(over, key=lambda one: one[0], default=(0, ""))[1]


# ---------------------------------------------------------------------------------------------------- models


def _models() -> Iterator[Check]:
    """The models of the package: configuration, weights and tokenizer fit together."""
    names = tiny.names()
    remedy = "install metagen again"
    if not names:
        yield Check("Models", "embedded", "missing", "the package holds no models", remedy, needed=True)
    for name in names:
        try:
            found = models.look(sources.resolve(name))
        except ImportError as error:
            yield Check("Models", name, "note", f"cannot be looked at: it needs {lacks(error)}")
        except Exception as error:  # noqa: BLE001 - whatever a reader of files raises is what is wrong with the file
            yield Check("Models", name, "fault", f"{type(error).__name__}: {error}", remedy, needed=True)
        else:
            yield Check("Models", name, "ok", found, needed=True)


def trial() -> Check:
    """An embedded model solves a problem, on the engine that experiments use."""
    from metagen.generators.torch import TorchEngine
    from metagen.scope import Scope
    from metagen.sequence import Sequence
    from metagen.strategies.base import wait
    from metagen.tasks.arithmetic.task import ArithmeticTask

    name = min(_generators(), key=lambda one: (sources.resolve(one) / "model.safetensors").stat().st_size)
    problem = next(ArithmeticTask("validation", limit=1).problems())
    start = time.monotonic()

    async def one() -> Sequence:
        generator = engine.generator(max_tokens=64)
        (sequence,) = await generator.generate(Sequence.of(problem.prompt), scope=Scope.root(problem.id))
        return sequence

    try:
        with TorchEngine(name) as engine:
            device = engine.device
            written = len(wait(one()).text)
    except MetagenError as error:
        return Check("Models", "trial", "fault", f"{type(error).__name__}: {error}", needed=True)
    seconds = time.monotonic() - start
    return Check(
        "Models",
        "trial",
        "ok",
        f"{name} wrote {written} characters on {device}, {seconds:.1f} s",
        needed=True,
    )


def _generators() -> list[str]:
    """The embedded models that write; the others, which name a step tag, judge."""
    configs = {name: (sources.resolve(name) / "config.json").read_text("utf-8") for name in tiny.names()}
    return [name for name, config in configs.items() if '"tag"' not in config]
