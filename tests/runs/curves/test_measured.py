"""Results: averages over subsets that agree with the strategies themselves, and costs that add up."""

import math
from collections.abc import Callable
from dataclasses import astuple, replace
from io import StringIO
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from metagen.cost import ModelShape, Price, Usage, decode_flops, prefill_flops
from metagen.errors import InputError
from metagen.journal import Row
from metagen.runs.curves import collect, curve_costs
from metagen.runs.curves import measured as results
from metagen.runs.curves.measured import Measured, Pool, Results, derive, most_accurate
from metagen.runs.declare import schema
from metagen.runs.directory import Cell, RunDirectory, State
from metagen.runs.page import bought, figure, report
from metagen.runs.table import costs
from metagen.runs.table.problem import choose
from metagen.runs.table.tables import TableWriter, read
from metagen.runs.work import build, runner
from metagen.sequence import Prompt, Sequence

Write = Callable[..., Path]
SHAPE = ModelShape(layers=2, width=64, heads=2, kv_heads=2, head_dim=32, ff=192, vocab=104, tied=True)


def run(file: Path, root: Path, *sets: str) -> tuple[State, Results]:
    with build.open_setup(schema.load(file, sets=sets)) as setup:
        state = runner.run(setup, RunDirectory.at(root))
    return state, derive(RunDirectory(root), state.lines)


@pytest.fixture
def pooled(experiment_file: Write, tmp_path: Path) -> tuple[State, Results, RunDirectory]:
    root = tmp_path / "run"
    state, results = run(experiment_file(count=12, n="[1, 4, 16]"), root)
    return state, results, RunDirectory(root)


def test_one_candidate_is_one_candidate_whatever_the_strategy(
    pooled: tuple[State, Results, RunDirectory],
) -> None:
    _, results, _ = pooled
    for generator in ("small", "large"):
        at_1 = {
            m.accuracy
            for m in results.configurations
            if m.cell.generator == generator and (m.cell.n or 1) == 1
        }
        assert max(at_1) - min(at_1) < 1e-9


@pytest.mark.parametrize("table", ["costs", "outcomes"])
def test_a_table_of_an_older_version_is_refused_with_a_remedy(
    pooled: tuple[State, Results, RunDirectory], table: str
) -> None:
    state, _, directory = pooled
    path = directory.table(table)
    pq.write_table(pq.read_table(path).drop_columns(["forced"]), path)
    lines = [replace(line, pooled=table == "costs") for line in state.lines]
    with pytest.raises(
        InputError, match=rf"{table}\.parquet' has no column 'forced'.* metagen run .*experiment\.yaml"
    ):
        derive(directory, lines)


def test_all_candidates_give_what_the_strategy_itself_chooses(
    pooled: tuple[State, Results, RunDirectory], experiment_file: Write
) -> None:
    """At n = N there is one subset. Where nothing ties, its average is the strategy's own choice on the pool."""
    state, _, directory = pooled
    # A budget that never binds: the same strategies, run by themselves on the same journal.
    file = experiment_file(count=12, n="[1, 4, 16]", more="budget: {generated: 1000000}\n")
    direct_state, _ = run(file, directory.root)
    assert direct_state.recorded == 0
    outcomes = pq.read_table(directory.table("outcomes")).sort_by("place").to_pylist()
    run(experiment_file(count=12, n="[1, 4, 16]"), directory.root)
    compared = 0
    for line in state.lines:
        if line.n != 16:
            continue
        accuracy, _ = Pool.of(directory, line.generator).accuracy(line.kind, 16, line.verifier)
        for value, outcome in zip(
            accuracy, (o for o in outcomes if o["configuration"] == line.name), strict=True
        ):
            if value in (0.0, 1.0):  # else a tie, shared evenly
                assert bool(value) == outcome["correct"], (line.name, outcome["problem"])
                compared += 1
    assert compared > 80


