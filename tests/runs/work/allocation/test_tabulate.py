"""Tables learned from another run: from an experiment file to what each problem was given."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from metagen.cli import app
from metagen.errors import ConfigError, InputError
from metagen.runs.declare import schema
from metagen.runs.declare.specs import ByDifficultySpec, OptionSpec
from metagen.runs.directory import RunDirectory, State
from metagen.runs.work import build, runner
from metagen.runs.work.allocation.options import Options
from metagen.strategies.adaptive.by_difficulty import ByDifficulty
from tests.runs.conftest import TOY, YAML

Write = Callable[..., Path]
COUNT = 30
TABLE = "{kind: by_difficulty, held_out: known, mean: {generated: 150}, groups: 3}"
#: Two rounds, so that it runs by itself; over another strategy; with a table of its own.
MORE = (
    "  esc: {kind: esc, window: 3}\n"
    "  two: {kind: majority, n: 2}\n"
    "  over: {kind: best_of_n, over: two, verifier: judge, n: 3}\n"
    "  fixed: {kind: by_difficulty, edges: [0.5], then: [16, 4]}\n"
)


def run(file: Path, root: Path, *sets: str) -> State:
    with build.opened(schema.load(file, sets=sets)) as setup:
        return runner.run(setup, RunDirectory.at(root))


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on other sums; nobody may change it."""
    root = tmp_path_factory.mktemp("known")
    text = YAML.format(count="40, seed: 5", n="[4, 16]")
    (root / "known.yaml").write_text(text.replace("  single:", f"{MORE}  single:"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOY))
        run(root / "known.yaml", root / "known")
    return root / "known"


@pytest.fixture
def file(experiment_file: Write, known: Path, tmp_path: Path) -> Path:
    """A table over sums, beside a finished run on other sums."""
    path = experiment_file(count=COUNT, n="[4, 16]")
    shutil.copytree(known, tmp_path / "known")
    path.write_text(path.read_text().replace("  single:", f"{MORE}  table: {TABLE}\n  single:"))
    return path


SETS = ("grid.generators=[small]", "grid.strategies=[table]")


def written(file: Path, *sets: str) -> ByDifficultySpec:
    with build.opened(schema.load(file, sets=[*SETS, *sets])) as setup:
        spec = setup.experiment.strategies["table"]
        strategy = setup.strategy(setup.configurations[0])
    assert isinstance(spec, ByDifficultySpec) and isinstance(strategy, ByDifficulty)
    assert spec.edges is not None and spec.then is not None and spec.held_out is None and spec.mean is None
    assert strategy.edges == spec.edges and len(strategy.options) == len(spec.then) == len(spec.edges) + 1
    return spec


