"""Languages of a sandbox. Python is the first; others implement `Language`."""

from __future__ import annotations

import marshal
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final, Protocol

from metagen.errors import InputError
from metagen.sequence import digest


@dataclass(frozen=True)
class Start:
    """The start of a process: its command, and the preamble of an inside, sent before the first line of the protocol.

    command: begins with an executable. environment: variables of a script, which has no others.
    """

    command: list[str]
    preamble: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict)


class Language(Protocol):
    """A language that candidates are written in.

    `start` names the inside: a program that speaks lines of JSON over the socket whose number it is given.
    It says `ready`, then answers `load`, `call`, `eval` and `name`, each answer with the nonce of the
    first line it was sent: docs/explanation/sandbox.md has the protocol.
    """

    @property
    def fingerprint(self) -> str:
        """Names language and version: equal fingerprints promise equal outputs of a deterministic program."""

    @property
    def readable(self) -> tuple[Path, ...]:
        """Directories beyond the system's that the candidate must read."""

    @property
    def hidden(self) -> tuple[Path, ...]:
        """Directories of the system, or of what is readable, that it must not see; but for what is readable in them."""

    def start(self, socket: int) -> Start:
        """The start of the inside."""

    def script(self, file: str) -> Start:
        """The start of a file as a program of its own, which reads standard input; nothing is sent to it."""


@dataclass(frozen=True)
class Python:
    """Python, without site packages unless they are named.

    interpreter: its executable; by default the one that runs this, outside of its virtual environment.
    packages: directories of packages that candidates may import; they see all that lies in them. Everybody must
    be allowed to read them: a candidate is nobody in particular. Raises InputError for a path that is relative, or
    not there.
    """

    interpreter: Path = field(default_factory=lambda: _base_interpreter())
    packages: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        for path in (self.interpreter, *self.packages):
            if not path.is_absolute() or not path.exists():
                raise InputError(
                    f"{str(path)!r} is no place for Python: expected an absolute path that exists"
                )

    @property
    def fingerprint(self) -> str:
        same = self.interpreter == _base_interpreter()
        version = platform.python_version() if same else _version(self.interpreter)
        return digest("python", version, *map(str, self.packages)).hex()

    @property
    def readable(self) -> tuple[Path, ...]:
        return (*_own(self.interpreter), *self.packages)

    @property
    def hidden(self) -> tuple[Path, ...]:
        # Anything may be installed there: credentials of a cloud or a package index, the user's own code.
        return tuple(p for p in _package_places(self.interpreter) if p not in self.packages)

    def start(self, socket: int) -> Start:
        return self.run(source("candidate"), socket)

    def script(self, file: str) -> Start:
        # As a user would: with `exit` and `quit`, with buffers that only an orderly end writes out.
        paths = {"PYTHONPATH": ":".join(map(str, self.packages))} if self.packages else {}
        return Start([str(self.interpreter.resolve()), "-B", file], environment=paths)

    def run(self, program: str, socket: int) -> Start:
        """Run a program of ours: isolated from environment and site packages, unbuffered, writing no bytecode."""
        same = self.interpreter == _base_interpreter()
        preamble = (
            compile_inside(program) if same else f"from __future__ import annotations\n{program}".encode()
        )
        loader = _LOADER.format(
            paths=[str(p) for p in self.packages], code="marshal.loads(code)" if same else "code"
        )
        words = ["-I", "-S", "-B", "-u", "-c", loader, str(socket), str(len(preamble))]
        return Start([str(self.interpreter.resolve()), *words], preamble)


