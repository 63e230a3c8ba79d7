"""How long a context a model reads that runs by transformers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from metagen.errors import ModelError
from metagen.generators.torch.models.by_transformers import _context


def config(**fields: object) -> SimpleNamespace:
    return SimpleNamespace(max_position_embeddings=131_072, **fields)


def test_long_rope_is_read_within_its_original_context() -> None:
    """Beyond it transformers takes other frequencies for a whole pass, and keys that are kept are of the first."""
    long = {"rope_type": "longrope", "original_max_position_embeddings": 4096}
    assert _context(Path(), config()) == 131_072
    assert _context(Path(), config(rope_parameters={"rope_type": "default"})) == 131_072
    assert _context(Path(), config(rope_parameters=long)) == 4096
    assert (
        _context(Path(), config(rope_parameters={"full": long, "sliding": {"rope_type": "default"}})) == 4096
    )
    beside = config(rope_parameters={"rope_type": "longrope"}, original_max_position_embeddings=8192)
    assert _context(Path(), beside) == 8192
    with pytest.raises(ModelError, match="original_max_position_embeddings"):
        _context(Path(), config(rope_parameters={"rope_type": "longrope"}))
