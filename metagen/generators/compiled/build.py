"""Compile the steps once for a machine, in the background, and load them when they are there.

METAGEN_COMPILED: `auto` compiles where nothing is compiled yet; `ready` uses only what is; `off` uses nothing.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import platform
import secrets
import shlex
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any, Literal

from metagen.errors import InputError
from metagen.generators.models.sources import cache_directory
from metagen.logs import logger

_LOG = logger(__name__)
SETTING, SETTINGS = "METAGEN_COMPILED", ("auto", "ready", "off")
#: Seconds between two looks whether something has been compiled, and after which a build that has left nothing is
#: taken for lost.
LOOK, LOST = 0.5, 900.0
#: Seconds for which `build` waits for a build that somebody else has begun.
WAIT = 180.0
OPTIONS = (
    "-std=c++20", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-fPIC", "-shared",
)  # fmt: skip
MODULE = "metagen_compiled"
_HERE = Path(__file__).parent
_loading = threading.Lock()
_loaded: Any = None
_looked = -LOOK
#: Libraries that cannot be loaded, and what the loader said of each.
_broken: dict[Path, str] = {}


def setting() -> str:
    """Raises InputError for what is no setting."""
    found = os.environ.get(SETTING, "auto")
    if found not in SETTINGS:
        raise InputError(f"{SETTING}={found!r}; set it to one of {', '.join(SETTINGS)}")
    return found


def extension() -> Any | None:
    """The compiled steps, once they are there; None before, and where there are none."""
    global _looked, _loaded
    if setting() == "off":
        return None
    with _loading:  # a module that is loaded twice registers its classes twice, which is an error
        if _loaded is None and time.monotonic() >= _looked + LOOK:
            _looked = time.monotonic()
            if _exists(file := library()) and file not in _broken:
                if exposed := _exposed(file):
                    _warn("compiled steps are not loaded", exposed)
                else:
                    _loaded = _load(file)
        return _loaded


def begin() -> None:
    """Compile in the background, unless it is done, under way, has failed before, or is not wanted.

    The compiler outlives this process, so that short runs get somewhere. It runs at a low priority, and takes a minute
    of one core at most.
    """
    file = library()
    if setting() != "auto" or _exists(file) or _exists(_failure(file)) or not (command := _command(file)):
        return
    try:
        if not _claim(file):
            return
    except OSError as error:
        _LOG.warning("steps cannot be compiled", extra={"directory": str(file.parent), "error": str(error)})
        return
    # It holds nothing of this process: whoever reads our output to its end does not wait for the compiler.
    nothing = subprocess.DEVNULL
    subprocess.run(
        ["sh", "-c", f"( {command} ) &"], stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True,
        check=False,
    )  # fmt: skip


def build() -> str | None:
    """Compile now, or wait for the build that is under way. Why the library is not used; None if it is."""
    file = library()
    if _exists(file):
        return _fault(file)
    if not (command := _command(file)):
        return _missing()
    try:
        if not _take_over(file):
            return _fault(file)
        _failure(file).unlink(missing_ok=True)
    except OSError as error:
        return f"{file.parent} cannot be written ({error.strerror}); set METAGEN_CACHE to a directory of your own"
    try:
        subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, check=False)
    except BaseException:  # somebody stops it: others need not wait for it
        _claim_of(file).unlink(missing_ok=True)
        raise
    return _fault(file)


def state() -> tuple[Literal["ready", "building", "failed", "none"], str]:
    """Where things stand, with the file of it, or why there is none."""
    file = library()
    if _exists(file):
        reason = _fault(file)
        return ("failed", reason) if reason else ("ready", str(file))
    if _exists(_failure(file)):
        return "failed", _reason(file)
    if _is_claimed(file):
        return "building", str(file)
    return "none", _missing() or "it is compiled when a model is first opened"


@cache
def _sources() -> tuple[Path, ...]:
    return tuple(sorted(file for file in _HERE.iterdir() if file.suffix in (".h", ".cpp")))


@cache
def _key() -> str:
    """Of what decides about the machine code: the sources, torch, Python, the C library and the processor.

    The compiler is not in it: machines without one load what another machine has compiled.
    """
    content = hashlib.sha256()
    for file in _sources():
        content.update(file.read_bytes())
    libraries = importlib.metadata.version("torch"), sysconfig.get_config_var("SOABI"), platform.libc_ver()
    content.update(repr((libraries, _processor(), OPTIONS)).encode())
    return content.hexdigest()[:24]


def _processor() -> str:
    """What instructions it has, as far as the system says."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text("utf-8", "replace").splitlines() if file.exists() else []
    told = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {' '.join(sorted(told.split()))}"


def library() -> Path:
    """Where the compiled steps of this machine lie, or will."""
    return cache_directory() / "compiled" / f"{_key()}.so"


def _exists(file: Path) -> bool:
    """Whether it is there, as far as this user may look."""
    try:
        return file.exists()
    except OSError:
        return False


