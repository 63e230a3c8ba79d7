"""The study of thinking longer runs, and compares at equal compute."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[2] / "examples" / "sequential.py"
ROW = re.compile(r"^\| ([^|]+?) \| [\d.]+ \[\d+, \d+\] \| (\d+) \|", re.MULTILINE)


def test_it_runs_and_compares_at_equal_compute(scripts: Any, tmp_path: Path) -> None:
    given = [
        sys.executable,
        str(SCRIPT),
        "--model",
        "tiny-0.1m",
        "--per-level",
        "3",
        "--figures",
        str(tmp_path),
    ]
    said = scripts.here(given)
    assert "12 validation problems" in said and (tmp_path / "thought.svg").exists()
    rows = ROW.findall(said)
    tokens = {name: int(spent) for name, spent in rows}
    assert all(str(most) in tokens for most in (5, 10, 20, 30, 40, 60, 80, 120))
    # What a vote may spend is what the longer thought did, and each wait is a further one.
    voted = [int(spent) for name, spent in rows if name.startswith("…")]
    longer = [tokens[f"sent on, {waits}×"] for waits in (1, 2, 4)]
    assert len(voted) == 3 and all(v <= s for v, s in zip(voted, longer, strict=True))
    assert longer == sorted(longer)
