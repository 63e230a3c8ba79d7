"""The table of calls of embedded models: what each waited for is what it read."""

import numpy as np

from metagen.experiments.calls import GENERATION
from metagen.experiments.directory import RunDirectory
from metagen.studies.efficiency.called import Called


def calls(directory: RunDirectory, name: str, *parts: str) -> list[Called]:
    found = Called.of(directory, name, parts)
    assert found is not None
    return [rows for _, rows in found.problems()]


def parents(rows: Called, i: int) -> list[int]:
    return [int(j) for j in rows.graph.of(i)]


def test_a_sample_goes_on_from_the_call_that_wrote_its_prefix(small: RunDirectory) -> None:
    for name in ("mid/rebase@4", "mid/blockwise@2", "mid/mcts@3"):
        for rows in calls(small, name):
            assert not rows.assumed.any()
            for i in np.flatnonzero(rows.kind == "generate").tolist():
                above = [j for j in parents(rows, i) if rows.kind[j] == "generate"]
                if not above:
                    assert rows.depth[i] == 1
                    continue
                (j,) = above
                assert rows.context[i] == rows.context[j] + rows.generated[j]


def test_a_score_waits_for_the_samples_of_its_text_and_who_goes_on_has_seen_it(small: RunDirectory) -> None:
    for rows in calls(small, "mid/rebase@4"):
        for i in np.flatnonzero(rows.kind == "score").tolist():
            assert parents(rows, i)
            assert all(rows.kind[j] == "generate" for j in parents(rows, i))
        going = [i for i in np.flatnonzero(rows.kind == "generate").tolist() if parents(rows, i)]
        assert going
        assert all(any(rows.kind[j] == "score" for j in parents(rows, i)) for i in going)


def test_searches_by_level_and_batches_wait_for_what_came_before(small: RunDirectory) -> None:
    for rows in calls(small, "mid/rebase@4"):
        assert rows.waits.all()
        names = [path.split("/")[2] for path in rows.path]
        assert rows.depth.tolist() == [name.count(".") + 1 for name in names]
    for rows in calls(small, "mid/adaptive@4"):
        assert rows.waits.all()
        assert rows.depth.tolist() == [1 + s // 2 for s in rows.sample]
    assert not any(rows.waits.any() for rows in calls(small, "mid/mcts@3"))


def test_critiques_belong_to_the_sample_that_they_are_about(small: RunDirectory) -> None:
    for rows in calls(small, "mid", GENERATION, "critic"):
        critiques = np.flatnonzero((rows.part == "critic") & (rows.kind == "generate")).tolist()
        assert len(critiques)
        assert not rows.assumed[critiques].any()
        for i in critiques:
            assert all(rows.part[j] == GENERATION for j in parents(rows, i))
        readings = np.flatnonzero((rows.part == "critic") & (rows.kind == "score")).tolist()
        assert rows.assumed[readings].all()
        assert all(set(parents(rows, i)) <= set(critiques) for i in readings)


def test_parts_of_a_pool_stand_by_themselves(small: RunDirectory) -> None:
    whole, some = calls(small, "mid"), calls(small, "mid", GENERATION, "last")
    for all_of_it, rows in zip(whole, some, strict=True):
        assert set(rows.part) == {GENERATION, "last"}
        kept = np.isin(all_of_it.part, [GENERATION, "last"])
        assert rows.context.tolist() == all_of_it.context[kept].tolist()
        for i in np.flatnonzero(rows.part == "last").tolist():
            assert all(rows.part[j] == GENERATION for j in parents(rows, i))
        for n in (1, 2, 4):
            first = rows.first(n)
            assert (first.part == GENERATION).sum() == n
            assert all(min(samples) < n for samples in first.samples)


def test_what_made_no_call_has_no_rows(small: RunDirectory) -> None:
    assert calls(small, "mid/nothing") == []
    assert calls(small, "mid", "nobody") == []
