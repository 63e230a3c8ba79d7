"""Votes and their limits: what is known of made-up pools, where the limit is a fact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from metagen.analysis.estimators import majority_at_k, weighted_at_k
from metagen.runs.curves.study import Curve, Floats, StudyResult, Votes
from metagen.runs.declare.study import AlignmentSpec
from metagen.runs.questions import ask as questions
from metagen.runs.questions import exact_limit, laws, saturation
from metagen.runs.questions.alignment.enumerable import palindromes
from metagen.runs.questions.pools import complete_problems, dense, limit_pool, own_pool
from metagen.runs.questions.question import answer
from metagen.runs.questions.section import Plot
from metagen.runs.table.pools import Pool
from tests.runs.made import made


@pytest.fixture(autouse=True)
def few_refits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals of a law's parameters are what takes long."""
    monkeypatch.setattr(laws, "RESAMPLES", 4)
    monkeypatch.setattr(laws, "ENOUGH", 2)
    laws.every.cache_clear()


def votes(
    role: str, shares: Floats, samples: int, seed: int, scores: tuple[float, float] = (0.5, 0.5)
) -> Votes:
    """Class 0 is right, class 1 wrong. shares: of right samples, [problems]; scores: of right and of wrong ones."""
    rng = np.random.default_rng(seed)
    correct = rng.random((len(shares), samples)) < shares[:, None]
    full = np.ones(correct.shape)
    rated = np.where(correct, *scores)
    sizes = np.full(len(shares), samples)
    return Votes(
        "m", role, (~correct).astype(np.int64), correct, full.astype(bool), {"v": rated}, full, -full, sizes
    )


def study(shares: Floats, scores: tuple[float, float] = (0.5, 0.5), samples: int = 32) -> StudyResult:
    """One model with a plain and a weighted vote, and an independent pool of 256."""
    pool, limit = votes("test", shares, samples, 1, scores), votes("limit", shares, 256, 2, scores)
    ks = [2**i for i in range(samples.bit_length())]
    plain = majority_at_k(pool.classes, pool.correct, ks, np.random.default_rng(0))
    heavy = weighted_at_k(pool.classes, pool.scores["v"], pool.correct, ks, np.random.default_rng(0))
    n = np.repeat(np.array(ks, dtype=float)[:, None], len(shares), axis=1)
    curves = tuple(
        Curve(
            "m",
            kind,
            kind,
            np.array(ks),
            at.accuracy,
            at.error,
            {"samples": n, "flops": n},
            0.0 * n,
            verifier=verifier,
        )
        for kind, at, verifier in (("majority", plain, None), ("weighted", heavy, "v"))
    )
    base = made()
    return replace(
        base, problems=tuple(map(str, range(len(shares)))), levels=np.full(len(shares), -1), models=base.models[:1],
        curves=curves, votes=(pool, limit), tuned=(),
    )  # fmt: skip


def test_a_vote_ends_where_the_right_answer_leads() -> None:
    """On two problems of three the right answer has 0.8 of the samples, on the third 0.2."""
    result = study(np.array([0.8, 0.8, 0.2] * 20))
    found = saturation.saturation(result, result.curves[0])
    assert found is not None
    assert found.limit.estimate == pytest.approx(2 / 3) and found.limit.stable == 1.0
    assert found.measured.mean() == pytest.approx(2 / 3, abs=0.02)
    assert 1.0 < found.low <= found.enough <= found.high < 32.0


def test_the_sentence_gives_n_the_limit_and_no_difference() -> None:
    found = answer(saturation.voting_saturates(study(np.array([0.8, 0.8, 0.2] * 20))))
    assert found.shown and found.unit == "samples" and 1.0 < found.estimate < 32.0
    assert "its limit from 256 other samples is 66.7%" in found.sentence
    assert "m/majority has 95% of its rise by n = " in found.sentence


