"""Calibrations that an experiment file asks for: what they are fitted on, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from metagen.analysis.calibration import Isotonic, Temperature, fit_isotonic, fit_temperature
from metagen.cli import app
from metagen.errors import ConfigError, DataError, InputError
from metagen.runs.declare import schema
from metagen.runs.declare.fitted import calibrated, scored_samples
from metagen.runs.work import build
from metagen.verifiers.calibrated import Calibrated
from metagen.verifiers.function import FunctionVerifier

BOASTFUL = FunctionVerifier(lambda s: 0.9, name="boastful")
FILE = """\
name: fitted
task: {kind: jsonl, path: problems.jsonl, pattern: "^(.*)$"}
generators: {recorded: {kind: replay, path: pool.jsonl, fields: {scores.sure: sure}}}
verifiers:
  sure: {kind: recorded, score: sure}
  mended: {kind: calibrated, verifier: sure, points: FROM}
strategies: {best: {kind: best_of_n, verifier: sure}, vote: {kind: weighted, verifier: mended}}
grid: {n: [4]}
"""


def samples() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    honest = rng.beta(0.7, 0.7, size=200)
    return honest**3 / (honest**3 + (1 - honest) ** 3), rng.random(200) < honest


def written(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records), "utf-8")
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_map_is_fitted_on_the_samples_of_a_file(suffix: str, tmp_path: Path) -> None:
    values, right = samples()
    rows = [{"score.prm": float(v), "correct": bool(r)} for v, r in zip(values, right, strict=True)]
    file = tmp_path / f"points{suffix}"
    if suffix == ".csv":
        lines = [
            "score.prm,correct",
            *(f"{r['score.prm']!r},{str(r['correct']).lower()}" for r in rows),
            ",true",
        ]
        file.write_text("\n".join(lines) + "\n", "utf-8")
    else:
        written(file, *rows, {"score.prm": None, "correct": True})
    found = calibrated(BOASTFUL, name="c", points=file, score="prm")
    assert found.calibration == fit_temperature([values], [right], bias=True)
    assert isinstance(found.calibration, Temperature) and 2 < found.calibration.temperature < 4.5
    isotonic = calibrated(BOASTFUL, name="c", points=file, score="prm", fit="isotonic")
    assert isotonic.calibration == fit_isotonic([values], [right])


def test_points_that_no_map_fits_are_refused_with_their_place(tmp_path: Path) -> None:
    alike = written(tmp_path / "alike.jsonl", {"prm": 0.2, "correct": True}, {"prm": 0.4, "correct": True})
    with pytest.raises(InputError, match=r"verifier 'c', points '.*alike.jsonl': .*right and wrong samples"):
        calibrated(BOASTFUL, name="c", points=alike, score="prm")
    with pytest.raises(
        DataError, match=r"the columns prm, correct; expected 'correct', and 'score.sure' or 'sure'"
    ):
        scored_samples(alike, "sure")
    words = written(tmp_path / "words.jsonl", {"prm": "high", "correct": True})
    with pytest.raises(DataError, match="cannot read the points"):
        scored_samples(words, "prm")
    with pytest.raises(DataError, match=r"ends in \.parquet, \.csv, \.jsonl"):
        scored_samples(tmp_path / "points.txt", "prm")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    answers = [("a", 2), ("b", 4), ("c", 6)]
    written(tmp_path / "problems.jsonl", *({"id": i, "question": "?", "answer": str(n)} for i, n in answers))
    pools = [{"id": i, "texts": [str(n), str(n), "0", "1"], "sure": [0.9, 0.4, 0.6, 0.2]} for i, n in answers]
    written(tmp_path / "pool.jsonl", *pools)
    path = tmp_path / "fitted.yaml"
    path.write_text(FILE.replace("FROM", "points.jsonl"), "utf-8")
    written(tmp_path / "points.jsonl", {"sure": 0.3, "correct": False}, {"sure": 0.8, "correct": True})
    return path


def test_a_map_is_fitted_on_an_earlier_run_whose_directory_is_named(file: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "earlier")])
    assert run.exit_code == 0, run.output
    file.write_text(FILE.replace("FROM", "earlier, fit: isotonic"), "utf-8")
    with build.open_setup(schema.load(file)) as setup:
        mended = setup.verifiers["mended"]
        said = "points = .*earlier.*: 3 of this experiment's problems are in that run"
        assert any(re.search(said, caution) for caution in build.cautions(setup)), (
            "they are the same problems"
        )
    assert isinstance(mended, Calibrated)
    # In every pool 0.9 and 0.4 are right, 0.6 and 0.2 are not: 0.4 and 0.6 share a block.
    assert isinstance(mended.calibration, Isotonic)
    assert np.array(mended.calibration.points) == pytest.approx(
        np.array([(0.2, 0.0), (0.5, 0.5), (0.9, 1.0)])
    )
    again = CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "later")])
    assert again.exit_code == 0, again.output
    assert CliRunner().invoke(app, ["resume", str(tmp_path / "later")]).exit_code == 0, (
        "the path is kept as absolute"
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nowhere", r"verifiers.mended.points = 'nowhere': there is no file .*a finished run with pools"),
        ("points.jsonl, temperature: 2.0", "temperature is fitted on the points"),
        ("points.jsonl, fit: linear", "verifiers.mended.fit = 'linear'"),
    ],
)
def test_what_cannot_be_fitted_is_refused_with_its_place(given: str, message: str, file: Path) -> None:
    file.write_text(FILE.replace("FROM", given), "utf-8")
    with pytest.raises(ConfigError, match=message):
        schema.load(file)


def test_a_fit_needs_points(file: Path) -> None:
    file.write_text(FILE.replace("points: FROM", "fit: isotonic"), "utf-8")
    with pytest.raises(ConfigError, match="fit needs points to fit"):
        schema.load(file)