def test_the_page_of_a_problem_shows_what_strategies_choose(
    pooled: tuple[State, Results, RunDirectory], experiment_file: Write
) -> None:
    state, _, directory = pooled
    candidates = pq.read_table(directory.table("candidates")).sort_by("sample").to_pylist()
    salts = {p["problem"]: p["salt"] for p in pq.read_table(directory.table("problems")).to_pylist()}
    file = experiment_file(count=12, n="[1, 4, 16]", more="budget: {generated: 1000000}\n")
    run(file, directory.root)
    for outcome in pq.read_table(directory.table("outcomes")).to_pylist():
        line = next(line for line in state.lines if line.name == outcome["configuration"])
        problem = outcome["problem"]
        pool = [c for c in candidates if (c["problem"], c["generator"]) == (problem, line.generator)][
            : line.n or 1
        ]
        assert pool[choose(pool, line, salts[problem])]["text"] == outcome["text"]


def test_the_files_hold_what_was_measured(pooled: tuple[State, Results, RunDirectory]) -> None:
    state, results, directory = pooled
    results.write(directory.root)
    table = pq.read_table(directory.root / "configurations.parquet").to_pylist()
    for derived in ("configurations", "levels"):
        path = directory.root / f"{derived}.parquet"
        assert read(path, ["accuracy"]).equals(pq.read_table(path, columns=["accuracy"]))
    assert [row["configuration"] for row in table] == [line.name for line in state.lines]
    assert (directory.root / "levels.csv").read_text().count("\n") == 1 + len(state.lines) * 3
    for row in table:
        assert row["low"] <= row["accuracy"] <= row["high"]
        assert row["how"] == "average over subsets"
        assert row["oracle"] == ("/pass@" in row["configuration"])
        assert row["flops"] is None  # functions have no shape
    (single,) = [row for row in table if row["configuration"] == "small/single"]
    texts = [
        c["text"]
        for c in pq.read_table(directory.table("candidates")).to_pylist()
        if c["generator"] == "small"
    ]
    assert single["generated"] == pytest.approx(np.mean([len(text) for text in texts]))


def test_a_configuration_without_a_finished_problem_is_left_out(
    experiment_file: Write, tmp_path: Path
) -> None:
    state, results = run(experiment_file(count=1), tmp_path / "run", "generators.large.fails_on=sum-0")
    assert {m.cell.generator for m in results.configurations} == {"small"}
    assert results.missing(state.problems, state.lines) == 1
    assert results.missing(state.problems, [m.cell for m in results.configurations]) == 0


def configuration(strategy: str, accuracy: float, problems: int) -> Measured:
    costs = ("prefilled", "generated", "tokens", "flops", "flops_2n", "verifier_flops", "money", "seconds")
    return Measured(
        cell=Cell(f"g/{strategy}", "g", strategy, strategy), accuracy=accuracy, low=math.nan, high=math.nan,
        error=0.0, stderr=math.nan, problems=problems, **dict.fromkeys(costs, 1.0),
    )  # fmt: skip


def test_what_few_of_the_problems_have_is_the_best_of_nothing() -> None:
    many, half, few = configuration("a", 0.6, 100), configuration("b", 0.7, 50), configuration("c", 1.0, 49)
    assert most_accurate([many, few]) is many and most_accurate([many, few, half]) is half
    assert [point.label for point in bought.points([many, few], "flops")] == ["g/a"]
    assert [top for _, top, _ in figure.accuracies_by_size([many, few])] == [0.6]


def test_what_a_judge_writes_is_not_the_generators(experiment_file: Write, tmp_path: Path) -> None:
    file = experiment_file(count=2, n="[2]", more="budget: {generated: 1000000}\n")
    state, _ = run(file, tmp_path / "run")
    path = RunDirectory(tmp_path / "run").table("outcomes")
    rows = pq.read_table(path).to_pylist()
    judged = [{**row, "generated": row["generated"] + 7, "verifier_generated": 7.0} for row in rows]
    pq.write_table(pa.Table.from_pylist(judged, schema=pq.read_schema(path)), path)
    by_name = {
        m.cell.name: m.generated for m in derive(RunDirectory(tmp_path / "run"), state.lines).configurations
    }
    for name, generated in by_name.items():
        mine = [row["generated"] for row in rows if row["configuration"] == name]
        assert generated == pytest.approx(np.mean(mine))
    older = pa.Table.from_pylist(judged).drop_columns(["verifier_generated", "verifier_calls"])
    pq.write_table(older, path)
    assert {m.generated for m in derive(RunDirectory(tmp_path / "run"), state.lines).configurations} != {None}
    unknown = older.set_column(
        older.schema.get_field_index("verifier_prefilled"), "verifier_prefilled", pa.array([1.0] * len(older))
    )
    pq.write_table(unknown, path)
    assert {m.generated for m in derive(RunDirectory(tmp_path / "run"), state.lines).configurations} == {None}


