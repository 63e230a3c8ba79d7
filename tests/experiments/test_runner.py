"""Runs: one pool for all, nothing paid twice, errors that stay where they belong, budgets that hold."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from metagen.errors import JournalMismatch
from metagen.experiments import build, runner, schema
from metagen.experiments.directory import RunDirectory, State
from metagen.experiments.progress import Meter
from metagen.journal import SQLiteJournal
from metagen.scope import Scope
from metagen.sequence import Sequence

Calls = Callable[[], list[str]]
Write = Callable[..., Path]


def run(file: Path, root: Path, *sets: str, meter: Meter | None = None) -> State:
    with build.opened(schema.load(file, sets=sets)) as setup:
        return runner.run(setup, RunDirectory.at(root), meter)


def test_all_configurations_share_one_pool(experiment_file: Write, calls: Calls, tmp_path: Path) -> None:
    state = run(experiment_file(), tmp_path / "run")
    assert state.status == "complete"
    assert len(calls()) == 2 * 6 * 8
    assert len(set(calls())) == len(calls())
    assert (state.samples, state.recorded, state.problems) == (96, 96, 6)
    assert all(line.pooled for line in state.lines)
    candidates = pq.read_table(tmp_path / "run/candidates.parquet")
    assert candidates.num_rows == 96
    assert {"score.judge", "steps.judge", "score.oracle", "level", "key", "correct"} <= set(
        candidates.column_names
    )


def test_a_second_run_calls_nothing_and_says_the_same(
    experiment_file: Write, calls: Calls, tmp_path: Path
) -> None:
    file, root = experiment_file(), tmp_path / "run"
    run(file, root)
    names = ("candidates", "costs", "problems")
    before = {name: pq.read_table(root / f"{name}.parquet") for name in names}
    made = len(calls())
    meter = Meter()
    state = run(file, root, meter=meter)
    assert len(calls()) == made
    assert (state.samples, state.recorded) == (96, 0)
    assert meter.rate is None
    order = [("place", "ascending")]
    for name in names:
        after = pq.read_table(root / f"{name}.parquet")
        keys = order + [
            (c, "ascending") for c in ("generator", "part", "n", "sample") if c in after.column_names
        ]
        assert after.sort_by(keys) == before[name].sort_by(keys)


def test_more_candidates_pay_only_for_the_new_ones(
    experiment_file: Write, calls: Calls, tmp_path: Path
) -> None:
    file, root = experiment_file(), tmp_path / "run"
    run(file, root, "grid.n=[4]")
    assert len(calls()) == 2 * 6 * 4
    run(file, root, "grid.n=[1, 8]")
    assert len(set(calls())) == len(calls()) == 2 * 6 * 8


def test_a_strategy_finds_the_pool_in_the_journal(
    experiment_file: Write, calls: Calls, tmp_path: Path
) -> None:
    file, root = experiment_file(), tmp_path / "run"
    run(file, root)
    made = len(calls())

    async def solve(setup: build.Setup, journal: SQLiteJournal) -> None:
        for configuration in setup.configurations:
            for problem in setup.task.problems():
                scope = Scope.root(problem.id, seed=3, journal=journal)
                strategy = setup.strategy(configuration)
                await strategy.generate(Sequence.of(problem.prompt), scope=scope)

    with build.opened(schema.load(file)) as setup, SQLiteJournal(root / "journal.sqlite", seed=3) as journal:
        asyncio.run(solve(setup, journal))
    assert len(calls()) == made


def test_under_a_budget_each_configuration_runs_by_itself(
    experiment_file: Write, calls: Calls, tmp_path: Path
) -> None:
    file = experiment_file(more="budget: {generated: 100}\n")
    state = run(file, tmp_path / "run")
    outcomes = pq.read_table(tmp_path / "run/outcomes.parquet").to_pylist()
    assert len(outcomes) == 6 * len(state.lines) == 6 * 26
    assert not any(line.pooled for line in state.lines)
    assert max(o["generated"] for o in outcomes) <= 100
    assert any(o["exhausted"] for o in outcomes)
    made = len(calls())
    assert run(file, tmp_path / "run").recorded == 0
    assert len(calls()) == made


def test_an_error_of_one_problem_leaves_the_others_alone(experiment_file: Write, tmp_path: Path) -> None:
    state = run(experiment_file(), tmp_path / "run", "generators.large.fails_on=sum-2")
    (failure,) = state.failures
    assert (failure.problem, failure.part, failure.kind, failure.mendable) == (
        "sum-2",
        "large",
        "PromptError",
        True,
    )
    assert "make it shorter" in failure.message
    assert state.status == "complete"
    candidates = pq.read_table(tmp_path / "run/candidates.parquet").to_pylist()
    assert {(c["problem"], c["generator"]) for c in candidates} == {
        (f"sum-{i}", name) for i in range(6) for name in ("small", "large")
    } - {("sum-2", "large")}


def test_a_fault_in_a_part_ends_the_run_and_is_marked(
    experiment_file: Write, calls: Calls, tmp_path: Path
) -> None:
    class Broken(RuntimeError): ...

    file, root = experiment_file(), tmp_path / "run"
    with build.opened(schema.load(file)) as setup:

        async def grade(*_: object) -> list[float]:
            raise Broken

        setup.task.grade = grade  # type: ignore[method-assign, assignment]
        with pytest.raises(Broken):
            runner.run(setup, RunDirectory.at(root))
    assert RunDirectory(root).state().status == "failed"
    assert not list(root.glob("*.parquet*"))
    lost = len(calls())
    assert run(file, root).status == "complete"
    assert len(set(calls())) == len(calls()) >= lost


def test_another_seed_or_other_data_are_refused(experiment_file: Write, tmp_path: Path) -> None:
    file, root = experiment_file(), tmp_path / "run"
    run(file, root)
    with pytest.raises(JournalMismatch, match="seed 3, this run has 4"):
        run(file, root, "seed=4")
    with pytest.raises(JournalMismatch, match="was another one"):
        run(file, root, "task.seed=9")


def test_the_state_survives_its_file(experiment_file: Write, tmp_path: Path) -> None:
    state = run(experiment_file(), tmp_path / "run", "generators.large.fails_on=sum-2")
    assert replace(RunDirectory(tmp_path / "run").state(), seconds=state.seconds) == state
    assert schema.load(tmp_path / "run/experiment.yaml").name == "sums"


class TestMeter:
    """The estimate of time: by fresh work only."""

    def test_journal_hits_do_not_fake_the_rate(self) -> None:
        now = [0.0]
        meter = Meter(lambda: now[0], window=30.0)
        meter.begin(1000, 10)
        now[0] = 1.0
        meter.advance(500, 0)
        assert (meter.rate, meter.left) == (None, None)
        now[0] = 11.0
        meter.advance(100, 100)
        assert meter.rate == pytest.approx(10.0)
        assert meter.left == pytest.approx(40.0)

    def test_the_rate_is_of_the_recent_past(self) -> None:
        now = [0.0]
        meter = Meter(lambda: now[0], window=10.0)
        meter.begin(1000, 10)
        for second in range(1, 101):
            now[0] = float(second)
            meter.advance(*((5, 5) if second <= 50 else (1, 1)))
        assert meter.rate == pytest.approx(1.0)
        assert meter.left == pytest.approx(700.0)

    def test_at_the_end_nothing_is_left(self) -> None:
        meter = Meter(lambda: 1.0)
        meter.begin(8, 1)
        meter.advance(8, 0)
        assert meter.left == 0.0
