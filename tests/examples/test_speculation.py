"""What speculation gains on the embedded models: the scripts run, small, and say what they promise."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_tokens_of_a_pass_have_intervals(scripts: Any) -> None:
    arguments = ("--problems", "3", "--samples", "1", "--gamma", "3")
    said: str = scripts.here([sys.executable, str(EXAMPLES / "block_efficiency.py"), *arguments])
    found = re.findall(
        r"^\| (tiny-\S+) \| 3 \| ([\d.]+) \[([\d.]+), ([\d.]+)\] \| ([\d.]+) \[", said, re.MULTILINE
    )
    assert [row[0] for row in found] == ["tiny-0.1m", "tiny-0.5m"]
    assert all(1 < float(row[1]) <= 4 and float(row[2]) <= float(row[1]) <= float(row[3]) for row in found)
    assert "| plain | " in said and "1.00 [1.00, 1.00]" in said


def test_where_it_pays(scripts: Any) -> None:
    arguments = ("--batch", "1", "--context", "0", "--gamma", "3")
    said: str = scripts.here([sys.executable, str(EXAMPLES / "speculation_length.py"), *arguments])
    assert re.search(r"^\| 1 \| 0 \| [1-4]\.\d\d \| [\d.]+ \| \d+ \|$", said, re.MULTILINE)
    assert re.search(r"^\| 100 \| [12]\.\d\d \(", said, re.MULTILINE)
