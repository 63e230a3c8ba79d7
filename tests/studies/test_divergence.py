"""KL of policies that have probabilities, from a study's own samples: temperatures, adapters, tilts of a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from metagen.errors import ConfigError
from metagen.studies import divergence, run, schema
from metagen.studies.directory import StudyDirectory

STUDY = """
name: tilts
seed: 3
task: {kind: arithmetic, split: validation, levels: [1, 2], per_level: 2}
engines:
  base: {kind: torch, model: tiny-0.1m}
  none: {kind: torch, model: {tilted: {base: tiny-0.1m, values: [tiny-0.1m], weights: [0.0]}}}
  twice: {kind: torch, model: {tilted: {base: tiny-0.1m, values: [tiny-0.1m], weights: [1.0]}}}
generators: {small: {engine: base, max_tokens: 60}, other: {engine: base, max_tokens: 50}}
strategies: {majority: {kind: majority}}
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
def ratios(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[float]]]:
    """What was measured of each policy."""
    root = tmp_path_factory.mktemp("tilts")
    file = root / "tilts.yaml"
    file.write_text(STUDY)
    run.run(schema.load(file), root / "study")
    found = divergence.recorded(StudyDirectory(root / "study").role("temperature"))["ratios"]
    return {one["policy"]: one for one in found}


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
        ("{other: [none]}", "study.temperature.engines.other: expected one of study.temperature.models, small"),
        ("{smal: [none]}", "did you mean 'small'?"),
    ],
)
def test_engines_stand_in_for_models_that_are_tried(engines: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "tilts.yaml"
    file.write_text(STUDY)
    with pytest.raises(ConfigError) as caught:
        schema.load(file, sets=[f"study.temperature.engines={engines}"])
    assert expected in str(caught.value)
