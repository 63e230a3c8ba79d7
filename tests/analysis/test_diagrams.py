"""Figures of a verifier hold the figures that they are made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from metagen.analysis.calibration import reliability
from metagen.analysis.diagrams import best_of_n_lines, reliability_diagram
from metagen.analysis.figures import curves, save
from metagen.analysis.verifier_quality import verifier_quality
from metagen.errors import InputError

RNG = np.random.default_rng(0)
CORRECT = RNG.random((40, 8)) < RNG.uniform(0.2, 0.8, (40, 1))
SCORES = np.clip(RNG.normal(0.4 + 0.2 * CORRECT, 0.15), 0.0, 1.0)


def test_a_reliability_diagram_draws_every_bin_that_has_samples(tmp_path: Path) -> None:
    found = reliability(SCORES, CORRECT)
    figure = reliability_diagram({"prm": found, "orm": found})
    assert len(figure.axes) == 2
    axes = figure.axes[0]
    diagonal, points = axes.get_lines()
    assert diagonal.get_xydata().tolist() == [[0.0, 0.0], [1.0, 1.0]]
    used = found.count > 0
    assert points.get_xydata() == pytest.approx(np.stack([found.score[used], found.accuracy[used]], axis=1))
    assert len(axes.patches) == 10 and max(bar.get_height() for bar in axes.patches) == pytest.approx(0.25)
    assert f"{found.expected_error:.3f}" in axes.get_title(loc="left")
    png, svg = save(figure, tmp_path / "reliability")
    assert png.stat().st_size > 10_000 and svg.exists()
    with pytest.raises(InputError, match="nothing to draw"):
        reliability_diagram({})


def test_the_curve_of_a_report_is_drawn_beside_its_prediction() -> None:
    quality = verifier_quality(SCORES, CORRECT)
    lines = best_of_n_lines(quality)
    assert [line.label for line in lines][:3] == ["oracle", "best of n", "predicted"]
    assert list(lines[0].x) == [1.0, 2.0, 4.0, 8.0]
    assert list(lines[1].y) == [at.chosen.value for at in quality.curve]
    assert len(curves({"prm": lines}).axes) == 1