#: Of the index, those that programs of models import; a module of another name is a program's own invention.
_MISSING: Final = re.compile(
    r"No module named '(attr|bs4|Crypto|cython|dateutil|gmpy2|jax|lxml|matplotlib|more_itertools|mpmath|nltk|networkx|"
    r"numba|numpy|pandas|primesieve|psutil|pydantic|pyrsistent|pytest|pytz|regex|requests|scipy|seaborn|shapely|"
    r"sklearn|sortedcontainers|sympy|tensorflow|toolz|torch|tqdm|typing_extensions|yaml)\b"
)
#: Reads the inside from the socket. As an argument, it would be read, decoded and parsed once more by each start.
_LOADER = """\
import marshal, os, sys
sys.path += {paths}
code = b""
while len(code) < int(sys.argv[2]):
    code += os.read(int(sys.argv[1]), int(sys.argv[2]) - len(code)) or sys.exit("nobody is there")
exec({code})
"""


@cache
def _own(interpreter: Path) -> tuple[Path, ...]:
    """Directories that an interpreter needs beyond the system's."""
    # Not the whole prefix of …/bin/python3: beside these, it may hold what is none of a candidate's business.
    prefix = interpreter.resolve().parent.parent
    own = [prefix / name for name in ("bin", "lib", "lib64") if (prefix / name).is_dir()]
    return tuple(p for p in own if not p.is_relative_to("/usr"))


@cache
def _package_places(interpreter: Path) -> tuple[Path, ...]:
    """Directories of installed packages: of this interpreter, and of all others of the system."""
    places = [interpreter.resolve().parent.parent, Path("/usr"), Path("/usr/local")]
    names = [f"{lib}/{python}/{kind}-packages" for lib in ("lib", "lib64") for python in ("python3", "python3.*")
             for kind in ("site", "dist")]  # fmt: skip
    found = (path for place in places for name in names for path in place.glob(name))
    return tuple(sorted({path.resolve() for path in found if path.is_dir()}))


@cache
def compile_inside(program: str) -> bytes:
    """The code of a program, for an interpreter of the version that runs this: it starts sooner."""
    code = compile(
        program, "<inside>", "exec", flags=annotations.compiler_flag, dont_inherit=True, optimize=2
    )
    return marshal.dumps(code)


#: Imports of an inside from the file that it is joined with, for the reader and the type checker.
_IMPORT = re.compile(
    r"^from (__future__ import annotations|metagen\.verifiers\.code\.inside\.values import \([^)]*\))\n",
    re.MULTILINE,
)
#: The start of an inside in a process of its own; its argument is the number of the socket.
ALONE: Final = "import sys\nserve(int(sys.argv[1]))\n"


@cache
def source(name: str, start: str = ALONE) -> str:
    """The inside called `name`, joined with the values it speaks in, and a start; its annotations are not evaluated."""
    return _joined(_part("values"), _part(name), start)


@cache
def server(name: str) -> str:
    """The inside called `name` with a server as its start."""
    return source(name, _part("server"))


@cache
def attempt() -> str:
    """A server whose inside says no more than that it stands."""
    inside = "import os\ndef serve(number): os.write(number, b'stands')\n"
    return _joined(_part("values"), inside, _part("server"))


def _part(name: str) -> str:
    return files("metagen.verifiers.code.inside").joinpath(f"{name}.py").read_text("utf-8")


def _joined(*parts: str) -> str:
    return _IMPORT.sub("", "".join(parts))


@cache
def _version(interpreter: Path) -> str:
    """The implementation and version of another interpreter."""
    command = [str(interpreter), "-I", "-S", "-c", "import sys; print(sys.implementation.name, sys.version)"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env={})
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(
            f"{str(interpreter)!r} cannot be asked for its version ({error}); is it a Python?"
        ) from error
    return said.stdout.strip()


def _base_interpreter() -> Path:
    executable = getattr(sys, "_base_executable", None) or sys.executable
    return Path(executable).resolve()


def lacks_package(kind: str, message: str) -> bool:
    """Whether an exception of this type, with this message, says that a known package is missing."""
    return kind == "ModuleNotFoundError" and _MISSING.match(message) is not None


def script_lacks_package(errors: str) -> bool:
    """The same, of the last line of a script's standard error."""
    kind, _, message = errors.rstrip().rpartition("\n")[2].partition(": ")
    return lacks_package(kind, message)
