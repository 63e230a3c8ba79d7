"""`metagen study`: a file in, runs and a report out; and the flagship on a few problems."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import filelock
import pytest
from typer.testing import CliRunner

from metagen.cli import app
from metagen.runs import study as run
from metagen.runs.declare import study_schema as schema
from metagen.runs.directory import StudyDirectory

Write = Callable[..., Path]
EXAMPLES = Path(__file__).parents[2] / "examples"
#: The flagship of the model that all of its roles have, with one problem of two levels and few candidates.
SMALL = (
    "grid.generators=[0.5M]", "study.temperature.models=[0.5M]", "task.levels=[3, 4]",
    "task.per_level=1", "grid.n=[1, 2, 4]", "strategies.adaptive.n=[4]", "strategies.rebase.n=[2, 4]",
    "strategies.dvts.n=[4]", "strategies.particles.n=[2, 4]", "strategies.blockwise.n=[2]",
    "strategies.beam.n=[4]", "strategies.best-first.n=[1]", "strategies.mcts.n=[4]", "strategies.mbr.n=[4]",
    "study.development.task.per_level=1", "study.development.n=4", "study.limit.n=8", "study.temperature.n=4",
    "study.temperature.task.per_level=1", "study.splitting.n=[1, 2, 4]", "executor.concurrency=16",
)  # fmt: skip


def test_a_study_runs_and_reports(study_file: Write, tmp_path: Path) -> None:
    root = tmp_path / "study"
    bare = "study:\n  budgets: {samples: [2]}\n  limit: {n: 16, seed: 1}\n"
    asked = ["study", str(study_file(study=bare, n="[1, 4]")), "--out", str(root), "--json"]
    asked += ["--set", "grid.generators=[large]", "--set", "grid.strategies=[single, majority, soft]"]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["problems"] == 6 and {c["strategy"] for c in said["configurations"]} >= {"single", "soft"}
    assert all(0 <= c["accuracy"] <= 1 for c in said["configurations"]) and said["findings"]
    for name in (
        "study.yaml",
        "study.json",
        "study.npz",
        "curves.csv",
        "findings.json",
        "report.html",
        "report.md",
    ):
        assert (root / name).stat().st_size > 0
    for role in ("test", "limit"):
        assert (root / role / "journal.sqlite").exists()
    figures = root / "figures"
    assert {path.suffix for path in figures.iterdir()} == {".svg"}
    papers = CliRunner().invoke(app, ["report", str(root), "--papers"])
    assert papers.exit_code == 0 and {path.suffix for path in figures.iterdir()} == {".svg", ".pdf", ".png"}
    of_run = CliRunner().invoke(app, ["report", str(root / "test"), "--papers"])
    assert of_run.exit_code == 2 and "--papers is for studies" in " ".join(of_run.stderr.split())
    again = CliRunner().invoke(app, ["resume", str(root)])
    assert again.exit_code == 0 and "large" in again.stdout and "report.html" in "".join(again.stdout.split())


def test_a_second_study_leaves_the_first_as_it_is(study_file: Write, tmp_path: Path) -> None:
    root = tmp_path / "study"
    file = str(study_file(study="study:\n  budgets: {samples: [2]}\n", n="[1, 4]"))
    one = ["--set", "grid.generators=[small]", "--set", "grid.strategies=[single]"]
    assert CliRunner().invoke(app, ["study", file, "--out", str(root), *one]).exit_code == 0
    before = (root / "study.yaml").read_bytes()
    with filelock.FileLock(root / "run.lock"):
        second = CliRunner().invoke(app, ["study", file, "--out", str(root), "--set", "grid.n=[1]"])
    assert second.exit_code == 2 and "being written by another process" in " ".join(second.output.split())
    assert (root / "study.yaml").read_bytes() == before


def test_a_dry_run_says_what_each_role_would_take(study_file: Write, tmp_path: Path) -> None:
    asked = ["study", str(study_file()), "--out", str(tmp_path / "study"), "--dry-run"]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    assert all(role in result.stdout for role in ("development", "test", "limit", "splitting", "temperature"))
    assert "Settings are not chosen yet: the other roles are counted as written" in result.stdout
    data = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    assert data["total"]["calls"] == sum(role["total"]["calls"] for role in data["roles"].values())
    assert not (tmp_path / "study").exists()


def test_each_role_of_a_study_is_probed_within_one_limit(study_file: Write, tmp_path: Path) -> None:
    study = "study:\n  budgets: {samples: [2]}\n  limit: {n: 16, seed: 1}\n"
    file = study_file(study=study, n="[1, 4]")
    search = ["--set", "strategies.search={kind: adaptive_consistency, n: 4}"]
    asked = ["study", str(file), "--out", str(tmp_path / "study"), "--dry-run", *search]
    unknown = CliRunner().invoke(app, [*asked, "--hardware", "h200"])
    assert "test: the total is unknown" in " ".join(unknown.stdout.split()), unknown.output
    assert "? is unknown: --probe 2 runs two problems" in unknown.stdout and "h200" in unknown.stdout
    told = CliRunner().invoke(app, [*asked, "--probe", "2", "--json"])
    assert told.exit_code == 0, told.output
    for role in ("test", "limit"):
        assert f"the probe of {role} runs 2 of 6 problems, at most" in told.stderr
    assert "within 10 minutes in all" in " ".join(told.stderr.split())
    data = json.loads(told.stdout)
    assert data["total"]["calls"] == sum(role["total"]["calls"] for role in data["roles"].values())
    assert data["expected_seconds"] == sum(role["expected_seconds"] for role in data["roles"].values())
    assert not (tmp_path / "study").exists()
    late = CliRunner().invoke(app, [*asked, "--probe", "2", "--probe-minutes", "0", "--json"])
    assert json.loads(late.stdout)["total"]["calls"] is None
    assert "not probed: the time of the probes was over" in json.loads(late.stdout)["roles"]["limit"]["notes"]


def test_a_role_is_estimated_for_the_problems_that_it_works_on(study_file: Write) -> None:
    settings = "{majority: [{}, {generator.skill: 0.9}]}"
    halves = f"study:\n  development: {{share: 0.5, trials: 2, n: 4, settings: {settings}}}\n"
    study = schema.load(study_file(study=halves, n="[1, 4]", count=12))
    found = dict(run.estimates(study))
    assert 0 < found["development"].problems < 12
    assert found["development"].problems + found["test"].problems == 12


def test_options_of_an_estimate_belong_to_one(study_file: Write) -> None:
    for option in (["--probe", "2"], ["--hardware", "h200"], ["--probe-minutes", "2"]):
        done = CliRunner().invoke(app, ["study", str(study_file()), *option])
        assert done.exit_code == 2 and "add --dry-run" in " ".join(done.stderr.split())
    done = CliRunner().invoke(app, ["study", str(study_file()), "--dry-run", "--probe-minutes", "2"])
    assert done.exit_code == 2 and "add --probe 2" in " ".join(done.stderr.split())


@pytest.mark.parametrize("command", ["run", "study"])
@pytest.mark.parametrize("option", [["--track", "mlflow"], ["--track-texts"], ["--telemetry"]])
def test_nobody_is_told_of_an_estimate(
    command: str, option: list[str], study_file: Write, study_experiment_file: Write
) -> None:
    file = str(study_file() if command == "study" else study_experiment_file())
    done = CliRunner().invoke(app, [command, file, "--dry-run", *option])
    assert done.exit_code == 2 and "belong to a run; leave out --dry-run" in " ".join(done.stderr.split())
    usual = CliRunner().invoke(app, [command, file, "--dry-run"], env={"METAGEN_TELEMETRY": "1"})
    assert usual.exit_code == 0, usual.output


def test_a_problem_that_fails_is_told_by_the_exit_code(study_file: Write, tmp_path: Path) -> None:
    asked = ["study", str(study_file(study="", n="[1, 2]")), "--out", str(tmp_path / "study")]
    asked += ["--set", "grid.strategies=[majority]"]
    result = CliRunner().invoke(app, [*asked, "--set", "generators.small.fails_on=sum-2"])
    assert result.exit_code == 2, result.output
    assert re.search(r"test: \d+ failures?\b", result.output)
    root = tmp_path / "study"
    assert f"metagen report {root / 'test'}\ntry again: metagen resume {root}\n" in result.output
    again = CliRunner().invoke(app, [*asked, "--set", "generators.small.fails_on=sum-2", "--json"])
    said = json.loads(again.stdout)
    assert set(said["failures"]) == {"test"}
    counts = {(c["model"], c["problems"]) for c in said["configurations"]}
    assert counts == {("small", 5), ("large", 6)}


def test_the_flagship_loads_and_tunes_every_strategy_alike() -> None:
    study = schema.load(EXAMPLES / "frontier.yaml")
    assert study.spec.development is not None
    assert {len(tried) for tried in study.spec.development.settings.values()} == {
        study.spec.development.trials
    }
    assert all(tried[0] == {} for tried in study.spec.development.settings.values())
    roles = dict(run.estimates(schema.load(EXAMPLES / "frontier.yaml", sets=SMALL)))
    assert list(roles) == ["development", "test", "limit", "splitting", "temperature"]


@pytest.mark.slow
def test_the_flagship_runs_on_a_few_problems(tmp_path: Path) -> None:
    study = schema.load(EXAMPLES / "frontier.yaml", sets=SMALL)
    result = run.run(study, tmp_path / "study")
    assert len(result.curves) == 19 and len(result.tuned) == 13
    assert {"flops", "tokens", "roofline:h200", "latency:laptop"} <= set(result.costs)
    assert not any(role["failures"] for role in result.facts["roles"].values())
    assert {one["policy"] for one in result.facts["ratios"]} >= {"temperature=0.4", "top_p=0.9"}
    assert result.facts["efficiency"]["loads"] and result.facts["blocks"]
    found = run.extras(StudyDirectory(tmp_path / "study"), study)
    assert {c.verifier for c in found["splitting"].curves} == {None, "critic-0", "critic-1", "critic-4"}
