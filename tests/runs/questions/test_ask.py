"""Questions of the literature, asked of made-up studies whose answers are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from metagen.analysis.comparison import Contrast
from metagen.analysis.paired import Difference
from metagen.runs import study as run
from metagen.runs.curves.frontier import at_cost
from metagen.runs.curves.study import Curve, StudyResult
from metagen.runs.declare import study_schema as schema
from metagen.runs.directory import StudyDirectory, find
from metagen.runs.page.headline import headline
from metagen.runs.questions import ask as questions
from metagen.runs.questions import frontier, laws, unasked
from metagen.runs.questions.equal_compute import budgets, middle, rivals, table
from metagen.runs.questions.question import Question, answer, answers, compare_pairs, numbers
from metagen.runs.questions.section import Finding, Heat, Plot
from tests.runs.made import made

RESULT = made(48, 16)


@pytest.fixture(autouse=True)
def few_refits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals of a law's parameters are what takes long."""
    monkeypatch.setattr(laws, "RESAMPLES", 4)
    laws.every.cache_clear()


def curve(model: str, kind: str, costs: list[float], accuracy: list[float]) -> Curve:
    """The share `accuracy` of 48 problems is right at each cost, in an order of the model and strategy."""
    order = np.random.default_rng(len(model) + 10 * len(kind)).permutation(48)
    rows = np.stack([(order < round(48 * a)).astype(float) for a in accuracy])
    paid = np.repeat(np.array(costs)[:, None], 48, axis=1)
    ns = np.array([2**i for i in range(len(costs))])
    return Curve(model, kind, kind, ns, rows, 0 * rows, {"flops": paid}, 0 * rows)


def study(*curves: Curve) -> StudyResult:
    return replace(RESULT, curves=curves, votes=(), tuned=(), budgets={"flops": (1.0, 4.0, 16.0)})


def test_a_small_model_with_many_samples_is_compared_at_the_cost_of_one_large_sample() -> None:
    small = curve("small", "majority", [1, 2, 4, 8, 16, 32], [0.2, 0.3, 0.8, 0.8, 0.8, 0.8])
    large = curve("large", "majority", [4, 8, 16, 32], [0.3, 0.5, 0.9, 0.95])
    found = answer(questions.small_many_or_large_few(study(large, small)))
    assert found.shown and found.estimate == pytest.approx(100 * (38 - 14) / 48) and found.p_value < 0.05
    assert found.sentence.startswith(
        "At 4 FLOPs, small/majority with n = 4 is at 79.2%, large/majority with n = 1 at 29.2%"
    )
    assert "large/majority overtakes small/majority at" in found.sentence
    assert "small at 4 FLOPs" in found.sentence and "large at 16 FLOPs" in found.sentence


def test_models_that_are_alike_have_no_best() -> None:
    small = curve("small", "majority", [1, 2, 4], [0.4, 0.5, 0.5])
    large = curve("large", "majority", [1, 2, 4], [0.4, 0.5, 0.5])
    found = answer(questions.small_many_or_large_few(study(large, small)))
    assert "best is none" in found.sentence and "large and small tie" in found.sentence


def test_a_model_that_alone_is_affordable_has_won_nothing() -> None:
    small = curve("small", "majority", [1, 2, 4, 8, 16, 32], [0.2, 0.3, 0.8, 0.8, 0.8, 0.8])
    large = curve("large", "majority", [4, 8, 16, 32], [0.3, 0.5, 0.9, 0.95])
    found = answer(questions.small_many_or_large_few(study(large, small)))
    assert "best is small at 1 FLOPs (the only one that it pays for), small at 4 FLOPs (in " in found.sentence
    (sizes,) = (one for one in frontier.section(study(large, small)).tables if one.name == "sizes")
    assert sizes.rows[0][-1] == "small: the only one"


def test_who_makes_no_error_is_on_the_frontier_and_has_no_place_on_an_axis_of_errors() -> None:
    perfect = curve("small", "majority", [1, 2, 4], [0.25, 0.5, 1.0])
    plots = {plot.y: plot for plot in frontier.section(study(perfect)).pictures if plot.steps}
    shown = {what: [*plot.panels["any strategy"][0].y] for what, plot in plots.items()}
    assert shown == {"accuracy": [0.25, 0.5, 1.0], "error": [0.75, 0.5]}


