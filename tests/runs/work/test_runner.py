"""Runs: one pool for all, nothing paid twice, errors that stay where they belong, budgets that hold."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from metagen.cost import Usage
from metagen.errors import InputError, JournalMismatch
from metagen.journal import ATTEMPT, SQLiteJournal
from metagen.runs.declare import schema
from metagen.runs.declare.subset import Subset
from metagen.runs.directory import Failure, RunDirectory, State
from metagen.runs.page import report, show
from metagen.runs.work import build, runner, work
from metagen.runs.work.progress import Meter
from metagen.runs.work.window import shuffle
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.tasks.base import Problem, Task

Calls = Callable[[], list[str]]
Write = Callable[..., Path]


def run(file: Path, root: Path, *sets: str, meter: Meter | None = None) -> State:
    with build.open_setup(schema.load(file, sets=sets)) as setup:
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


def test_a_run_goes_on_though_an_attempt_beyond_its_pool_was_lost(
    experiment_file: Write, calls: Calls, tmp_path: Path
) -> None:
    """What a larger pool, or a strategy that draws elsewhere, had under way when the process was killed."""
    file, root = experiment_file(), tmp_path / "run"
    run(file, root)
    made, costs = len(calls()), pq.read_table(root / "costs.parquet")

    async def lose() -> None:
        with SQLiteJournal(root / "journal.sqlite", seed=3) as journal:
            row = next(row for row in journal.of_problem("sum-0") if row.kind == "generate")
            worst = Usage(generated=24, calls=1)
            lost = replace(row, usage=worst, physical=worst, status="open", limit=ATTEMPT, payload=None)
            await journal.record([
                replace(lost, key=b"beyond", index=40, payload={"label": "small"}),
                replace(lost, key=b"elsewhere", path="revise/2", index=40),
            ])  # fmt: skip

    asyncio.run(lose())
    state = run(file, root)
    assert state.status == "complete" and not state.failures and len(calls()) == made
    assert sorted(pq.read_table(root / "costs.parquet").to_pylist(), key=repr) == sorted(
        costs.to_pylist(), key=repr
    )


def test_what_one_configuration_lost_is_not_charged_to_others(
    experiment_file: Write, calls: Calls, tmp_path: Path
) -> None:
    file, root = experiment_file(more="budget: {generated: 100}\n"), tmp_path / "run"
    run(file, root)
    before = {
        (o["problem"], o["configuration"]): o for o in pq.read_table(root / "outcomes.parquet").to_pylist()
    }
    label = "small/majority@8"

    async def lose() -> None:
        with SQLiteJournal(root / "journal.sqlite", seed=3) as journal:
            row = next(row for row in journal.of_problem("sum-0") if row.kind == "generate")
            worst = Usage(generated=90, calls=4)
            lost = replace(row, key=b"lost", index=40, payload={"label": label}, limit=ATTEMPT, status="open")
            await journal.record([replace(lost, usage=worst, physical=worst)])

    asyncio.run(lose())
    run(file, root)
    for o in pq.read_table(root / "outcomes.parquet").to_pylist():
        old = before[o["problem"], o["configuration"]]
        if (o["problem"], o["configuration"]) == ("sum-0", label):
            assert o["lost"] == 1 and o["generated"] < old["generated"] and o["exhausted"]
        else:
            assert o == old


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

    with (
        build.open_setup(schema.load(file)) as setup,
        SQLiteJournal(root / "journal.sqlite", seed=3) as journal,
    ):
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
    with build.open_setup(schema.load(file)) as setup:

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


def test_what_was_made_before_a_fault_is_there_as_after_an_interrupt(
    experiment_file: Write, tmp_path: Path
) -> None:
    class Broken(RuntimeError): ...

    root = tmp_path / "run"
    with build.open_setup(schema.load(experiment_file())) as setup:
        whole = setup.task.grade

        async def grade(problem: Any, sequences: Any) -> list[float]:
            if problem.id == "sum-4":
                raise Broken
            return await whole(problem, sequences)

        # One task grades so, and not its class.
        setup.task.grade = grade  # type: ignore[method-assign, assignment]
        with pytest.raises(Broken):
            runner.run(setup, RunDirectory.at(root))
    state = RunDirectory(root).state()
    assert state.status == "interrupted" and state.samples > 0


def test_another_seed_or_other_data_are_refused(experiment_file: Write, tmp_path: Path) -> None:
    file, root = experiment_file(), tmp_path / "run"
    run(file, root)
    with pytest.raises(JournalMismatch, match="seed 3, this run has 4"):
        run(file, root, "seed=4")
    with pytest.raises(JournalMismatch, match="was another one"):
        run(file, root, "task.seed=9")


def contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("seed=4", "seed 3, this run has 4"),
        ("task.seed=9", "was another one"),
        ("task.label=other", "holds other problems"),
    ],
)
def test_a_refused_run_leaves_no_trace(
    experiment_file: Write, tmp_path: Path, change: str, words: str
) -> None:
    file, root = experiment_file(), tmp_path / "run"
    run(file, root)
    before = contents(root)
    with pytest.raises(JournalMismatch, match=words):
        run(file, root, "name=other", "grid.n=[1]", change)
    assert contents(root) == before


def test_another_name_and_grid_over_the_same_problems_go_on(
    experiment_file: Write, calls: Calls, tmp_path: Path
) -> None:
    file, root = experiment_file(), tmp_path / "run"
    run(file, root)
    made = len(calls())
    assert run(file, root, "name=other", "grid.n=[4]", "task.count=3").status == "complete"
    assert len(calls()) == made


def test_tables_of_an_earlier_run_are_not_taken_for_those_of_an_interrupted_one(
    experiment_file: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, directory = experiment_file(), RunDirectory(tmp_path / "run")
    run(file, directory.root)
    report.publish(directory)

    def interrupt(work: Coroutine[object, object, None]) -> None:
        work.close()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, build.open_setup(schema.load(file, sets=["grid.n=[16]"])) as setup:
        patch.setattr("metagen.runs.work.solve.wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            runner.run(setup, directory)
    assert not [p for p in directory.root.iterdir() if p.suffix in (".parquet", ".csv")]
    # The journal holds 8 of the 16 samples that each pool now has.
    with pytest.raises(InputError, match=r"has not finished any part of its work.*metagen resume "):
        report.publish(directory)
    with pytest.raises(InputError, match=r"nothing on problem 'sum-0' yet: no part .* metagen resume "):
        show.show(directory, "sum-0")


def test_a_run_that_was_killed_while_its_tables_appeared_is_not_finished(
    experiment_file: Write, tmp_path: Path
) -> None:
    state = run(experiment_file(), tmp_path / "run")
    directory = RunDirectory(tmp_path / "run")
    directory.save(replace(state, status="running"))
    with pytest.raises(InputError, match=r"not finished \(running, or killed\); .*metagen resume"):
        directory.final_state()


def test_half_of_a_surrogate_pair_ends_nothing(experiment_file: Write, tmp_path: Path) -> None:
    state = run(experiment_file(), tmp_path / "run", "generators.small.surrogates=true")
    assert (state.status, state.failures) == ("complete", ())
    texts = pq.read_table(tmp_path / "run/candidates.parquet")["text"].to_pylist()
    assert any(text.startswith("\\ud800step") for text in texts)
    failure = Failure("p", "g", "PromptError", "\ud800", True)
    RunDirectory(tmp_path / "run").save(replace(state, failures=(failure,)))
    assert RunDirectory(tmp_path / "run").state().failures == (failure,)


def test_a_run_that_delivers_nothing_has_failed(experiment_file: Write, tmp_path: Path) -> None:
    fails = ("generators.small.fails_on=sum-0", "generators.large.fails_on=sum-0")
    state = run(experiment_file(count=1), tmp_path / "run", *fails)
    assert (state.status, state.samples, len(state.failures)) == ("failed", 0, 2)
    console = Console(file=StringIO(), width=110)
    console.print(report.publish(RunDirectory(tmp_path / "run")))
    text = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert "Nothing was solved: every part of the work failed. Mend" in text
    assert "metagen resume" in text
    assert "unharmed" not in text


def test_a_verifier_costs_the_same_beside_another_of_its_engine(tmp_path: Path) -> None:
    """Each is accounted for as if it were the only one."""
    file = tmp_path / "two.yaml"
    file.write_text(
        "name: two\ntask: {kind: arithmetic, levels: [1], per_level: 1}\n"
        "engines: {cpu: {kind: torch, model: tiny-0.1m}, judge: {kind: torch, model: tiny-prm}}\n"
        "generators: {tiny: {engine: cpu, max_tokens: 40}}\n"
        "verifiers:\n  prm: {kind: prm, engine: judge}\n"
        "  orm: {kind: orm, engine: judge, tags: {tag: <step>, positive: <+>, negative: <->}}\n"
        "strategies:\n  steps: {kind: best_of_n, verifier: prm}\n  whole: {kind: best_of_n, verifier: orm}\n"
        "grid: {n: [2]}\n"
    )

    def cost(root: Path, *sets: str) -> list[tuple[float, float]]:
        run(file, root, *sets)
        rows = pq.read_table(root / "costs.parquet").to_pylist()
        return [(row["prefilled"], row["flops"]) for row in rows if row["part"] == "orm"]

    assert cost(tmp_path / "both") == cost(tmp_path / "alone", "grid.strategies=[whole]")


def test_the_state_survives_its_file(experiment_file: Write, tmp_path: Path) -> None:
    state = run(experiment_file(), tmp_path / "run", "generators.large.fails_on=sum-2")
    assert replace(RunDirectory(tmp_path / "run").state(), seconds=state.seconds) == state
    assert schema.load(tmp_path / "run/experiment.yaml").name == "sums"


def test_a_run_works_where_an_event_loop_runs_as_in_a_notebook(
    experiment_file: Write, calls: Calls, tmp_path: Path
) -> None:
    async def cell() -> State:
        return run(experiment_file(), tmp_path / "run")

    assert asyncio.run(cell()).status == "complete"
    assert len(calls()) == 2 * 6 * 8


class _Stream(Subset):
    """Problems that are made when they are taken; counts how many are out."""

    def __init__(self, task: Task, count: int) -> None:
        super().__init__(task, ())
        self.count, self.taken = count, 0

    def problems(self) -> Iterator[Problem]:
        self.taken = 0
        for i in range(self.count):
            self.taken += 1
            yield Problem(Prompt(f"sum-{i}", text="1+1=?\n"), "2")


def test_problems_are_taken_a_window_at_a_time(
    experiment_file: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window, concurrency, count = 10, 3, 60
    monkeypatch.setattr(work, "shuffle", partial(shuffle, window=window))
    meter, ahead = Meter(), []
    file = experiment_file(n="[1]")
    with build.open_setup(schema.load(file, sets=["grid.strategies=[single]"])) as setup:
        stream = _Stream(setup.task, count)

        async def grade(*given: Any) -> list[float]:
            ahead.append(stream.taken - meter.problems)
            return [1.0]

        stream.grade = grade  # type: ignore[method-assign, assignment]
        state = runner.run(
            replace(setup, task=stream, problems=count), RunDirectory.at(tmp_path / "run"), meter
        )
    assert (state.samples, state.failures, meter.total, meter.done) == (2 * count, (), 2 * count, 2 * count)
    assert len(ahead) == 2 * count
    assert window <= max(ahead) <= window + concurrency
    table = pq.read_table(tmp_path / "run/problems.parquet").sort_by("place").to_pylist()
    assert [(row["place"], row["problem"]) for row in table] == [(i, f"sum-{i}") for i in range(count)]


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

    def test_while_most_comes_from_the_journal_nobody_knows_the_end(self) -> None:
        now = [0.0]
        meter = Meter(lambda: now[0], window=10.0)
        meter.begin(10_000, 10)
        for second in range(1, 61):
            now[0] = float(second)
            meter.advance(*((105, 5) if second <= 30 else (20, 20)))
            assert (meter.rate is None) == (second < 39)
        assert meter.rate == pytest.approx(20.0)
        assert meter.left == pytest.approx((10_000 - meter.done) / 20)

    def test_the_rate_is_of_the_recent_past(self) -> None:
        now = [0.0]
        meter = Meter(lambda: now[0], window=10.0)
        meter.begin(1000, 10)
        for second in range(1, 101):
            now[0] = float(second)
            meter.advance(*((5, 5) if second <= 50 else (1, 1)))
        assert meter.rate == pytest.approx(1.0)
        assert meter.left == pytest.approx(700.0)

    @pytest.mark.parametrize("period", [3.0, 40.0, 100.0])
    def test_bursts_are_never_taken_for_a_faster_run(self, period: float) -> None:
        now = [0.0]
        meter = Meter(lambda: now[0], window=30.0)
        meter.begin(16_000, 100)
        for step in range(1, 2000):
            now[0] = step / 2
            if now[0] % period == 0:
                meter.advance(16, 16)
            if now[0] < period:
                assert (meter.rate, meter.left) == (None, None)
            else:
                assert meter.rate is not None and meter.left is not None
                assert 0.5 <= meter.rate / (16 / period) <= 1.0 + 1e-9
                assert meter.left >= (meter.total - meter.done) / (16 / period) - 1e-6

    def test_what_stalls_slows_down(self) -> None:
        now = [0.0]
        meter = Meter(lambda: now[0], window=10.0)
        meter.begin(1000, 10)
        for second in range(1, 21):
            now[0] = float(second)
            meter.advance(5, 5)
        rates = []
        for second in (20, 30, 60, 600):
            now[0] = float(second)
            rates.append(meter.rate or 0.0)
        assert rates == sorted(rates, reverse=True)
        assert rates[-1] < 0.01

    def test_a_fast_run_keeps_few_moments(self) -> None:
        now = [0.0]
        meter = Meter(lambda: now[0], window=10.0)
        meter.begin(100_000, 1)
        for step in range(1, 50_001):
            now[0] = step / 2000
            meter.advance(1, 1)
        assert meter.rate == pytest.approx(2000, rel=1e-3)
        assert meter.left == pytest.approx(25, rel=1e-3)
        assert len(meter._marks) <= 2 * 1000

    def test_at_the_end_nothing_is_left(self) -> None:
        meter = Meter(lambda: 1.0)
        meter.begin(8, 1)
        meter.advance(8, 0)
        assert meter.left == 0.0
