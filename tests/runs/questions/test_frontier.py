"""Costs, frontiers and crossings: laws that hold of any curves, and what is known of made-up ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from metagen.errors import InputError
from metagen.runs.curves.frontier import (
    at_cost,
    cells,
    curves_with_cost,
    even,
    membership,
    missing,
    note_unknown_costs,
    optimal_size,
    pareto,
    shared_problems,
    wins,
)
from metagen.runs.curves.study import Curve, StudyResult
from metagen.runs.questions.crossings import common, crossing
from metagen.runs.questions.frontier import section
from tests.runs.made import made

RESULT = made()


def curve(name: str, costs: list[float], accuracy: list[float], problems: int = 40, **given: object) -> Curve:
    """The share `accuracy` of the problems is right at each cost; the first problems are the easy ones."""
    rows = np.stack([(np.arange(problems) < round(a * problems)).astype(float) for a in accuracy])
    paid = np.repeat(np.array(costs)[:, None], problems, axis=1)
    model, strategy = name.split("/")
    made_curve = Curve(
        model, strategy, strategy, np.arange(1, len(costs) + 1), rows, np.zeros_like(rows), {"flops": paid},
        np.zeros_like(rows),
    )  # fmt: skip
    return replace(made_curve, **given)  # type: ignore[arg-type]  # fields of a curve


def study(*curves: Curve) -> StudyResult:
    return replace(RESULT, curves=curves, votes=(), tuned=())


def by_kind(kind: str) -> Callable[[Curve], bool]:
    return lambda curve: curve.kind == kind


def test_a_coin_between_two_points_costs_the_budget_and_mixes_each_problem() -> None:
    line = RESULT.curve("small", "majority")
    low, high = line.cost("flops")[2:4]
    found = at_cost(line, "flops", 0.25 * low + 0.75 * high)
    assert found is not None
    assert found.between == (4, 8) and found.share == pytest.approx(0.75)
    assert found.spends == pytest.approx(0.25 * low + 0.75 * high)
    np.testing.assert_allclose(found.accuracy, 0.25 * line.accuracy[2] + 0.75 * line.accuracy[3])


def test_the_ends_of_a_curve_are_its_points_and_below_it_there_is_nothing() -> None:
    line = RESULT.curve("large", "best")
    costs = line.cost("flops")
    assert at_cost(line, "flops", costs[0] * 0.99) is None
    first, last = at_cost(line, "flops", costs[0]), at_cost(line, "flops", 1e30)
    assert first is not None and last is not None
    np.testing.assert_array_equal(first.accuracy, line.accuracy[0])
    np.testing.assert_array_equal(last.accuracy, line.accuracy[-1])
    assert last.spends == costs[-1] and last.share == 0.0


def test_points_that_cost_the_same_give_the_one_with_most_samples() -> None:
    line = RESULT.curve("small", "majority")  # waiting is as long for 32 samples as for one
    found = at_cost(line, "latency:h200", line.cost("latency:h200")[0])
    assert found is not None and found.between[0] == 32


def test_an_unknown_cost_is_said_with_those_that_are_known() -> None:
    line = RESULT.curve("small", "majority")
    with pytest.raises(InputError, match=r"small/majority: its money is unknown; known costs: .*flops"):
        at_cost(line, "money", 1.0)
    with pytest.raises(InputError, match="no cost 'joules'"):
        at_cost(line, "joules", 1.0)
    assert cells(RESULT, "money") == [] and membership(RESULT, "money") == {}
    assert "unknown for small/majority" in note_unknown_costs(RESULT, "money")[0].text


def test_the_frontier_beats_every_cheaper_configuration_and_holds_no_oracle() -> None:
    every, best = cells(RESULT, "flops"), pareto(RESULT, "flops")
    assert not any(cell.curve.oracle for cell in best)
    for cell in every:
        ahead = [b for b in best if b.cost <= cell.cost and b.accuracy >= cell.accuracy]
        assert ahead, f"{cell.name} is beaten by nothing, and not on the frontier"
    assert [b.cost for b in best] == sorted(b.cost for b in best)
    assert [b.accuracy for b in best] == sorted({b.accuracy for b in best})
    assert any(cell.curve.oracle for cell in cells(RESULT, "flops", oracle=True))


def test_membership_is_sure_of_what_is_sure() -> None:
    cheap, dear = curve("a/single", [1.0], [0.5]), curve("b/single", [10.0], [0.5])
    better = curve("c/single", [5.0], [1.0])
    found = membership(study(cheap, dear, better), "flops")
    assert found["a/single@1"] > 0.99 and found["c/single@1"] > 0.99
    assert found["b/single@1"] == 0.0  # never: c costs less and is right wherever b is


def test_membership_counts_resamples_as_the_frontier_would() -> None:
    every = membership(RESULT, "flops", resamples=200)
    assert set(every) == {cell.name for cell in cells(RESULT, "flops")}
    assert all(0.0 <= v <= 1.0 for v in every.values())
    cheapest = min(cells(RESULT, "flops"), key=lambda c: c.cost)
    assert every[cheapest.name] == 1.0


def test_of_two_equals_the_same_one_is_on_the_frontier_and_in_its_resamples() -> None:
    twins = study(curve("a/x", [1.0, 2.0], [0.5, 0.75]), curve("a/w", [1.0, 2.0], [0.5, 0.75]))
    assert [cell.name for cell in pareto(twins, "flops")] == ["a/w@1", "a/w@2"]
    assert membership(twins, "flops") == {"a/w@1": 1.0, "a/w@2": 1.0, "a/x@1": 0.0, "a/x@2": 0.0}


def test_rounding_does_not_tell_equals_apart() -> None:
    a, b = curve("a/x", [1.0 - 1e-14], [0.5]), curve("a/w", [1.0], [0.5])
    twins = study(replace(a, accuracy=a.accuracy * (1 + 1e-14)), b)
    assert [cell.name for cell in pareto(twins, "flops")] == ["a/w@1"]
    assert membership(twins, "flops") == {"a/w@1": 1.0, "a/x@1": 0.0}


def test_of_equal_costs_the_best_alone_is_on_the_frontier_and_in_its_resamples() -> None:
    worse, better = curve("a/x", [1.0], [0.25]), curve("b/x", [1.0], [0.75])
    assert [cell.name for cell in pareto(study(worse, better), "flops")] == ["b/x@1"]
    assert membership(study(worse, better), "flops") == {"a/x@1": 0.0, "b/x@1": 1.0}


def test_curves_are_compared_on_problems_that_all_measured() -> None:
    a, b = curve("a/x", [1.0, 2.0], [0.5, 0.75]), curve("b/x", [1.0, 2.0], [0.5, 0.75])
    a.accuracy[1, :20] = np.nan
    assert shared_problems([a, b]).sum() == 20
    assert sorted(round(c.accuracy, 6) for c in cells(study(a, b), "flops")) == [0.0, 0.0, 0.5, 0.5]
    (note,) = missing(replace(study(a, b), problems=RESULT.problems[:40]))
    assert note.text == "compared on the 20 of 40 problems that all curves have; a/x has the fewest (20)"
    b.accuracy[:, 20:] = np.nan
    with pytest.raises(InputError, match=r"b/x and a/x have no problem in common"):
        shared_problems([a, b])


@pytest.mark.parametrize("few", [1, 9])
def test_a_point_that_few_problems_have_takes_none_away(few: int) -> None:
    a, b = curve("a/x", [1.0, 2.0], [0.5, 0.75]), curve("b/x", [1.0, 2.0], [0.5, 0.75])
    a.accuracy[1, few:] = np.nan
    result = replace(study(a, b), problems=RESULT.problems[:40])
    assert {c.name: c.accuracy for c in cells(result, "flops")} == {"a/x@1": 0.5, "b/x@1": 0.5, "b/x@2": 0.75}
    assert [note.text for note in missing(result)] == [
        f"measured on fewer than half of 40 problems: a/x@2 ({few}); left out"
    ]
    assert curves_with_cost(result, "flops") == curves_with_cost(result, "flops")  # the same objects
    a.accuracy[0, 9:] = np.nan
    gone = replace(result, name="gone")
    assert (
        curves_with_cost(gone, "flops") == [b]
        and not note_unknown_costs(gone, "flops")
        and len(missing(gone)) == 1
    )


def test_two_curves_are_even_at_the_most_that_both_can_spend() -> None:
    short, long = curve("a/x", [1.0, 2.0], [0.5, 0.75]), curve("b/x", [1.5, 3.5], [0.5, 0.75])
    over = shared_problems([short, long])
    for one, other in ((short, long), (long, short)):
        both = even(one, other, "flops", 10.0, over)
        assert both is not None and [at.spends for at in both] == [2.0, 2.0]
    assert even(short, long, "flops", 1.2, over) is None
    assert even(short, curve("c/x", [4.0], [0.5]), "flops", 10.0, over) is None


def test_a_point_that_no_problem_has_keeps_nobody_away() -> None:
    a = curve("a/x", [1.0, 2.0], [0.5, 0.75])
    a.accuracy[1] = np.nan
    assert shared_problems([a]).all() and [c.name for c in cells(study(a), "flops")] == ["a/x@1"]


def test_what_costs_nothing_is_left_out_and_said() -> None:
    free, paid = curve("a/x", [0.0], [0.5]), curve("b/x", [1.0], [0.5])
    result = study(free, paid)
    assert curves_with_cost(result, "flops") == [paid]
    assert note_unknown_costs(result, "flops")[0].text.startswith("zero for a/x")


def test_few_problems_have_a_frontier_without_bands() -> None:
    one = study(curve("a/x", [1.0], [1.0], 1), curve("b/x", [2.0], [1.0], 1))
    (cell,) = pareto(one, "flops")
    assert cell.name == "a/x@1" and np.isnan(cell.low) and np.isnan(cell.high)
    assert membership(one, "flops") == {}


def test_the_best_size_of_model_changes_with_the_budget() -> None:
    small = curve("small/majority", [1.0, 2.0, 4.0, 8.0], [0.3, 0.4, 0.45, 0.45])
    large = curve("large/majority", [4.0, 8.0, 16.0], [0.4, 0.6, 0.7])
    found = optimal_size(study(small, large), "flops", [0.5, 2.0, 4.0, 16.0], by_kind("majority"))
    assert [size.model for size in found] == [None, "small", "small", "large"]
    assert found[1].share == {"small": 1.0} and found[3].share["large"] > 0.99
    assert found[2].accuracy == pytest.approx({"small": 0.45, "large": 0.4})
    assert optimal_size(study(small, large), "flops", [1.0], by_kind("rebase")) == []


def test_wins_of_equals_are_split() -> None:
    row = np.random.default_rng(0).random(30)
    assert wins(np.stack([row, row])) == pytest.approx([0.5, 0.5])
    assert wins(np.stack([row + 1.0, row])) == [1.0, 0.0]


# ------------------------------------------------------------------------------------------ crossings


def test_a_crossing_is_where_the_lines_cross() -> None:
    flat, steep = curve("a/x", [1.0, 11.0], [0.5, 0.6]), curve("b/x", [1.0, 11.0], [0.2, 0.8])
    found = crossing(flat, steep, "flops")
    assert found is not None
    assert found.cost == pytest.approx(7.0)  # 0.5 + 0.01 (x − 1) = 0.2 + 0.06 (x − 1)
    assert (found.before, found.after) == ("a/x", "b/x")
    assert found.low <= found.cost <= found.high
    back = crossing(steep, flat, "flops")
    assert back is not None and (back.before, back.cost) == ("a/x", found.cost)


def test_several_crossings_are_all_listed() -> None:
    flat = curve("a/x", [1.0, 4.0], [0.5, 0.5])
    wavy = curve("b/x", [1.0, 2.0, 3.0, 4.0], [0.25, 0.75, 0.25, 0.75])
    found = crossing(flat, wavy, "flops")
    assert found is not None and found.every == pytest.approx((1.5, 2.5, 3.5))
    assert found.cost == found.every[-1] and found.after == "b/x"


def test_touching_and_apart_are_no_crossings() -> None:
    low, high = curve("a/x", [1.0, 2.0], [0.2, 0.3]), curve("b/x", [1.0, 2.0, 3.0], [0.4, 0.3, 0.5])
    assert crossing(low, high, "flops") is None  # they meet at the end of what both measured
    where = common(low, high, "flops")
    assert where is not None and (where.least, where.most, where.leader) == (1.0, 2.0, "b/x")
    dear = curve("c/x", [10.0, 20.0], [0.1, 0.2])
    assert crossing(low, dear, "flops") is None and common(low, dear, "flops") is None


def test_an_unsure_crossing_reaches_beyond_what_was_measured() -> None:
    rng = np.random.default_rng(5)
    a, b = curve("a/x", [1.0, 2.0], [0.5, 0.5]), curve("b/x", [1.0, 2.0], [0.5, 0.5])
    b.accuracy[0], b.accuracy[1] = rng.permutation(a.accuracy[0]), rng.permutation(a.accuracy[1])
    b.accuracy[0, np.flatnonzero(b.accuracy[0] == 1.0)[0]] = 0.0
    b.accuracy[1, np.flatnonzero(b.accuracy[1] == 0.0)[0]] = 1.0
    found = crossing(a, b, "flops")
    assert found is not None and 1.0 < found.cost < 2.0
    assert found.low == 0.0 and found.high == np.inf and found.share < 0.9


@pytest.mark.parametrize("unsure", [0, 1])
def test_a_crossing_that_a_resample_lacks_lies_on_the_side_of_the_unsure_end(unsure: int) -> None:
    """At one end one curve leads for sure, at the other the lead may go either way."""
    rng = np.random.default_rng(5)
    a, b = curve("a/x", [1.0, 2.0], [0.5, 0.5]), curve("b/x", [1.0, 2.0], [0.0, 1.0])
    near = rng.permutation(a.accuracy[0])
    near[np.flatnonzero(near == 1 - unsure)[0]] = unsure
    b.accuracy[unsure] = near
    for first, second in ((a, b), (b, a)):
        found = crossing(first, second, "flops")
        assert found is not None and (found.before, found.after) == ("a/x", "b/x")
        assert 0.3 < found.share < 0.9
        inside, outside = (found.high, found.low) if unsure == 0 else (found.low, found.high)
        assert 1.0 < inside < 2.0 and outside == (0.0 if unsure == 0 else np.inf)


def test_resamples_that_tie_all_along_leave_both_ends_open() -> None:
    """One problem of 40 makes it: without that one nobody leads anywhere."""
    a, b = curve("a/x", [1.0, 2.0], [0.5, 0.5]), curve("b/x", [1.0, 2.0], [0.5, 0.5])
    a.accuracy[:, 0], b.accuracy[:, 0] = [1.0, 0.0], [0.0, 1.0]
    for first, second in ((a, b), (b, a)):
        found = crossing(first, second, "flops")
        assert found is not None and 0.5 < found.share < 0.75
        assert (found.low, found.high) == (0.0, np.inf)


def test_a_strategy_is_told_from_another_of_its_kind() -> None:
    named = ("best-by-a", 0.9), ("best-by-b", 0.4)
    curves = [
        curve(f"{model}/{name}", [1.0, 2.0], [low, low + 0.05], kind="best_of_n")
        for model in ("small", "large")
        for name, low in named
    ]
    tables = {t.name: t for t in section(study(*curves)).tables}
    rows = next(t for name, t in tables.items() if name.startswith("sizes")).rows
    said = {strategy: means for strategy, _, _, means, _ in rows}
    assert "95.0%" in said["best-by-a"] and "45.0%" in said["best-by-b"]


def test_models_of_the_made_study_cross_where_interpolation_says() -> None:
    small, large = RESULT.curve("small", "majority"), RESULT.curve("large", "majority")
    found, where = crossing(small, large, "flops"), common(small, large, "flops")
    assert where is not None
    # One sample of the large model costs as ten of the small one.
    assert where.least == pytest.approx(1e8) and where.most == pytest.approx(3.2e8)
    ends = [(at_cost(small, "flops", x), at_cost(large, "flops", x)) for x in (where.least, where.most)]
    ahead = [a.mean - b.mean for a, b in ends if a is not None and b is not None]
    if found is None:
        assert ahead[0] * ahead[1] >= 0.0
    else:
        a, b = at_cost(small, "flops", found.cost), at_cost(large, "flops", found.cost)
        assert a is not None and b is not None and a.mean == pytest.approx(b.mean)