def test_the_answer_is_one_comparison_and_the_others_are_details() -> None:
    found = answer(questions.small_many_or_large_few(RESULT))
    assert found.sentence.count(" at one ") == 0 and found.sentence.count(
        "small/"
    ) == 1 + found.sentence.count("overtakes")
    assert any("small/weighted with n = " in line for line in found.details)
    assert all(line.endswith(".") and line[0].isupper() for line in found.details)
    tree = answer(questions.rebase_dominates_voting(RESULT))
    count = int(tree.sentence.split()[1])
    assert len(tree.details) == count - 1
    for line in tree.details:
        assert line not in tree.sentence


def test_a_small_model_that_ends_below_one_large_sample_is_not_compared() -> None:
    small, large = (
        curve("small", "majority", [1, 2], [0.2, 0.3]),
        curve("large", "majority", [4, 8], [0.3, 0.5]),
    )
    question = questions.small_many_or_large_few(study(small, large))
    assert not question.pairs
    assert answer(question).sentence == (
        "large/majority begins at 4 FLOPs, and small/majority was measured up to 2 FLOPs: not compared"
    )


def test_one_model_answers_no_question_of_sizes() -> None:
    found = answer(questions.small_many_or_large_few(study(curve("small", "majority", [1, 2], [0.2, 0.3]))))
    assert not found.shown and "no two models" in found.sentence and found.claim


def test_models_of_unknown_size_are_ordered_by_what_a_sample_takes_and_not_by_its_length() -> None:
    small = curve("small", "majority", [4, 8, 16], [0.2, 0.3, 0.8])
    large = curve("large", "majority", [10, 20, 40], [0.3, 0.5, 0.9])
    large.costs["flops"][0, 0] = 1.0  # a short problem is no small model
    unknown = replace(study(small, large), models=tuple(replace(m, size=None) for m in RESULT.models))
    found = answer(questions.small_many_or_large_few(unknown))
    assert "large/majority with n = 1 " in found.sentence
    tokens = replace(
        unknown, curves=tuple(replace(c, costs={"tokens": c.costs["flops"]}) for c in unknown.curves)
    )
    found = answer(questions.small_many_or_large_few(tokens))
    assert not found.shown and "give study.sizes" in found.sentence and found.claim
    sized = answer(questions.small_many_or_large_few(replace(tokens, models=RESULT.models)))
    assert "large/majority with n = 1 " in sized.sentence


def test_rebase_is_compared_at_its_own_costs_with_every_vote() -> None:
    vote = curve("small", "majority", [1, 2, 4, 8, 16], [0.2, 0.2, 0.25, 0.25, 0.25])
    tree = curve("small", "rebase", [3, 12], [0.8, 0.9])
    found = answer(questions.rebase_dominates_voting(study(vote, tree)))
    assert found.shown and found.estimate > 40.0
    assert (
        "Of 2 comparisons over models, votes and n it is shown to lead in 2 and to trail in 0"
        in found.sentence
    )
    none = answer(questions.rebase_dominates_voting(study(vote)))
    assert not none.shown and np.isnan(none.p_value)


def test_no_strategy_is_compared_with_a_vote_that_spends_less() -> None:
    vote = curve("small", "majority", [1, 2, 4], [0.2, 0.2, 0.25])
    tree = curve("small", "rebase", [2, 16, 32], [0.3, 0.9, 0.95])
    question = questions.rebase_dominates_voting(study(vote, tree))
    at = at_cost(tree, "flops", 4.0)
    assert at is not None and list(question.pairs) == [
        "small/rebase@1 small/majority",
        "small/rebase@1–2 small/majority",
    ]
    np.testing.assert_allclose(question.pairs["small/rebase@1–2 small/majority"][1], at.accuracy)
    longer = curve("small", "budget_forcing", [8], [0.9])
    asked = questions.samples_or_longer(study(vote, longer))
    assert (
        not asked.pairs
        and "begins at 8 FLOPs, and small/majority was measured up to 4" in answer(asked).sentence
    )


def test_longer_thought_is_compared_with_votes() -> None:
    vote = curve("small", "majority", [1, 2, 4], [0.2, 0.25, 0.25])
    longer = curve("small", "budget_forcing", [2], [0.9])
    found = answer(questions.samples_or_longer(study(vote, longer)))
    assert (
        found.shown
        and found.estimate > 50.0
        and "small/budget_forcing with n = 1 is at 89.6%" in found.sentence
    )


