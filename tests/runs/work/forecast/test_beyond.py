"""What cannot be counted is unknown, until a probe measures it; then the estimate is what a run really takes."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from metagen.cost import Usage
from metagen.journal import Row, SQLiteJournal
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.work import build, runner
from metagen.runs.work.forecast import show
from metagen.runs.work.forecast.estimate import Estimate, Part, estimate

Write = Callable[..., Path]
FIGURES = ("prefilled", "generated", "flops")
SEARCHES = ["adaptive", "rebase", "blockwise", "mcts"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # so that runs/ is its own


@pytest.fixture
def file(small: RunDirectory) -> Path:
    """The experiment of `small`: pools, searches and a critic, on four problems."""
    return small.root.parent / "small.yaml"


def shown(found: Estimate) -> str:
    out = StringIO()
    Console(file=out, width=110).print(show.render(found))
    return " ".join(out.getvalue().split())


def parts(found: Estimate) -> dict[str, Part]:
    assert len({part.name for part in found.parts}) == len(found.parts)
    return {part.name: part for part in found.parts}


def record(file: Path, root: Path, *sets: str) -> None:
    with build.open_setup(schema.load(file, sets=sets)) as setup:
        runner.run(setup, RunDirectory.at(root))


def rows_of(directory: RunDirectory) -> list[Row]:
    """All records of a run."""
    with SQLiteJournal(directory.journal, read_only=True) as journal:
        return [row for problem in journal.problems() for row in journal.of_problem(problem)]


def test_totals_are_unknown_where_a_strategy_decides_what_it_asks_for(file: Path) -> None:
    known = estimate(schema.load(file, sets=["grid.strategies=[majority, weighted]"]))
    found = estimate(schema.load(file))
    assert known.total.calls == known.counted.calls == 4 * 4 + 4 * 4 and not known.missing
    # A search asks for steps and their scores, and no n of it is the size of a pool.
    assert parts(found) == parts(known) and found.counted == known.counted
    names = [what.partition(":")[0].removeprefix("mid/").partition("@")[0] for what in found.missing]
    assert names == [*SEARCHES, "critic"]
    for name in ("calls", *FIGURES, "flops_2n", "seconds", "money"):
        assert getattr(found.total, name) is None and found.to_dict()["total"][name] is None
    assert found.to_dict()["counted"]["calls"] == 32 and found.seconds is None
    text = shown(found)
    assert "unknown in all; counted are at most 32 calls" in text and "total ? 0 ? ? ?" in text
    assert "? is unknown: --probe 2 runs two problems" in text
    alone = estimate(schema.load(file, sets=["grid.strategies=[rebase]"]))
    assert not alone.parts and "4 problems: unknown, since nothing can be counted" in shown(alone)


def test_an_earlier_run_tells_no_time_of_what_is_not_counted(file: Path, tmp_path: Path) -> None:
    record(file, tmp_path / "runs" / "small", "grid.strategies=[majority]")
    pools = schema.load(file, sets=["grid.strategies=[majority]", "grid.n=[8]"])
    assert estimate(pools).seconds is not None
    assert estimate(schema.load(file, sets=["grid.n=[8]"])).seconds is None


def test_a_probe_of_all_problems_counts_what_a_run_records(file: Path, small: RunDirectory) -> None:
    rows = rows_of(small)
    found = estimate(schema.load(file), probe=4)
    spent = Usage.sum(row.usage for row in rows)
    assert not found.missing and found.total.calls == len(rows)
    for name in FIGURES:
        assert getattr(found.total, name) == pytest.approx(getattr(spent, name), rel=0.02), name
    for name, part in parts(found).items():
        assert part.calls and (name in ("mid", "last") or "calls a problem, in 4 problems" in part.how[0])
    others = {"other texts, beyond pools", "other scores, beyond pools"}
    assert set(parts(found)) == {"mid", "last", "mid, beyond pools", "last, beyond pools", *others}
    assert found.seconds is not None and "the probe measured what cannot be counted" in shown(found)


def test_some_problems_stand_for_all(file: Path) -> None:
    two, four = (estimate(schema.load(file), probe=count) for count in (2, 4))
    beyond = "mid, beyond pools"
    assert 0 < parts(two)[beyond].calls != parts(four)[beyond].calls
    assert parts(two)[beyond].calls % 2 == 0, "twice what two problems took"
    least, most, _ = (int(word) for word in parts(two)[beyond].how[0].split() if word.isdecimal())
    assert 2 * least <= parts(two)[beyond].calls / 2 <= 2 * most and least < most
    fast = estimate(schema.load(file), probe=2, hardware="h200")
    assert parts(fast)[beyond].seconds > 0 and parts(fast)["last, beyond pools"].seconds > 0


def test_pools_alone_have_nothing_beyond(experiment_file: Write) -> None:
    found = estimate(schema.load(experiment_file()), probe=6)
    assert set(parts(found)) == {"small", "large", "judge"}


@pytest.mark.parametrize("limit", ["calls: 4", "generated: 48"])
def test_what_a_budget_cuts_or_refuses_is_no_work_beyond_a_pool(experiment_file: Write, limit: str) -> None:
    file = experiment_file(n="[8]", more=f"budget: {{{limit}}}\n")
    assert set(parts(estimate(schema.load(file), probe=6))) == {"small", "large", "judge"}


def test_what_is_recorded_is_left_out_of_a_probe(file: Path, small: RunDirectory) -> None:
    """Blockwise decoding has steps at the places of a pool: they are none of its samples."""
    found = estimate(schema.load(file), small.root, probe=4)
    assert found.total.calls == 0 and all(part.recorded for part in found.parts)
    assert all(getattr(found.total, name) == 0 for name in FIGURES) and "nothing is left to do" in shown(
        found
    )
    without = estimate(schema.load(file), small.root)
    assert parts(without)["mid"].calls == 0 and parts(without)["mid"].recorded == 16


def test_steps_say_nothing_of_the_length_of_a_completion(file: Path, tmp_path: Path) -> None:
    record(file, tmp_path / "runs" / "small", "grid.strategies=[blockwise]")
    found = estimate(schema.load(file, sets=["grid.strategies=[majority]"]))
    assert found.bounds and "max_tokens allows" in parts(found)["mid"].how[1]


def test_the_limit_of_a_probe_leaves_one_problem(file: Path) -> None:
    found = estimate(schema.load(file), probe=3, seconds=0.0)
    assert "the limit of the probe ended it after 1 of 3 problems" in found.notes
    assert parts(found)["mid, beyond pools"].how[0].endswith(" in 1 problem")
    many = estimate(schema.load(file), probe=3, seconds=1e6)
    assert "in 3 problems" in parts(many)["mid, beyond pools"].how[0]


def test_a_probe_that_fails_in_part_measures_nothing(experiment_file: Write) -> None:
    file = experiment_file(count=2)
    sets = ["strategies.search={kind: adaptive_consistency, n: 4}", "generators.small.fails_on=sum-1"]
    found = estimate(schema.load(file, sets=sets), probe=2)
    assert found.missing and found.total.calls is None and found.seconds is None
    assert any("the probe failed in part, so it tells neither time nor calls" in note for note in found.notes)


def test_the_cost_of_a_probe_is_told_before(file: Path, experiment_file: Write) -> None:
    plain = estimate(schema.load(experiment_file()))
    assert show.probe_cost(plain, 2) == "2 of 6 problems, at most 64 calls, 768 tokens generated, ? FLOPs"
    assert show.probe_cost(plain, 99).startswith("6 of 6 problems, at most 192 calls")
    told = show.probe_cost(estimate(schema.load(file)), 1)
    assert "1 of 4 problems, at most 8 calls" in told
    assert (
        "what cannot be counted before it runs: mid/adaptive@4, mid/rebase@4, mid/blockwise@2 and 2 more"
        in told
    )
