"""Verifiers with a part that is fitted: statistics that the verifiers themselves know nothing of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
from numpy.typing import NDArray

from metagen.analysis.calibration import Temperature, fit_isotonic, fit_temperature
from metagen.analysis.preference import bradley_terry
from metagen.errors import DataError, InputError
from metagen.parts import part
from metagen.runs.declare.specs.fields import PointsName, ScoreName
from metagen.values import Number, Positive
from metagen.verifiers.base import Verifier
from metagen.verifiers.calibrated import Calibrated
from metagen.verifiers.generative.pairwise import Strengths, Tournament


def bradley_terry_strengths(wins: NDArray[np.float64]) -> NDArray[np.float64]:
    """The strengths, [candidates], from the wins of each over each, [candidates, candidates].

    Half a win each way keeps them finite.
    """
    return np.asarray(bradley_terry(wins, prior=0.5).theta)


#: What journals know tournaments by it under, wherever it is defined.
vars(bradley_terry_strengths).update(fingerprint="metagen.experiments.kinds.fitted.bradley_terry_strengths")


@part
class FittedTournament(Tournament):
    """Candidates compared in pairs, in both orders.

    strengths: the win rate, the strengths of the Bradley–Terry model, or a function of the matrix of wins.
    temperature: of what the model writes. max_tokens: of one sample that it writes; 512 by default.
    """

    strengths: Literal["win_rate", "bradley_terry"] | Strengths | None = "win_rate"  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.strengths == "win_rate":
            self.strengths = None
        elif self.strengths == "bradley_terry":
            self.strengths = bradley_terry_strengths
        super().__post_init__()


def calibrated(
    verifier: Verifier,
    *,
    name: str,
    temperature: Positive = 1.0,
    bias: Number = 0.0,
    points: PointsName | None = None,
    fit: Literal["temperature", "isotonic"] = "temperature",
    score: ScoreName = None,
    steps: bool = False,
) -> Calibrated:
    """A verifier whose scores are mapped monotonically.

    Either by temperature and bias, p ↦ σ(logit(p) / temperature + bias), or by a map that is fitted on `points`:
    samples of other problems, of a run or in a file, with their scores and whether they are right. fit: a temperature
    with a bias, or an isotonic map. score: the points' name of the score; by default that of the verifier. steps: map
    the values of steps too. verifier: whose scores are mapped. temperature: divides the logit. bias: is added to it.
    points: the samples that the map is fitted on. Raises DataError for points that cannot be read, InputError for
    points that no map fits.
    """
    if points is None:
        return Calibrated(verifier, Temperature(temperature, bias), steps=steps, name=name)
    values, right = scored_samples(Path(points), score or verifier.name)
    try:
        fitted = (
            fit_isotonic([values], [right])
            if fit == "isotonic"
            else fit_temperature([values], [right], bias=True)
        )
    except InputError as error:
        raise InputError(f"verifier {name!r}, points {str(points)!r}: {error}") from None
    return Calibrated(verifier, fitted, steps=steps, name=name)


def _conflict(given: Mapping[str, Any]) -> str | None:
    """What fields of `calibrated` cannot be to each other. Defaults are as good as nothing: runs write them out."""
    usual = (
        {"fit": "temperature", "score": None}
        if given["points"] is None
        else {"temperature": 1.0, "bias": 0.0}
    )
    odd = next((name for name, value in usual.items() if given[name] != value), None)
    needs = "needs points to fit" if given["points"] is None else "is fitted on the points"
    return odd and f"{odd} {needs}; give points, or a temperature and a bias"


vars(calibrated).update(conflict=_conflict)


def scored_samples(file: Path, score: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The score of every sample in a file, NaN where it has none, and whether it is right (0 or 1): arrays [samples].

    file: Parquet, CSV or JSONL, one sample a row, with `correct` and `score.NAME`, as the `candidates.parquet` of a run
    has them, or `NAME`; score: that name. Raises DataError, which says what the file has.
    """
    readers = {
        ".parquet": pyarrow.parquet.read_table,
        ".csv": pyarrow.csv.read_csv,
        ".jsonl": pyarrow.json.read_json,
    }
    if file.suffix not in readers:
        raise DataError(f"the points {str(file)!r}: expected a file that ends in {', '.join(readers)}")
    try:
        table = readers[file.suffix](file)
        column = next((name for name in (f"score.{score}", score) if name in table.column_names), None)
        if column is None or "correct" not in table.column_names:
            raise DataError(
                f"the points {str(file)!r} have the columns {', '.join(table.column_names)}; expected 'correct', and "
                f"'score.{score}' or {score!r}: name the score by score:"
            )
        values, right = (table[name].cast(pyarrow.float64()).to_numpy() for name in (column, "correct"))
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"cannot read the points {str(file)!r}: {error}; give one sample a row") from error
    return values, right
