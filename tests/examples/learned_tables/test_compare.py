"""The study of tables by difficulty, on options whose truth is known and on two small runs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from choose import Measured
from options import Options
from typer.testing import CliRunner

from metagen.cli import app
from metagen.runs.directory import Cell

SCRIPT = Path(__file__).parents[3] / "examples" / "learned_tables" / "compare.py"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, whose picture has few points."""
    spec = importlib.util.spec_from_file_location("by_difficulty", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "by_difficulty", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "DRAWN", 3)
    return module


def options(seed: int, problems: int = 400) -> Options:
    """Half of the problems are easy, for four samples already; only the large model solves the others."""
    rng = np.random.default_rng(seed)
    easy = rng.random(problems) < 0.5
    values = np.where(easy, 1.0, 0.25)[None]

    def right(share: np.ndarray) -> np.ndarray:
        return (rng.random(problems) < share) * 1.0

    measured = {
        "4 samples": Measured(right(np.where(easy, 0.98, 0.1)), np.full(problems, 1.0)),
        "small/majority@4": Measured(right(np.where(easy, 0.98, 0.1)), np.full(problems, 2.0)),
        "large/single": Measured(right(np.where(easy, 0.98, 0.8)), np.full(problems, 11.0)),
    }
    small, large = (
        Cell("small/majority@4", "small", "majority", "majority", 4),
        Cell("large/single", "large", "single", "sample"),
    )
    lines = {line.name: line for line in (small, large)}
    return Options(values, measured, {"4 samples": 4, **lines})


def cells(lines: list[str]) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line[:1] == "|"][2:]


def test_the_large_model_is_kept_for_hard_problems(study: ModuleType) -> None:
    found = study.Study(options(0), options(1))
    (row,) = cells(list(study.compared(found, [6.5])))
    assert (
        row[1] == "2" and row[4] == "small/majority@4" and row[8] == "39% small/majority@4, 61% large/single"
    )
    ours, alone, by_lot = (float(row[i]) for i in (2, 5, 9))
    assert ours > alone + 25 and ours > by_lot + 10 and alone + 10 < by_lot
    assert 5.5 < float(row[3]) <= 7.0
    groups = cells(list(study.chosen(found, 6.5)))
    assert [group[2] for group in groups] == ["large/single", "4 samples"]
    # With enough for the large model everywhere there is nothing to choose but it.
    (row,) = cells(list(study.compared(found, [12.0])))
    assert row[4] == row[8] == "large/single" and abs(float(row[2]) - float(row[5])) < 3
    assert set(found.frontier()) == {"small/majority@4", "large/single"}
    assert found.best(10.0) == "large/single" and found.best(9.9) == "small/majority@4"


def test_it_reads_two_runs(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "runs" / "toy"))
    text = (
        "name: sums\nseed: 3\n"
        'task: {kind: "metagen_toy:ToyTask", count: 24, seed: SEED}\n'
        "generators:\n"
        '  small: {kind: "metagen_toy:generator", skill: 0.5, name: small}\n'
        '  large: {kind: "metagen_toy:generator", skill: 0.75, name: large}\n'
        "strategies:\n  majority: {kind: majority}\n  esc: {kind: esc}\n"
        "grid: {n: [4, 16]}\n"
    )
    for name, seed in (("known", 1), ("fresh", 2)):
        (tmp_path / f"{name}.yaml").write_text(text.replace("SEED", str(seed)))
        done = CliRunner().invoke(app, ["run", str(tmp_path / f"{name}.yaml"), "--out", str(tmp_path / name)])
        assert done.exit_code == 0, done.output
    runs = [str(tmp_path / name) for name in ("known", "fresh")]
    study.main([*runs, "--cost", "generated", "--figures", str(tmp_path / "figures")])
    out = capsys.readouterr().out
    assert "Learned on 24 problems, compared on 24 others" in out and "small/esc@16" in out
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        "by_difficulty.png",
        "by_difficulty.svg",
    }
