"""The best temperature by n, and diversity against brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from metagen.analysis.estimators import majority_at_k
from metagen.runs.curves.study import Curve, Model, StudyResult, Votes
from metagen.runs.questions import temperature
from metagen.runs.questions.section import Plot
from tests.runs.made import made

BASE = made(60, 16)


def sampled(name: str, words: str, right: float, wrong: int, seed: int) -> tuple[Curve, Votes]:
    """Right with probability `right`, wrong in one of so many ways; evenly spread over 60 problems."""
    rng = np.random.default_rng(seed)
    shares = np.clip(right + rng.normal(0, 0.05, 60), 0.01, 0.99)
    correct = rng.random((60, 16)) < shares[:, None]
    classes = np.where(correct, 0, rng.integers(1, wrong + 1, size=correct.shape))
    full, ks = np.ones(correct.shape), [1, 4, 16]
    at = majority_at_k(classes, correct, ks, np.random.default_rng(0))
    n = np.repeat(np.array(ks, dtype=float)[:, None], 60, axis=1)
    curve = Curve(
        name, "votes", "majority", np.array(ks), at.accuracy, at.error, {"samples": n}, 0 * n, setting=words
    )
    pool = Votes(name, "test", classes, correct, full.astype(bool), {}, full, -full, np.full(60, 16))
    return curve, pool


def role() -> StudyResult:
    """Cold: right more often, wrong in one way. Hot: right less often, wrong in very many ways, so that votes win."""
    made_ = {
        "small.temperature-1.3": ("temperature=1.3", 0.35, 40, 1.3),
        "small.temperature-0.4": ("temperature=0.4", 0.45, 1, 0.4),
        "small.top_p-0.9": ("top_p=0.9", 0.4, 3, 1.0),
    }
    parts = [
        sampled(name, words, right, wrong, i)
        for i, (name, (words, right, wrong, _)) in enumerate(made_.items())
    ]
    models = tuple(Model(name, 1e5, at) for name, (*_, at) in made_.items())
    return replace(
        BASE, curves=tuple(c for c, _ in parts), votes=tuple(v for _, v in parts), models=models, tuned=()
    )


def test_settings_are_known_by_their_model_and_temperatures_come_first() -> None:
    found = temperature.settings(role(), ["small", "large"])
    assert [(s.model, s.label, s.temperature) for s in found] == [
        ("small", "temperature=0.4", 0.4),
        ("small", "temperature=1.3", 1.3),
        ("small", "top_p=0.9", None),
    ]


def test_the_best_temperature_rises_with_n() -> None:
    section = temperature.section(BASE, {"temperature": role()})
    assert section is not None
    plot = next(p for p in section.pictures if p.name == "best-temperature")
    assert isinstance(plot, Plot)
    vote = next(line for line in plot.panels["small"] if line.label == "vote")
    assert list(vote.y) == [0.4, 1.3, 1.3] and list(vote.x) == [1.0, 4.0, 16.0]
    table = next(t for t in section.tables if t.name == "best-temperature-small")
    assert [row[:3] for row in table.rows][:3] == [
        ("vote", "1", "0.4"),
        ("vote", "4", "1.3"),
        ("vote", "16", "1.3"),
    ]
    assert section.notes == ()


def test_temperatures_that_tie_are_all_named() -> None:
    tried = [s for s in temperature.settings(role(), ["small"]) if s.temperature is not None]
    for count in (60, 7):
        rows = {s.label: np.full(count, 0.5) for s in tried}
        found = temperature.best_temperature(tried, rows, 4)
        assert found is not None and found.tied == (0.4, 1.3)
        if count == 60:
            assert (found.low, found.high) == (0.4, 1.3)
    ahead = temperature.best_temperature(tried, {s.label: np.full(60, s.temperature) / 2 for s in tried}, 4)
    assert ahead is not None and (ahead.tied, ahead.low, ahead.high) == ((1.3,), 1.3, 1.3)


def test_the_report_says_whose_problems_they_are() -> None:
    said = {
        None: "every setting. ",
        True: "on other problems than the test. ",
        False: "on the problems of the test. ",
    }
    for apart, words in said.items():
        facts = {} if apart is None else {temperature.APART: apart}
        section = temperature.section(BASE, {"temperature": replace(role(), facts=facts)})
        assert section is not None and words in section.text


def test_an_adapter_is_no_temperature() -> None:
    tried = temperature.settings(role(), ["small"])
    rows = {s.label: np.full(60, 1.0 if s.temperature is None else 0.5) for s in tried}
    rows["temperature=0.4"][:5] = 1.0
    best = temperature.best_temperature(tried, rows, 4)
    assert best is not None and best.temperature == 0.4
    assert temperature.best_temperature(tried[1:], rows, 4) is None


def test_few_problems_have_a_best_and_no_interval() -> None:
    tried = temperature.settings(role(), ["small"])
    best = temperature.best_temperature(tried, {s.label: np.full(3, 0.5) for s in tried}, 4)
    assert best is not None and np.isnan([best.low, best.high, best.accuracy, best.below, best.above]).all()


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_distinct_answers_are_the_mean_over_all_subsets(n: int) -> None:
    rng = np.random.default_rng(n)
    classes = rng.integers(-1, 4, size=(6, 5))
    pool = replace(BASE.votes[0], classes=classes, sizes=np.full(6, 5))
    found = temperature.distinct(pool, np.ones(6, dtype=bool), n)
    for row, value in zip(classes, found, strict=True):
        every = [len({c for c in subset if c >= 0}) for subset in combinations(row.tolist(), n)]
        assert value == pytest.approx(np.mean(every))


def test_entropy_is_in_bits_and_counts_answers_alone() -> None:
    classes = np.array([[7, 7, 7, 7], [1, 1, 2, 2], [1, 2, 3, 4], [5, -1, -1, -1], [-1, -1, -1, -1]])
    pool = replace(BASE.votes[0], classes=classes, sizes=np.full(5, 4))
    np.testing.assert_allclose(
        temperature.entropy(pool, np.ones(5, dtype=bool)), [0.0, 1.0, 2.0, 0.0, 0.0], atol=1e-12
    )


def test_without_samples_votes_remain_and_a_note() -> None:
    bare = replace(role(), votes=())
    section = temperature.section(BASE, {"temperature": bare})
    assert section is not None and "samples were not kept" in section.notes[0].text
    assert [p.name for p in section.pictures] == ["temperature-vote-small", "best-temperature"]
    assert temperature.section(BASE, {}) is None
