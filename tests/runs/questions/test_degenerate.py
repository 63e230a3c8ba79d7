"""Every part that speaks of results stays sound on bad ones: it raises nothing, and says no number that is none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from metagen.errors import InputError
from metagen.runs.curves import checks
from metagen.runs.curves.measured import FEW
from metagen.runs.curves.study import Curve, StudyResult, Votes
from metagen.runs.questions import ask as questions
from metagen.runs.questions import efficiency
from metagen.runs.questions.alignment import section as alignment
from metagen.runs.questions.recommend import recommend
from metagen.runs.questions.section import Section
from tests.runs.made import made


def curves(result: StudyResult, change: Callable[[Curve], dict[str, Any]]) -> StudyResult:
    return replace(result, curves=tuple(replace(c, **change(c)) for c in result.curves))


def votes(result: StudyResult, change: Callable[[Votes], dict[str, Any]]) -> StudyResult:
    return replace(result, votes=tuple(replace(v, **change(v)) for v in result.votes))


def all_same(right: bool) -> StudyResult:
    result = curves(made(12, 8), lambda c: {"accuracy": np.full_like(c.accuracy, float(right))})
    return votes(
        result,
        lambda v: {
            "correct": np.full_like(v.correct, right),
            "classes": np.full_like(v.classes, 0 if right else 1),
        },
    )


def ragged() -> StudyResult:
    def short(curve: Curve) -> dict[str, Any]:
        accuracy = curve.accuracy.copy()
        if curve.source == "pool" and len(curve.ns) > 2:
            accuracy[-1, 6:] = np.nan
        costs = {name: np.where(np.isnan(accuracy), np.nan, values) for name, values in curve.costs.items()}
        return {"accuracy": accuracy, "costs": costs}

    def fewer(pool: Votes) -> dict[str, Any]:
        sizes = pool.sizes.copy()
        sizes[6:] //= 2
        there = np.arange(pool.classes.shape[1]) < sizes[:, None]
        return {
            "sizes": sizes, "classes": np.where(there, pool.classes, -1), "correct": pool.correct & there,
            "eligible": pool.eligible & there, "tokens": np.where(there, pool.tokens, np.nan),
            "logprob": np.where(there, pool.logprob, np.nan),
            "scores": {name: np.where(there, s, np.nan) for name, s in pool.scores.items()},
        }  # fmt: skip

    return votes(curves(made(12, 8), short), fewer)


SMALL = made(12, 8)
CASES = {
    "one problem": made(1, 8),
    "three problems": made(3, 8),
    "one sample": made(12, 1),
    "all right": all_same(True),
    "all wrong": all_same(False),
    "unequal samples": ragged(),
    "no votes": replace(SMALL, votes=()),
    "no limit pools": replace(SMALL, votes=tuple(v for v in SMALL.votes if v.role == "test")),
    "no log-probabilities": votes(SMALL, lambda v: {"logprob": np.full_like(v.logprob, np.nan)}),
    "no scores": votes(SMALL, lambda v: {"scores": {"prm": np.full_like(v.logprob, np.nan)}}),
    "constant rewards": votes(SMALL, lambda v: {"scores": {"prm": np.full_like(v.logprob, 0.5)}}),
    "nobody answers": votes(
        SMALL, lambda v: {"classes": np.full_like(v.classes, -1), "correct": np.zeros_like(v.correct)}
    ),
    "one model": replace(
        SMALL,
        models=SMALL.models[:1],
        curves=tuple(c for c in SMALL.curves if c.model == "small"),
        votes=tuple(v for v in SMALL.votes if v.model == "small"),
    ),
    "one curve": replace(SMALL, curves=SMALL.curves[:1]),
    "oracles alone": replace(SMALL, curves=tuple(c for c in SMALL.curves if c.oracle)),
    "costs of nothing": curves(
        SMALL, lambda c: {"costs": {name: np.zeros_like(values) for name, values in c.costs.items()}}
    ),
    "unknown costs": curves(
        SMALL, lambda c: {"costs": {name: np.full_like(values, np.nan) for name, values in c.costs.items()}}
    ),
    "unknown sizes": replace(
        SMALL, models=tuple(replace(m, size=None, temperature=None) for m in SMALL.models)
    ),
    "budgets below everything": replace(SMALL, budgets={"flops": (1.0, 2.0)}),
    "a problem that all failed": curves(
        SMALL,
        lambda c: {"accuracy": np.where(np.arange(12) == 0, np.nan, c.accuracy)},
    ),
}
#: Words that a reader would take for a fault.
WRONG = re.compile(r"\bnan\b|\bNaN\b|\binf\b|\bNone\b|%%", re.ASCII)


def said(sections: list[Section]) -> Iterator[str]:
    for section in sections:
        yield section.text
        for finding in section.findings:
            yield finding.sentence
        for table in section.tables:
            yield table.caption
            yield from (cell for row in table.rows for cell in row)
        for note in section.notes:
            yield note.text


@pytest.mark.parametrize("name", CASES)
def test_findings_never_raise_and_never_make_a_number_up(name: str) -> None:
    result = CASES[name]
    sections = [*questions.sections(result, {}), alignment.section(result, None), efficiency.section(result)]
    wrong = [text for text in said(sections) if WRONG.search(text)]
    assert not wrong, wrong[:3]
    for section in sections:
        for finding in section.findings:
            assert finding.sentence, finding.question
            if not np.isnan(finding.low):
                assert finding.low <= finding.high, finding
            if len(result.problems) < FEW:
                assert np.isnan(finding.p_value) and np.isnan(finding.low), (
                    "so few problems tell nothing of others"
                )
        for table in section.tables:
            assert all(len(row) == len(table.columns) for row in table.rows), table.name


@pytest.mark.parametrize("name", CASES)
def test_notes_and_recommendations_of_the_same(name: str) -> None:
    result = CASES[name]
    assert not [note for note in checks.notes(result) if WRONG.search(note.text)]
    if name in ("oracles alone", "costs of nothing", "unknown costs"):
        with pytest.raises(InputError, match=r"nothing to recommend|is 0 throughout|is unknown"):
            recommend(result, {"flops": 1e9})
        return
    found = recommend(result, {"flops": 1e9})
    assert np.isfinite(found.accuracy) and not found.curve.oracle and found.costs["flops"] <= 1e9
    assert np.isnan(found.low) == (found.problems < FEW)
    assert not [note for note in found.notes if WRONG.search(note.text)]
