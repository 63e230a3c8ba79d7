"""The toy of refinement runs, and its curves are those of theory."""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "refinement.py"


def test_the_toy_follows_theory_and_draws_its_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    toy = runpy.run_path(str(EXAMPLE))
    for name, expected in toy["THEORY"].items():
        chains = asyncio.run(toy["chains"](toy["refining"](name, 8), 30))
        values, copies = toy["by_round"](chains, 8)
        last = toy["Rounds"].of(values, copies).last()
        # 330 characters of a round: five standard errors, false once in 60,000 runs of all 27 checks.
        error = 5 * np.sqrt(expected[:9] * (1 - expected[:9]) / (30 * len(toy["WORD"])))
        assert np.all(np.abs(last.mean(axis=0) - expected[:9]) < error), name
    main = toy["main"]
    main.__globals__.update(
        ROUNDS=6, CHAINS=4, THEORY={name: curve[:7] for name, curve in toy["THEORY"].items()}
    )
    main(str(tmp_path / "deep" / "toy"))
    said = capsys.readouterr().out
    assert "told what is wrong     round  6: best" in said and "4 chains of 15" in said
    assert (tmp_path / "deep" / "toy.png").stat().st_size > 10_000
