"""Compute between samples and critiques: where the better split is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from metagen.runs.curves.study import Curve, StudyResult
from metagen.runs.questions import splitting
from metagen.runs.questions.question import answer
from metagen.runs.questions.section import Heat, Plot
from metagen.runs.words import win_share
from tests.runs.made import made

BASE = made(60, 8)
NS = (1, 2, 4, 8)


def curve(
    strategy: str, kind: str, verifier: str | None, accuracy: list[float], each: float, judged: float
) -> Curve:
    """accuracy: at each of NS, of evenly spread problems; each, judged: FLOPs of a sample, of judging one."""
    places = (np.arange(60) * 37) % 60
    rows = np.stack([(places < round(60 * a)).astype(float) for a in accuracy])
    n = np.repeat(np.array(NS, dtype=float)[:, None], 60, axis=1)
    return Curve(
        "small", strategy, kind, np.array(NS), rows, 0.0 * rows, {"flops": n * (each + judged)}, n * judged,
        verifier=verifier,
    )  # fmt: skip


def role(*curves: Curve, **facts: Any) -> StudyResult:
    known = {"splitting": {"critiques": {"1": "c1", "4": "c4"}, "aggregate": "weighted"}, **facts}
    return replace(BASE, curves=curves, votes=(), tuned=(), budgets={}, facts=known)


PLAIN = curve("split-majority", "majority", None, [0.4, 0.4, 0.5, 0.6], 1.0, 0.0)
ONE = curve("split-1", "weighted", "c1", [0.4, 0.5, 0.7, 0.8], 1.0, 0.5)
FOUR = curve("split-4", "weighted", "c4", [0.4, 0.7, 0.9, 0.95], 1.0, 2.0)


def test_a_split_is_the_plain_vote_and_every_number_of_critiques() -> None:
    (found,) = splitting.splits(BASE, {"splitting": role(PLAIN, FOUR, ONE)})
    assert list(found.curves) == ["plain vote", "k = 1", "k = 4"]
    assert found.cost == "flops" and found.assumed is None


def test_the_best_split_at_each_budget_is_the_one_that_is_ahead_there() -> None:
    (found,) = splitting.splits(BASE, {"splitting": role(PLAIN, ONE, FOUR)})
    low, middle, high = splitting.best(found, [2.0, 6.0, 12.0])
    assert "k = 4" not in low.at and low.name == "k = 1"  # 0.43 against 0.4
    assert middle.name == "k = 1 and k = 4"
    assert high.name == "k = 4" and high.share["k = 4"] > 0.95  # 0.9 at n = 4
    # At 12 the plain vote is at its end, 8 samples, and k = 1 is as well.
    assert high.at["plain vote"].spends == pytest.approx(8.0) and high.at["k = 1"].spends == pytest.approx(
        12.0
    )


def test_no_split_is_best_where_all_are_alike() -> None:
    flat = [replace(c, accuracy=np.zeros_like(c.accuracy)) for c in (PLAIN, ONE, FOUR)]
    (found,) = splitting.splits(BASE, {"splitting": role(*flat)})
    assert {one.name for one in splitting.best(found, [6.0, 12.0])} == {splitting.ALIKE}


def test_the_question_says_where_which_is_best() -> None:
    found = answer(splitting.verify_or_generate(BASE, {"splitting": role(PLAIN, ONE, FOUR)}))
    assert (
        found.shown
        and found.sentence.startswith("small: best is ")
        and "k = 4 against plain vote" in found.sentence
    )
    two = role(*(replace(c, model=model) for model in ("small", "large") for c in (PLAIN, ONE, FOUR)))
    both = answer(splitting.verify_or_generate(BASE, {"splitting": two}))
    assert both.sentence.startswith("large: ") and [d.startswith("small: ") for d in both.details] == [True]
    none = answer(splitting.verify_or_generate(BASE, {}))
    assert not none.shown and "no split" in none.sentence and none.claim


def test_tests_are_made_where_all_can_spend_the_budget() -> None:
    (found,) = splitting.splits(BASE, {"splitting": role(PLAIN, ONE, FOUR)})
    assert splitting.equal(found) == pytest.approx(8.0)  # eight samples without a verifier
    at = splitting.spendable(found, role())
    assert at[0] == pytest.approx(3.0) and at[-1] == pytest.approx(24.0) and 8.0 in at
    question = splitting.verify_or_generate(BASE, {"splitting": role(PLAIN, ONE, FOUR)})
    assert len(question.pairs) == sum(budget <= 8.0 for budget in at) < len(at)
    assert "At 8 FLOPs, the most that all can spend, k = 4 against plain vote" in answer(question).sentence
    dear = replace(FOUR, costs={"flops": FOUR.costs["flops"] * 100})
    apart = splitting.verify_or_generate(BASE, {"splitting": role(PLAIN, dear)})
    assert not apart.pairs and "no budget can be spent by all splits" in answer(apart).sentence


def test_the_answer_ends_where_not_all_can_spend_names_ties_and_says_how_sure_it_is() -> None:
    (found,) = splitting.splits(BASE, {"splitting": role(PLAIN, ONE, FOUR)})
    at = splitting.best(found, splitting.spendable(found, role()))
    said = answer(splitting.verify_or_generate(BASE, {"splitting": role(PLAIN, ONE, FOUR)})).sentence
    assert "24 FLOPs" not in said, "the plain vote has no more samples than 8"
    inside = [one for one in at if one.budget <= 8.0 and one.name == "k = 4"]
    assert win_share(min(one.share["k = 4"] for one in inside), len(inside)) in said
    twin = replace(ONE, strategy="split-4", verifier="c4")
    (tied,) = splitting.splits(BASE, {"splitting": role(PLAIN, ONE, twin)})
    (one,) = splitting.best(tied, [6.0])
    assert one.name == "k = 1 and k = 4" and one.sure == pytest.approx(
        one.share["k = 1"] + one.share["k = 4"]
    )


def test_critiques_that_nobody_counted_have_the_price_that_is_given() -> None:
    free = [replace(c, verification=0.0 * c.verification, costs=PLAIN.costs) for c in (ONE, FOUR)]
    (priced,) = splitting.splits(BASE, {"splitting": role(PLAIN, *free, critique_cost=0.5)})
    assert priced.assumed == 0.5
    np.testing.assert_allclose(priced.curves["k = 4"].costs["flops"], PLAIN.costs["flops"] * 3.0)
    np.testing.assert_allclose(priced.curves["k = 1"].costs["flops"], PLAIN.costs["flops"] * 1.5)
    np.testing.assert_allclose(priced.curves["plain vote"].costs["flops"], PLAIN.costs["flops"])
    section = splitting.section(BASE, {"splitting": role(PLAIN, *free, critique_cost=0.5)})
    assert section is not None and "assumed to cost 0.5 of a sample" in section.notes[0].text
    # A recorded pool's costs have the price already.
    told = [
        replace(c, costs={"flops": PLAIN.costs["flops"], "flops_2n": c.costs["flops"]})
        for c in (PLAIN, *free)
    ]
    (once,) = splitting.splits(BASE, {"splitting": role(*told, critique_cost=0.5, critiques_counted=True)})
    assert once.cost == "flops_2n" and once.assumed is None
    np.testing.assert_allclose(once.curves["k = 4"].costs["flops_2n"], PLAIN.costs["flops"])
    (counted,) = splitting.splits(BASE, {"splitting": role(PLAIN, ONE, FOUR, critique_cost=0.5)})
    assert counted.assumed is None  # what was counted is not assumed


def test_the_heat_map_is_the_error_of_n_and_k() -> None:
    section = splitting.section(BASE, {"splitting": role(PLAIN, ONE, FOUR)})
    assert section is not None
    heat, plot = section.pictures
    assert isinstance(heat, Heat) and isinstance(plot, Plot)
    assert heat.rows == ("plain vote", "k = 1", "k = 4")
    np.testing.assert_allclose(heat.values[2], np.array([0.6, 0.3, 0.1, 0.05]))
    assert len(plot.panels["small"]) == 3
    assert splitting.section(BASE, {}) is None


def test_a_study_without_the_role_splits_by_its_own_curves() -> None:
    own = replace(made(40, 8), facts={"splitting": {"critiques": {"1": "prm"}, "aggregate": "weighted"}})
    assert [(s.model, list(s.curves)) for s in splitting.splits(own, {})] == [
        ("small", ["plain vote", "k = 1"]),
        ("large", ["plain vote", "k = 1"]),
    ]
