"""The programs of docs/how-to/clients.md run against the server that the page starts."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.docs.test_blocks import BLOCKS, Block, Running
from tests.serve.clients.process import ROOT, environment, missing, serve

PAGE = [block for block in BLOCKS if block.page.name == "clients.md"]
PROGRAMS = [block for block in PAGE if block.needs or "require(" in block.text]
#: The address that the page names.
ADDRESS = "http://127.0.0.1:8000/v1"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = yaml.safe_load((ROOT / "examples" / "serve.yaml").read_text("utf-8"))
    with serve(tmp_path_factory.mktemp("page"), file) as url:
        yield url


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.place)
def test_a_program_of_the_page_runs(served: str, block: Block, tmp_path: Path) -> None:
    script = block.language == "text"
    package = "openai for node" if script else re.findall(r"^(?:import|from) (\w+)", block.text, re.M)[0]
    if lack := missing(package):
        pytest.skip(lack)
    for one in PAGE:
        if one.title:
            Running(tmp_path).keep(one)
    assert ADDRESS in block.text
    program = block.text.replace(ADDRESS, served)
    command = ["node", "-e", program] if script else [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=540, env=environment(), check=False
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    # It prints an answer, or an accuracy.
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("A:") or 0 <= float(last.split()[-1]) <= 1, done.stdout


def test_all_programs_of_the_page_are_found() -> None:
    assert len(PROGRAMS) == 7
