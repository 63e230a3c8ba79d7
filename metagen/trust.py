"""Foreign code that a file asks for is imported only if its user has said so.

A file may name `module:attribute`: whoever reads it then runs that code. Programs decide for themselves what they
read. The command line guards itself (`guard`): it imports

- metagen's own kinds and parts, and those that installed packages bring by entry points;
- the user's own code: a module on Python's path, below the current directory and in no environment of packages, for a
  file that lies below the current directory too, unless that holds the home directory or that for temporary files;
- what is typed on the command line;
- everything with `--trust`, or METAGEN_TRUST=1.

What an attribute leads to has to be defined there: `own:os.system` is nobody's own.
"""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from metagen.border import ours
from metagen.errors import ConfigError, install

VARIABLE: Final = "METAGEN_TRUST"
REMEDY: Final = "look at that code, and give --trust if it may run here"
CONTRACTS: Final = ("Generator", "Verifier", "AnswerRule", "Task")
#: Functions of metagen that files may name; they make texts of texts.
FUNCTIONS: Final = ("metagen.tasks.programs.verifier:corrector_prompt",)
#: Packages that metagen's own parts import, and the extra that brings them.
_EXTRAS: Final = {
    **dict.fromkeys(("gguf", "safetensors", "tokenizers", "torch", "transformers"), "torch"),
    "aiohttp": "openai",
    "bm25s": "retrieval",
    "llguidance": "grammar",
    "rapidfuzz": "text",
    "ray": "ray",
    "reasoning_gym": "reasoning-gym",
    "sacrebleu": "text",
    "torchao": "compression",
}
_INSTALLED: Final = ("site-packages", "dist-packages")
#: What a directory of a run or a study has.
_RUN: Final = ("journal.sqlite", "state.json", "study.yaml")


class _Guard:
    """What may be imported: below `home`, unless a file from elsewhere asks."""

    def __init__(self) -> None:
        self.home: Path | None = None
        self.foreign: list[Path] = []


_GUARD = _Guard()


@contextmanager
def guard(home: Path) -> Iterator[None]:
    """Import only what is trusted meanwhile, for files below this directory."""
    before, said = (_GUARD.home, _GUARD.foreign), os.environ.get(VARIABLE)
    _GUARD.home, _GUARD.foreign = home.resolve(), []
    try:
        yield
    finally:
        _GUARD.home, _GUARD.foreign = before
        os.environ.pop(VARIABLE, None)
        if said is not None:
            os.environ[VARIABLE] = said


def everything(wanted: bool) -> None:
    """Trust all that is asked for, here and in the processes that are started from here."""
    if wanted:
        os.environ[VARIABLE] = "1"


def reading(path: Path) -> None:
    """Note a file that may ask for code."""
    if _GUARD.home is not None and not path.resolve().is_relative_to(_GUARD.home):
        _GUARD.foreign.append(path)


def load(target: str, *, typed: bool = False, wanted: str = "package.module:attribute") -> Any:
    """What `module:attribute` stands for.

    typed: by the user, and in no file. wanted: is expected, in words. Raises ConfigError for code that is not trusted,
    before anything of it is imported, and for what cannot be imported.
    """
    module, _, attribute = target.partition(":")
    free = typed or _GUARD.home is None or os.environ.get(VARIABLE) == "1"
    own = module.partition(".")[0] == __name__.partition(".")[0]
    if not (free or own):
        _check(target, module)
    if not free and "__" in attribute:
        raise ConfigError(f"{target!r} names an inner part of Python; {REMEDY}")
    try:
        found = attrgetter(attribute)(import_module(module))
    except Exception as error:  # a module may raise anything while it is imported
        if (
            own
            and isinstance(error, ModuleNotFoundError)
            and (extra := _EXTRAS.get((error.name or "").partition(".")[0]))
        ):
            raise ConfigError(
                f"{target!r} needs {error.name}, which is not installed: {install(extra)}"
            ) from error
        kind = "" if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: "
        raise ConfigError(
            f"cannot import {target!r} ({kind}{error}); expected {wanted}, of a module that Python finds, as from "
            "this directory or an installed package"
        ) from error
    if not free and not ((target in FUNCTIONS or _part(found)) if own else _belongs(found, module)):
        raise ConfigError(
            f"{target!r} is {'no part' if own else f'of {_module(found)!r}, and not'} of {module!r}; {REMEDY}"
        )
    return found


