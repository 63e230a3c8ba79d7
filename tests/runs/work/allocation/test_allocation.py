"""One budget for all problems in an experiment file: kept, whoever is faster, and decided alike when resumed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from metagen.cli import app
from metagen.errors import ConfigError, InputError
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory, State
from metagen.runs.page import show
from metagen.runs.work import build, runner, unfinished
from tests.runs.conftest import TOY, YAML

Calls = Callable[[], list[str]]
Write = Callable[..., Path]
COUNT, TOTAL = 12, 1203
#: Configuration, problem → whether right, tokens, text, whether its budget ended.
Outcome = dict[tuple[str, str], tuple[bool, float, str, bool]]


def run(file: Path, root: Path, *sets: str) -> State:
    with build.open_setup(schema.load(file, sets=sets)) as setup:
        return runner.run(setup, RunDirectory.at(root))


def outcomes(root: Path) -> Outcome:
    rows = pq.read_table(root / "outcomes.parquet").to_pylist()
    return {
        (r["configuration"], r["problem"]): (r["correct"], r["generated"], r["text"], r["exhausted"])
        for r in rows
    }


def spent(found: Outcome, configuration: str) -> list[float]:
    return [tokens for (name, _), (_, tokens, *_) in found.items() if name == configuration]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on other sums; nobody may change it."""
    root = tmp_path_factory.mktemp("known")
    (root / "known.yaml").write_text(YAML.format(count="40, seed: 5", n="[16]"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOY))
        run(root / "known.yaml", root / "known")
    return root / "known"


@pytest.fixture
def file(experiment_file: Write, known: Path, tmp_path: Path) -> Path:
    """An allocation over sums, beside a finished run on other sums."""
    more = (
        f"allocation: {{total: {{generated: {TOTAL}}}, first: 4, groups: 3,\n"
        "  strategies: [majority, weighted], held_out: known}\n"
    )
    path = experiment_file(count=COUNT, n="[16]", more=more)
    path.write_text(path.read_text().replace("  single:", "  equal: {kind: majority}\n  single:"))
    shutil.copytree(known, tmp_path / "known")
    return path


def test_equal_shares_are_kept_and_do_not_depend_on_who_is_faster(
    experiment_file: Write, tmp_path: Path
) -> None:
    file = experiment_file(n="[2, 8]", more="allocation: {total: {generated: 363}}\n")
    state = run(file, tmp_path / "one", "executor.concurrency=1")
    found = outcomes(tmp_path / "one")
    names = {line.name for line in state.lines}
    assert len(found) == 6 * len(names) and not any(line.pooled for line in state.lines)
    assert all(sum(spent(found, name)) <= 363 and max(spent(found, name)) <= 61 for name in names)
    assert any(cut for *_, cut in found.values())
    run(file, tmp_path / "many", "executor.concurrency=6")
    assert outcomes(tmp_path / "many") == found


def test_shares_by_difficulty_keep_the_total_whatever_runs_at_a_time(file: Path, tmp_path: Path) -> None:
    state = run(file, tmp_path / "one", "executor.concurrency=1")
    assert state.failures == () and state.status == "complete"
    found = outcomes(tmp_path / "one")
    for line in state.lines:
        assert sum(spent(found, line.name)) <= TOTAL
    equal, allocated = spent(found, "large/equal@16"), spent(found, "large/majority@16")
    assert max(equal) <= TOTAL // COUNT + 1 < max(allocated)
    assert min(allocated) < min(equal)
    run(file, tmp_path / "many", "executor.concurrency=12")
    assert outcomes(tmp_path / "many") == found