@pytest.mark.parametrize("verifier", [None, "judge"])
def test_what_ends_early_costs_the_samples_that_it_drew(
    verifier: str | None, experiment_file: Write, tmp_path: Path
) -> None:
    kind = "adaptive_consistency" if verifier is None else "until_sure"
    more = "" if verifier is None else ", verifier: judge, share: 0.5, mass: 0.5"
    file = experiment_file(count=4, n="[2]")
    state, _ = run(file, tmp_path / "run", f"strategies={{early: {{kind: {kind}, n: 12{more}}}}}")
    directory = RunDirectory(tmp_path / "run")
    for line in state.lines:
        spent, _ = curve_costs.direct(directory, line.name, {}, {})
        table = pq.read_table(directory.table("outcomes"))
        rows = [row for row in table.to_pylist() if row["configuration"] == line.name]
        drawn = [row["calls"] - row["verifier_calls"] for row in sorted(rows, key=lambda row: row["place"])]
        assert spent["samples"].tolist() == drawn and 1 <= min(drawn) < 12
        (line_curve,) = (c for c in collect.of_run(directory).curves if c.generator == line.generator)
        assert line_curve.costs["samples"].tolist() == [drawn]


# ------------------------------------------------------------------------------------------------ eligibility


def a_pool(
    root: Path, keys: list[str | None], correct: list[bool], eligible: list[bool], scores: list[float | None]
) -> Pool:
    """A pool of one problem, through its files."""
    columns = zip(keys, correct, eligible, scores, strict=True)
    rows = [
        {
            "problem": "p",
            "place": 0,
            "generator": "g",
            "sample": i,
            "key": k,
            "correct": c,
            "eligible": e,
            "score.v": s,
        }
        for i, (k, c, e, s) in enumerate(columns)
    ]
    with TableWriter(root, ["v"]) as tables:
        tables.add("candidates", rows)
    return Pool.of(RunDirectory(root), "g")


def test_what_is_cut_or_has_no_answer_never_beats_what_has_one(tmp_path: Path) -> None:
    pool = a_pool(
        tmp_path,
        ["1", "1", "1", "2"],
        [False, False, False, True],
        [False, False, False, True],
        [0.9, 0.9, 0.9, 0.1],
    )
    for kind in ("majority", "best_of_n", "weighted"):
        assert pool.accuracy(kind, 4, "v")[0] == [1.0]
        # Of two: the right one is there in half of the subsets; else all are cut, and wrong.
        assert pool.accuracy(kind, 2, "v")[0] == pytest.approx([0.5])


def test_where_nothing_is_eligible_everything_is(tmp_path: Path) -> None:
    pool = a_pool(tmp_path, ["1", "2", "2"], [True, False, False], [False] * 3, [0.9, 0.1, 0.2])
    assert pool.accuracy("best_of_n", 3, "v")[0] == [1.0]
    assert pool.accuracy("majority", 3)[0] == [0.0]


def test_no_score_is_worse_than_any_and_votes_nothing(tmp_path: Path) -> None:
    pool = a_pool(tmp_path, ["1", "2"], [True, False], [True, True], [None, 0.0])
    assert pool.accuracy("best_of_n", 2, "v")[0] == [0.0]
    pool = a_pool(tmp_path, ["1", "1", "2"], [True, True, False], [True] * 3, [None, None, 0.1])
    assert pool.accuracy("weighted", 3, "v")[0] == [0.0]


# ------------------------------------------------------------------------------------------------ costs


