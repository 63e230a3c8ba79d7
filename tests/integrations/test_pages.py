"""The programs of docs/how-to/integrations.md run, where the program that they are for is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_blocks import BLOCKS, Block, Running
from tests.serve.clients.process import environment, missing

PAGE = [block for block in BLOCKS if block.page.name == "integrations.md"]
MARKED = [block for block in PAGE if block.needs]


@pytest.mark.parametrize("block", MARKED, ids=lambda block: block.place)
def test_a_program_of_the_page_runs(block: Block, tmp_path: Path) -> None:
    assert block.needs is not None
    if lack := missing(block.needs.removeprefix("needs ")):
        pytest.skip(lack)
    for one in PAGE:
        if one.title:
            Running(tmp_path).keep(one)
    done = subprocess.run(
        [sys.executable, "-c", block.text], cwd=tmp_path, capture_output=True, text=True, timeout=300,
        env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]}{os.linesep}{done.stderr[-4000:]}"
    # It prints an answer, or an accuracy of 0 to 1.
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("A:") or 0 <= float(last.split()[-1]) <= 1, done.stdout
