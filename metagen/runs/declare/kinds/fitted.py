"""Verifiers with a part that is fitted: statistics that the verifiers themselves know nothing of."""

from __future__ import annotations

from collections import abc
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
from metagen.generators.base import Generator
from metagen.generators.engine import Engine
from metagen.verifiers.base import Verifier
from metagen.verifiers.calibrated import Calibrated
from metagen.verifiers.generative.pairwise import Tournament


def tournament(
    engine: Engine | None = None,
    *,
    generator: Generator | None = None,
    strengths: Literal["win_rate", "bradley_terry"] = "win_rate",
    name: str = "tournament",
    **given: Any,
) -> Tournament:
    """A tournament by win rates, or by the strengths of the Bradley–Terry model."""
    fit = bradley_terry_strengths if strengths == "bradley_terry" else None
    return Tournament(engine, generator=generator, strengths=fit, name=name, **given)


def bradley_terry_strengths(wins: NDArray[np.float64]) -> NDArray[np.float64]:
    """From a matrix of wins; half a win each way keeps them finite."""
    return np.asarray(bradley_terry(wins, prior=0.5).theta)


#: What journals know tournaments by it under, wherever it is defined.
vars(bradley_terry_strengths).update(fingerprint="metagen.experiments.kinds.fitted.bradley_terry_strengths")


def calibrated(
    members: abc.Sequence[Verifier],
    *,
    name: str,
    temperature: float = 1.0,
    bias: float = 0.0,
    points: str | Path | None = None,
    fit: Literal["temperature", "isotonic"] = "temperature",
    score: str = "score",
    steps: bool = False,
) -> Calibrated:
    """One verifier, its scores mapped by a temperature and a bias, or by what is fitted on points.

    points, score: as of `scored_samples`. fit: a temperature with a bias, or an isotonic map; steps: map the values of
    steps too. Raises DataError for points that cannot be read, InputError for points that no map fits.
    """
    (verifier,) = members
    if points is None:
        return Calibrated(verifier, Temperature(temperature, bias), steps=steps, name=name)
    values, right = scored_samples(Path(points), score)
    try:
        fitted = (
            fit_isotonic([values], [right])
            if fit == "isotonic"
            else fit_temperature([values], [right], bias=True)
        )
    except InputError as error:
        raise InputError(f"verifier {name!r}, points {str(points)!r}: {error}") from None
    return Calibrated(verifier, fitted, steps=steps, name=name)


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
