"""The recipe of the programs family, on a small share of its steps and data: `programs/programs_family.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

GENERATOR, CORRECTOR = "tiny-code-0.5m", "tiny-code-corrector"


@pytest.mark.slow
def test_an_interrupted_run_comes_to_the_same_weights_bit_for_bit(scripts: Any, tmp_path: Path) -> None:
    whole, alone = tmp_path / "whole", tmp_path / "alone"
    checkpoint = whole / "checkpoints" / f"{GENERATOR}-2.pt"
    scripts.interrupt("programs/programs_family.py", whole, checkpoint.exists)
    assert not (whole / "models" / GENERATOR).exists()
    scripts.run("programs/programs_family.py", whole)
    scripts.run("programs/train_generator_of_programs.py", alone, GENERATOR)
    ours, theirs = (scripts.files(folder)[f"{GENERATOR}/model.safetensors"] for folder in (whole, alone))
    assert ours == theirs

    found = json.loads((whole / "figures.json").read_text())
    assert set(found["generators"][GENERATOR]["pass@k"]) == {"1", "4"}
    assert "## Figures" in (whole / "models" / CORRECTOR / "README.md").read_text()
