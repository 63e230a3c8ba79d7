"""The example of adaptive compute runs, and says what it spends."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "adaptive.py"


def test_it_runs_on_an_embedded_model() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "2"], capture_output=True, text=True, check=True)
    rows = dict(re.findall(r"^(\S.*?) +\d+% +([\d.]+) +\d+$", done.stdout, re.MULTILINE))
    assert rows["full vote"] == "24.0" and float(rows["Adaptive-Consistency"]) < 24 and len(rows) == 8
    budget = int(re.findall(r"One budget of (\d+) tokens", done.stdout)[0])
    spent = [
        int(tokens)
        for tokens in re.findall(r"^ +(\d+) tokens, .*; samples at level 1", done.stdout, re.MULTILINE)
    ]
    assert len(spent) >= 2 and spent == sorted(spent) and spent[-1] < 1.2 * budget
