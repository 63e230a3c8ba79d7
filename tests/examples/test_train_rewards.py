"""Reward models of all kinds, generative verifiers, and their comparison, on a small share of steps and data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from metagen.generators import tiny
from metagen.verifiers.published import layout_of

RESUMED = ("tiny-critic", "reward-pairs")
TRAINED = (
    *RESUMED,
    "tiny-both",
    "tiny-orm-2m",
    *(f"reward-{kind}" for kind in ("labels", "steps", "soft", "hard")),
)


def copy(family: Path, into: Path) -> Path:
    """What the recipe starts from."""
    into.mkdir()
    shutil.copy(family / "setting.json", into)
    for part in ("solutions", "models"):
        shutil.copytree(family / part, into / part)
    return into


@pytest.fixture(scope="module")
def rewards(scripts: Any, family: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was interrupted among the steps of a reward model, and went on."""
    into = copy(family, tmp_path_factory.mktemp("rewards") / "interrupted")
    scripts.interrupt("rewards.py", into, (into / "checkpoints" / "reward-pairs.pt").exists)
    assert not (into / "models" / "reward-pairs").exists()
    scripts.run("rewards.py", into, "--only", "rollouts", *TRAINED, "cards")
    return into


@pytest.mark.slow
def test_an_interrupted_run_comes_to_the_same_weights_bit_for_bit(
    scripts: Any, family: Path, rewards: Path, tmp_path: Path
) -> None:
    alone = copy(family, tmp_path / "alone")
    scripts.run("rewards.py", alone, "--only", "rollouts", *RESUMED)
    for name in RESUMED:
        ours, theirs = ((folder / "models" / name / "model.safetensors") for folder in (rewards, alone))
        assert ours.read_bytes() == theirs.read_bytes(), name


@pytest.mark.slow
def test_each_kind_of_supervision_comes_to_a_directory_that_says_how_it_is_read(rewards: Path) -> None:
    for name in ("reward-labels", "reward-pairs", "tiny-orm-2m"):
        assert layout_of(rewards / "models" / name, "orm").labels == ("<+>", "<->")
    for name in ("reward-steps", "reward-soft", "reward-hard", "tiny-both"):
        assert layout_of(rewards / "models" / name, "prm").labels == ("<+>", "<->")
    weights = {n: (rewards / "models" / n / "model.safetensors").read_bytes() for n in TRAINED}
    # Generators that solve nothing give all steps the same value, soft or hard.
    assert len(set(weights.values())) >= len(TRAINED) - 1
    assert "V:W" in (rewards / "models" / "tiny-critic" / "README.md").read_text()


@pytest.mark.slow
def test_the_comparison_scores_through_the_package_and_keeps_its_figures(scripts: Any, rewards: Path) -> None:
    options = ("--generators", "tiny-0.5m", "--verifiers", "tiny-both", "reward-soft", "tiny-critic")
    said = scripts.run("compare_rewards.py", rewards, *options)
    (found,) = json.loads((rewards / "compared" / "figures.json").read_text())
    rules = {"tiny-both.orm", "tiny-critic.judge.1", "tiny-critic.judge.4"}
    rules |= {
        f"{name}.prm.{how}"
        for name in ("tiny-both", "reward-soft")
        for how in ("last", "min", "mean", "product")
    }
    assert rules == set(found["auc"])
    assert (found["problems"], found["samples"]) == (12, 4)
    assert all(0 <= low <= value <= high <= 1 for value, low, high in found["accuracy"].values())
    assert {"search tiny-both.prm", "search tiny-both.orm", "weighted reward-soft.prm.min @4"} < set(
        found["accuracy"]
    )
    assert "| tiny-both.prm.last |" in said and (rewards / "compared" / "report.md").read_text() in said
    # A second call reads what is kept: it says the same, without a bar of progress before.
    scored = rewards / "compared" / "tiny-both.prm-on-tiny-0.5m-0.jsonl"
    before = scored.stat().st_mtime_ns
    again = scripts.run("compare_rewards.py", rewards, *options)
    assert said.endswith(again)
    assert scored.stat().st_mtime_ns == before


def test_what_a_model_starts_from_must_be_there(train: Any, tmp_path: Path) -> None:
    reward, setting = train("train_reward"), train("setting")
    with pytest.raises(SystemExit, match="has no tiny-prm, which is needed first: train it") as said:
        reward.reward("tiny-orm-2m", reward.PLANS["tiny-orm-2m"], setting.Setting(tmp_path))
    assert str(tiny.HERE / "tiny-prm") in str(said.value)