def remote(what: str) -> None:
    """ConfigError where a file asks for code that a model brings, and nobody has trusted it."""
    if _GUARD.home is not None and os.environ.get(VARIABLE) != "1":
        raise ConfigError(f"{what} would run code of others; {REMEDY}")


def folder(place: Path, what: str) -> None:
    """ConfigError where a file asks for a directory whose files run code, unless that is the user's own."""
    if _GUARD.home is None or os.environ.get(VARIABLE) == "1":
        return
    home = _check_home(what)
    if not _own(place.resolve(), home):
        raise ConfigError(f"{what} holds code of others, not of your project; {REMEDY}")


def _check(target: str, module: str) -> None:
    """ConfigError unless the module is the user's own."""
    home = _check_home(repr(target))
    places = _places(module)
    if not places:
        raise ConfigError(
            f"{target!r} is not found by Python, which looks in {', '.join(filter(None, sys.path[:3]))}, …; for a "
            "module in this directory, begin with PYTHONPATH=."
        )
    if far := [place for place in places if not _own(place, home)]:
        raise ConfigError(f"{target!r} is code of others ({far[0]}), not of your project; {REMEDY}")


def _check_home(what: str) -> Path:
    """The project's directory. ConfigError where it is none, and for what a file outside of it asks for."""
    home = _GUARD.home
    assert home is not None
    if Path.home().resolve().is_relative_to(home) or Path(tempfile.gettempdir()).resolve().is_relative_to(
        home
    ):
        raise ConfigError(
            f"{what} is code, and {str(home)!r} is no project of yours, but holds whatever comes; {REMEDY}"
        )
    if _GUARD.foreign:
        raise ConfigError(
            f"{what} is code that a file outside of the current directory asks for ({_GUARD.foreign[0]}); {REMEDY}"
        )
    return home


def _own(place: Path, home: Path) -> bool:
    """Whether a file lies in the project, and neither in an environment of packages nor in the directory of a run."""
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = [Path(sysconfig.get_path(kind)).resolve() for kind in kinds]
    if not place.is_relative_to(home) or any(place.is_relative_to(one) for one in installed):
        return False
    above = [folder for folder in place.parents if folder.is_relative_to(home)]
    received = any((folder / name).exists() for folder in above for name in _RUN)
    return place.exists() and not received and not set(_INSTALLED) & set(place.parts)


def _places(module: str) -> list[Path]:
    """The files that importing a module runs, of packages above it too; none is imported to find them.

    Empty for a module that there is not.
    """
    first = module.partition(".")[0]
    if first in sys.stdlib_module_names or first in sys.builtin_module_names:
        return [Path(sys.executable)]
    path: Any = None
    places: list[Path] = []
    for depth in range(1, module.count(".") + 2):
        name = ".".join(module.split(".")[:depth])
        try:
            # Of the first part alone: below it, find_spec would import what is above.
            spec = PathFinder.find_spec(name, path) if depth > 1 else find_spec(name)
        except ValueError:  # what runs as a script is no module
            return []
        if spec is None:
            return []
        path = spec.submodule_search_locations
        if spec.origin is not None:
            places.append(Path(spec.origin).resolve() if spec.has_location else Path(sys.executable))
    return places


def _part(found: object) -> bool:
    """Whether it is a class of metagen's that files may ask for: others may do anything with their options."""
    return (
        isinstance(found, type)
        and ours(found)
        and any(ours(base) and base.__name__ in CONTRACTS for base in found.__mro__)
    )


def _module(found: object) -> str:
    return str(getattr(found, "__module__", None) or type(found).__module__)


def _belongs(found: object, module: str) -> bool:
    """Whether an object belongs to the package of a module; what is no class and no function was made by it."""
    runs = isinstance(found, type) or inspect.isroutine(found)
    return not runs or _module(found).partition(".")[0] == module.partition(".")[0]
