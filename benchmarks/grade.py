"""What `metagen grade` takes for a large recorded pool: CPU seconds, bytes on disk, memory."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.row import Row

#: Problems of the pools that are graded; the first has a bound.
PROBLEMS, SAMPLES = (2_000, 10_000), 256


def rows(problems: tuple[int, ...] = PROBLEMS, samples: int = SAMPLES) -> Iterator[Row]:
    """Of processes of their own, the start of Python with all imports included."""
    for number, count in enumerate(problems):
        how = f"metagen grade --correct, {count:,} problems × {samples} short samples with verdicts"
        name = f"grading {count:,} problems × {samples}"
        with tempfile.TemporaryDirectory() as folder:
            cpu, peak, size = graded(Path(folder), count, samples)
        first = number == 0
        yield Row(f"{name}, CPU", cpu, "s", how, "≤ 20" if first else None)
        yield Row(f"{name}, disk", size / count / 1e3, "kB a problem", how, "≤ 20" if first else None)
        yield Row(f"{name}, peak memory", peak / 1e3, "MB", how)


def graded(folder: Path, problems: int, samples: int) -> tuple[float, float, int]:
    """CPU seconds of the process and its children, the most memory that it had in kB, and the bytes of its run."""
    pool, out = folder / "pool.jsonl", folder / "run"
    written(pool, problems, samples)
    command = [
        sys.executable,
        "-m",
        "metagen.cli",
        "grade",
        str(pool),
        "--correct",
        "correct",
        "--out",
        str(out),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{' '.join(command)} failed"
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss, size


def written(path: Path, problems: int, samples: int) -> None:
    """Problems of even difficulty; a wrong sample has one of twenty answers."""
    rng = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(problems):
            chance = rng.random()
            correct = [rng.random() < chance for _ in range(samples)]
            texts = [str(number if right else number + 1 + rng.randrange(20)) for right in correct]
            record = {"id": f"p{number}", "question": "?", "samples": texts, "correct": correct}
            file.write(json.dumps(record) + "\n")
