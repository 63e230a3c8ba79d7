"""How long `metagen run` takes to its first sample."""

from __future__ import annotations

import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.row import Row

EXPERIMENT = Path(__file__).parents[1] / "examples" / "quickstart.yaml"


def rows() -> Iterator[Row]:
    """Seconds from the start of the process to the first durable record."""
    _first_sample()
    taken = [_first_sample() for _ in range(5)]
    yield Row(
        "start-up to the first recorded samples",
        statistics.median(taken),
        "s",
        "metagen run examples/quickstart.yaml (four embedded models), a new process, median of 5",
        "≤ 4",
    )


def _first_sample() -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "metagen.cli",
            "run",
            str(EXPERIMENT),
            "--limit",
            "4",
            "--out",
            folder,
        ]
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not _recorded(Path(folder) / "journal.sqlite"):
                assert process.poll() in (None, 0), f"{' '.join(command)} failed"
                time.sleep(0.02)
            return time.perf_counter() - start
        finally:
            process.kill()
            process.wait()


def _recorded(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=0) as database:
            return bool(database.execute("select exists (select 1 from rows)").fetchone()[0])
    except sqlite3.Error:
        return False
