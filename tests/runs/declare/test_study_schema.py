"""Study files: every fault at once, with its place; and what is read is what was written."""

from collections.abc import Callable
from pathlib import Path

import pytest

from metagen.errors import ConfigError
from metagen.runs.declare import plan
from metagen.runs.declare import schema as experiments
from metagen.runs.declare import study_schema as schema
from metagen.runs.declare.settings import overlay, variant, words
from metagen.runs.work import build

Write = Callable[..., Path]


def faults(file: Path, *sets: str) -> str:
    with pytest.raises(ConfigError) as caught:
        schema.load(file, sets=sets)
    return str(caught.value)


def test_a_study_reads_back_from_any_directory(study_file: Write, tmp_path: Path) -> None:
    study = schema.load(study_file())
    (tmp_path / "elsewhere").mkdir()
    copy = tmp_path / "elsewhere" / "study.yaml"
    copy.write_text(schema.dump(study))
    again = schema.load(copy)
    assert again.experiment == study.experiment and again.spec == study.spec


def test_development_may_leave_out_a_limit_of_the_task(study_file: Write) -> None:
    sets = ("task.limit=2", "study.development.task={seed: 70, label: dev, limit: null}")
    study = schema.load(study_file(), sets=sets)
    part = plan.development(study)
    assert part is not None and study.experiment.task.options()["limit"] == 2
    assert part.experiment.task.options().get("limit") is None


def test_an_experiment_is_a_study_and_a_study_is_no_experiment(
    study_experiment_file: Write, study_file: Write
) -> None:
    assert schema.load(study_experiment_file()).spec.development is None
    with pytest.raises(
        ConfigError, match=r"sums.yaml:20: study: belongs to a study; run it with: metagen study"
    ):
        experiments.load(study_file())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("study.limit.seed=3", "study.limit.seed = 3: the same seed draws the same samples"),
        ("study.limit.halves=true", "study.limit = {'halves': True, 'n': 16, 'seed': 1}: expected n"),
        ("study.limit={halves: true, seed: 7}", "seed = 7 is that of an independent pool; with halves nothing is"),
        ("study.limits={}", "study.limits = {}: no such field; expected one of"),
        ("study.budgets={flop: [1.0]}", "did you mean 'flops'?"),
        ("study.budgets={samples: [0.0]}", "expected a number > 0"),
        ("study.budgets={'roofline:h100': [1.0]}", "there is no accelerator 'h100' in study.accelerators"),
        ("study.accelerators={a: {hardware: h20}}", "did you mean 'h200'?"),
        ("study.accelerators={a: {hardware: h200, peak: 1.0}}", "expected hardware, or both peak"),
        ("study.temperature.models=[smal]", "did you mean 'small'?"),
        ("grid.generators=[large]", "study.splitting.models.0 = 'small': expected one of the grid's generators large"),
        ("study.temperature.adapters=[{skil: 0.5}]", "takes no option 'skil'; it takes skill"),
        ("study.splitting.critiques={1: weakest}", "did you mean 'weak'?"),
        ("study.development.trials=1", "study.development.settings.majority: 2 settings; expected at most 1"),
        ("study.development.settings.pass=[{}]", "an oracle knows the answers"),
        ("study.development.settings.best=[{vrifier: weak}]", "best.vrifier = 'weak': no such field"),
        ("study.development.settings.best=[{verifier: wek}]", "did you mean 'weak'?"),
        ("study.development.settings.best=[{n: 4}]", "n is no setting"),
        ("study.development.settings.best=[{}, {}]", "is there twice"),
        ("study.development.settings={vote: [{}]}", "expected one of the strategies"),
        ("study.development.share=0.5", "study.development = {"),
        ("study.alignment={models: [small], gold: oracl}", "did you mean 'oracle'?"),
        ("study.alignment={models: [small], proxy: unused}",
         "alignment.proxy = 'unused': no strategy of the study scores samples by it; expected one of judge, weak"),
        ("study.alignment={models: [small], gold: unused}", "study.alignment.gold = 'unused': no strategy"),
        ("study.alignment={models: [small], proxy: oracle}", "study.alignment.proxy = 'oracle': no strategy"),
        ("study.alignment={models: [small], proxy: judge, gold: judge}", "gold = 'judge': is the proxy itself"),
        ("study.limit.n=8", "study.limit.n = 8: votes go up to n = 8, and their limit is that of a larger pool"),
        ("study.splitting.critiques={-1: weak}", "expected an integer ≥ 0"),
        ("allocation={total: {generated: 100}}", "compares strategies at equal cost by itself"),
    ],
)  # fmt: skip
def test_faults_say_place_value_and_what_was_expected(study_file: Write, change: str, expected: str) -> None:
    assert expected in faults(
        study_file(), "verifiers.unused={kind: 'metagen_toy:verifier', name: unused}", change
    )


def test_times_are_not_modelled_of_shards(study_file: Write) -> None:
    found = faults(
        study_file(), "executor={kind: ray, shards: 2}", "study.accelerators={a: {hardware: h200}}"
    )
    assert "study.accelerators: drivers of shards keep no table of calls" in found