def _make_directory(file: Path) -> None:
    """The directory of a library, for this user alone to write, whatever the umask."""
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)


def _failure(file: Path) -> Path:
    """What this machine's compiler said, if it failed; another compiler, or a new version of it, tries again."""
    content = b""
    if path := _compiler():
        compiler = Path(path).resolve()
        content = repr((compiler, compiler.stat().st_size, compiler.stat().st_mtime_ns)).encode()
    return file.with_suffix(f".{hashlib.sha256(content).hexdigest()[:8]}.failed")


def _fault(file: Path) -> str | None:
    """Why the library is not used, as far as this process knows; None if it is."""
    return _exposed(file) or _broken.get(file) if _exists(file) else _reason(file)


def _reason(file: Path) -> str:
    """What the compiler said of its first error."""
    try:
        lines = _failure(file).read_text("utf-8", "replace").splitlines()
    except OSError:
        return "the compiler left nothing"
    return next(
        (line for line in lines if "error" in line), " ".join(lines[:1]) or "the compiler left nothing"
    )


def _compiler() -> str | None:
    names = (os.environ.get("CXX"), "c++", "g++", "clang++")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def _missing() -> str | None:
    """What a build needs and this machine does not have."""
    if sys.platform != "linux":
        return f"steps are compiled on Linux, not on {sys.platform}"
    if _compiler() is None:
        return (
            "there is no C++ compiler; install g++ (Debian: apt-get install g++) for faster steps on the CPU"
        )
    if not _exists(Path(sysconfig.get_paths()["include"]) / "Python.h"):
        return "Python's headers are missing; install python3-dev for faster steps on the CPU"
    return None


def _command(file: Path) -> str | None:
    """A line for a shell, which leaves the library or what the compiler said; None where it cannot work."""
    if _missing():
        return None
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    root = Path(spec.origin).parent
    turn = secrets.token_hex(4)  # two builds never write one file
    unfinished, said = (file.with_suffix(f".{turn}.{suffix}") for suffix in ("so", "log"))
    includes = [root / "include", root / "include/torch/csrc/api/include", sysconfig.get_paths()["include"]]
    command = [
        "nice", "-n", "10", str(_compiler()), *OPTIONS, f"-DEXTENSION={MODULE}",
        *(word for path in includes for word in ("-isystem", str(path))),
        str(_HERE / "extension.cpp"), "-o", str(unfinished),
        f"-L{root / 'lib'}", *(f"-l{name}" for name in ("c10", "torch_cpu", "torch", "torch_python")),
    ]  # fmt: skip
    line, new, old, log, mine = (
        shlex.join(command), *(shlex.quote(str(path)) for path in (unfinished, file, said, _claim_of(file)))
    )  # fmt: skip
    failed = shlex.quote(str(_failure(file)))
    # A library that a group may write is not loaded.
    return (
        f"umask go-w; {line} >/dev/null 2>{log} && mv {new} {old} && rm -f {log} || mv {log} {failed}; "
        f"rm -f {new} {mine}"
    )


def _claim_of(file: Path) -> Path:
    return file.with_suffix(".claim")


def _claim(file: Path) -> bool:
    """Whether the build is this process's to do. OSError where nothing can be written."""
    claim = _claim_of(file)
    _make_directory(file)
    if _exists(claim) and not _is_claimed(file):
        claim.unlink(missing_ok=True)
    try:
        claim.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _take_over(file: Path) -> bool:
    """Claim a build, once nobody else is at it; False if it has come to an end meanwhile. OSError as of `_claim`."""
    late = time.monotonic() + WAIT
    while not _claim(file):
        if time.monotonic() > late:  # who has claimed it may have been killed
            return True
        time.sleep(LOOK)
        if not _is_claimed(file) and (_exists(file) or _exists(_failure(file))):
            return False
    return True


def _is_claimed(file: Path) -> bool:
    try:
        return time.time() - _claim_of(file).stat().st_mtime < LOST
    except OSError:
        return False


def _exposed(file: Path) -> str | None:
    """Why a library, which is code that runs, is not to be trusted: another user can have written it. None if it is."""
    for path in (file, file.parent):
        try:
            state = path.stat()
        except OSError as error:
            return f"{path} cannot be looked at ({error.strerror})"
        if state.st_uid not in (os.getuid(), 0):
            return f"{path} belongs to user {state.st_uid}; set METAGEN_CACHE to a directory of your own"
        if state.st_mode & 0o022:
            return f"others may write {path}; run chmod go-w {path}"
    return None


@cache
def _warn(said: str, reason: str) -> None:
    """Once for each reason: steps are looked for twice a second."""
    _LOG.warning(said, extra={"reason": reason})


def _load(file: Path) -> Any | None:
    loader = importlib.machinery.ExtensionFileLoader(MODULE, str(file))
    spec = importlib.util.spec_from_file_location(MODULE, file, loader=loader)
    assert spec is not None
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        _broken[file] = f"{file} cannot be loaded: {error}"
        _warn("compiled steps are not loaded", _broken[file])
        return None
    return module