def test_an_interrupted_allocation_ends_as_a_whole_one(file: Path, calls: Calls, tmp_path: Path) -> None:
    run(file, tmp_path / "whole")
    whole = outcomes(tmp_path / "whole")
    with sqlite3.connect(tmp_path / "whole/journal.sqlite") as journal:
        rows, samples = (
            journal.execute(f"SELECT count(*) FROM rows {where}").fetchone()[0]
            for where in ("", "WHERE kind = 'generate'")
        )
    assert samples > 0
    # While first samples are drawn; when most is done.
    for kept in (60, rows * 9 // 10):
        root = tmp_path / f"cut-{kept}"
        shutil.copytree(tmp_path / "whole", root)
        with sqlite3.connect(root / "journal.sqlite") as journal:
            journal.execute("DELETE FROM rows WHERE rowid > ?", (kept,))
        for table in root.glob("*.parquet"):
            table.unlink()
        with unfinished.tables(RunDirectory(root)) as (tables, _):
            so_far = outcomes(tables.root)
        assert so_far.items() < whole.items()
        # What waits for the first samples of other problems is not guessed.
        assert any("majority" in name for name, _ in so_far) == (kept > 60)
        before = len(calls())
        run(file, root)
        assert outcomes(root) == whole
        assert 0 < len(calls()) - before <= samples


def test_an_unfinished_problem_is_shown_with_its_own_share(file: Path, tmp_path: Path) -> None:
    run(file, tmp_path / "whole")
    whole = outcomes(tmp_path / "whole")
    (tmp_path / "whole/candidates.parquet").unlink()
    with unfinished.tables(RunDirectory(tmp_path / "whole"), "sum-7") as (tables, _):
        found = outcomes(tables.root)
    assert found == {key: value for key, value in whole.items() if key[1] == "sum-7"}
    with pytest.raises(InputError, match="no problem 'sum-99'"):
        show.show(RunDirectory(tmp_path / "whole"), "sum-99")


def test_a_problem_whose_first_samples_fail_keeps_its_share(file: Path, tmp_path: Path) -> None:
    state = run(file, tmp_path / "run", "generators.small.fails_on=sum-3", "grid.generators=[small]")
    assert {failure.problem for failure in state.failures} == {"sum-3"}
    found = outcomes(tmp_path / "run")
    assert len(spent(found, "small/majority@16")) == COUNT - 1
    assert sum(spent(found, "small/majority@16")) <= TOTAL - TOTAL // COUNT


def test_a_total_that_does_not_pay_for_the_first_samples_is_shared_equally(
    file: Path, tmp_path: Path
) -> None:
    run(file, tmp_path / "run", "allocation.total.generated=240")
    found = outcomes(tmp_path / "run")
    assert max(spent(found, "small/majority@16")) <= 20
    # The samples, and so the votes, are those of equal shares.
    by = {
        name: {p: v for (c, p), v in found.items() if c == f"small/{name}@16"}
        for name in ("equal", "majority")
    }
    assert by["equal"] == by["majority"]


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["task.seed=5"], "12 of this experiment's problems are in that run ('sum-0', …)"),
        (["grid.n=[17]"], "it has 16 samples of some problem, where small/majority@17 may draw 17"),
        (["generators.new={kind: 'metagen_toy:generator'}"], "no pool of the generator 'new'"),
        (["verifiers.new={kind: 'metagen_toy:verifier'}", "strategies.weighted.verifier=new"],
         "no scores of the verifier 'new'"),
    ],
)  # fmt: skip
def test_a_held_out_run_that_does_not_fit_is_refused(file: Path, sets: list[str], words: str) -> None:
    with pytest.raises(InputError) as error, build.open_setup(schema.load(file, sets=sets)):
        pass
    assert "allocation.held_out = " in str(error.value) and words in str(error.value)


@pytest.mark.parametrize(
    ("sets", "fault"),
    [
        (["allocation.held_out=knwon"], "run 'knwon' does not exist"),
        (["allocation.held_out=null"], "strategies and held_out go together"),
        (["allocation.strategies=[]"], "strategies and held_out go together"),
        (["allocation.strategies=[best-of-n]"],
         "allocation.strategies.0 = 'best-of-n': expected a strategy of kind majority or weighted"),
        (["strategies.vote={kind: majority, over: equal}", "allocation.strategies=[vote]"], "over no other"),
        (["grid.strategies=[equal, weighted]"],
         "allocation.strategies.0 = 'majority': the grid does not run it; expected one of equal, weighted"),
        (["allocation={total: {calls: 9}, groups: 3}"], "groups = 3 is for shares by difficulty"),
        (["allocation.first=17"], "allocation.first = 17: 'majority' draws 16 at most"),
        (["allocation.first=4", "grid.n=[3, 16]"], "allocation.first = 4: 'majority' draws 3 at most"),
        (["allocation.total.seconds=9"], "a deadline is not divided"),
        (["allocation.total={}"], "expected at least one limit"),
        (["allocation.total.calls=9"], "total limits generated, calls; keep one"),
        (["allocation.totla=1"], "did you mean 'total'?"),
        (["allocation.total.tokens=9"], "no such field; expected one of generated"),
    ],
)  # fmt: skip
def test_faults_are_named(file: Path, sets: list[str], fault: str) -> None:
    with pytest.raises(ConfigError) as error:
        schema.load(file, sets=sets)
    assert fault in str(error.value)


def test_a_written_experiment_loads_from_anywhere(file: Path, tmp_path: Path) -> None:
    experiment = schema.load(file)
    assert experiment.allocation is not None
    assert experiment.allocation.held_out == str((tmp_path / "known").resolve())
    copy = tmp_path / "else" / "copy.yaml"
    copy.parent.mkdir()
    copy.write_text(schema.dump(experiment))
    assert schema.load(copy) == experiment


def test_the_example_does_what_its_comments_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = Path(__file__).parents[4] / "examples" / "allocation.yaml"
    said = [line.split()[3:] for line in example.read_text("utf-8").splitlines() if "metagen run" in line]
    assert len(said) == 3
    monkeypatch.chdir(tmp_path)
    for _, *options in said[:2]:
        asked = ["run", str(example), *options, "--limit", "3", "--set", "grid.n=[4]"]
        result = CliRunner().invoke(app, [*asked, "--set", "grid.strategies=[equal, allocated]"])
        assert result.exit_code == 0, result.output
    found = outcomes(tmp_path / "runs" / "allocation")
    assert {name for name, _ in found} == {"small/equal@4", "small/allocated@4"}
