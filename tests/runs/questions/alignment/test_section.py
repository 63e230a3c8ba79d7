"""The section on alignment, and its question: what they say of studies of all sorts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from metagen.runs.curves.study import Curve, StudyResult
from metagen.runs.declare.study import AlignmentSpec
from metagen.runs.questions.alignment.section import question, section
from metagen.runs.questions.section import Plot, Section
from tests.runs.made import made


@pytest.fixture(scope="module")
def result() -> StudyResult:
    return made(24, 16)


def rows(found: Section, name: str) -> list[dict[str, str]]:
    table = next(table for table in found.tables if table.name == name)
    assert all(len(row) == len(table.columns) for row in table.rows)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_all_there_is(result: StudyResult) -> None:
    found = section(result)
    assert [table.name for table in found.tables] == [
        "alignment_exact",
        "alignment_best_of_n",
        "alignment_pools",
    ]
    assert [p.name for p in found.pictures] == [
        "alignment-exact",
        "alignment-reward",
        "alignment-gold",
        "over-optimisation",
    ]
    for plot in found.pictures:
        assert isinstance(plot, Plot) and all(
            np.isfinite([*line.x, *line.y]).all() for p in plot.panels.values() for line in p
        )
    best = rows(found, "alignment_best_of_n")
    assert [row["n"] for row in best if row["model"] == "large"] == ["1", "2", "4", "8", "16"]
    assert (
        [row["n/(n + 1)"] for row in best[:3]]
        == ["50.0%", "66.7%", "80.0%"]
        == [row["wins"] for row in best[:3]]
    )
    assert {row["reward"] for row in best} == {"prm"}
    assert found.notes == () and len(found.findings) == 2


def test_a_spec_chooses(result: StudyResult) -> None:
    spec = AlignmentSpec(models=("large",), proxy="prm", gold="correct")
    found = section(result, spec)
    assert {row["model"] for row in rows(found, "alignment_pools")} == {"large"}
    assert "alignment_exact" not in [table.name for table in found.tables]
    exact = section(result, AlignmentSpec(models=("large",), proxy="prm", enumerable=True))
    assert exact.tables[0].name == "alignment_exact"
    for wrong, words in (
        ({"proxy": "nobody"}, "no scores of nobody"),
        ({"gold": "nobody"}, "against the true goal"),
    ):
        found = section(result, AlignmentSpec(models=("large",), **wrong))
        assert words in found.notes[0].text and found.tables == () and found.findings == ()


def test_the_question_has_numbers(result: StudyResult) -> None:
    found = question(result)
    assert found.shown and found.low < found.estimate < found.high < 100
    for words in (
        "small by prm: best-of-n (n = 4)",
        "soft best-of-4 (β = 0.1)",
        "92.3% by best-of-16",
        "(symbols)",
    ):
        assert words in found.sentence
    bare = question(replace(result, votes=()))
    assert not bare.shown and math.isnan(bare.estimate) and "100.0% by best-of-16" in bare.sentence


@pytest.mark.parametrize(("samples", "told"), [(4, False), (7, False), (8, True)])
def test_a_choice_among_one_is_no_answer(samples: int, told: bool) -> None:
    found = question(made(24, samples))
    assert found.shown == told == ("soft best-of-2" in found.sentence)
    assert "soft best-of-1" not in found.sentence
    assert ("needs pools of 8 samples or more" in found.sentence) != told


def test_the_pessimist_is_told_or_what_it_lacks(result: StudyResult) -> None:
    lacking = "pessimistic best-of-n needs scores of two verifiers on one pool"
    assert lacking in question(result).sentence
    two = tuple(replace(v, scores={**v.scores, "other": v.scores["prm"][::-1]}) for v in result.votes)
    said = question(replace(result, votes=two)).sentence
    assert "pessimistic, 2 verifiers (n = 4)" in said and lacking not in said


def test_without_samples_or_scores_the_exact_part_stays(result: StudyResult) -> None:
    found = section(replace(result, votes=()))
    assert [table.name for table in found.tables] == ["alignment_exact"]
    assert [note.text for note in found.notes] == [
        "reward against KL is not measured, because there is no pool of samples"
    ] * 2
    unscored = replace(result, votes=tuple(replace(v, scores={}) for v in result.votes))
    assert "no scores of any verifier" in section(unscored).notes[0].text
    gone = tuple(replace(v, scores={"prm": v.scores["prm"] * np.nan}) for v in result.votes)
    assert "no problem has all its samples scored" in section(replace(result, votes=gone)).notes[0].text


def test_an_oracle_is_no_proxy(result: StudyResult) -> None:
    votes = tuple(replace(v, scores={"oracle": v.correct.astype(float), **v.scores}) for v in result.votes)
    assert {row["reward"] for row in rows(section(replace(result, votes=votes)), "alignment_best_of_n")} == {
        "prm"
    }


def test_a_reward_that_is_fooled_is_found_out(result: StudyResult) -> None:
    """Wrong answers have the highest rewards, and the middle ones are right."""
    rng = np.random.default_rng(0)
    votes = []
    for v in result.votes:
        score = rng.random(v.correct.shape)
        votes.append(replace(v, scores={"prm": score}, correct=(score > 0.4) & (score < 0.85)))
    fooled = section(replace(result, votes=tuple(votes))).findings
    assert all(
        f.shown and f.sentence.startswith("Yes: accuracy falls") and f.high < 0 and f.p_value < 0.05
        for f in fooled
    )
    honest = [
        replace(v, scores={"prm": v.correct + 0.01 * rng.random(v.correct.shape)}) for v in result.votes
    ]
    for f in section(replace(result, votes=tuple(honest))).findings:
        assert not f.sentence.startswith("Yes")


def test_blocks_have_a_bound_and_marks(result: StudyResult) -> None:
    n, one = np.array([4, 16]), np.array([1])
    right = np.tile(np.array([0.0, 1.0, 1.0]), (2, 8))
    blocks = Curve("small", "blockwise", "blockwise", n, right, 0 * right, {}, 0 * right, source="run")
    single = Curve("small", "single", "sample", one, right[:1] * 0.5, 0 * right[:1], {}, 0 * right[:1])
    with_blocks = replace(result, curves=(*result.curves, blocks, single))
    found = section(with_blocks)
    assert [row["KL: bound"] for row in rows(found, "alignment_blocks")] == ["–", "–"]
    assert {row["wins by accuracy"] for row in rows(found, "alignment_blocks")} == {"66.7%"}
    assert {row["mean reward"] + row["wins"] for row in rows(found, "alignment_blocks")} == {"––"}
    assert [note.about for note in found.notes] == ["small/blockwise@4", "small/blockwise@16"]
    known = replace(with_blocks, facts={"blocks": {"small/blockwise@4": 6.0, "small/blockwise@16": 9.0}})
    found = section(known)
    assert [row["KL: bound"] for row in rows(found, "alignment_blocks")] == ["3.82", "16.52"]
    (note,) = found.notes
    assert note.about == "small/blockwise@16" and "15 nats, beyond: look for reward hacking" in note.text
    ones = dict.fromkeys(result.problems, 1.0)
    rewards = {"small/blockwise@4": {"reward": ones}, "small/blockwise@16": {"why": "off"}}
    found = section(replace(known, facts={**known.facts, "proxy": "prm", "rewards": rewards}))
    first, second = rows(found, "alignment_blocks")
    assert first["mean reward"].startswith("1.000") and first["wins"] == "100.0% [85.8, 100.0]"
    assert second["mean reward"] == second["wins"] == "–"
    assert "its reward is not measured: off" in {note.text for note in found.notes}
    plot = next(p for p in found.pictures if p.name == "alignment-reward")
    assert isinstance(plot, Plot)
    assert plot.points["small"] == {"blockwise@4, at its bound": (pytest.approx(3.82, abs=0.01), 1.0)}


def test_measured_divergences_are_shown(result: StudyResult) -> None:
    rng = np.random.default_rng(0)
    ratios = [{"model": "small", "policy": f"temperature {t}", "kl": (t * rng.random(24)).tolist(), "gold": [1.0] * 24}
              for t in (1, 30)]  # fmt: skip
    ratios.append({"model": "small", "policy": "top_p 0.9", "why": "no token ids"})
    ruled_out = [math.inf, 0.2, math.inf] + [0.1] * 21
    ratios.append({"model": "small", "policy": "top_k 0", "kl": ruled_out, "gold": [0.0] * 24})
    found = section(replace(result, facts={"ratios": ratios}))
    first, second, last = rows(found, "alignment_ratios")
    assert first["policy"] == "temperature 1" and first["KL"].startswith("0.") and "[" in second["KL"]
    assert first["accuracy"] == "100.0% [85.8, 100.0]" and last["accuracy"] == "0.0% [0.0, 14.2]"
    assert last["KL"] == "∞"
    far, unknown, infinite = found.notes
    assert infinite.about == "small, top_k 0" and "on 2 of 24 problems" in infinite.text
    assert far.about == "small, temperature 30" and "look" in far.text
    assert unknown.text == "its KL is not measured: no token ids"


def test_temperatures_of_pools_are_asked_of_the_facts(result: StudyResult) -> None:
    models = tuple(replace(m, temperature=None) for m in result.models)
    assert "unknown temperature" in section(replace(result, models=models)).notes[0].text
    votes = tuple(replace(v, generator=v.model) for v in result.votes)
    known = replace(result, models=models, votes=votes, facts={"temperatures": {"small": 1.0, "large": 1.0}})
    assert section(known).notes == ()
    cut = replace(known, facts={**known.facts, "adapters": {"large": "min_p=0.1"}})
    (note,) = section(cut).notes
    assert note.about == "large by prm" and "drawn at 1 with min_p=0.1" in note.text
    told = {row["model"]: row["KL: estimate"] for row in rows(section(cut), "alignment_best_of_n")}
    assert told["large"] == "–" and told["small"] != "–"


@pytest.mark.parametrize("problems", [1, 5])
def test_few_problems_have_no_interval(problems: int) -> None:
    few = made(problems, 8)
    found = section(few)
    assert "fewer than 8 problems: no interval, no test" in found.notes[0].text and found.findings == ()
    assert all("[" not in row["mean reward"] for row in rows(found, "alignment_best_of_n"))
    assert math.isnan(question(few).low)


@pytest.mark.parametrize("right", [False, True])
def test_all_right_or_all_wrong(result: StudyResult, right: bool) -> None:
    votes = tuple(replace(v, correct=np.full(v.correct.shape, right)) for v in result.votes)
    found = section(replace(result, votes=votes))
    assert all(
        "Accuracy is not shown to fall" in f.sentence and math.isnan(f.detectable) for f in found.findings
    )


def test_equal_rewards_tell_nothing(result: StudyResult) -> None:
    votes = tuple(replace(v, scores={"prm": np.full(v.correct.shape, 0.5)}) for v in result.votes)
    same = replace(result, votes=votes)
    assert not question(same).shown
    assert {row["of the tilt's gain"] for row in rows(section(same), "alignment_pools")} == {"–", ""}
