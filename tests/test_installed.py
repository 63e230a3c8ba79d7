"""The wheel, installed where no checkout is, runs the quickstart."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.test_packaging import ROOT, build

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, built from the sdist; its needs are those of the environment of the tests."""
    place = tmp_path_factory.mktemp("installed")
    shutil.unpack_archive(build("sdist", ROOT, place / "sdist"), place / "unpacked", filter="data")
    (source,) = (place / "unpacked").iterdir()
    wheel = build("wheel", source, place / "wheel")
    venv.create(place / "env", with_pip=False, symlinks=True)
    # As a path alone: what editable installs put there is not looked at.
    python = place / "env" / "bin" / "python"
    (library,) = (place / "env" / "lib").glob("python3.*/site-packages")
    (library / "needs.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--no-index",
        "--no-deps",
        str(wheel),
    ]
    done = run(command, place)
    assert done.returncode == 0, done.stderr
    return place / "env"


def run(command: list[str], place: Path) -> subprocess.CompletedProcess[str]:
    """A command far from the checkout, in an environment that does not tell where that is."""
    told = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "METAGEN"))}
    told |= {"HOME": str(place), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=place, env=told, capture_output=True, text=True, timeout=600, check=False
    )


def test_what_is_installed_is_the_wheel(installed: Path, tmp_path: Path) -> None:
    code = "import metagen, importlib.metadata as m; "
    code += "print(metagen.__file__, m.version('metageneration'), metagen.__version__)"
    where, version, own = run([str(installed / "bin" / "python"), "-c", code], tmp_path).stdout.split()
    assert Path(where).is_relative_to(installed) and version == own
    said = run([str(installed / "bin" / "metagen"), "--version"], tmp_path)
    assert (said.returncode, said.stdout) == (0, f"metagen {own}\n")


def test_the_quickstart_runs_outside_of_the_checkout(installed: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "quickstart.yaml", tmp_path)
    less = [
        "--limit",
        "2",
        "--set",
        "grid.n=[1,2]",
        "--set",
        "generators.tiny-2m.max_tokens=64",
        "--out",
        "out",
    ]
    done = run([str(installed / "bin" / "metagen"), "run", "quickstart.yaml", *less], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "tiny-2m/weighted@2" in (tmp_path / "out" / "configurations.csv").read_text()
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert '<div class="large">' in page
    assert "out/report.html" in done.stdout
