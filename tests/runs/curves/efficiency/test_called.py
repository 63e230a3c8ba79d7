"""The table of calls of embedded models: what each waited for is what it read."""

import numpy as np

from metagen.runs.curves.efficiency.called import Called
from metagen.runs.directory import RunDirectory
from metagen.runs.work.calls import GENERATION


def calls(directory: RunDirectory, name: str, *parts: str) -> list[Called]:
    blocks = Called.blocks(directory, name, parts)
    assert blocks is not None
    return [rows for block in blocks for _, rows in block.problems()]


def parents(rows: Called, i: int) -> list[int]:
    return [int(j) for j in rows.graph.of(i)]


def behind(rows: Called, i: int) -> set[int]:
    """All that a call waits for."""
    found, todo = set[int](), [i]
    while todo:
        at = todo.pop()
        lesser = np.flatnonzero(rows.depth < rows.depth[at]).tolist() if rows.waits[at] else []
        new = {*parents(rows, at), *lesser} - found
        found |= new
        todo += new
    return found


def test_a_sample_goes_on_from_a_call_that_it_waited_for(small: RunDirectory) -> None:
    for name in ("mid/rebase@4", "mid/blockwise@2", "mid/mcts@3"):
        for rows in calls(small, name):
            assert not rows.assumed.any()
            for i in np.flatnonzero(rows.kind == "generate").tolist():
                above = [j for j in behind(rows, i) if rows.kind[j] == "generate"]
                if not above:
                    assert rows.depth[i] == 1
                    continue
                assert any(rows.context[i] == rows.context[j] + rows.generated[j] for j in above)


def test_a_score_waits_for_the_samples_of_its_text_and_who_goes_on_has_seen_it(small: RunDirectory) -> None:
    for rows in calls(small, "mid/rebase@4"):
        for i in np.flatnonzero(rows.kind == "score").tolist():
            assert parents(rows, i)
            assert all(rows.kind[j] == "generate" for j in parents(rows, i))
        going = [i for i in np.flatnonzero(rows.kind == "generate").tolist() if behind(rows, i)]
        assert going
        assert all(any(rows.kind[j] == "score" for j in behind(rows, i)) for i in going)


def test_searches_by_level_and_batches_wait_for_what_came_before(small: RunDirectory) -> None:
    for rows in calls(small, "mid/rebase@4"):
        names = [path.split("/")[2] for path in rows.path]
        scores = rows.kind == "score"
        assert rows.depth.tolist() == [2 * n.count(".") + 1 + s for n, s in zip(names, scores, strict=True)]
        for i in np.flatnonzero(~scores).tolist():
            assert behind(rows, i) == set(np.flatnonzero(rows.depth < rows.depth[i]).tolist())
    for rows in calls(small, "mid/adaptive@4"):
        assert rows.depth.tolist() == [1 + s // 2 for s in rows.sample]
        for i in range(len(rows)):
            assert behind(rows, i) == set(np.flatnonzero(rows.depth < rows.depth[i]).tolist())


def test_a_choice_by_scores_of_other_branches_waits_for_them(small: RunDirectory) -> None:
    seen = 0
    for rows in calls(small, "mid/mcts@3"):
        for i in np.flatnonzero(rows.kind == "generate").tolist():
            branch = rows.path[i].rpartition("/")[2]
            others = [j for j in behind(rows, i) if rows.kind[j] == "score" and branch not in rows.path[j]]
            seen += bool(others)
    assert seen


def test_critiques_belong_to_the_sample_that_they_are_about(small: RunDirectory) -> None:
    for rows in calls(small, "mid", GENERATION, "critic"):
        critiques = np.flatnonzero((rows.part == "critic") & (rows.kind == "generate")).tolist()
        assert len(critiques)
        assert not rows.assumed[critiques].any()
        for i in critiques:
            assert all(rows.part[j] == GENERATION for j in parents(rows, i))
        readings = np.flatnonzero((rows.part == "critic") & (rows.kind == "score")).tolist()
        assert not rows.assumed[readings].any()
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
