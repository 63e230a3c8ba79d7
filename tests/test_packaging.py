"""What is published is whole: the sdist, the wheel built from that sdist, and every module in it."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINKS = ("generators", "strategies", "verifiers")

IMPORT_EVERYTHING = """
import importlib, importlib.util, pkgutil, metagen
def fail(name): raise
names = [m.name for m in pkgutil.walk_packages(metagen.__path__, "metagen.", onerror=fail)]
# An integration needs the program that it is for; `make clients` installs them all.
without = {"dspy": "dspy", "inspect": "inspect_ai", "lm_eval": "lm_eval"}
left_out = {f"metagen.integrations.{n}" for n, of in without.items() if importlib.util.find_spec(of) is None}
for name in names:
    if not name.endswith("__main__") and name not in left_out:
        importlib.import_module(name)
print(metagen.__file__, *names, sep="\\n")
"""


def build(target: str, source: Path, into: Path) -> Path:
    """The one distribution that hatchling builds of `source`."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(into)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = into.iterdir()
    return built


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", ROOT, folder / "dist")) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = (p for p in folder.iterdir() if p.name != "dist")
    return unpacked


@pytest.fixture(scope="module")
def site(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel, built from the sdist alone, is unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(build("wheel", sdist, folder / "dist")) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def files(folder: Path) -> set[str]:
    """Files of a package as they are published: without what Python caches."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_sdist_has_the_package_and_not_the_links(sdist: Path) -> None:
    assert files(sdist / "metagen") == files(ROOT / "metagen")
    assert not [name for name in LINKS if (sdist / name).exists()]


def test_wheel_from_the_sdist_has_every_file_of_the_package(site: Path) -> None:
    published = files(site / "metagen")
    assert published == files(ROOT / "metagen")
    assert {"__init__.pyi", "py.typed", "generators/__init__.py"} <= published


def test_wheel_ships_the_embedded_models(site: Path) -> None:
    """Weights, configurations and model cards are data, which packaging forgets most easily."""
    here = files(ROOT / "metagen/generators/tiny")
    models = {name for name in here if Path(name).suffix in {".safetensors", ".json", ".md"}}
    if not models:
        pytest.skip("no model is embedded yet")
    assert models <= files(site / "metagen/generators/tiny")


def test_every_module_of_the_wheel_imports(site: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", IMPORT_EVERYTHING]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    where, *imported = done.stdout.split()
    assert Path(where).is_relative_to(site)
    packages = {f"metagen.{init.parent.name}" for init in (ROOT / "metagen").glob("*/__init__.py")}
    assert packages <= set(imported)