def test_weights_raise_the_limit_where_the_right_answer_leads_in_v_times_g_alone() -> None:
    """Right in 0.4 of the samples: with weights of 0.9 against 0.3 the right answer has 0.36 of 0.54."""
    result = study(np.full(40, 0.4), (0.9, 0.3))
    plain, heavy = (saturation.saturation(result, curve) for curve in result.curves)
    assert plain is not None and heavy is not None
    assert plain.limit.estimate < 0.05 and heavy.limit.estimate > 0.95
    found = answer(saturation.weighted_against_limit(result))
    assert found.shown and found.estimate > 90.0 and found.p_value < 0.01


def test_a_vote_that_falls_has_no_n() -> None:
    result = study(np.full(40, 0.3))
    found = saturation.saturation(result, result.curves[0])
    assert found is not None and np.isnan(found.enough)
    said = answer(saturation.voting_saturates(result))
    assert not said.shown and "does not rise with n" in said.sentence


def test_the_n_of_a_rise_is_where_the_curve_stays_above() -> None:
    ns = np.array([1.0, 2.0, 4.0, 8.0])
    assert saturation.n_reaching(ns, np.array([0.0, 1.0, 1.0, 1.0])) == pytest.approx(2**0.95)
    assert saturation.n_reaching(ns, np.array([0.0, 1.0, 0.5, 1.0])) == pytest.approx(
        4 * 2**0.9
    )  # fell back to half
    assert np.isnan(saturation.n_reaching(ns, np.array([0.5, 0.6, 0.6, 0.5])))
    assert np.isnan(saturation.n_reaching(ns, np.full(4, 0.3)))


def test_a_limit_needs_samples_of_its_own_generator_with_the_weights() -> None:
    result = study(np.full(20, 0.6))
    plain, heavy = result.curves
    own, other = result.votes
    assert limit_pool(result, plain) is other and limit_pool(result, heavy) is other
    assert limit_pool(replace(result, votes=(own,)), plain) is None  # never its own samples
    bare = replace(result, votes=(own, replace(other, scores={})))
    assert limit_pool(bare, heavy) is None and limit_pool(bare, plain) is bare.votes[1]
    cooler = replace(plain, generator="m.temperature-0.5")
    assert limit_pool(result, cooler) is None
    mine = replace(other, generator="m.temperature-0.5")
    assert limit_pool(replace(result, votes=(own, other, mine)), cooler) is mine
    assert own_pool(result, "m") is own and own_pool(result, "x") is None


def test_without_an_independent_pool_nothing_is_said_of_a_limit() -> None:
    result = study(np.full(20, 0.6))
    alone = replace(result, votes=result.votes[:1])
    assert not answer(saturation.voting_saturates(alone)).shown
    assert not answer(saturation.weighted_against_limit(alone)).shown
    notes = {note.about: note.text for note in saturation.section(alone).notes}
    assert "no independent pool" in notes["m/majority"]


def test_few_problems_have_no_interval() -> None:
    few = study(np.linspace(0.3, 0.9, 5), samples=8)
    (plain, heavy) = saturation.find_saturations(few)
    assert np.isnan([plain.limit.low, plain.limit.high, heavy.limit.low, heavy.plain.high]).all()
    said = answer(saturation.voting_saturates(few)).sentence
    assert "[" not in said and "fewer than 8 problems: no test" in said
    assert "[" not in str(saturation.section(few).tables[0].rows)


def test_a_few_short_rows_do_not_decide_how_many_samples_count() -> None:
    result = study(np.full(20, 0.6))
    own, other = result.votes
    ragged = replace(other, sizes=np.where(np.arange(20) == 3, 5, np.where(np.arange(20) < 3, 200, 256)))
    cut = limit_pool(replace(result, votes=(own, ragged)), result.curves[0])
    assert cut is not None and cut.classes.shape == (20, 200) and cut.scores["v"].shape == (20, 200)
    assert complete_problems(cut).sum() == 19 and cut.sizes[3] == 5
    notes = saturation.section(replace(result, votes=(own, ragged))).notes
    assert "leaves out 1 of 20 problems" in {n.about: n.text for n in notes}["m/majority"]


