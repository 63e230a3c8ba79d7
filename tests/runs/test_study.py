"""Running a study: roles as ordinary runs, settings frozen once, and nothing paid for twice."""

import cProfile
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pytest

import metagen
from metagen.errors import ConfigError, InputError
from metagen.runs import study as studies
from metagen.runs.curves import collect, tune
from metagen.runs.curves.study import Curve, Source, StudyResult, Tuned
from metagen.runs.declare import plan
from metagen.runs.declare import schema as experiments
from metagen.runs.declare import study_schema as schema
from metagen.runs.directory import RunDirectory, StudyDirectory, find
from metagen.runs.page import report as run_report
from metagen.runs.page import study_report as report
from metagen.runs.questions import difficulty
from metagen.runs.table.tables import read
from metagen.runs.work import build
from metagen.runs.work.unfinished import problems_of
from metagen.sequence import Prompt
from metagen.tasks.base import Problem
from tests.runs.conftest import Finished

Write = Callable[..., Path]
Calls = Callable[[], list[str]]


#: Nothing is chosen, and there are few samples.
LITTLE = "study:\n  budgets: {samples: [2]}\n  limit: {n: 9, seed: 1}\n"


def play(file: Path, root: Path, *sets: str) -> StudyResult:
    return studies.run(schema.load(file, sets=sets), root)


def test_a_study_is_ordinary_runs_and_their_curves(finished: Finished) -> None:
    result, directory = finished.result, find(finished.root)
    assert isinstance(directory, StudyDirectory)
    for role, problems in (
        ("development", 4),
        ("test", 6),
        ("limit", 6),
        ("splitting", 6),
        ("temperature", 3),
    ):
        state = directory.role(role).final_state()
        assert state.status == "complete" and state.problems == problems and not state.failures
        assert result.facts["roles"][role]["samples"] == state.samples
    assert {c.name for c in result.curves} == {
        f"{m}/{s}"
        for m in ("small", "large")
        for s in ("single", "majority", "best", "weighted", "pass", "soft")
    }
    assert result.curve("large", "soft").ns.tolist() == [2, 4] and result.curve("large", "pass").oracle
    assert result.budgets == {"samples": (2.0, 8.0)}
    limits = [v for v in result.votes if v.role == "limit"]
    assert all((v.sizes == 16).all() for v in limits) and {v.model for v in limits} == {"small", "large"}
    again = StudyResult.load(directory.root)
    assert [c.name for c in again.curves] == [c.name for c in result.curves]


def test_curves_and_votes_are_of_the_frozen_generator(finished: Finished) -> None:
    """A better generator is a setting of the majority vote: its curve is that generator's, the single sample's not."""
    result = finished.result
    tuned = {(t.model, t.strategy): t for t in result.tuned}
    assert tuned["small", "majority"].chosen == "generator.skill=0.9"
    assert tuned["small", "majority"].problems == 4
    assert tuned["small", "majority"].settings.keys() == {"as written", "generator.skill=0.9"}
    majority, single = result.curve("small", "majority"), result.curve("small", "single")
    assert (majority.generator, majority.setting) == ("small.skill-0.9", "generator.skill=0.9")
    assert (single.generator, single.setting) == ("small", "")
    assert majority.accuracy[0].mean() > single.accuracy[0].mean()
    pools = {(v.role, v.generator): v for v in result.votes if v.model == "small"}
    np.testing.assert_allclose(majority.accuracy[0], pools["test", "small.skill-0.9"].correct.mean(axis=1))
    assert ("limit", "small.skill-0.9") in pools
    assert next(v for v in result.votes if v.model == "small").generator == "small"


