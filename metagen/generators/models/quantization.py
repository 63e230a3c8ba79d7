"""Weights in fewer bits: which kinds there are, and what each takes. Nothing here needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from metagen.cost import ModelShape
from metagen.errors import InputError

#: Weights that share a scale, in int4.
GROUP: Final = 32
#: Weights that share a scale, in NF4.
BLOCK: Final = 64

Quantization: TypeAlias = Literal["int8", "int4", "nf4"]
#: Bytes of one weight, with what is kept for each group; scales of whole rows are left out, as biases are.
QUANTIZATIONS: Final[Mapping[str, float]] = {
    "int8": 1.0,
    "int4": 0.5 + 4 / GROUP,  # a scale and a zero, in bfloat16
    "nf4": 0.5 + 4 / BLOCK,  # a scale, in float32
}


def check_quantization(quantization: str | None) -> None:
    """InputError for what is no kind."""
    if quantization is not None and quantization not in QUANTIZATIONS:
        raise InputError(
            f"quantization={quantization!r}: expected one of {', '.join(QUANTIZATIONS)}, or None for dense weights"
        )


def compress(shape: ModelShape | None, quantization: str | None) -> ModelShape | None:
    """The shape with its matrices, and those of models beside it, in as many bytes as the kind takes."""
    if shape is None or quantization is None:
        return shape
    return shape.compress(QUANTIZATIONS[quantization])


def number_format(dtype: str, quantization: str | None) -> str:
    """How a model's numbers are kept, for its fingerprint. dtype: as torch writes it."""
    if quantization is None:
        return dtype
    sizes = {"int4": f" in groups of {GROUP}", "nf4": f" in blocks of {BLOCK}"}
    return f"{dtype}, {quantization}{sizes.get(quantization, '')}"
