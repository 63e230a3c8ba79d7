"""Pools that are read in blocks: whatever the size of a block, the figures are those of all at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from metagen.analysis.subset_votes import Ballots, InClosedForm, majority_work
from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.table import pools, tables
from metagen.runs.table.pools import Pool, Stored
from metagen.runs.table.tables import TableWriter

NS = (1, 2, 3, 8, 16)
LINES = [
    Cell(f"{kind}-{verifier}@{n}", "g", kind, kind, n, verifier, pooled=True)
    for kind, verifier in (
        ("sample", None), ("majority", None), ("best_of_n", "v"), ("weighted", "v"), ("weighted", "same"),
    )
    for n in NS
]  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest) -> RunDirectory:
    """Problems of 8 or 16 samples in no order, of two generators; some without a vote, some without a score."""
    rng = np.random.default_rng(3)
    with TableWriter(tmp_path, ["v", "same"]) as writer:
        for place in rng.permutation(40).tolist():
            for generator in ("g", "h") if place % 3 else ("h", "g"):
                size = 8 if place % 4 == 0 else 16
                many = 3 if request.param == "few classes" else 12
                keys = [None if rng.random() < 0.1 else f"a{rng.integers(many)}" for _ in range(size)]
                rows = [
                    {
                        "problem": f"p{place}", "place": place, "level": place % 3, "generator": generator, "sample": i,
                        "key": key, "correct": key == "a0", "eligible": key is not None,
                        "score.v": None if rng.random() < 0.1 else rng.random(), "raw.v": None, "score.same": 0.5,
                    }
                    for i, key in enumerate(keys)
                ]  # fmt: skip
                writer.add("candidates", rows)
                costs = {
                    "problem": f"p{place}",
                    "place": place,
                    "generator": generator,
                    "prefilled": 0.1 * place,
                }
                writer.add(
                    "costs",
                    [costs | {"n": n, "part": part} for n in NS for part in ("generation", "v", "same")],
                )
    return RunDirectory(tmp_path)


@pytest.mark.parametrize("run", ["few classes", "many classes"], indirect=True)
@pytest.mark.parametrize("work", [1e9, 1e5, 1e3])
def test_blocks_of_any_size_give_the_figures_of_all_at_once(
    run: RunDirectory, work: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Votes in closed form, and by subsets that are drawn."""
    monkeypatch.setattr("metagen.analysis.subset_votes.WORK", work)
    monkeypatch.setattr("metagen.analysis.estimators.WORK", work)
    whole = Pool.of(run, "g")
    for block in (1, 50, 1 << 18):
        monkeypatch.setattr(pools, "BLOCK", block)
        with Stored(run, "g") as stored:
            found = stored.results(LINES)
            assert stored.places.tolist() == list(range(40)) and stored.ids == [f"p{i}" for i in range(40)]
        for line in LINES:
            accuracy, error = whole.curve(line.kind, NS, line.verifier)
            solved, at = found[line.name], NS.index(line.n or 1)
            assert solved.rows.tolist() == np.flatnonzero(whole.sizes >= (line.n or 1)).tolist()
            np.testing.assert_allclose(solved.accuracy, accuracy[at, solved.rows], atol=1e-12)
            np.testing.assert_allclose(solved.error, error[at, solved.rows], atol=1e-12)
        tokens = {line.n: found[line.name].cost["prefilled"] for line in LINES if line.kind == "majority"}
        assert tokens[16] == pytest.approx(sum(0.1 * place for place in range(40)) / 40)


@pytest.mark.parametrize("run", ["few classes"], indirect=True)
def test_a_pool_that_goes_on_in_the_next_part_of_a_file_is_whole(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    path = run.table("candidates")
    table = pq.read_table(path)
    pq.write_table(table, path, row_group_size=5)
    seen: list[tuple[int, str]] = []
    rows = 0
    for block in tables.blocks(path, ["sample"]):
        of = list(dict.fromkeys(zip(block["place"].to_pylist(), block["generator"].to_pylist(), strict=True)))
        assert not set(of) & set(seen)
        seen += of
        rows += len(block)
    assert rows == len(table) and len(seen) == 80


def test_a_closed_form_is_chosen_as_of_all_problems_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Races of one kind are work once, whichever part of the problems they are in."""
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 4, (30, 12))
    classes = np.concatenate([classes, classes[:10]])
    correct = classes == 0
    work = majority_work(Ballots.of(classes, correct))
    for limit, possible in ((work, True), (work * 0.999, False)):
        monkeypatch.setattr("metagen.analysis.subset_votes.WORK", limit)
        closed = InClosedForm()
        for start in range(0, 40, 7):
            closed.add(Ballots.of(classes[start : start + 7], correct[start : start + 7]))
        assert closed.possible is possible
    weights = np.full(classes.shape, 0.5)
    weights[39, 3] = 0.4
    monkeypatch.setattr("metagen.analysis.subset_votes.WORK", 1e12)
    for rows, possible in ((slice(0, 39), True), (slice(39, 40), False)):
        closed = InClosedForm()
        closed.add(Ballots.of(classes[rows], correct[rows], weights[rows]))
        assert closed.possible is possible