def test_running_again_makes_nothing_and_an_extension_only_what_is_new(
    study_file: Write, copied_study: Path, finished: Finished, calls: Calls
) -> None:
    file, root = study_file(), copied_study
    made = (root / "frozen.yaml").read_text()
    play(file, root)
    assert finished.calls and not calls()
    # Larger n: for every generator of the test the samples behind those that it has.
    result = play(file, root, "grid.n=[1, 2, 8, 12]")
    new = calls()
    generators = len({v.generator for v in result.votes if v.role == "test"})
    assert all(int(line.split()[2]) >= 8 for line in new) and len(new) == generators * 6 * 4
    assert result.curve("small", "weighted").ns.tolist() == [1, 2, 8, 12]
    assert (root / "frozen.yaml").read_text() == made


def test_one_more_model_pays_for_itself_alone(study_file: Write, copied_study: Path, calls: Calls) -> None:
    third = "generators.third={kind: 'metagen_toy:generator', skill: 0.6, name: third}"
    result = play(study_file(), copied_study, third)
    assert calls() and all(line.startswith("third") for line in calls())
    assert {m.name for m in result.models} == {"small", "large", "third"}


def test_one_more_strategy_leaves_the_other_roles_as_they_are(study_file: Write, copied_study: Path) -> None:
    file, root = study_file(), copied_study
    began: list[str] = []
    cautions: list[str] = []
    study = schema.load(file, sets=["strategies.second={kind: adaptive_consistency, n: 8, batch: 8}"])
    result = studies.run(study, root, begins=began.append, caution=cautions.append)
    assert "large/second" in {c.name for c in result.curves}
    assert began == ["test"]
    (caution,) = (text for text in cautions if "second" in text)
    assert caution.startswith("strategies.second: all n ≤ 8, the samples drawn between two looks")


@pytest.mark.parametrize(("executor", "complete"), [("{kind: ray, shards: 2}", True), ("local", False)])
def test_a_role_that_ran_in_shards_has_no_table_of_calls(
    study_file: Write, copied_study: Path, executor: str, complete: bool
) -> None:
    part = plan.test(schema.load(study_file(), sets=[f"executor={executor}"]), {})
    directory = StudyDirectory(copied_study).role("test")
    directory.experiment.write_text(experiments.dump(part.experiment), "utf-8")
    directory.table("calls").unlink()
    assert (studies._complete(part, directory) is not None) == complete


def test_settings_once_frozen_are_read(study_file: Write, copied_study: Path) -> None:
    file, root = study_file(), copied_study
    study, directory = schema.load(file), StudyDirectory(root)
    chosen = tune.read(directory, study)
    swapped = {
        cell: type(t)(
            t.model, t.strategy, t.settings, min(t.settings, key=t.settings.__getitem__), t.problems, t.flops
        )
        for cell, t in chosen.items()
    }
    tune.write(directory, study, swapped)
    result = play(file, root)
    assert {c.setting for c in result.curves if c.strategy == "majority"} == {"as written"}
    # Other problems of development: chosen anew.
    result = play(file, root, "study.development.task.seed=72")
    assert (root / "development-2").is_dir()
    assert result.curve("small", "majority").setting == "generator.skill=0.9"


@pytest.mark.parametrize(
    ("change", "anew"),
    [
        ("strategies.best.verifier=weak", {"small/best", "large/best"}),
        ("verifiers.judge.quality=0.9", {"small/best", "large/best", "small/soft", "large/soft"}),
        ("verifiers.weak.quality=0.9", {"small/best", "large/best"}),
        ("generators.small.skill=0.4", {"small/majority", "small/best", "small/soft"}),
        ("strategies.soft.beta=0.3", {"small/soft", "large/soft"}),
        ("budget={calls: 6}", {f"{m}/{s}" for m in ("small", "large") for s in ("majority", "best", "soft")}),
        ("strategies.soft.n=[2, 4, 8]", set()),
        ("grid.n=[1, 2, 8, 12]", set()),
        ("verifiers.more={kind: oracle}", set()),
    ],
)
def test_settings_hold_for_what_they_were_chosen_from(
    change: str, anew: set[str], study_file: Write, tmp_path: Path
) -> None:
    before, directory = schema.load(study_file()), StudyDirectory(tmp_path)
    cells = tune.frozen(before, {})
    tune.write(
        directory, before, {cell: Tuned(*cell, {"as written": 0.5}, "as written", 4, None) for cell in cells}
    )
    assert tune.read(directory, before).keys() == cells.keys()
    after = schema.load(study_file(), sets=[change])
    assert {"/".join(cell) for cell in cells if cell not in tune.read(directory, after)} == anew


