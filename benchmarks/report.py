"""The first report of a large study: 300 problems, 201 configurations of three models.

The curves are made up in the shape of `examples/frontier.yaml`; the runs of the study are real, by simulated models.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.row import Row
from metagen.runs.curves.study import Curve, Floats, Model, StudyResult, Votes

ROOT = Path(__file__).parents[1]
PROBLEMS, SAMPLES, TOKENS = 300, 64, 60
SIZES = {"0.1M": 1e5, "0.5M": 5e5, "2M": 2e6}
POOL, FEW, TWO = (1, 2, 4, 8, 16, 32, 64), (4, 16, 64), (4, 16)
#: Strategies: name → kind, at how many samples, by which verifier.
STRATEGIES = {
    "greedy": ("greedy", (0,), None), "single": ("sample", (0,), None), "cut": ("budget_forcing", (0,), None),
    "longer": ("budget_forcing", (0,), None), "last": ("best_of_n", (64,), "prm"),
    "majority": ("majority", POOL, None), "weighted": ("weighted", POOL, "prm"), "best": ("best_of_n", POOL, "prm"),
    "best-plain": ("best_of_n", POOL, "prm"), "best-weak": ("best_of_n", POOL, "weak"),
    "pass": ("best_of_n", POOL, "oracle"), "rebase": ("rebase", FEW, "prm"), "dvts": ("dvts", FEW, "prm"),
    "particles": ("particles", FEW, "prm"), "adaptive": ("adaptive_consistency", FEW, None),
    "blockwise": ("blockwise", TWO, "prm"), "beam": ("beam", TWO, "prm"), "mcts": ("mcts", TWO, "prm"),
    "mbr": ("mbr", TWO, None),
}  # fmt: skip
FILE = """\
name: report
task: {kind: "benchmarks.road:Numbers", count: 300}
generators:
  0.1M: {kind: "benchmarks.road:generator"}
  0.5M: {kind: "benchmarks.road:generator"}
  2M: {kind: "benchmarks.road:generator"}
strategies:
  single: {kind: sample}
  majority: {kind: majority}
grid: {n: [1, 8, 64]}
executor: {concurrency: 32}
study: {budgets: {samples: [8, 64]}}
"""


def rows() -> Iterator[Row]:
    """Of processes of their own, after the start of Python and metagen's imports."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "study.yaml").write_text(FILE)
        _run_apart(f"from benchmarks.report import prepare; prepare({folder!r})")
        usable = len(os.sched_getaffinity(0))
        for cores in dict.fromkeys((min(usable, 2), 1)):
            took = json.loads(
                _run_apart(f"from benchmarks.report import publish; publish({folder!r}, {cores})")
            )
            how = f"{PROBLEMS} problems × {took['configurations']} configurations, one run"
            name = f"first report of a study, {cores} core{'s' if cores > 1 else ''}"
            yield Row(name, took["seconds"], "s", how, "≤ 15" if cores > 1 else None)
            yield Row(f"{name}, CPU", took["cpu"], "s", how)
            yield Row(f"{name}, peak memory of the command", took["memory"] / 1e6, "MB", how)


def prepare(folder: str) -> None:
    """Run the study."""
    from metagen.runs import study
    from metagen.runs.declare import study_schema

    study.run(study_schema.load(Path(folder) / "study.yaml"), Path(folder) / "study")


def publish(folder: str, cores: int) -> None:
    """Report the made-up results as those of the study, on so many cores; prints what that took."""
    import resource
    import time

    from metagen.runs.directory import StudyDirectory, find
    from metagen.runs.page import kept, study_report

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    directory, result = find(Path(folder) / "study"), made_up()
    assert isinstance(directory, StudyDirectory)
    for name in (kept.SECTIONS, kept.RECORD, "report.html"):
        (directory.root / name).unlink(missing_ok=True)
    study = study_report.schema.load(directory.study)
    before, began = _cpu(), time.perf_counter()
    study_report.publish(directory, study, result)
    taken = time.perf_counter() - began
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    count = sum(len(curve.ns) for curve in result.curves)
    print(json.dumps({"seconds": taken, "cpu": _cpu() - before, "memory": most, "configurations": count}))


def made_up() -> StudyResult:
    """Larger models solve more, and more samples help each strategy by its own amount."""
    rng = np.random.default_rng(0)
    levels = np.arange(PROBLEMS) % 6 + 3
    curves, votes = [], []
    for model, base in zip(SIZES, (0.3, 0.45, 0.6), strict=True):
        skill = np.clip(base + 0.08 * (5.5 - levels) + rng.normal(0, 0.15, PROBLEMS), 0.02, 0.98)
        votes += [
            _votes(model, role, skill, n, rng) for role, n in (("test", SAMPLES), ("limit", 2 * SAMPLES))
        ]
        for name, (kind, ns, verifier) in STRATEGIES.items():
            gain = rng.uniform(0.02, 0.06)
            right = np.clip(skill + gain * np.log2(np.maximum(ns, 1))[:, None], 0.0, 1.0)
            pooled = ns == POOL
            accuracy = right if pooled else (rng.random(right.shape) < right).astype(float)
            costs, verifying = _costs(model, ns, verifier is not None, rng)
            curves.append(
                Curve(
                    model, name, kind, np.array(ns), accuracy, np.zeros_like(accuracy), costs, verifying,
                    source="pool" if pooled else "run", verifier=verifier, oracle=verifier == "oracle",
                )
            )  # fmt: skip
    return StudyResult(
        "report", 0, tuple(f"p{i}" for i in range(PROBLEMS)), levels,
        tuple(Model(name, size, 1.0) for name, size in SIZES.items()), tuple(curves), tuple(votes),
        budgets={"flops": (5e7, 2e8, 1e9, 5e9, 2e10)},
    )  # fmt: skip


def _votes(model: str, role: str, skill: Floats, samples: int, rng: np.random.Generator) -> Votes:
    correct = rng.random((PROBLEMS, samples)) < skill[:, None]
    classes = np.where(correct, 0, rng.integers(1, 4, size=correct.shape))
    score = np.clip(rng.normal(0.35 + 0.3 * correct, 0.2), 0.0, 1.0)
    full = np.full(correct.shape, float(TOKENS))
    sizes = np.full(PROBLEMS, samples)
    scores = {"prm": score, "weak": score[:, ::-1]}
    return Votes(model, role, classes, correct, np.ones_like(correct), scores, full, -0.5 * full, sizes)


def _costs(
    model: str, ns: tuple[int, ...], judged: bool, rng: np.random.Generator
) -> tuple[dict[str, Floats], Floats]:
    n = np.repeat(np.maximum(np.array(ns, dtype=float), 1)[:, None], PROBLEMS, axis=1)
    tokens = n * rng.integers(TOKENS // 2, 2 * TOKENS, PROBLEMS)
    verifying = 2 * 3e5 * tokens * judged
    flops = 2 * SIZES[model] * tokens + verifying
    return {
        "samples": n, "generated": tokens, "tokens": tokens * (2 if judged else 1), "flops": flops,
        "flops_2n": 0.9 * flops, "money": np.full(n.shape, np.nan), "seconds": flops / 1e9,
        "roofline:h200": flops / 1e12, "latency:h200": flops / n / 1e10,
        "roofline:laptop": flops / 1e10, "latency:laptop": flops / n / 1e8,
    }, verifying  # fmt: skip


def _cpu() -> float:
    """Seconds of processor time of this process and of those that it waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _run_apart(code: str) -> str:
    """What a process prints last."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "METAGEN_TRUST": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.strip().rpartition("\n")[2]
