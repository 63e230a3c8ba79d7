"""The scripts of `examples/learned_tables` import one another by their names, as they do when one is run."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.runs.conftest import experiment_file

__all__ = ["experiment_file"]

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "learned_tables"))