def test_what_a_study_has_no_parts_for_is_named_in_one_note_with_what_asks_it() -> None:
    vote = curve("small", "majority", [1, 2, 4], [0.2, 0.25, 0.25])
    bare = questions.answer_questions(study(vote), {})
    assert bare.findings == ()
    (note,) = bare.notes
    assert (
        note.about == "not asked"
        and "Spend on more samples, or on verifying? (give study.splitting)" in note.text
    )
    assert note.text.endswith("Which temperature is best for how many samples? (give study.temperature)")
    tree = curve("small", "rebase", [2, 4], [0.3, 0.4])
    more = questions.answer_questions(study(vote, tree), {"temperature": RESULT})
    assert [finding.question for finding in more.findings] == [unasked.REBASE]
    assert (
        not {unasked.REBASE, unasked.WARMTH}
        & unasked.missing_questions(study(vote, tree), {"temperature": RESULT}).keys()
    )
    assert "REBASE" not in more.notes[0].text and "temperature" not in more.notes[0].text


def test_what_was_asked_and_not_measured_is_a_question_without_an_answer() -> None:
    vote, tree = curve("small", "majority", [1, 2], [0.2, 0.3]), curve("small", "rebase", [1, 2], [0.2, 0.3])
    blind = replace(tree, costs={"flops": tree.costs["flops"] * np.nan})
    (found,) = questions.answer_questions(study(vote, blind), {}).findings
    assert found.question == unasked.REBASE and not found.shown
    assert (
        questions.answer_questions(replace(RESULT, facts={"splitting": {"critiques": {}}}), {})
        .findings[-1]
        .shown
        is False
    )


def test_questions_asked_together_are_one_family() -> None:
    rng = np.random.default_rng(2)
    a = rng.random(40)
    b = np.clip(a + rng.normal(0.06, 0.12, 40), 0.0, 1.0)
    alone = Question(lambda t: Finding("?", "", p_value=t["x"].p_value), {"x": (a, b)})
    other = Question(lambda t: Finding("?", "", p_value=t["x"].p_value), {"x": (a, rng.permutation(a))})
    single = answer(alone).p_value
    together = [found.p_value for found in answers([alone, other, other])]
    assert together[0] == pytest.approx(min(1.0, 3 * single)) and single < 0.05


def test_a_large_family_can_show_what_is_plain() -> None:
    rows = (np.zeros(20), np.ones(20))
    found = compare_pairs({str(i): rows for i in range(600)})
    assert all(contrast.shown for contrast in found.values())


def test_pairs_of_few_problems_are_no_tests() -> None:
    a = np.full(40, np.nan)
    a[:5] = 1.0
    found = answer(
        Question(lambda t: Finding("?", str(sorted(t))), {"few": (a, a), "many": (np.ones(40), np.ones(40))})
    )
    assert found.sentence == "['many']"


# ------------------------------------------------------------------------------------------ equal compute


def test_every_strategy_is_beside_the_plain_vote_at_what_it_spends() -> None:
    for rival in rivals(RESULT, "flops"):
        assert rival.reference.strategy == "majority" and rival.curve is not rival.reference
        assert rival.at.spends == pytest.approx(rival.beside.spends)
        assert rival.at.spends <= rival.budget * (1 + 1e-9)
        beside = at_cost(rival.reference, "flops", rival.at.spends)
        assert beside is not None
        np.testing.assert_allclose(rival.beside.accuracy, beside.accuracy)
        assert rival.contrast is not None
        assert rival.contrast.difference.estimate == pytest.approx(rival.at.mean - rival.beside.mean)
    found, notes = table(RESULT)
    assert not notes
    assert found is not None and len(found.rows) == len(rivals(RESULT, "flops"))
    assert "pass" not in " ".join(row[1] for row in found.rows)
    shown = [rival.contrast.shown for rival in rivals(RESULT, "flops") if rival.contrast is not None]
    assert {True, False} == set(shown) and [row[-1] == "" for row in found.rows] == shown
    assert "The smallest detectable difference is no second interval" in found.caption