def test_settings_of_another_digest_are_chosen_anew_and_nothing_is_paid_for(
    study_file: Write, copied_study: Path, calls: Calls
) -> None:
    file, root = study_file(), copied_study
    made = (root / "frozen.yaml").read_text()
    (root / "frozen.yaml").write_text(re.sub(r"digest: \S+", "digest: before", made))
    with pytest.raises(InputError, match=r"no setting of small/\w+ is chosen yet .* metagen resume"):
        report.again(StudyDirectory(root))
    play(file, root)
    assert not calls() and (root / "frozen.yaml").read_text() == made


def test_settings_of_a_model_that_is_left_out_are_kept(study_file: Write, copied_study: Path) -> None:
    file, root = study_file(), copied_study
    kept = tune.read(StudyDirectory(root), schema.load(file))["large", "soft"]
    play(file, root, "grid.generators=[small]", "strategies.best.verifier=weak")
    assert tune.read(StudyDirectory(root), schema.load(file))["large", "soft"] == kept


def test_halves_of_a_pool_are_independent_and_together_the_pool(study_file: Write, tmp_path: Path) -> None:
    root = tmp_path / "study"
    result = play(study_file(study="study: {limit: {halves: true}}"), root)
    whole = {v.model: v for v in collect.of_run(StudyDirectory(root).role("test")).votes}
    for model, pool in whole.items():
        first, rest = (
            next(v for v in result.votes if (v.model, v.role) == (model, r)) for r in ("test", "limit")
        )
        assert (first.sizes == 4).all() and (rest.sizes == 4).all()
        for name in ("tokens", "classes"):
            both = np.concatenate([getattr(first, name), getattr(rest, name)], axis=1)
            np.testing.assert_array_equal(np.sort(both, axis=1), np.sort(getattr(pool, name), axis=1))
        curve = result.curve(model, "majority")
        assert curve.ns.tolist() == [1, 2]
        np.testing.assert_allclose(curve.accuracy[0], first.correct.mean(axis=1))
        assert set(first.scores) == {"judge", "oracle"}
    assert any("larger n are left out" in note.text for note in result.notes)
    assert {c.source for c in result.curves} == {"pool", "run"}
    assert {c.source for c in difficulty.comparable(result, "samples")} == {"pool"}


def _curve(setting: str, rows: list[list[float]], source: Source = "pool") -> Curve:
    accuracy = np.array(rows)
    flops = np.ones_like(accuracy) * np.arange(1, len(rows) + 1)[:, None]
    return Curve(
        "m", "s", "weighted", np.arange(1, len(rows) + 1), accuracy, np.zeros_like(accuracy), {"flops": flops},
        np.zeros_like(accuracy), source=source, setting=setting,
    )  # fmt: skip


def test_the_best_setting_is_chosen_over_n_on_problems_that_all_answered() -> None:
    nan = float("nan")
    (tuned,) = tune.choose([
        _curve("as written", [[0.0, 1.0, 1.0], [0.5, 1.0, 1.0]]),
        _curve("a", [[0.5, 0.5, 0.0], [1.0, 1.0, 0.0]]),
        _curve("b", [[1.0, 1.0, nan], [1.0, 0.5, nan]]),
    ])  # fmt: skip
    assert tuned.chosen == "b" and tuned.problems == 2
    assert tuned.settings == {"as written": 0.625, "a": 0.75, "b": 0.875}
    # A pool pays for its largest n, runs by themselves for each n.
    assert tuned.flops == 3 * 3 * 2
    (tuned,) = tune.choose([_curve("a", [[1.0, 0.0]] * 2, "run"), _curve("b", [[0.0, 1.0]] * 2, "run")])
    assert tuned.chosen == "a" and tuned.flops == 2 * 2 * (1 + 2)
    with pytest.raises(InputError, match="no problem was answered under every setting of m/s"):
        tune.choose([_curve("a", [[1.0, nan]]), _curve("b", [[nan, 1.0]])])


