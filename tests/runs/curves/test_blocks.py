"""The number of blocks that a run of blockwise decoding committed to."""

from __future__ import annotations

from pathlib import Path

import pytest

from metagen.runs.curves.reading import expected_blocks
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.table.tables import read
from metagen.runs.work import build, runner
from metagen.runs.work.progress import Meter

YAML = """\
name: blocks
seed: 3
task: {kind: arithmetic, split: validation, levels: [3], per_level: 3}
engines: {tiny: {kind: torch, model: tiny-0.1m}, prm: {kind: torch, model: tiny-prm}}
generators: {tiny: {kind: engine, engine: tiny, max_tokens: 120}}
verifiers: {prm: {kind: prm, engine: prm}}
strategies:
  single: {kind: sample}
  blockwise: {kind: blockwise, verifier: prm, n: [1, 2]}
"""


def test_blocks_are_the_steps_that_were_returned(tmp_path: Path) -> None:
    file = tmp_path / "blocks.yaml"
    file.write_text(YAML)
    directory = RunDirectory.at(tmp_path / "run")
    with build.open_setup(schema.load(file)) as setup:
        state = runner.run(setup, directory, Meter(), calls=True)
    found = expected_blocks(directory, state.lines)
    assert found.keys() == {"tiny/blockwise@1", "tiny/blockwise@2"}
    for name, blocks in found.items():
        texts = read(directory.table("outcomes"), ["text"], configuration=name)["text"].to_pylist()
        # A block behind the last line brings the end alone, where no line has the answer's mark.
        ends = [text.endswith("\n") and "A:" not in text for text in texts]
        steps = [len(text.rstrip("\n").split("\n")) + end for text, end in zip(texts, ends, strict=True)]
        assert len(steps) == 3 and blocks == pytest.approx(sum(steps) / 3) and blocks > 1
    directory.table("calls").unlink()
    assert expected_blocks(directory, state.lines) == {}
