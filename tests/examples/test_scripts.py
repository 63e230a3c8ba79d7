"""Example scripts that no other suite runs: each runs as a user would start it, small, and says what it promises."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.work import build, runner
from tests.fetched import fetch_or_skip

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def said(scripts: Any) -> Any:
    """What a script prints."""

    def run(script: str, *arguments: object) -> str:
        said: str = scripts.here([sys.executable, str(EXAMPLES / script), *map(str, arguments)])
        return said

    return run


@pytest.fixture
def files_alone(lean_figures: list[str]) -> Iterator[None]:
    """A script makes its figures, and the files that it names, but draws nothing into them: that others test."""
    lean_figures[:] = [".pdf", ".png", ".svg"]
    yield
    lean_figures.clear()


def experiment(file: str, out: Path, *sets: str, limit: int | None = None) -> Path:
    """A run of an example's experiment, without its report: the scripts read what it has drawn and found.

    `test_experiments.py` runs every file by the command, report included.
    """
    with build.open_setup(schema.load(EXAMPLES / file, sets=sets, limit=limit)) as setup:
        state = runner.run(setup, RunDirectory.at(out))
    assert (state.status, state.failures) == ("complete", ())
    return out


def test_every_way_to_choose_shares_one_pool(said: Any) -> None:
    rows = re.findall(
        r"^(.{22}) +(\d+) % right \[.*\] +(\d+) +(\d+)$", said("parallel.py", 1, 4), re.MULTILINE
    )
    new = {name.strip(): (int(samples), int(scores)) for name, _, samples, scores in rows}
    assert len(new) == 10
    assert new["one sample"] == (3, 0)
    assert sum(samples for samples, _ in new.values()) == 3 * 4
    # Scores of steps are paid for by those who ask first; only the second opinion of the pessimist is new.
    assert new["majority"][1] == 0 and new["best-of-n"] == new["soft best-of-n"] == (0, 0)
    assert new["pessimistic best-of-n"][1] == sum(new[name][1] for name in ("rejection", "weighted vote"))
    right = {name.strip(): share for name, share, *_ in rows}
    assert right["MBR, same answer"] == right["majority"]


def test_every_rule_of_search_draws_its_tree(said: Any, files_alone: None, tmp_path: Path) -> None:
    names = re.findall(
        r"^(\w+): .* by \d+ nodes, \d+ finished, \d+ tokens$", said("tree.py", tmp_path), re.MULTILINE
    )
    assert len(names) >= 6 and {f"{name.lower()}.svg" for name in names} <= {
        p.name for p in tmp_path.iterdir()
    }


def test_particles_approach_what_can_be_enumerated(said: Any, files_alone: None, tmp_path: Path) -> None:
    text = said("particles.py", tmp_path, 2)
    (exact,) = re.findall(r"φ\(v\(y\)\) = ([\d.]+)", text)
    last = re.findall(r"64 particles: normaliser ([\d.]+) ± ([\d.]+)", text)[0]
    assert abs(float(last[0]) - float(exact)) < 4 * float(last[1])
    assert len(re.findall(r"of 2 right", text)) == 4 and list(tmp_path.glob("*.png"))


def test_the_gallery_draws_what_is_named(said: Any, tmp_path: Path) -> None:
    said("gallery.py", tmp_path, "rebase", "voting", "confidence")
    assert {p.stem for p in tmp_path.glob("*.svg")} == {"rebase", "voting", "confidence"}


def test_the_atlas_of_decoding_draws_what_is_named(said: Any, tmp_path: Path) -> None:
    said("gallery_decoding.py", tmp_path, "beam", "contrastive", "likelihood", "speculative")
    assert {p.stem for p in tmp_path.glob("*.png")} == {"beam", "contrastive", "likelihood", "speculative"}


@pytest.mark.slow
def test_maximisation_repeats_and_sampling_does_not(said: Any, tmp_path: Path) -> None:
    rows = re.findall(
        r"^\| ([^|]+) \| ([\d.]+) \| (\d+)% \| (\d+)% \|", said("degeneration.py", tmp_path, 8), re.M
    )
    bits = {name: float(surprise) for name, surprise, *_ in rows}
    stuck = {name: int(share) for name, _, _, share in rows}
    assert (
        min(stuck["greedy"], stuck["beam search 16"]) > 90 > 10 > max(stuck["top-p 0.9"], stuck["a person"])
    )
    assert (
        bits["beam search 16"]
        < bits["greedy"]
        < bits["top-p 0.9"]
        < bits["a person"]
        < bits["temperature 1.2"]
    )
    assert len(list(tmp_path.glob("*.png"))) == 4


@pytest.mark.slow
def test_two_number_formats_are_compared_by_problem_and_by_text(said: Any, tmp_path: Path) -> None:
    fetch_or_skip("smollm2-135m-solver")
    short = [f"generators.{name}.max_tokens=20" for name in ("float32", "bfloat16")]
    few = [f"strategies.{name}.n=3" for name in ("majority", "checked", "rebase")]
    run = experiment("number_formats.yaml", tmp_path / "run", *short, *few, limit=2)
    text = said("number_formats.py", run)
    right = dict(re.findall(r"^\| (\S+) \| .* (\d) of 2 \|$", text, re.M))
    assert list(right) == ["greedy", "majority@3", "checked@3", "rebase@3"]
    equal = {
        name: float(share)
        for name, share in re.findall(r"^\| (\S+) \| ([\d.]+)% [^|]*\| [^|]*\|$", text, re.M)
    }
    assert list(equal) == ["samples", "greedy", "rebase@3"]
    texts: dict[Any, set[str]] = {}
    for row in pq.read_table(run / "candidates.parquet").to_pylist():
        texts.setdefault((row["problem"], row["sample"]), set()).add(row["text"])
    assert len(texts) == 6
    assert equal["samples"] == pytest.approx(100 * sum(len(t) == 1 for t in texts.values()) / 6, abs=0.05)
    outcomes = {
        (r["configuration"], r["problem"]): r["text"]
        for r in pq.read_table(run / "outcomes.parquet").to_pylist()
    }
    same = [
        text == outcomes["bfloat16/greedy", id]
        for (name, id), text in outcomes.items()
        if name == "float32/greedy"
    ]
    assert len(same) == 2 and equal["greedy"] == 50 * sum(same)


@pytest.mark.slow
def test_the_family_is_reported_from_a_run(said: Any, tmp_path: Path) -> None:
    run = experiment("family.yaml", tmp_path / "run", "task.per_level=1", "task.levels=[1, 4]")
    text = said("family_report.py", run)
    assert "within problems" in text and text.count("| 0.1M |") >= 2


def test_who_solves_most_within_a_budget_is_read_from_a_run(said: Any, tmp_path: Path) -> None:
    run = experiment(
        "programs.yaml",
        tmp_path / "run",
        "task={kind: programs, split: validation, per_level: 2, levels: [1, 2]}",
    )
    text = said("solved_within.py", run, "--against", "samples", "--tokens", 100, 400, "--gflops", 1, 5)
    tables = [part for part in text.split("\n\n") if part.startswith("| strategy")]
    assert len(tables) == 3 and all("| samples |" in table for table in tables)
    said("study_picture.py", run, tmp_path / "pictures")
    assert (tmp_path / "pictures" / "run.svg").exists()
    spent = runpy.run_path(str(EXAMPLES / "solved_within.py"))["spent"]
    whole, none = spent(run)
    outcomes = pq.read_table(run / "outcomes.parquet")
    last = max(problem for problem in outcomes["problem"].to_pylist())
    failed = next(i for i, row in enumerate(outcomes.to_pylist()) if row["problem"] == last)
    pq.write_table(outcomes.take([i for i in range(len(outcomes)) if i != failed]), run / "outcomes.parquet")
    part, one = spent(run)
    assert (none, one) == (0, 1)
    for name, cost in whole.items():
        np.testing.assert_array_equal(part[name].tokens, cost.tokens[:-1])
    assert "\n3 problems, without 1 that not all strategies have\n" in "\n" + said(
        "solved_within.py", run, "--against", "samples"
    )
    with pytest.raises(SystemExit, match="--against nobody: this run has no such strategy; expected one of"):
        said("solved_within.py", run, "--against", "nobody")
