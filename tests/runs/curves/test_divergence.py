"""KL of policies that have probabilities, from a study's own samples: temperatures, adapters, tilts of a model."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from metagen.errors import ConfigError, EngineError
from metagen.runs import study as run
from metagen.runs.curves import divergence
from metagen.runs.curves.study import StudyResult
from metagen.runs.declare import plan
from metagen.runs.declare import study_schema as schema
from metagen.runs.directory import StudyDirectory
from metagen.runs.questions.alignment import section
from metagen.runs.questions.section import Plot

STUDY = """
name: tilts
seed: 3
task: {kind: arithmetic, split: validation, levels: [1, 2], per_level: 2}
engines:
  base: {kind: torch, model: tiny-0.1m}
  none: {kind: torch, model: {tilted: {base: tiny-0.1m, values: [tiny-0.1m], weights: [0.0]}}}
  twice: {kind: torch, model: {tilted: {base: tiny-0.1m, values: [tiny-0.1m], weights: [1.0]}}}
  prm: {kind: torch, model: tiny-prm}
generators: {small: {engine: base, max_tokens: 60}, other: {engine: base, max_tokens: 50}}
verifiers: {last: {kind: prm, engine: prm, aggregation: last}}
strategies:
  majority: {kind: majority}
  best: {kind: best_of_n, verifier: last}
  blocks: {kind: blockwise, verifier: last, n: [1, 4], step: {tokens: 8}}
grid: {generators: [small], n: [4]}
study:
  temperature:
    models: [small]
    values: [1.0, 0.5]
    adapters: [{top_k: 1}]
    engines: {small: [none, twice]}
    n: 4
    task: {seed: 9}
  alignment: {models: [small]}