def test_greedy_decoding_has_nothing_to_tune(study_file: Write) -> None:
    found = faults(study_file(), "strategies.argmax={kind: greedy}", "study.development.settings.argmax=[{}]")
    assert "a strategy of kind greedy is run as written" in found


def test_every_cost_that_a_recommendation_takes_may_be_a_budget(study_file: Write) -> None:
    study = schema.load(study_file(), sets=["study.budgets={physical: [100.0]}"])
    assert study.spec.budgets == {"physical": (100.0,)}


def test_a_reward_may_be_one_that_is_tried(study_file: Write) -> None:
    aligned = "study.alignment={models: [small], proxy: weak, gold: judge}"
    assert schema.load(study_file(), sets=[aligned]).spec.alignment is not None


def test_faults_of_the_experiment_and_of_the_study_come_together(study_file: Write) -> None:
    found = faults(study_file(), "grid.n=[0]", "study.limit.seed=3", "study.budgets={flop: [1.0]}")
    assert "grid.n.0 = 0" in found and "did you mean 'flops'?" in found and "2 faults" in found


def test_the_test_runs_frozen_cells_and_no_product(study_file: Write) -> None:
    study = schema.load(study_file())
    part = plan.test(study, {("small", "best"): {"verifier": "weak"}, ("large", "best"): {}})
    cells = {cell.name for cell in build.configurations(part.experiment)}
    assert {"small/best.verifier-weak@8", "large/best@8"} <= cells
    assert not {"small/best@8", "large/best.verifier-weak@8"} & cells
    assert part.names["small/best.verifier-weak"] == ("small", "best", "verifier=weak")
    assert part.names["large/best"] == ("large", "best", "as written")
    assert part.names["large/majority"] == ("large", "majority", "")


def test_development_is_judged_at_its_n(study_file: Write) -> None:
    part = plan.development(schema.load(study_file()))
    assert part is not None
    sizes = {cell.strategy: cell.n for cell in build.configurations(part.experiment) if cell.n}
    assert set(sizes) == {"majority", "best", "best.verifier-weak", "soft", "soft.beta-1.0"}
    assert max(sizes.values()) == 4


def test_what_another_strategy_stands_over_is_judged_at_one_n(study_file: Write) -> None:
    sets = (
        "strategies.base={kind: majority, n: 4}",
        "strategies.top={kind: best_of_n, verifier: judge, over: base, n: 2}",
        "grid.pairs=[[small, top], [small, base], [large, majority]]",
        "study.development.settings={base: [{}, {generator.fails_on: none}], top: [{}, {verifier: weak}]}",
    )
    part = plan.development(schema.load(study_file(), sets=sets))
    assert part is not None and part.experiment.strategies["base"].n == 4


def test_a_definition_called_as_a_setting_is_refused(study_file: Write) -> None:
    file = study_file()
    text = file.read_text()
    file.write_text(
        text.replace("\nstrategies:\n", "\nstrategies:\n  best.verifier-weak: {kind: majority}\n")
    )
    assert file.read_text() != text
    with pytest.raises(
        ConfigError, match=r"strategies\.best\.verifier-weak: a setting of 'best' .* is called so"
    ):
        plan.check(schema.load(file))


def test_names_of_variants_tell_settings_apart() -> None:
    assert variant("rebase", {"temperature": 0.1}) == "rebase.temperature-0.1"
    assert variant("rebase", {}) == "rebase" and words({}) == "as written"
    assert words({"temperature": 0.1, "verifier": "min"}) == "temperature=0.1, verifier=min"
    lossy = [variant("x", {"stop": stop}) for stop in ("\n", "\t", "-")]
    assert len(set(lossy)) == 3


def test_a_setting_reaches_into_a_mapping_and_changes_nothing_else() -> None:
    before = {"kind": "rebase", "step": {"max_tokens": 8}}
    assert overlay(before, {"step.tokens": 4})["step"] == {"max_tokens": 8, "tokens": 4}
    assert before["step"] == {"max_tokens": 8}


def test_a_strategy_may_have_its_own_ladder_and_a_grid_its_pairs(study_experiment_file: Write) -> None:
    sets = ["strategies.majority.n=[2, 4]", "grid.pairs=[[small, majority], [large, single]]"]
    experiment = experiments.load(study_experiment_file(), sets=sets)
    cells = [cell.name for cell in build.configurations(experiment)]
    assert cells == ["small/majority@2", "small/majority@4", "large/single"]
    assert experiment.grid.generators == ("small", "large")
    with pytest.raises(ConfigError, match="'over-it' runs it with one n"):
        experiments.load(
            study_experiment_file(),
            sets=["strategies.majority.n=[2, 4]", "strategies={over-it: {kind: best_of_n, verifier: judge, "
                  "over: inner}, inner: {kind: majority, n: [2, 4]}}"],
        )  # fmt: skip
    with pytest.raises(ConfigError, match="expected an integer ≥ 1, or a list of them"):
        experiments.load(study_experiment_file(), sets=["strategies.majority.n=[0]"])
    with pytest.raises(ConfigError, match="strategies and pairs differ in 'majority'"):
        experiments.load(
            study_experiment_file(),
            sets=["grid.pairs=[[small, single]]", "grid.strategies=[single, majority]"],
        )