def test_a_curve_beyond_its_end_is_said_once() -> None:
    vote = curve("small", "majority", [1, 2, 4, 8, 16], [0.2, 0.2, 0.25, 0.25, 0.3])
    short = curve("small", "best_of_n", [1, 2], [0.2, 0.4])
    found = rivals(study(vote, short), "flops")
    assert [(r.budget, r.at.spends) for r in found] == [(1.0, 1.0), (4.0, 2.0)]
    assert table(study(vote)) == (None, ())
    assert table(study(vote, curve("small", "sample", [1], [0.2])))[0] is None  # a vote of one


def test_where_the_vote_ends_first_both_spend_what_it_does() -> None:
    vote = curve("small", "majority", [1, 2, 4], [0.2, 0.2, 0.25])
    long = curve("small", "best_of_n", [2, 8, 16], [0.2, 0.4, 0.9])
    (found,) = rivals(study(vote, long), "flops")
    assert (found.budget, found.at.spends, found.beside.spends) == (4.0, 4.0, 4.0)
    dear = curve("small", "weighted", [8, 16], [0.2, 0.4])
    rows, notes = table(study(vote, dear))
    assert rows is None and [note.about for note in notes] == ["small/weighted"]


def test_every_cost_of_the_budgets_has_its_tables_and_the_rest_says_what_it_is_compared_in() -> None:
    two = replace(RESULT, budgets={"latency:h200": (1e-3, 1e-2), "flops": (1e8, 1e9)})
    section = frontier.comparison(two)
    assert [t.name for t in section.tables] == ["equal-compute", "equal-compute-latency-h200"]
    assert "in modelled seconds of waiting on h200" in section.tables[1].caption
    assert all("waiting on h200" in row[0] for row in section.tables[1].rows)
    sizes = [t for t in frontier.section(two).tables if t.name.startswith("sizes")]
    assert [t.name for t in sizes] == ["sizes", "sizes-latency-h200"]
    assert {row[1].split(" ", 1)[1] for row in sizes[1].rows} == {"modelled seconds of waiting on h200"}
    (note,) = (n for n in frontier.section(two).notes if n.about == "budgets")
    assert "latency" not in note.text and "waiting on h200 have tables of their own" in note.text
    # Budgets in one other cost: no table at budgets that nobody gave, and what is compared at such says so.
    other = replace(RESULT, budgets={"generated": (100.0, 400.0)})
    (table_,) = frontier.comparison(other).tables
    assert {row[0] for row in table_.rows} == {"100 tokens generated", "400 tokens generated"}
    (note,) = (n for n in frontier.section(other).notes if n.about == "budgets")
    assert "of which the study names none: at 5 from" in note.text
    assert not [n for n in frontier.section(RESULT).notes if n.about == "budgets"]
    # Pools have no seconds: a table that cannot be is said to be missing.
    timed = tuple(
        replace(c, costs={**c.costs, "seconds": np.full_like(c.accuracy, np.nan)})
        if c.source == "pool"
        else c
        for c in RESULT.curves
    )
    late = frontier.comparison(replace(RESULT, curves=timed, budgets={"seconds": (1.0,), "flops": (1e9,)}))
    assert [t.name for t in late.tables] == ["equal-compute"]
    assert ["two strategies with known seconds" in n.text for n in late.notes if n.about == "seconds"] == [
        True
    ]


def test_a_budget_that_pays_for_nothing_is_said() -> None:
    poor = replace(RESULT, budgets={"flops": (1e3, 1e9), "money": (1.0,)})
    said = {(n.about, n.text) for n in frontier.comparison(poor).notes}
    assert (
        "flops",
        "1k FLOPs pays for no configuration; the cheapest is small/majority@1 at 10M FLOPs",
    ) in said
    assert (
        "money",
        "it is unknown for every curve: give engines.NAME.price; budgets in it are not compared",
    ) in said
    (own,) = (
        n for n in frontier.section(replace(RESULT, budgets={"money": (1.0,)})).notes if n.about == "budgets"
    )
    assert "compared in FLOPs, of which the study names none: at 5 from" in own.text
    first, *_ = headline(replace(RESULT, budgets={"flops": (1e3,), "money": (1.0,)}))
    assert first == (
        "None of the study's budgets pays for anything: the cheapest, small/majority@1, takes 10M FLOPs a problem; no "
        "curve knows money: give engines.NAME.price."
    )
    assert headline(poor)[0].startswith("For 1G FLOPs a problem, run ")
    assert headline(replace(RESULT, budgets={}))[0].startswith("For ")


