"""The replay study on a small synthetic pool, and on a small run."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from metagen.errors import DataError, InputError

SCRIPT = Path(__file__).parents[2] / "examples" / "adaptive_replay.py"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, with few orders."""
    spec = importlib.util.spec_from_file_location("adaptive_replay", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "adaptive_replay", module)
    monkeypatch.syspath_prepend(SCRIPT.parent)  # as Python does for a script
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ORDERS", 3)
    return module


def write(path: Path, problems: int = 240, samples: int = 24) -> Path:
    """Easy, undecided, and wrong in unison: the budget belongs to the second kind."""
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        for i in range(problems):
            share, rivals = ((0.97, 5), (0.5, 5), (0.03, 2))[i % 3]
            right = rng.random(samples) < share
            keys = [
                None if rng.random() < 0.02 else "yes" if r else f"no {rng.integers(1, rivals)}"
                for r in right
            ]
            correct = [key == "yes" for key in keys]
            record = {
                "id": str(i),
                "keys": keys,
                "correct": correct,
                "tokens": rng.integers(5, 15, samples).tolist(),
            }
            file.write(json.dumps(record) + "\n")
    return path


def table(text: str, title: str) -> dict[str, list[str]]:
    """The rows of a section, by their first cell."""
    section = text[text.index(title) :].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in section.splitlines()
        if line[:1] == "|"
    ]
    return {cells[0]: cells[1:] for cells in rows[2:]}


def first(cell: str) -> float:
    found = re.match(r"[+-]?[\d.]+", cell)
    assert found is not None
    return float(found[0])


def test_on_a_pool_whose_truth_is_known(
    study: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study.main([str(write(tmp_path / "pool.jsonl")), "--figures", str(tmp_path / "figures")])
    text = capsys.readouterr().out
    stopping = table(text, "## Stopping: 240 problems, at most 24 samples")
    beta, decided = stopping["Beta .95 (Adaptive-Consistency)"], stopping["decided (lossless)"]
    assert first(beta[1]) > 2 and abs(first(beta[5])) < 2 and first(beta[6]) > 97
    assert first(decided[1]) > 1.3 and first(decided[5]) == 0 and first(decided[6]) == 100
    budgets = table(text, "## One budget")
    assert list(budgets) == ["6", "8", "12", "16"]
    eight = budgets["8"]
    assert first(eight[4]) > 0.5, "allocated beats as many for all"
    assert first(eight[0]) <= 8.1
    assert {p.name for p in (tmp_path / "figures").iterdir()} == {
        f"{name}.{kind}" for name in ("stopping", "allocation") for kind in ("png", "svg")
    }


def test_on_a_run(
    study: ModuleType, experiment_run: Callable[[], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = experiment_run()
    study.main([str(root)])
    text = capsys.readouterr().out
    assert text.startswith("# small") and "## Stopping: 24 problems, at most 20 samples" in text
    study.main([str(root), "large"])
    assert capsys.readouterr().out.startswith("# large")
    with pytest.raises(InputError, match="expected one of small, large"):
        study.main([str(root), "medium"])


@pytest.fixture
def experiment_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """A run of the toy experiment of the tests of experiments."""
    toy = Path(__file__).parents[1] / "runs" / "toy"
    monkeypatch.syspath_prepend(str(toy))
    path = tmp_path / "sums.yaml"
    path.write_text(
        "name: sums\nseed: 3\n"
        'task: {kind: "metagen_toy:ToyTask", count: 24}\n'
        "generators:\n"
        '  small: {kind: "metagen_toy:generator", skill: 0.5, name: small}\n'
        '  large: {kind: "metagen_toy:generator", skill: 0.75, name: large}\n'
        "strategies:\n  majority: {kind: majority}\n"
        "grid: {n: [20]}\n"
    )

    def run() -> Path:
        from typer.testing import CliRunner

        from metagen.cli import app

        done = CliRunner().invoke(app, ["run", str(path), "--out", str(tmp_path / "run")])
        assert done.exit_code == 0, done.output
        return tmp_path / "run"

    return run


def test_lists_that_do_not_fit_are_refused(study: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": 1, "keys": ["a"], "correct": [true, false], "tokens": [1]}\n')
    with pytest.raises(DataError, match=r"lists of \[1, 2\] entries"):
        study.main([str(tmp_path / "p.jsonl")])


def test_it_runs_as_a_script(tmp_path: Path) -> None:
    write(tmp_path / "pool.jsonl", problems=24, samples=8)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "pool.jsonl")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "# pool" in done.stdout and "## One budget" in done.stdout
