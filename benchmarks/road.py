"""The whole road of many problems: run, curves and page, with a simulated engine. CPU seconds and peak memory."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.row import Row
from metagen.generators.function import FunctionGenerator
from metagen.sequence import Prompt, Sequence
from metagen.tasks.base import Problem, Task
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.function import FunctionRule

ROOT = Path(__file__).parents[1]
#: Problems of a small and of a large run; `ROAD=100000` in the environment makes the large one larger. Both fill the
#: page: up to about 9,000 problems × 64 it grows to its 5 MB, and the memory with it (2,000 problems take 35 MB less).
SMALL, LARGE, SAMPLES = 10_000, 30_000, 64
YAML = """\
name: road
task: {{kind: "benchmarks.road:Numbers", count: {count}}}
generators: {{simulated: {{kind: "benchmarks.road:generator"}}}}
strategies:
  single: {{kind: sample}}
  majority: {{kind: majority}}
grid: {{n: [1, 8, {samples}]}}
executor: {{concurrency: 32}}
"""


class Numbers(Task):
    """Problems of five levels that are made when they are asked for; the answer is the problem's number."""

    def __init__(self, *, count: int) -> None:
        self.count = count

    @property
    def answer(self) -> AnswerRule:
        return FunctionRule(lambda text: text.rpartition("A:")[2].strip() or None, str)

    def problems(self) -> Iterator[Problem]:
        return (Problem(Prompt(f"p{i}", text=f"Number {i}?\n"), str(i), 1 + i % 5) for i in range(self.count))


def generator() -> FunctionGenerator:
    """Right by a chance that differs between problems; wrong samples share four answers."""

    def function(prefix: Sequence, seed: int, index: int) -> str:
        rng, number = random.Random(seed), int(prefix.prompt.problem_id[1:])
        right = rng.random() < 0.1 + 0.8 * (number * 7919 % 997) / 997
        return f"step {rng.randrange(1000)}\nA:{number if right else -1 - rng.randrange(4)}"

    return FunctionGenerator(function, name="simulated", count=len, max_tokens=40)


def rows() -> Iterator[Row]:
    """Of processes of their own, the start of Python with all imports included."""
    large = int(os.environ.get("ROAD", LARGE))
    peaks: dict[tuple[str, int], float] = {}
    for count in (SMALL, large):
        with tempfile.TemporaryDirectory() as folder:
            file, out = Path(folder) / "road.yaml", Path(folder) / "run"
            file.write_text(YAML.format(count=count, samples=SAMPLES))
            # The samples by themselves, then all that is made of them.
            for what, code in (
                ("samples", f"from benchmarks.road import sample; sample({str(file)!r}, {str(out)!r})"),
                ("curves and page", f"from benchmarks.road import tell; tell({str(out)!r})"),
            ):
                cpu, peaks[what, count] = _run_apart(code)
                name, how = (
                    f"{count:,} problems × {SAMPLES}, {what}",
                    "simulated engine, votes at n = 1, 8, 64",
                )
                yield Row(f"{name}, CPU", cpu, "s", how)
                yield Row(f"{name}, peak memory", peaks[what, count] / 1e6, "MB", how)
    for what in ("samples", "curves and page"):
        slope = (peaks[what, large] - peaks[what, SMALL]) / (large - SMALL)
        how = f"the peak with {large:,} problems less that with {SMALL:,}"
        yield Row(f"memory per problem × {SAMPLES}, {what}", slope, "bytes", how, "≤ 2000")


def sample(file: str, out: str) -> None:
    """Run the experiment, without its report."""
    from metagen.runs.declare import schema
    from metagen.runs.directory import RunDirectory
    from metagen.runs.work import build, runner

    with build.open_setup(schema.load(Path(file))) as setup:
        state = runner.run(setup, RunDirectory.at(Path(out)))
    assert state.status == "complete", state


def tell(out: str) -> None:
    """The report of the run: curves, figures, page."""
    from metagen.runs.directory import RunDirectory
    from metagen.runs.page import report

    report.publish(RunDirectory(Path(out)))


def _run_apart(code: str) -> tuple[float, float]:
    """CPU seconds, and the most bytes of memory, of a process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "METAGEN_TRUST": "1"}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"failed: {code}"
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