def test_budgets_of_a_study_that_names_none_span_its_curves() -> None:
    bare = replace(RESULT, budgets={})
    found = budgets(bare, "flops")
    costs = [c.cost("flops") for c in RESULT.curves if not c.oracle]
    assert found[0] == pytest.approx(min(c.min() for c in costs)) and found[-1] == pytest.approx(
        max(c.max() for c in costs)
    )
    assert (
        budgets(RESULT, "flops") == (1e8, 1e9)
        and middle([4.0, 1.0, 2.0]) == 2.0
        and middle([1.0, 2.0]) == 1.0
    )


# ------------------------------------------------------------------------------------------ all of it


def test_sections_of_a_study_are_answers_and_what_they_rest_on() -> None:
    found = {section.name: section for section in questions.sections(RESULT, {})}
    assert list(found) == ["answers", "frontier", "equal-compute", "difficulty", "adaptive", "saturation"]
    assert len(found["answers"].findings) == 6
    assert [note.about for note in found["answers"].notes] == ["not asked"]
    for finding in found["answers"].findings:
        assert finding.sentence and finding.claim and finding.source
    for section in found.values():
        for picture in section.pictures:
            if isinstance(picture, Plot):
                assert picture.panels and all(picture.panels.values())
            else:
                assert isinstance(picture, Heat) and picture.values.shape == (
                    len(picture.rows),
                    len(picture.columns),
                )
        for one in section.tables:
            assert one.rows and {len(row) for row in one.rows} == {len(one.columns)}
            assert all(i < len(one.columns) for i in one.numeric)
    names = [p.name for s in found.values() for p in s.pictures]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("problems", [1, 3])
def test_one_problem_has_answers_without_tests(problems: int) -> None:
    first = next(questions.sections(made(problems, 8), {}))
    for finding in first.findings:
        assert np.isnan(finding.p_value)


def test_curves_without_common_problems_are_one_note_for_each_section() -> None:
    a, b = curve("small", "majority", [1, 2], [0.2, 0.3]), curve("small", "rebase", [1, 2], [0.2, 0.3])
    a.accuracy[:, :24], b.accuracy[:, 24:] = np.nan, np.nan
    found = {section.name: section for section in questions.sections(study(a, b), {})}
    assert "no problem in common" in found["frontier"].notes[0].text
    assert found["frontier"].tables == () and len(found["answers"].findings) == 1
    assert "no problem in common" in found["answers"].findings[0].sentence


def test_a_study_of_unknown_costs_says_so() -> None:
    blind = replace(
        RESULT,
        curves=tuple(replace(c, costs={n: v * np.nan for n, v in c.costs.items()}) for c in RESULT.curves),
    )
    found = {section.name: section for section in questions.sections(blind, {})}
    assert "no cost is known" in found["frontier"].notes[0].text
    assert not found["answers"].findings[0].shown


def test_a_study_that_ran_has_all_its_sections(study_file: Callable[..., Path], tmp_path: Path) -> None:
    study_ = schema.load(study_file())
    result = run.run(study_, tmp_path / "study")
    directory = find(tmp_path / "study")
    assert isinstance(directory, StudyDirectory)
    found = {section.name: section for section in questions.sections(result, run.extras(directory, study_))}
    assert {"answers", "frontier", "splitting", "temperature", "saturation", "difficulty"} <= set(found)
    (note,) = found["answers"].notes
    assert "study." not in note.text  # all of its sections are in the file
    for name in ("splitting", "temperature", "saturation"):
        assert found[name].pictures and found[name].tables, name


def test_the_numbers_of_a_finding_are_those_of_its_contrast_in_points() -> None:
    difference = Difference(0.1, -0.02, 0.22, 0.08, 0.15, 40)
    found = numbers(Contrast("b", 0.4, 0.5, difference, 0.16, False))
    assert found == pytest.approx(
        {"estimate": 10.0, "low": -2.0, "high": 22.0, "p_value": 0.16, "detectable": 15.0}
    )
    assert numbers(None) == {}
