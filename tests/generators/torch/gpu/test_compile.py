"""The kernels, compiled for GPUs that are not here: the interpreter runs what no compiler accepts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.version import Version

import metagen.generators.torch.gpu as here
from tests.generators.torch.conftest import make_model

try:
    triton: str | None = version("triton")
except PackageNotFoundError:
    triton = None


@pytest.mark.skipif(triton is None or Version(triton) < Version("3.9"), reason=f"Triton is {triton}")
def test_every_kernel_compiles(tmp_path: Path) -> None:
    # Heads that do not fill their blocks, and no larger ones: these compile for a long time.
    make_model(tmp_path, head_dim=48)
    own = {"METAGEN_COMPILED": "off", "OMP_NUM_THREADS": "1", "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.generators.torch.gpu.launches", str(tmp_path)],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | own,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    sources = "".join(path.read_text() for path in Path(here.__path__[0]).glob("*.py"))
    started = set(re.findall(r"\b(_[a-z]+)\[\(", sources))
    for capability in (80, 90):
        found = re.findall(rf"^(\w+) for {capability}:", done.stdout, re.MULTILINE)
        assert len(started) >= 9 and set(found) == started