"""


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyDirectory, StudyResult]:
    """A study that has been run; nobody may change it."""
    root = tmp_path_factory.mktemp("tilts")
    file = root / "tilts.yaml"
    file.write_text(STUDY)
    return StudyDirectory(root / "study"), run.run(schema.load(file), root / "study")


@pytest.fixture(scope="module")
def ratios(studied: tuple[StudyDirectory, StudyResult]) -> dict[str, dict[str, list[float]]]:
    """What was measured of each policy."""
    found = divergence.read_divergence(studied[0].role("temperature"))["ratios"]
    return {one["policy"]: one for one in found}


def test_policies_have_a_reward_and_win_against_the_model(
    ratios: dict[str, dict[str, list[float]]],
) -> None:
    for one in ratios.values():
        assert len(one["reward"]) == len(one["wins"]) == 4
        assert all(0.0 <= value <= 1.0 for value in (*one["reward"], *one["wins"]))
    assert ratios["temperature=1.0"]["wins"] == ratios["engine=none"]["wins"] == [0.5] * 4
    assert ratios["engine=twice"]["reward"] == pytest.approx(ratios["temperature=0.5"]["reward"])


def test_wins_are_over_samples_that_share_no_random_numbers() -> None:
    one, two = np.array([0.1, 0.9]), np.array([0.2, 0.3])
    assert divergence.wins(one, two) == 0.5  # 0.1 < 0.3 and 0.9 > 0.2
    assert divergence.wins(one, one) == divergence.wins(two, two) == 0.5
    assert np.isnan(divergence.wins(one[:1], two[:1])) and np.isnan(divergence.wins(one, np.array([])))
    assert np.isnan(divergence.wins(one, np.array([0.2, np.nan])))


def test_what_blockwise_returned_has_a_reward(studied: tuple[StudyDirectory, StudyResult]) -> None:
    directory, result = studied
    assert result.facts["proxy"] == "last"
    rewards = result.facts["rewards"]
    assert set(rewards) == {"small/blocks@1", "small/blocks@4"}
    (votes,) = (v for v in result.votes if v.role == "test")
    for one in rewards.values():
        assert set(one["reward"]) == set(result.problems)
        assert all(0.0 <= value <= 1.0 for value in one["reward"].values())
    # One block of one candidate after the other is the model itself: its first sample.
    first = np.where(votes.eligible, votes.scores["last"], 0.0)
    assert np.mean(list(rewards["small/blocks@4"]["reward"].values())) >= first.mean()
    study = schema.load(directory.study)
    found = section.section(result, study.spec.alignment)
    tables = {t.name: t for t in found.tables}
    for name, column in (("alignment_blocks", 3), ("alignment_ratios", 3)):
        assert tables[name].columns[column : column + 2] == ("mean reward", "wins")
        assert all("–" not in row[column : column + 2] for row in tables[name].rows)
    plot = next(p for p in found.pictures if p.name == "alignment-reward")
    assert isinstance(plot, Plot) and {"blocks@4, at its bound", "temperature=0.5"} <= set(
        plot.points["small"]
    )
    assert "Hollow marks are of the real model" in plot.caption
    mean = np.where(votes.eligible, votes.scores["last"], 0.0).mean()
    assert plot.points["small"]["temperature=1.0"] == (
        pytest.approx(0.0, abs=1e-4),
        pytest.approx(mean, abs=0.02),
    )


def test_what_was_measured_before_rewards_were_is_read(studied: tuple[StudyDirectory, StudyResult]) -> None:
    _, result = studied
    old = [
        {k: v for k, v in one.items() if k not in ("reward", "wins", "plain")}
        for one in result.facts["ratios"]
    ]
    facts = {k: v for k, v in result.facts.items() if k != "rewards"} | {"ratios": old}
    found = section.section(replace(result, facts=facts))
    tables = {t.name: t for t in found.tables}
    for name in ("alignment_blocks", "alignment_ratios"):
        assert {row[3:5] for row in tables[name].rows} == {("–", "–")}


def test_it_is_measured_once_and_anew_by_another_reward(
    studied: tuple[StudyDirectory, StudyResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, _ = studied
    study = schema.load(directory.study)
    part = plan.test(study, {})
    opened: list[str] = []

    def stop(experiment: object) -> None:
        opened.append("opened")
        raise RuntimeError

    monkeypatch.setattr(divergence.build, "open_setup", stop)
    divergence.measure(part, study, directory.role("test"))
    assert not opened
    before = {k: v for k, v in divergence.read_divergence(directory.role("test")).items() if k != "proxy"}
    monkeypatch.setattr(divergence, "read_divergence", lambda run: before)
    with pytest.raises(RuntimeError):
        divergence.measure(part, study, directory.role("test"))


def test_what_failed_for_now_is_tried_again_and_a_run_that_went_on_is_measured_anew(
    studied: tuple[StudyDirectory, StudyResult], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(studied[0].root, tmp_path / "study")
    directory = StudyDirectory(tmp_path / "study")
    study, run = schema.load(directory.study), directory.role("test")
    part = plan.test(study, {})
    whole = divergence.read_divergence(run)

    def fail(*_: object) -> None:
        raise EngineError("the server is away")

    state = run.root / "state.json"
    state.write_text(state.read_text() + "\n")
    with monkeypatch.context() as patch:
        patch.setattr(divergence, "_score", fail)
        divergence.measure(part, study, run)
    lost = divergence.read_divergence(run)
    assert {one["why"] for one in lost["rewards"].values()} == {"the server is away"}
    divergence.measure(part, study, run)
    found = divergence.read_divergence(run)
    assert found["rewards"] == whole["rewards"] and found["made_of"] not in ("", whole["made_of"])


def test_every_policy_is_measured_against_the_model_as_written(
    ratios: dict[str, dict[str, list[float]]],
) -> None:
    assert list(ratios) == ["temperature=1.0", "temperature=0.5", "top_k=1", "engine=none", "engine=twice"]
    assert all(len(one["kl"]) == len(one["gold"]) == 4 for one in ratios.values())
    for same in ("temperature=1.0", "engine=none"):
        np.testing.assert_allclose(ratios[same]["kl"], 0.0, atol=1e-4)


def test_a_tilt_by_the_models_own_logits_is_half_its_temperature(
    ratios: dict[str, dict[str, list[float]]],
) -> None:
    # p · e^z / Z with z = log p + const is p² / Z: the same law, and with the same seeds the same samples.
    np.testing.assert_allclose(ratios["engine=twice"]["kl"], ratios["temperature=0.5"]["kl"], rtol=1e-3)
    assert np.abs(ratios["engine=twice"]["kl"]).min() > 0.1  # of few samples the estimate may be below 0
    assert min(ratios["top_k=1"]["kl"]) > 0.1


@pytest.mark.parametrize(
    ("engines", "expected"),
    [
        ("{small: [nine]}", "did you mean 'none'?"),
        ("{small: []}", "study.temperature.engines.small"),
        (
            "{other: [none]}",
            "study.temperature.engines.other: expected one of study.temperature.models, small",
        ),
        ("{smal: [none]}", "did you mean 'small'?"),
    ],
)
def test_engines_stand_in_for_models_that_are_tried(engines: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "tilts.yaml"
    file.write_text(STUDY)
    with pytest.raises(ConfigError) as caught:
        schema.load(file, sets=[f"study.temperature.engines={engines}"])
    assert expected in str(caught.value)
