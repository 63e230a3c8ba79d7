"""A question before its answer: what it compares, and how the corrected comparison is said.

All that one section of a report compares is one family of tests (Holm), so questions first say what they compare, and
hear what came of it after all of them have been asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np

from metagen.analysis.comparison import Contrast, contrasts, sentence
from metagen.runs.curves.measured import FEW
from metagen.runs.curves.study import Floats
from metagen.runs.questions.section import Finding

#: By a name of its own: accuracies a and b, [problems], NaN where one is not measured.
Pairs = Mapping[str, tuple[Floats, Floats]]


class Numbers(TypedDict, total=False):
    """Fields of a finding, in points."""

    estimate: float
    low: float
    high: float
    p_value: float
    detectable: float


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """pairs: what is compared, b − a. said: the finding, from the contrasts by name.

    A pair of fewer than `FEW` problems is no test: it has no contrast.
    """

    said: Callable[[Mapping[str, Contrast]], Finding]
    pairs: Pairs = field(default_factory=dict)


def answer(question: Question) -> Finding:
    """The finding of a question asked by itself: its own family of tests."""
    return answers([question])[0]


def answers(questions: Iterable[Question]) -> list[Finding]:
    """The findings of questions asked together: one family of tests."""
    asked = list(questions)
    pairs = {(i, name): pair for i, question in enumerate(asked) for name, pair in question.pairs.items()}
    tested = compare_pairs({f"{i} {name}": pair for (i, name), pair in pairs.items()})
    return [
        question.said({name: tested[f"{i} {name}"] for name in question.pairs if f"{i} {name}" in tested})
        for i, question in enumerate(asked)
    ]


def compare_pairs(pairs: Pairs) -> dict[str, Contrast]:
    """The contrasts of pairs that have enough problems, one family of tests."""
    fine = {name: (a, b) for name, (a, b) in pairs.items() if (np.isfinite(a) & np.isfinite(b)).sum() >= FEW}
    found = contrasts(fine) if fine else []
    return {contrast.name: contrast for contrast in found}


def words(contrast: Contrast | None) -> str:
    """What a contrast says, or why there is none."""
    return f"fewer than {FEW} problems: no test" if contrast is None else sentence(contrast)


def numbers(contrast: Contrast | None) -> Numbers:
    """The fields of a finding that are those of its main contrast."""
    if contrast is None:
        return {}
    d = contrast.difference
    return {
        "estimate": 100 * d.estimate, "low": 100 * d.low, "high": 100 * d.high, "p_value": contrast.p_value,
        "detectable": 100 * d.detectable,
    }  # fmt: skip


def leave_open(question: str, why: str, *, claim: str = "", source: str = "") -> Question:
    """A question that these data cannot answer."""
    finding = Finding(question, why, claim=claim, source=source, shown=False)
    return Question(lambda _: finding)
