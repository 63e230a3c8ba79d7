"""Without extras recorded samples are graded, reported, shown and compared, as the page of installation says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

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
"""
#: One command, as people start it.
ONE = """
from metagen.cli import main
main()
"""
#: Several commands, one after the other in one process; the last line has the exit code and the output of each.
SEVERAL = """
import json
from metagen.cli import app
from typer.testing import CliRunner
done = [CliRunner().invoke(app, words) for words in json.loads(sys.argv[1])]
print(json.dumps([(one.exit_code, one.stdout, one.stderr + repr(one.exception)) for one in done]))
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


def run(place: Path, *words: str, code: str = ONE) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", BLOCKED.format(absent=absent()) + code, *words]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)


COMMANDS = (
    *(("grade", "pool.jsonl", "--score", "sure", "--out", f"runs/{name}") for name in ("one", "two")),
    ("report", "one"), ("show", "one", "p3"), ("compare", "one", "two"), ("quality", "one"), ("ls",), ("schema",),
    ("run", "--help"),
)  # fmt: skip


def test_recorded_samples_need_no_extra(tmp_path: Path) -> None:
    with (tmp_path / "pool.jsonl").open("w") as file:
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
    done = run(tmp_path, json.dumps(COMMANDS), code=SEVERAL)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    for words, (code, said, wrong) in zip(COMMANDS, told, strict=True):
        assert code == 0, (words, wrong)
        assert len(said) > 100, words


def test_a_model_says_what_it_lacks(tmp_path: Path) -> None:
    """The blocked are really absent, too."""
    assert {"torch", "tokenizers", "transformers", "safetensors", "aiohttp", "ray"} <= absent()
    done = run(tmp_path, "run", str(ROOT / "examples" / "quickstart.yaml"), "--limit", "1", "--out", "out")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and "[torch]" in done.stderr