def test_a_table_is_learned_written_out_and_acted_on(file: Path, tmp_path: Path) -> None:
    spec = written(file)
    assert spec.then is not None and any(isinstance(way, OptionSpec) for way in spec.then)
    # As many tokens as anything takes: then nothing is cheaper, and what is most accurate is taken.
    rich = written(file, "strategies.table.mean.generated=9999")
    assert rich.then is not None and all(isinstance(way, OptionSpec) for way in rich.then)
    four = Options.of(RunDirectory(tmp_path / "known"), "small", (), first=4, limit="generated").measured
    cheapest = float(np.asarray(four["4 samples"].cost).mean())
    poor = written(file, f"strategies.table.mean.generated={cheapest + 0.01}")
    assert poor.then == (4,) and poor.edges == ()
    args = ["run", str(file), "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, [*args, *(word for one in SETS for word in ("--set", one))])
    assert result.exit_code == 0, result.output
    outcomes = pq.read_table(tmp_path / "run/outcomes.parquet").to_pylist()
    assert len(outcomes) == COUNT and {row["configuration"] for row in outcomes} == {"small/table"}
    # Learned on 40 problems, kept on 30 others, but for chance.
    assert 60 < np.mean([row["generated"] for row in outcomes]) < 150 * 1.25
    # The experiment of the run says who is given what, and does not need the other run any more.
    text = (tmp_path / "run/experiment.yaml").read_text()
    assert yaml.safe_load(text)["strategies"]["table"]["edges"] == list(spec.edges or ())
    shutil.rmtree(tmp_path / "known")
    for table in (tmp_path / "run").glob("*.parquet"):
        table.unlink()
    result = CliRunner().invoke(app, ["resume", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    again = pq.read_table(tmp_path / "run/outcomes.parquet").to_pylist()
    key = "problem"
    assert sorted(again, key=lambda row: row[key]) == sorted(outcomes, key=lambda row: row[key])


def test_what_knows_the_answers_or_is_a_table_itself_is_no_option(file: Path) -> None:
    """Without them the best for any budget is what the best of the rest is."""
    spec = written(file, "strategies.table.mean.generated=9999", "strategies.table.groups=1")
    (way,) = spec.then or ()
    assert isinstance(way, OptionSpec) and way.strategy not in ("pass", "fixed", "table")
    assert way.n is not None or way.strategy == "single"


def test_a_dry_run_says_what_it_does_not_count(file: Path) -> None:
    args = ["run", str(file), "--dry-run", *(word for one in SETS for word in ("--set", one))]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    assert "not counted: small/table" in " ".join(result.output.split())


TORCH = """
name: torch
task: {kind: arithmetic, split: validation, levels: [1], per_level: 3}
engines: {model: {kind: torch, model: tiny-0.1m, threads: 1}, judge: {kind: torch, model: tiny-prm-weak, threads: 1}}
generators: {small: {engine: model, max_tokens: 40}}
verifiers: {prm: {kind: prm, engine: judge}}
strategies: {majority: {kind: majority}, weighted: {kind: weighted, verifier: prm}}
grid: {n: [2, 4]}
"""


def test_a_dry_run_compares_models_and_not_what_stands_in_for_them(tmp_path: Path) -> None:
    path = tmp_path / "torch.yaml"
    path.write_text(TORCH)
    run(path, tmp_path / "known")
    learned = "strategies.table={kind: by_difficulty, first: 2, held_out: known, mean: {flops: 1.0e+12}}"
    sets = ["task.seed=9", learned, "grid.strategies=[table]"]
    args = ["run", str(path), "--dry-run", *(word for one in sets for word in ("--set", one))]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("sets", "words", "more"),
    [
        (["task.seed=5"], "strategies.table.held_out = ", "30 of this experiment's problems are in that run"),
        (["grid.generators=[small, large]"], "strategies.table.held_out: a table is learned for one generator", ""),
        (["strategies.table.first=3"], "strategies.table.held_out = ", "measured at n = 3 (at [1, 2, 4, 16])"),
        (["strategies.table.mean={flops: 1.0e+9}"], "strategies.table.held_out = ", "in flops is not known there"),
        (["strategies.table.mean.generated=2"], "strategies.table.mean.generated = 2: ", "no table keeps to"),
        (["generators.large.skill=0.8"], "strategies.table.held_out = ", "generators.large is defined otherwise"),
        (["strategies.esc.window=5"], "strategies.table.held_out = ", "strategies.esc is defined otherwise"),
        (["verifiers.judge.quality=0.9"], "strategies.table.held_out = ", "verifiers.judge is defined otherwise"),
        (["verifiers.new={kind: 'metagen_toy:verifier'}", "strategies.table.verifier=new"],
         "strategies.table.held_out = ", "no scores of the verifier 'new' for 'small'"),
    ],
)  # fmt: skip
def test_a_held_out_run_that_does_not_fit_is_refused(
    file: Path, sets: list[str], words: str, more: str
) -> None:
    with pytest.raises(InputError) as error, build.opened(schema.load(file, sets=[*SETS, *sets])):
        pass
    assert words in str(error.value) and more in str(error.value)


def test_a_held_out_run_that_is_not_finished_is_refused(file: Path, tmp_path: Path) -> None:
    (tmp_path / "known/candidates.parquet").unlink()
    with pytest.raises(InputError, match="is not finished"), build.opened(schema.load(file, sets=SETS)):
        pass


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ("{kind: by_difficulty}", "expected a table, edges and then, or what to learn it from"),
        ("{kind: by_difficulty, edges: [0.5]}", "expected a table, edges and then"),
        ("{kind: by_difficulty, held_out: known}", "and mean (what a problem may cost"),
        ("{kind: by_difficulty, edges: [], then: [4], held_out: known, mean: {calls: 9}}", "expected a table"),
        ("{kind: by_difficulty, held_out: known, mean: {calls: 9}, over: two}", "over: two beside held_out"),
        ("{kind: by_difficulty, held_out: knwon, mean: {calls: 9}}", "run 'knwon' does not exist"),
        ("{kind: by_difficulty, held_out: known, mean: {}}", "expected one limit"),
        ("{kind: by_difficulty, held_out: known, mean: {calls: 9, money: 1.0}}", "expected one limit"),
        ("{kind: by_difficulty, held_out: known, mean: {tokens: 9}}", "no such field; expected one of generated"),
        ("{kind: by_difficulty, held_out: known, mean: {calls: -1}}", "mean.calls = -1: expected a number ≥ 0"),
        ("{kind: by_difficulty, held_out: known, mean: {calls: 9}, groups: 0}", "groups = 0: expected an integer ≥ 1"),
    ],
)  # fmt: skip
def test_faults_are_named(file: Path, table: str, fault: str) -> None:
    with pytest.raises(ConfigError) as error:
        schema.load(file, sets=[*SETS, f"strategies.table={table}"])
    assert fault in str(error.value)


def test_a_written_table_may_give_an_option_its_n(file: Path) -> None:
    given = "{kind: by_difficulty, edges: [], then: [{generator: large, strategy: weighted, n: 5}]}"
    with build.opened(schema.load(file, sets=[*SETS, f"strategies.table={given}"])) as setup:
        strategy = setup.strategy(setup.configurations[0])
    assert isinstance(strategy, ByDifficulty) and strategy.options[0].n == 5  # type: ignore[union-attr]  # no count
    with pytest.raises(ConfigError, match=r"strategies.weighted.n: missing; 'table' goes on with it"):
        schema.load(file, sets=[*SETS, f"strategies.table={given.replace(', n: 5', '')}"])


def test_an_option_with_an_n_of_its_own_does_not_give_one_to_what_the_table_stands_over(file: Path) -> None:
    given = (
        "{kind: by_difficulty, over: majority, first: 2, edges: [0.9], then: [{strategy: majority, n: 4}, 2]}"
    )
    with pytest.raises(ConfigError, match=r"strategies.majority.n: missing; 'table' stands over it"):
        schema.load(file, sets=[*SETS, f"strategies.table={given}"])


def test_a_table_below_another_strategy_is_refused(file: Path) -> None:
    outer = "strategies.outer={kind: majority, over: table, n: 3}"
    experiment = schema.load(file, sets=["grid.generators=[small]", "grid.strategies=[outer]", outer])
    refused = pytest.raises(InputError, match="'outer' is made of it; write edges and then")
    with refused, build.opened(experiment):
        pass