def test_a_size_that_few_problems_have_takes_no_problem_away() -> None:
    result = study(np.full(20, 0.6))
    rows = result.curves[0].accuracy.copy()
    rows[-1, 3:] = np.nan
    (found, *_) = saturation.find_saturations(
        replace(result, curves=(replace(result.curves[0], accuracy=rows),))
    )
    assert found.over.sum() == 20 and found.largest == 16 and result.curves[0].ns[-1] == 32


def test_a_curve_with_one_measured_point_has_no_n() -> None:
    result = study(np.full(20, 0.6))
    plain = result.curves[0]
    for there in (0, 3):
        rows = plain.accuracy.copy()
        rows[1:, there:] = np.nan
        one = replace(plain, accuracy=rows)
        alone = replace(result, curves=(one,))
        assert saturation.find_saturations(alone) == []
        assert "does not rise" not in answer(saturation.voting_saturates(alone)).sentence
        assert (
            "where it saturates is unknown"
            in {n.about: n.text for n in saturation.section(alone).notes}[plain.name]
        )


def test_a_limit_treats_what_nobody_scored_or_answered_as_the_curve_does() -> None:
    """Without a score the classes tie; without any answer a vote takes one at random, and a verifier its best."""
    result = study(np.full(20, 0.75), (0.9, 0.3))
    pools = []
    for pool in result.votes:
        classes, correct, scores = pool.classes.copy(), pool.correct.copy(), pool.scores["v"].copy()
        correct[:2, 0], correct[:2, 1:] = True, False
        classes[0] = np.arange(classes.shape[1]) % 4
        scores[0], classes[1] = np.nan, -1
        scores[1] = np.where(correct[1], 0.9, 0.3)
        correct[0] = classes[0] == 0
        pools.append(replace(pool, classes=classes, correct=correct, scores={"v": scores}))
    test, other = pools
    curves = []
    for curve in result.curves:
        sized = Pool(test.classes, test.eligible, test.correct, dict(test.scores), result.levels, test.sizes)
        rows, error = sized.curve(curve.kind, curve.ns.tolist(), curve.verifier)
        curves.append(replace(curve, accuracy=rows, error=error))
    plain, heavy = saturation.find_saturations(replace(result, curves=tuple(curves), votes=(test, other)))
    assert heavy.limit.accuracy[:2] == pytest.approx([0.25, 1.0]) == heavy.measured[:2]
    assert plain.limit.accuracy[:2] == pytest.approx([0.25, 1 / 256]) and plain.measured[1] == 1 / 32
    assert heavy.plain.accuracy == pytest.approx(plain.limit.accuracy)
    assert heavy.limit.estimate == heavy.limit.accuracy.mean() == pytest.approx(heavy.growth[256])


def test_classes_are_numbered_row_by_row() -> None:
    np.testing.assert_array_equal(
        dense(np.array([[70, -3, 9, 70], [5, 5, 2, 2]])), [[1, -1, 0, 1], [1, 1, 0, 0]]
    )


# ------------------------------------------------------------------------------------------------ laws


def test_coverage_has_a_law_with_its_error_where_it_was_not_fitted() -> None:
    found = laws.every(made(40, 32))
    coverage = [one for one in found if one.law == "exponentiated power"]
    assert len(coverage) == 2
    for one in coverage:
        assert one.fit is not None and len(one.fit.held_out) == laws.HELD_OUT
        assert max(one.fit.ks) < one.x[-2]
        assert all(low < high for low, high in one.bounds.values())
    (table,) = laws.tables(found)
    assert {row[0] for row in table.rows} >= {"coverage of small", "coverage of large"}


