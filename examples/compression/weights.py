"""Compressed copies of a model directory: pruned and rounded weights, by size alone or by optimal brain compression.

Every copy is an ordinary model directory with dense float32 weights, so that transformers and the torch engine load it;
what it would take in a format that keeps zeros and grids is reckoned.
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from metagen.generators.models.sources import resolve
from metagen.generators.torch.models.optimal_brain import Grid, hessian, magnitude, prune, quantise
from metagen.tasks import arithmetic

#: Weights of a row that share a grid, as in the engine's int4.
GROUP = 32
SPARSITIES = (0.25, 0.5, 0.75)
BITS = (4, 3, 2)
#: Texts of the training split that inputs are taken from.
TEXTS = 128

Matrices = dict[str, Tensor]


def grams(model: str, texts: int = TEXTS) -> Matrices:
    """XXᵀ of the inputs of every linear map in the layers, on reference solutions of training problems."""
    network = AutoModelForCausalLM.from_pretrained(
        resolve(model), dtype=torch.float32, trust_remote_code=False
    ).eval()
    tokenizer = AutoTokenizer.from_pretrained(resolve(model), trust_remote_code=False)
    found: Matrices = defaultdict(lambda: torch.zeros(()))

    def watch(name: str) -> None:
        def seen(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            x = given[0].flatten(0, -2)
            found[name] = found[name] + x.T @ x

        network.get_submodule(name).register_forward_pre_hook(seen)

    for name, part in network.model.layers.named_modules():
        if isinstance(part, nn.Linear):
            watch(f"model.layers.{name}")
    with torch.inference_mode():
        for text in calibration(texts):
            network(**tokenizer(text, return_tensors="pt"))
    return dict(found)


def calibration(texts: int) -> Iterator[str]:
    """Problems of all levels with their reference solutions."""
    levels = arithmetic.LEVELS
    for i, level in enumerate(levels):
        count = texts // len(levels) + (i < texts % len(levels))
        for problem in arithmetic.problems(arithmetic.Split.TRAIN, level, count, 0):
            yield arithmetic.prompt(problem, arithmetic.Form.STEPS) + arithmetic.reference_solution(problem)


def pruned_bytes(sparsity: float, dense: float) -> float:
    """Bytes of one weight: the numbers that are left, and a bit for each place."""
    return (1 - sparsity) * dense + 1 / 8


def rounded_bytes(bits: int) -> float:
    """Bytes of one weight: its place on the grid, and for each group a low end and a step in bfloat16."""
    return bits / 8 + 4 / GROUP


def make(model: str, into: Path) -> None:
    """Write every copy that is not there yet: `magnitude-50`, `obc-50`, `nearest-4bit`, `obc-4bit`, …"""
    names = [f"{how}-{100 * s:.0f}" for s in SPARSITIES for how in ("magnitude", "obc")]
    names += [f"{how}-{bits}bit" for bits in BITS for how in ("nearest", "obc")]
    wanted = {name for name in names if not (into / name / "config.json").exists()}
    if not wanted:
        return
    weights = {name: w.float() for name, w in load_file(resolve(model) / "model.safetensors").items()}
    inputs = grams(model)
    copies = {name: dict(weights) for name in names if name in wanted}
    for name, gram in inputs.items():
        for copy, changed in _changed(weights[f"{name}.weight"], hessian(gram), wanted):
            copies[copy][f"{name}.weight"] = changed
        print(f"  {model}: {name}", flush=True)
    for copy, tensors in copies.items():
        _write(model, into / copy, tensors)


def _changed(weight: Tensor, h: Tensor, wanted: set[str]) -> Iterator[tuple[str, Tensor]]:
    """One matrix in every copy that is wanted."""
    if any(name.startswith("obc") and not name.endswith("bit") for name in wanted):
        for sparsity, changed in zip(SPARSITIES, prune(weight, h, SPARSITIES), strict=True):
            if (name := f"obc-{100 * sparsity:.0f}") in wanted:
                yield name, changed
    for sparsity in SPARSITIES:
        if (name := f"magnitude-{100 * sparsity:.0f}") in wanted:
            yield name, magnitude(weight, sparsity)
    for bits in BITS:
        grid = Grid.of(weight, bits, GROUP)
        if (name := f"nearest-{bits}bit") in wanted:
            yield name, grid.nearest(weight)
        if (name := f"obc-{bits}bit") in wanted:
            yield name, quantise(weight, h, grid)


def _write(model: str, into: Path, tensors: Matrices) -> None:
    """The directory appears whole or not at all."""
    part = into.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(resolve(model), part, ignore=shutil.ignore_patterns("*.safetensors", "README.md"))
    config = json.loads((part / "config.json").read_text("utf-8"))
    config.pop("torch_dtype", None)
    (part / "config.json").write_text(json.dumps({**config, "dtype": "float32"}, indent=2), "utf-8")
    save_file({k: w.contiguous() for k, w in tensors.items()}, part / "model.safetensors", {"format": "pt"})
    part.rename(into)