class Maker:
    """What a generator or verifier tells about its model."""

    class Engine:
        shape = SHAPE

    engine, price = Engine(), None


def sample_usage(i: int, generated: int, prompt: int = 20) -> Usage:
    flops = decode_flops(SHAPE, generated, prompt) + (prefill_flops(SHAPE, prompt) if i == 0 else 0)
    return Usage(
        prefilled=prompt if i == 0 else 0, cached=0 if i == 0 else prompt, generated=generated, calls=1, flops=flops
    )  # fmt: skip


def test_generation_pays_the_prompt_once_and_each_candidate_its_own() -> None:
    lengths = [5, 9, 1, 30]
    part = costs.generation([sample_usage(i, g) for i, g in enumerate(lengths)], Maker)
    for n in (1, 2, 3, 4):
        expected = part.expected_usage(n)
        assert expected["prefilled"] == pytest.approx(20)
        assert expected["cached"] == pytest.approx(20 * (n - 1))
        assert expected["calls"] == pytest.approx(n)
        subsets = [sum(lengths[i] for i in s) for s in combinations(range(4), n)]
        assert expected["generated"] == pytest.approx(np.mean(subsets))
        flops = [sum(decode_flops(SHAPE, lengths[i], 20) for i in s) for s in combinations(range(4), n)]
        assert expected["flops"] == pytest.approx(prefill_flops(SHAPE, 20) + np.mean(flops))


def test_equal_candidates_are_scored_once() -> None:
    prompt = Prompt("p", text="x")
    candidates = [Sequence(prompt, text=t) for t in ("a", "b", "a", "a", "c")]
    prices = {"a": 7, "b": 100, "c": 1000}
    usages = {
        t: Usage(prefilled=prices[t] + (50 if t == "a" else 0), cached=0 if t == "a" else 50) for t in prices
    }
    rows = [
        Row(b"", "p", "0/score", "score", "v", Sequence(prompt, text=t).digest, 0, {}, usages[t])
        for t in prices
    ]
    # Whichever comes first: a part that was recorded before may stand behind.
    for order in permutations(rows):
        part = costs.scoring("v", order, candidates, Maker)
        for n in range(1, 6):
            chosen = [{candidates[i].text for i in s} for s in combinations(range(5), n)]
            subsets = [sum(prices[t] for t in texts) for texts in chosen]
            assert part.expected_usage(n)["prefilled"] == pytest.approx(50 + np.mean(subsets))


def test_members_of_an_ensemble_cost_what_all_of_them_cost() -> None:
    prompt = Prompt("p", text="x")
    candidates = [Sequence(prompt, text=text) for text in ("a", "b")]
    rows = [
        Row(b"", "p", f"0/score/{member}", "score", member, one.digest, 0, {}, Usage(prefilled=size, calls=1))
        for one in candidates
        for member, size in (("v", 3), ("w", 5))
    ]
    part = costs.scoring("both", rows, candidates, None)
    assert [part.expected_usage(n)["prefilled"] for n in (1, 2)] == pytest.approx([8, 16])
    assert part.expected_usage(2)["calls"] == pytest.approx(4)


@pytest.mark.parametrize("cached", [None, 0.5])
def test_money_of_one_sample_pays_for_its_prompt_once(cached: float | None) -> None:
    class Priced(Maker):
        price = Price(prompt=2.0, generated=3.0, cached=cached)

    usages = [sample_usage(i, 4, prompt=20) for i in range(4)]
    part = costs.generation([replace(u, money=Priced.price.of(u)) for u in usages], Priced)
    alone = Priced.price.of(Usage(prefilled=20, generated=4))
    other = Priced.price.of(Usage(cached=20, generated=4))
    assert [part.expected_usage(n)["money"] for n in (1, 2, 4)] == pytest.approx(
        [alone, alone + other, alone + 3 * other]
    )


def test_prompts_that_differ_and_are_nobodys_cache_are_each_samples_own() -> None:
    """As recorded agents have them, whose conversations differ in length."""
    usages = [Usage(prefilled=tokens, generated=1) for tokens in (500, 8000, 1000)]
    one = costs.generation(usages, None).expected_usage(1)
    assert (one["prefilled"], one["cached"]) == (pytest.approx(9500 / 3), 0)


