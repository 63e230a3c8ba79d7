"""Tables learned from another run: from a finished run to what each problem was given."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from options import Options
from typer.testing import CliRunner
from write_table import learn, main

from metagen.cli import app
from metagen.errors import InputError
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory, State
from metagen.runs.work import build, runner
from metagen.strategies.adaptive.by_difficulty import ByDifficulty
from tests.runs.conftest import TOY, YAML

Write = Callable[..., Path]
COUNT = 30
#: Two rounds, so that it runs by itself; over another strategy; with a table of its own.
MORE = (
    "  esc: {kind: esc, window: 3}\n"
    "  two: {kind: majority, n: 2}\n"
    "  over: {kind: best_of_n, over: two, verifier: judge, n: 3}\n"
    "  fixed: {kind: by_difficulty, edges: [0.5], then: [16, 4]}\n"
)
SMALL = "grid.generators=[small]"


def run(file: Path, root: Path, *sets: str) -> State:
    with build.open_setup(schema.load(file, sets=sets)) as setup:
        return runner.run(setup, RunDirectory.at(root))


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on other sums; not to be changed."""
    place = tmp_path_factory.mktemp("known")
    text = written(YAML.format(count=COUNT, n="[4, 16]"))
    (place / "known.yaml").write_text(text.replace(f"count: {COUNT}", "count: 40, seed: 5"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOY))
        run(place / "known.yaml", place / "known")
    return place / "known"


@pytest.fixture
def file(experiment_file: Write, known: Path, tmp_path: Path) -> Path:
    """An experiment on sums, beside a finished run on other sums."""
    path = experiment_file(count=COUNT, n="[4, 16]")
    path.write_text(written(path.read_text()))
    shutil.copytree(known, tmp_path / "known")
    return path


def written(text: str) -> str:
    return text.replace("  single:", f"{MORE}  single:")


def table(
    file: Path, *sets: str, mean: float = 150, limit: str = "generated", **options: Any
) -> dict[str, Any]:
    experiment, known = schema.load(file, sets=[SMALL, *sets]), RunDirectory(file.parent / "known")
    return dict(learn(experiment, known, mean, limit, **{"groups": 3, **options}))


def test_a_table_is_learned_written_out_and_acted_on(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learned = table(file)
    assert any(isinstance(way, dict) for way in learned["then"])
    # As many tokens as anything takes: then nothing is cheaper, and what is most accurate is taken.
    assert all(isinstance(way, dict) for way in table(file, mean=9999)["then"])
    four = Options.of(RunDirectory(tmp_path / "known"), "small", (), first=4, limit="generated").measured
    cheapest = float(np.asarray(four["4 samples"].cost).mean())
    poor = table(file, mean=cheapest + 0.01)
    assert poor["then"] == [4] and poor["edges"] == []
    # The script prints the definition, which the experiment takes as it is.
    main(
        [
            str(file),
            str(tmp_path / "known"),
            "--mean",
            "generated=150",
            "--generator",
            "small",
            "--groups",
            "3",
        ]
    )
    printed = capsys.readouterr().out.strip()
    assert yaml.safe_load(printed) == learned
    file.write_text(file.read_text().replace("  single:", f"  table: {printed}\n  single:"))
    sets = [SMALL, "grid.strategies=[table]"]
    with build.open_setup(schema.load(file, sets=sets)) as setup:
        strategy = setup.strategy(setup.configurations[0])
    assert isinstance(strategy, ByDifficulty) and list(strategy.edges) == learned["edges"]
    args = ["run", str(file), "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, [*args, *(word for one in sets for word in ("--set", one))])
    assert result.exit_code == 0, result.output
    outcomes = pq.read_table(tmp_path / "run/outcomes.parquet").to_pylist()
    assert len(outcomes) == COUNT and {row["configuration"] for row in outcomes} == {"small/table"}
    # Learned on 40 problems, kept on 30 others, but for chance.
    assert 60 < np.mean([row["generated"] for row in outcomes]) < 150 * 1.25


def test_what_knows_the_answers_or_is_a_table_itself_is_no_option(file: Path) -> None:
    """Without them the best for any budget is what the best of the rest is."""
    (way,) = table(file, mean=9999, groups=1)["then"]
    assert way["strategy"] not in ("pass", "fixed", "table")
    assert "n" in way or way["strategy"] == "single"


@pytest.mark.parametrize(
    ("sets", "options", "words"),
    [
        (["task.seed=5"], {}, "30 of this experiment's problems are in that run"),
        (["grid.generators=[small, large]"], {}, "a table is learned for one generator"),
        ([], {"first": 3}, "measured at n = 3 (at [1, 2, 4, 16])"),
        ([], {"limit": "flops", "mean": 1e9}, "in flops is not known there"),
        ([], {"mean": 2}, "no table keeps to"),
        (["generators.large.skill=0.8"], {}, "generators.large is defined otherwise"),
        (["strategies.esc.window=5"], {}, "strategies.esc is defined otherwise"),
        (["verifiers.judge.quality=0.9"], {}, "verifiers.judge is defined otherwise"),
        (["verifiers.new={kind: 'metagen_toy:verifier'}"], {"verifier": "new"},
         "no scores of the verifier 'new' for 'small'"),
    ],
)  # fmt: skip
def test_a_run_that_does_not_fit_is_refused(
    file: Path, sets: list[str], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError) as error:
        table(file, *sets, **options)
    assert words in str(error.value)


def test_a_run_that_is_not_finished_is_refused(file: Path, tmp_path: Path) -> None:
    (tmp_path / "known/candidates.parquet").unlink()
    with pytest.raises(InputError, match="is not finished"):
        table(file)
