"""A calibrated verifier: other values, the same order, nothing paid for twice."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from metagen.analysis.calibration import Isotonic, Temperature
from metagen.errors import InputError
from metagen.sequence import Prompt, Score, Sequence
from metagen.testing import VerifierLaws, run
from metagen.testing.generators import CountingJournal
from metagen.verifiers.base import Verifier
from metagen.verifiers.calibrated import Calibrated
from metagen.verifiers.function import FunctionVerifier
from metagen.verifiers.oracle import OracleVerifier

PROMPT = Prompt("p", text="Task.")
NUMBER = FunctionVerifier(lambda s: float(s.text), name="number")


def score(verifier: Verifier, *texts: str, **how: object) -> list[Score]:
    asked = [Sequence.of(PROMPT).extend(text, finish="eos") for text in texts]
    return run(lambda s: verifier.score(asked, scope=s.child("score")), **how)[0]  # type: ignore[arg-type]


def test_values_are_mapped_and_what_the_member_said_is_kept() -> None:
    scores = score(Calibrated(NUMBER, Temperature(2.0)), "0.9", "0.5", "0", "1")
    assert [s.value for s in scores] == pytest.approx([0.75, 0.5, 0.0, 1.0])
    assert [s.raw for s in scores] == [0.9, 0.5, 0.0, 1.0]
    rated = FunctionVerifier(lambda s: Score(0.5, raw=3.0), name="rated")
    assert score(Calibrated(rated, Temperature(2.0)), "x")[0].raw == 3.0


def test_verdicts_pass_and_steps_are_mapped_on_request() -> None:
    timeout = FunctionVerifier(lambda s: Score(None, verdict="timeout"), name="slow")
    assert score(Calibrated(timeout, Temperature(2.0)), "x") == [Score(None, verdict="timeout")]
    process = FunctionVerifier(lambda s: Score(0.9, steps=(0.5, 0.9)), name="process")
    assert score(Calibrated(process, Temperature(2.0)), "x")[0].steps == (0.5, 0.9)
    assert score(Calibrated(process, Temperature(2.0), steps=True), "x")[0].steps == pytest.approx(
        (0.5, 0.75)
    )


def test_order_is_kept_on_the_flat_parts_of_a_map_as_well() -> None:
    texts = [f"{x:.4f}" for x in np.linspace(0, 1, 200)]
    for calibration in (Temperature(7.0, -2.0), Isotonic(((0.3, 0.1), (0.4, 0.1), (0.7, 0.9)))):
        values = [s.value for s in score(Calibrated(NUMBER, calibration), *texts)]
        assert np.diff(np.array(values, dtype=float)).min() > 0


def test_the_members_records_serve() -> None:
    journal = CountingJournal()
    score(NUMBER, "0.5", journal=journal)
    score(Calibrated(NUMBER, Temperature(2.0)), "0.5", journal=journal)
    assert journal.recorded == 1


def test_fingerprint_name_and_oracle_are_derived_from_the_member() -> None:
    async def grade(sequence: Sequence) -> float:
        return 1.0

    maps = [Temperature(2.0), Temperature(2.0, 0.1), Isotonic(((0.0, 0.0), (1.0, 1.0)))]
    names = {Calibrated(NUMBER, one).fingerprint for one in maps} | {NUMBER.fingerprint}
    assert len(names) == 4 and Calibrated(NUMBER, maps[0]).name == "number"
    assert Calibrated(OracleVerifier(grade), maps[0]).oracle and not Calibrated(NUMBER, maps[0]).oracle


def falling(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 - x


def outside(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return 2.0 * x


def test_a_map_that_turns_the_order_or_leaves_the_unit_interval_is_refused() -> None:
    with pytest.raises(InputError, match="descends at 0"):
        Calibrated(NUMBER, falling)
    with pytest.raises(InputError, match=r"into \[0, 1\]"):
        Calibrated(NUMBER, outside)


class TestCalibrated(VerifierLaws):
    texts = ("0.1", "0.7", "1")

    def make(self) -> Verifier:
        return Calibrated(NUMBER, Isotonic(((0.0, 0.0), (0.5, 0.8))))