def test_what_does_not_vary_and_what_is_short_has_no_law_and_a_note() -> None:
    right = laws.every(study(np.ones(20)))
    assert all(one.fit is None for one in right) and "the same at every point" in laws.notes(right)[0].text
    short = laws.every(study(np.linspace(0.3, 0.9, 20), samples=2))
    assert all(one.fit is None for one in short) and laws.tables(short) == [] and laws.pictures(short) == []


def test_the_section_of_the_made_study_has_limits_as_points() -> None:
    section = saturation.section(made(30, 8))
    (plot, *_), (table, *_) = section.pictures, section.tables
    assert isinstance(plot, Plot) and plot.name == "saturation"
    assert set(plot.points) == {"small", "large"}
    assert {row[0] for row in table.rows} == {
        f"{m}/{s}" for m in ("small", "large") for s in ("majority", "weighted")
    }


def test_weights_are_judged_on_the_samples_of_their_own_generator() -> None:
    """A plain vote that was frozen at a better temperature has another limit, which says nothing of weights."""
    result = study(np.full(40, 0.4), scores=(0.5, 0.5))
    better = votes("limit", np.full(40, 0.9), 256, 3)
    curves = tuple(replace(c, generator="hot") if c.kind == "majority" else c for c in result.curves)
    mixed = replace(result, curves=curves, votes=(*result.votes, replace(better, generator="hot")))
    (plain,), (weighted,) = (
        saturation.find_saturations(mixed, ["majority"]),
        saturation.find_saturations(mixed, ["weighted"]),
    )
    assert plain.limit.estimate > 0.95 and weighted.limit.estimate < 0.2
    assert weighted.plain.estimate == weighted.limit.estimate, "weights that are all alike change nothing"
    assert "cannot tell them apart" in answer(saturation.weighted_against_limit(mixed)).sentence


# ------------------------------------------------------------------------------------------ known limits


def test_an_enumerable_model_has_its_limit_beside_what_pools_say_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, weighted = exact_limit.ends()
    model, right, tied = palindromes(), [], []
    words = [(word, p, bool(r)) for (word, p), r in zip(model.of.items(), model.r, strict=True)]
    starts = {word[:k] for word, *_ in words for k in range(4) if 2 not in word[:k]}
    for seen, unseen in ((1.0, 1.0), (0.7, 0.3)):
        won, split = [], []
        for start in starts:
            mass = [(p * (seen if r else unseen), r) for word, p, r in words if word[: len(start)] == start]
            lead = [r for weight, r in mass if weight > max(mass)[0] * (1 - 1e-9)]
            won.append(sum(lead) / len(lead))
            split.append(len(set(lead)) > 1)
        right.append(np.mean(won))
        tied.append(np.mean(split))
    assert [plain.exact, weighted.exact] == pytest.approx(right) and plain.problems == len(starts) == 15
    assert weighted.exact > plain.exact, "theorem 2"
    # With ever more samples the plug-in limit errs where answers tie, and nowhere else.
    with monkeypatch.context() as larger:
        larger.setattr(exact_limit, "OTHERS", 50_000)
        for one, ties in zip(exact_limit.ends(), tied, strict=True):
            assert abs(one.plug_in - one.exact) <= ties + 1e-9
    table = next(
        t for t in saturation.section(made(16, 8), exact=True).tables if t.name == "saturation-exact"
    )
    assert [row[0] for row in table.rows] == ["plain", "weighted"] and table.rows[0][
        -1
    ] == f"{100 * plain.exact:.1f}%"
    assert table.numeric == {*range(1, len(table.columns))}, "all but the first column are set right"
    assert not [t for t in saturation.section(made(16, 8)).tables if t.name == "saturation-exact"]
    aligned = AlignmentSpec(models=("small",), enumerable=True)
    found = {s.name: s for s in questions.sections(made(16, 8), {}, aligned)}["saturation"]
    assert "saturation-exact" in [t.name for t in found.tables]