def test_a_role_that_has_no_end_is_told_of_its_own_problems(study_file: Write, tmp_path: Path) -> None:
    sets = ["study.development.task=null", "study.development.share=0.4"]
    study = schema.load(study_file(count=12), sets=sets)
    root = tmp_path / "study"
    for role in ("development", "test"):
        (root / role).mkdir(parents=True)
    (root / "study.yaml").write_text(schema.dump(study))
    with build.open_setup(study.experiment) as setup:
        problems = list(enumerate(setup.task.problems()))
    held, tested = (
        [only is None or only(*one) for one in problems]
        for only in (problems_of(RunDirectory(root / role)) for role in ("development", "test"))
    )
    assert 0 < sum(held) < 12 and [not one for one in held] == tested
    assert problems_of(RunDirectory(tmp_path / "other")) is None


def test_a_share_divides_the_problems(study_file: Write, tmp_path: Path) -> None:
    settings = "{majority: [{}, {generator.skill: 0.9}]}"
    share = f"  development: {{share: 0.4, trials: 2, n: 4, settings: {settings}}}\n"
    sets = ("grid.generators=[small]", "grid.strategies=[single, majority]")
    result = play(study_file(count=12, study=LITTLE + share), tmp_path / "study", *sets)
    directory = StudyDirectory(tmp_path / "study")
    held, seen, limited = (
        set(read(directory.role(role).table("problems"))["problem"].to_pylist())
        for role in ("development", "test", "limit")
    )
    assert held and seen == limited and not held & seen and len(held | seen) == 12
    assert set(result.problems) == seen
    run_report.publish(directory.role("test"))
    page = (directory.role("test").root / "report.html").read_text()
    assert f"metagen study {directory.study}" in page and "metagen run experiment.yaml" not in page


def test_an_interrupted_study_goes_on(
    study_file: Write, finished: Finished, tmp_path: Path, calls: Calls
) -> None:
    file, root = study_file(), tmp_path / "study"

    def stop(role: str) -> None:
        if role == "limit":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        studies.run(schema.load(file), root, begins=stop)
    with pytest.raises(InputError, match="not begun"):
        report.again(StudyDirectory(root))
    began: list[str] = []
    studies.run(schema.load(file), root, begins=began.append)
    assert began == ["limit", "splitting", "temperature"]
    assert sorted(calls()) == sorted(finished.calls)


