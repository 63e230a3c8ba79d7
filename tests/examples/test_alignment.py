"""`examples/alignment.py`, small: what is exact, and what is measured."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[2] / "examples" / "alignment.py"


def test_policies_and_how_far_they_go(scripts: Any, tmp_path: Path) -> None:
    said = scripts.here([sys.executable, str(SCRIPT), str(tmp_path), "1", "4"])
    assert re.search(
        r"^\| symbols \| best-of-n \| n = 16 \| 1\.82 \| 1\.84 \|.* 92\.3% \|", said, re.MULTILINE
    )
    assert (tmp_path / "exact.svg").stat().st_size < 150_000
    far = {name: float(kl) for name, kl in re.findall(r"^\| ([^|]+) \| (\d\.\d{3}) \|", said, re.MULTILINE)}
    assert far["p"] == 0.0 < far["temperature 0.8"] < far["temperature 0.6"] < far["temperature 0.3"]
    assert 0.0 < far["best of 2 by tiny-prm"] <= 0.194 and far["best of 4 by tiny-prm"] <= 0.637
