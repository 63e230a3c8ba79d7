"""Compression of an embedded model, as a user runs it: small, and called again."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from metagen.generators.torch import TorchEngine

SCRIPT = Path(__file__).parents[2] / "examples" / "compression" / "compress.py"
ROW = re.compile(r"^\| (\S+) \| ([\d,]+) \| (\d+) \[.*?\] \| – \| ([\d,]+ / [\d,]+) \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compression")


@pytest.mark.slow
def test_the_table_has_every_way_and_its_models_load(scripts: Any, folder: Path) -> None:
    command = [
        sys.executable,
        str(SCRIPT),
        str(folder),
        "--models",
        "tiny-0.1m",
        "--per-level",
        "1",
        "--samples",
        "0",
        "--rounds",
        "1",
    ]
    said = scripts.here(command)
    sizes = {name: int(size.replace(",", "")) for name, size, *_ in ROW.findall(said)}
    assert len(sizes) == 16
    paces = {name: pace for name, *_, pace in ROW.findall(said)}
    assert paces["obc-50"] == paces["float32"] == paces["magnitude-75"], "copies are dense"
    assert len({paces[name] for name in ("float32", "bfloat16", "int8", "int4")}) == 4
    assert sizes["float32"] > sizes["bfloat16"] > sizes["int8"] > sizes["int4"] == sizes["nearest-4bit"]
    assert sizes["obc-25"] > sizes["obc-50"] > sizes["obc-75"] and sizes["obc-3bit"] > sizes["obc-2bit"]
    copies = folder / "tiny-0.1m"
    assert (copies / "accuracy.png").stat().st_size > 0

    for name in ("obc-50", "magnitude-50"):
        network = AutoModelForCausalLM.from_pretrained(copies / name)
        weight = network.model.layers[1].mlp.down_proj.weight
        assert weight.dtype == torch.float32 and ((weight == 0).sum(1) == weight.shape[1] // 2).all()
        assert TorchEngine(copies / name, device="cpu").shape is not None

    # What is there is not made again; what is missing is.
    made = (copies / "obc-50" / "model.safetensors").stat().st_mtime_ns
    (copies / "float32-1x0.json").unlink()
    assert ROW.findall(scripts.here(command))[1:] == ROW.findall(said)[1:]
    assert (copies / "float32-1x0.json").exists()
    assert (copies / "obc-50" / "model.safetensors").stat().st_mtime_ns == made