def test_a_study_that_is_not_tuned_yet_says_how_to_go_on(study_file: Write, tmp_path: Path) -> None:
    file, root = study_file(), tmp_path / "study"

    def stop(role: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        studies.run(schema.load(file), root, begins=stop)
    with pytest.raises(
        InputError, match=r"is not finished: no setting of .+; go on with: metagen resume .+study"
    ):
        report.again(StudyDirectory(root))


def test_another_seed_is_refused_and_changes_nothing(study_file: Write, copied_study: Path) -> None:
    file, root = study_file(), copied_study
    before = (root / "study.yaml").read_text()
    with pytest.raises(InputError, match="holds a study with seed 3, and this one's is 4"):
        play(file, root, "seed=4")
    assert (root / "study.yaml").read_text() == before


def test_other_seeds_of_a_role_are_refused_and_the_study_stays_one(
    study_file: Write, copied_study: Path, finished: Finished
) -> None:
    file, root = study_file(), copied_study
    before = (root / "study.yaml").read_text()
    with pytest.raises(
        InputError, match="other data or seeds than this one, and was left as it was: give another"
    ):
        play(file, root, "study.limit.seed=2")
    assert (root / "study.yaml").read_text() == before
    assert play(file, root).curves[0].accuracy.tolist() == finished.result.curves[0].accuracy.tolist()


def test_limits_of_a_problem_hold_in_the_test_and_pools_of_limits_have_none(
    study_file: Write, tmp_path: Path
) -> None:
    budget = "budget: {calls: 6}\nstudy: {limit: {n: 16, seed: 1}}"
    result = play(study_file(study=budget), tmp_path / "study")
    assert {c.source for c in result.curves} == {"run"}
    assert result.curve("small", "single").ns.tolist() == [1]
    assert all(v.role == "limit" and (v.sizes == 16).all() for v in result.votes) and result.votes


def test_problems_of_both_are_refused(study_file: Write, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="6 problems of development are test problems"):
        play(study_file(), tmp_path / "study", "study.development.task={label: dev}")
    with pytest.raises(ConfigError, match=r"study.temperature.task: 3 problems of temperature are test prob"):
        play(study_file(), tmp_path / "study", "study.temperature.task={label: warm, count: 3}")


def test_a_prompt_that_is_there_twice_is_on_one_side_of_a_share() -> None:
    held = plan.developing(0.4)
    drawn = [
        {held(place, Problem(Prompt(f"{name}-{place}", text=f"{place}+1=?"), "")) for name in ("a", "b")}
        for place in range(400)
    ]
    assert all(len(sides) == 1 for sides in drawn)
    # 400 draws: ± 4 standard errors.
    assert abs(sum(True in sides for sides in drawn) / 400 - 0.4) < 4 * (0.4 * 0.6 / 400) ** 0.5


@pytest.mark.parametrize(
    ("sets", "apart"),
    [
        ((), True),
        (("study.temperature.task=null",), True),
        (("study.temperature.task=null", "study.development=null"), False),
        (
            ("study.temperature.task=null", "study.development.task=null", "study.development.share=0.5"),
            False,
        ),
    ],
)
def test_temperatures_may_be_tried_on_the_problems_of_the_test(
    sets: tuple[str, ...], apart: bool, study_file: Write
) -> None:
    study = schema.load(study_file(), sets=sets)
    part = plan.temperature(study)
    assert part is not None
    assert (
        plan.has_own_temperature_problems(study) == apart == (part.experiment.task != study.experiment.task)
    )


def test_splitting_and_temperature_have_results_of_their_own(study_file: Write, finished: Finished) -> None:
    study, directory = schema.load(study_file()), StudyDirectory(finished.root)
    found = studies.extras(directory, study)
    fewer = schema.load(study_file(), sets=["study.splitting=null"])
    assert list(studies.extras(directory, fewer)) == ["temperature"]
    split, warm = found["splitting"], found["temperature"]
    assert {(c.strategy, c.verifier) for c in split.curves} == {
        ("split-majority", None), ("split-1", "weak"), ("split-2", "judge"),
    }  # fmt: skip
    assert split.facts["splitting"] == {"critiques": {"1": "weak", "2": "judge"}, "aggregate": "weighted"}
    assert [m.temperature for m in warm.models] == [0.5, 1.0] and len(warm.problems) == 3
    assert warm.facts["temperature_apart"] is True
    assert warm.facts["temperature"]["small.temperature-0.5"] == {
        "model": "small",
        "setting": {"temperature": 0.5},
    }


def test_what_each_role_would_take(study_file: Write, tmp_path: Path, calls: Calls) -> None:
    found = dict(studies.estimates(schema.load(study_file())))
    assert list(found) == ["development", "test", "limit", "splitting", "temperature"]
    assert found["limit"].total.calls >= 2 * 6 * 16 and not calls()


def test_results_are_collected_again_only_where_something_changed(
    study_file: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of two strategies of one model: the report is written many times.
    sets = ("grid.generators=[small]", "grid.strategies=[single, weighted]")
    result = play(study_file(study=LITTLE, n="[1, 2]"), tmp_path / "study", *sets)
    directory = StudyDirectory(tmp_path / "study")
    study = schema.load(directory.study)
    collected: list[str] = []
    of_study = collect.of_study

    def count(*args: Any) -> StudyResult:
        collected.append("again")
        return of_study(*args)

    monkeypatch.setattr(collect, "of_study", count)
    report.publish(directory, study, result)
    pages = {
        name: (directory.root / name).read_bytes() for name in ("report.html", "curves.csv", "findings.json")
    }
    report.again(directory)
    assert not collected
    assert all((directory.root / name).read_bytes() == page for name, page in pages.items())
    # The page shows what the journal holds of some problems.
    page = directory.root / "report.html"
    at = page.stat().st_mtime_ns
    os.utime(directory.role("test").journal, ns=(0, 0))
    report.again(directory)
    assert not collected and page.stat().st_mtime_ns > at and page.read_bytes() == pages["report.html"]
    # Another byte in a table of a run, and something else to read it by: both may change the results.
    table = directory.role("limit").table("candidates")
    os.utime(table, ns=(0, 0))
    report.again(directory)
    assert collected == ["again"]
    report.again(directory)
    assert collected == ["again"]
    monkeypatch.setattr(metagen, "__version__", "0.0.0")
    report.again(directory)
    assert collected == ["again"] * 2


def test_a_change_of_drawing_collects_nothing_again_and_one_of_collecting_does(
    study_file: Write, copied_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "metagen"
    shutil.copytree(Path(metagen.__file__).parent, package, ignore=lambda at, names: {"generators", "tasks"})
    monkeypatch.setattr(metagen, "__file__", str(package / "__init__.py"))
    directory, study = StudyDirectory(copied_study), schema.load(study_file())
    studies.results(directory, study)
    saved = directory.root / studies.COLLECTED

    def collects_again(changed: str) -> bool:
        with (package / changed).open("a", encoding="utf-8") as code:
            code.write("\n# changed\n")
        saved_at = saved.stat().st_ino
        studies.results(directory, study)
        return saved.stat().st_ino != saved_at

    drawing = (
        "runs/page/draw.py",
        "runs/questions/frontier.py",
        "analysis/study_figures.py",
        "analysis/figures.py",
    )
    assert not any(map(collects_again, drawing))
    assert all(map(collects_again, ("runs/curves/reading.py", "analysis/estimators.py", "cost.py")))


def test_collecting_runs_no_code_that_its_digest_leaves_out(study_file: Write, copied_study: Path) -> None:
    directory, study = StudyDirectory(copied_study), schema.load(study_file())
    # It notes every call, as a function for `sys.setprofile` would in ten times the time.
    with cProfile.Profile(builtins=False) as profile:
        studies.collect_results(directory, study)
    codes = [one.code for one in profile.getstats() if isinstance(one.code, CodeType)]
    ran = {Path(code.co_filename) for code in codes if code.co_name != "<module>"}
    root = Path(metagen.__file__).parent
    ours = {path for part in ("analysis", "runs") for path in ran & set((root / part).rglob("*.py"))}
    assert root / "runs" / "curves" / "reading.py" in ours and ours <= set(collect.code_files())


def test_results_that_were_half_saved_are_collected_again(
    study_file: Write, copied_study: Path, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between the results and the digest of what they are made of, and then the file as it was before."""
    file, root, write = study_file(), copied_study, RunDirectory.write

    def stop(self: RunDirectory, name: str, text: str) -> None:
        if name == studies.COLLECTED:
            raise KeyboardInterrupt
        write(self, name, text)

    monkeypatch.setattr(RunDirectory, "write", stop)
    with pytest.raises(KeyboardInterrupt):
        play(file, root, "study.budgets={samples: [4]}")
    monkeypatch.undo()
    assert play(file, root).budgets == finished.result.budgets