def test_what_is_unknown_stays_unknown() -> None:
    part = costs.generation(
        [Usage(prefilled=None, generated=4, flops=None), Usage(prefilled=None, generated=6)], None
    )
    expected = part.expected_usage(1)
    assert (expected["prefilled"], expected["flops"], expected["generated"]) == (None, None, pytest.approx(5))


def test_the_whole_pool_costs_what_it_has_cost() -> None:
    usages = [sample_usage(i, g) for i, g in enumerate([3, 8, 2, 2, 11])]
    total = costs.generation(usages, Maker).expected_usage(5)
    assert list(total.values()) == pytest.approx(list(astuple(Usage.sum(usages))))


def test_nested_samples_are_charged_to_the_sample_that_they_serve() -> None:
    def row(path: str, index: int, generated: int) -> Row:
        return Row(b"", "p", path, "generate", "g", b"", index, {}, Usage(generated=generated))

    rows = [row("0/sample/0/sample", 0, 3), row("0/sample/0/sample", 1, 4), row("0/sample/1/sample", 0, 5)]
    assert [u.generated for u in costs.by_sample(rows, "0/sample", 2)] == [7, 5]
    assert [u.generated for u in costs.by_sample([row("0/sample", 1, 5)], "0/sample", 2)] == [0, 5]


def test_of_equals_the_cheapest_is_the_best() -> None:
    def measured(name: str, accuracy: float, flops: float | None, oracle: bool = False) -> Measured:
        cell = Cell(name, "g", "s", "majority", 8, oracle=oracle)
        return Measured(cell, accuracy, 0.0, 1.0, 0.0, 0.1, 10, 1.0, 1.0, 2.0, flops, None, 0.0, 0.0, 1.0)

    rows = [measured("dear", 0.9, 9.0), measured("cheap", 0.9, 3.0), measured("unknown", 0.9, None)]
    rows += [measured("worse", 0.8, 1.0), measured("oracle", 1.0, 1.0, oracle=True)]
    found = most_accurate(rows)
    assert found is not None and found.cell.name == "cheap"
    assert most_accurate(rows[-1:]) is None


def test_few_problems_have_no_interval(experiment_file: Callable[..., Path], tmp_path: Path) -> None:
    """So few say hardly anything of others; their standard error is known all the same."""
    found = results.bounds([np.array(row) for row in ([1.0, 1.0], [1.0, 0.75], [0.5] * 7, [0.5, 1.0] * 4)])
    assert [mean for mean, *_ in found] == [1.0, 0.875, 0.5, 0.75]
    assert [error for *_, error in found] == pytest.approx([0.0, 0.125, 0.0, 0.25 / math.sqrt(7)])
    assert all(math.isnan(low) and math.isnan(high) for _, low, high, _ in found[:3])
    assert found[3][1] < 0.75 < found[3][2]
    directory = RunDirectory.at(tmp_path / "run")
    with build.open_setup(schema.load(experiment_file(count=25))) as setup:
        runner.run(setup, directory)
    derived = derive(directory, directory.state().lines)
    # Levels of 9, 8 and 8.
    assert not any(math.isnan(level.low) for level in derived.levels) and not derived.few
    with build.open_setup(schema.load(experiment_file(count=23))) as setup:
        runner.run(setup, RunDirectory.at(tmp_path / "less"))
    less = RunDirectory(tmp_path / "less")
    derived = derive(less, less.state().lines)
    assert {level.level for level in derived.levels if math.isnan(level.low)} == {3}
    assert not any(math.isnan(m.low) for m in derived.configurations)
    (panel, *_) = figure.level_panels(derived.levels).values()
    assert [math.isnan(low) for low in panel[0].low or ()] == [False, False, True]
    console = Console(file=StringIO(), width=110)
    console.print(report.publish(less))
    words = "fewer than 8 problems there are no"
    assert console.file.getvalue().count(words) == 1  # type: ignore[attr-defined]
    assert "fewer than 8 problems there are none" in (less.root / "report.html").read_text()
