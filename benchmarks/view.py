"""What `metagen view` takes for a run of thousands of problems, finished and under way: CPU seconds, memory."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.row import Row
from metagen.generators.function import FunctionGenerator
from metagen.runs.directory import RunDirectory
from metagen.runs.work import growing
from metagen.sequence import Prompt, Score, Sequence, digest
from metagen.tasks.base import Problem, Task, check_problems
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.function import FunctionRule, FunctionVerifier
from metagen.view import desk
from metagen.view.shelf import Shelf

ROOT = Path(__file__).parents[1]
PROBLEMS = 5_000
#: The share of the problems that are recorded in the run under way.
BEGUN = 0.6
YAML = """\
name: big
task: {{kind: "benchmarks.view:Sums", count: {count}}}
generators: {{simulated: {{kind: "benchmarks.view:generator"}}}}
verifiers: {{judge: {{kind: "benchmarks.view:verifier"}}}}
strategies:
  majority: {{kind: majority}}
  best-of-n: {{kind: best_of_n, verifier: judge}}
  weighted: {{kind: weighted, verifier: judge}}
  adaptive: {{kind: adaptive_consistency, n: [4, 16]}}
grid: {{n: [1, 4, 16]}}
executor: {{concurrency: 32}}
"""


class Sums(Task):
    """Problems of five levels, with prompts of 60 words."""

    name = "sums"

    def __init__(self, *, count: int = PROBLEMS, seed: int = 0, limit: int | None = None) -> None:
        self.count = min(count, limit or count)

    @property
    def answer(self) -> AnswerRule:
        return FunctionRule(lambda text: text.rpartition("A:")[2].strip() or None, str)

    def problems(self) -> Iterator[Problem]:
        words = "so many sheep and coins " * 12
        prompts = (Prompt(f"sums/{i}", text=f"{words}{i}?\n") for i in range(self.count))
        return check_problems((Problem(p, _truth(p), 1 + i % 5) for i, p in enumerate(prompts)), "sums")


def _truth(prompt: Prompt) -> str:
    return str(int(prompt.problem_id.rpartition("/")[2]) * 7919 % 997)


def generator() -> FunctionGenerator:
    """Eight lines a sample; right by a chance that differs between problems."""

    async def function(prefix: Sequence, seed: int, index: int) -> str:
        rng = random.Random(seed)
        chance = 0.2 + 0.15 * (int(_truth(prefix.prompt)) % 5)
        lines = [f"step {k}: {rng.randrange(100)} sheep make {rng.randrange(1000)} coins" for k in range(7)]
        answer = _truth(prefix.prompt) if rng.random() < chance else str(rng.randrange(4))
        return "\n".join([*lines, f"A:{answer}"])

    return FunctionGenerator(function, name="simulated", count=len, max_tokens=600)


def verifier() -> FunctionVerifier:
    """Scores each of the eight steps."""

    def function(sequence: Sequence) -> Score:
        rng = random.Random(digest(sequence.text))
        steps = tuple(rng.random() for _ in range(8))
        return Score(steps[-1], steps=steps)

    return FunctionVerifier(function, name="judge")


def rows(problems: int = PROBLEMS) -> Iterator[Row]:
    """Of the simulated run, made in another process."""
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        file = Path(folder) / "big.yaml"
        file.write_text(YAML.format(count=problems))
        os.environ["METAGEN_TRUST"] = "1"
        command = [sys.executable, "-m", "metagen.cli", "run", str(file), "--out", str(runs / "big")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(
            command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        yield from finished(runs, f"view, {problems:,} problems × 16")
        going = Path(folder) / "going"
        halve(RunDirectory(runs / "big"), going / "big", int(BEGUN * problems))
        yield from under_way(
            going, f"view, {int(BEGUN * problems):,} of {problems:,} problems × 16 under way"
        )
    yield Row(
        "view, peak memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, "MB", "of all of these"
    )


def cpu(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def finished(runs: Path, name: str) -> Iterator[Row]:
    made = desk.Desk(Shelf((runs,)))
    for what, work in (
        ("list of runs", made.runs),
        ("head of the run", lambda: made.run("big")),
        ("accuracies", lambda: made.results("big")),
        ("list of problems, at first", lambda: made.problems("big")),
        ("list of problems, searched", lambda: made.problems("big", desk.Wish(q="sums/49", sort="right"))),
        ("a problem", lambda: made.problem("big", "sums/77")),
        ("its calls", lambda: made.replay("big", "sums/77", "simulated/adaptive@16")),
    ):
        yield Row(f"{name}: {what}", cpu(work), "s CPU", "one look of the viewer at a finished run")
    made.close()


def halve(whole: RunDirectory, root: Path, count: int) -> None:
    """A copy as if it had been interrupted after so many problems."""
    root.mkdir(parents=True)
    for name in ("experiment.yaml", "environment.json", "state.json", "journal.sqlite"):
        shutil.copy(whole.root / name, root / name)
    with contextlib.closing(sqlite3.connect(root / "journal.sqlite")) as connection, connection:
        connection.execute("DELETE FROM rows WHERE CAST(substr(problem, 6) AS INTEGER) >= ?", [count])
    directory = RunDirectory(root)
    directory.save(replace(directory.state(), status="running"))


def _count(made: desk.Desk) -> None:
    while made.results("big")["left"]:
        pass


def under_way(runs: Path, name: str) -> Iterator[Row]:
    made, how = desk.Desk(Shelf((runs,))), "looks of the viewer at a run without an end"
    desk.FRESH = desk.WORTH = 0.0  # each look is due
    yield Row(f"{name}: accuracies, first look", cpu(lambda: made.results("big")), "s CPU", how)
    yield Row(f"{name}: accuracies, until all are counted", cpu(lambda: _count(made)), "s CPU", how)
    # Problems that were not begun are replayed once, too.
    for _ in range(PROBLEMS // growing.STRIDE):
        made.results("big")
    yield Row(f"{name}: accuracies, nothing new", cpu(lambda: made.results("big")), "s CPU", how)
    made.close()
