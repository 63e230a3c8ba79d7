"""Without extras recorded samples are graded, reported, shown and compared, as the page of installation says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
#: Imports of distributions that are called otherwise.
IMPORTS = {"pyyaml": "yaml", "opentelemetry_api": "opentelemetry", "prometheus_client": "prometheus_client"}
BLOCKED = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from metagen.cli import main
main()
"""


def needs(*extras: str) -> set[str]:
    """The imports that the core or some extras bring."""
    listed = (
        PROJECT["dependencies"]
        if not extras
        else [n for e in extras for n in PROJECT["optional-dependencies"][e]]
    )
    names = {re.split(r"[^A-Za-z0-9_.-]", need)[0].lower().replace("-", "_") for need in listed}
    return {IMPORTS.get(name, name) for name in names}


def absent() -> set[str]:
    """What an environment without extras does not have."""
    extras = (
        "torch",
        "openai",
        "serve",
        "view",
        "ray",
        "grammar",
        "compression",
        "text",
        "telemetry",
        "hub",
    )
    return needs(*extras) - needs() - {"metageneration"}


def run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", BLOCKED.format(absent=absent()), *words]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bare")
    with (place / "pool.jsonl").open("w") as file:
        for number in range(10):
            samples = [f"A: {number if draw % 3 else 0}" for draw in range(4)]
            one = {
                "id": f"p{number}",
                "question": "?",
                "gold": str(number),
                "samples": samples,
                "sure": [0.1, 0.9, 0.8, 0.2],
            }
            file.write(json.dumps(one) + "\n")
    for name in ("one", "two"):
        done = run(place, "grade", "pool.jsonl", "--score", "sure", "--out", f"runs/{name}")
        assert done.returncode == 0, done.stderr
    return place


def test_the_blocked_are_really_absent(tmp_path: Path) -> None:
    assert {"torch", "tokenizers", "transformers", "safetensors", "aiohttp", "ray"} <= absent()
    done = run(tmp_path, "run", str(ROOT / "examples" / "quickstart.yaml"), "--limit", "1", "--out", "out")
    assert done.returncode != 0 and "torch" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("report", "one"), ("show", "one", "p3"), ("compare", "one", "two"), ("quality", "one"), ("ls",), ("schema",),
        ("run", "--help"),
    ],
)  # fmt: skip
def test_recorded_samples_need_no_extra(place: Path, words: tuple[str, ...]) -> None:
    done = run(place, *words)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 100


def test_a_model_says_what_it_lacks(tmp_path: Path) -> None:
    done = run(tmp_path, "run", str(ROOT / "examples" / "quickstart.yaml"), "--limit", "1", "--out", "out")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and "[torch]" in done.stderr
