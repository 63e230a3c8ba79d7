"""The report on a verifier: ragged pools, regret, length, and figures that agree with those they are made of."""

from __future__ import annotations

import numpy as np
import pytest

from metagen.analysis.estimators import best_of_k, pass_at_k
from metagen.analysis.ragged import Pool
from metagen.analysis.selection import within_problem_auc
from metagen.analysis.verifier_quality import (
    best_of_n,
    chosen_shares,
    coverage,
    length_bias,
    mean_of_chosen,
    regret,
    verifier_quality,
)
from metagen.errors import InputError


def pool(seed: int = 0, problems: int = 120, samples: int = 16) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    correct = rng.random((problems, samples)) < rng.uniform(0.1, 0.9, (problems, 1))
    return np.clip(rng.normal(0.4 + 0.2 * correct, 0.15), 0.0, 1.0), correct


def test_ragged_pools_give_each_problem_its_own_figures() -> None:
    scores, correct = pool(problems=20, samples=12)
    sizes = np.random.default_rng(1).integers(4, 13, 20)
    ragged = Pool.of(
        [row[:n] for row, n in zip(scores, sizes, strict=True)],
        [row[:n] for row, n in zip(correct, sizes, strict=True)],
    )
    assert (ragged.sizes == sizes).all()
    found, covered = best_of_n(ragged, (1, 3, 4)), coverage(ragged, (1, 3, 4))
    for i, n in enumerate(sizes):
        alone = best_of_k(scores[i : i + 1, :n], correct[i : i + 1, :n], (1, 3, 4)).accuracy[:, 0]
        assert found[:, i] == pytest.approx(alone)
        assert covered[:, i] == pytest.approx(pass_at_k(n, correct[i, :n].sum(), [1, 3, 4]))
    assert (regret(ragged, (1, 3, 4)) == covered - found).all() and (regret(ragged, (4,)) > -1e-12).all()


def test_no_padding_is_ever_chosen_or_counted() -> None:
    wide = Pool.of([[0.9, 0.1], [0.5, 0.4, 0.3, 0.2]], [[1, 0], [0, 0, 0, 1]])
    q = verifier_quality(
        [[0.9, 0.1], [0.5, 0.4, 0.3, 0.2]], [[1, 0], [0, 0, 0, 1]], lengths=[[1, 2], [3, 3, 3, 4]]
    )
    assert (q.problems, q.samples, q.unscored, q.accuracy) == (2, 6, 0.0, 0.375)
    assert [a.n for a in q.curve] == [1, 2] and wide.present.sum() == 6
    assert q.auc.value == pytest.approx(0.5)


def test_the_shares_of_the_chosen_are_best_of_k() -> None:
    scores, correct = pool(2, 10, 9)
    scores = np.round(scores, 1)
    scores[3, 2:5] = np.nan
    for k in (1, 2, 5, 9):
        shares = chosen_shares(scores, k)
        assert (shares * correct).sum(axis=1) == pytest.approx(best_of_k(scores, correct, [k]).accuracy[0])
        assert (shares.sum(axis=1) <= 1.0 + 1e-12).all()
    assert chosen_shares(scores, 1)[0] == pytest.approx(np.full(9, 1 / 9))


def test_the_mean_of_the_chosen_goes_from_the_mean_to_the_maximum() -> None:
    scores, correct = pool(3, 10, 9)
    ours = Pool.of(scores, correct)
    means = mean_of_chosen(ours, scores, [1, 9])
    assert means[0] == pytest.approx(scores.mean(axis=1)) and means[1] == pytest.approx(scores.max(axis=1))
    with pytest.raises(InputError, match="one for each sample"):
        mean_of_chosen(ours, scores[:, :3], [1])


def test_length_bias_is_seen_where_it_is_and_not_where_length_is_honest() -> None:
    rng = np.random.default_rng(4)
    scores, correct = pool(4)
    honest = rng.integers(10, 100, scores.shape) + 50 * correct  # right ones are longer, and that is no bias
    found = length_bias(Pool.of(scores, correct), honest, [1, 16])
    assert found.preference.low < 0.5 < found.preference.high
    assert found.chosen[0] == (1, pytest.approx(1.0))
    biased = np.clip(scores + 0.004 * (honest - 50), 0.0, 1.0)
    found = length_bias(Pool.of(biased, correct), honest, [1, 16])
    assert found.preference.low > 0.6 and found.chosen[1][1] > 1.3
    assert length_bias(Pool.of(1 - biased, correct), honest, [1]).preference.high < 0.4


def test_the_report_holds_what_its_parts_say() -> None:
    scores, correct = pool(5)
    steps, truth = [[0.9, 0.2], [0.9, 0.8]], [1, -1]
    q = verifier_quality(scores, correct, steps=steps, first_errors=truth, ns=(1, 4, 16))
    assert (
        q.auc.value == pytest.approx(within_problem_auc(scores, correct))
        and q.auc.low < q.auc.value < q.auc.high
    )
    measured = best_of_k(scores, correct, (1, 4, 16)).mean
    for i, at in enumerate(q.curve):
        assert at.chosen.value == pytest.approx(measured[i])
        assert at.regret.value == pytest.approx(at.oracle.value - at.chosen.value)
        assert at.gap.value == pytest.approx(at.predicted - at.chosen.value)
        # Here scores depend on correctness alone, so that prediction and measurement agree.
        assert at.gap.low - 0.01 <= 0.0 <= at.gap.high + 0.01
        assert at.accepted_predicted == pytest.approx(at.accepted, abs=0.03)
    assert q.curve[0].regret.value == pytest.approx(0.0, abs=1e-12) and q.curve[0].kl == 0.0
    assert q.first_error is not None and q.first_error.f1 == 1.0
    assert q.fall is not None and q.length is None
    assert q.curve[-1].score > q.curve[0].score


def test_over_optimisation_is_found_where_a_blind_spot_is() -> None:
    rng = np.random.default_rng(60)
    scores, correct = pool(6, 200, 64)
    blind = ~correct & (rng.random(correct.shape) < 0.05)
    scores = np.where(blind, 1.0, np.minimum(scores, 0.99))
    q = verifier_quality(scores, correct)
    assert q.fall is not None and q.fall.found
    # The score goes on rising, and so the prediction from the score's distribution knows of the fall.
    assert q.curve[-1].score > q.curve[3].score and q.curve[-1].chosen.value < q.curve[3].chosen.value
    assert q.curve[-1].predicted < q.curve[3].predicted


def test_the_report_is_text_with_a_table() -> None:
    scores, correct = pool(7)
    scores[0, 0] = np.nan
    text = verifier_quality(
        scores, correct, lengths=np.ones(scores.shape), steps=[[0.1]], first_errors=[0]
    ).markdown()
    assert "first error at threshold 0.5: 100.0% of 1 solutions with an error; no solution without" in text
    assert text.count("\n|") == 2 + 5 and "AUC within problems" in text and "over-optimisation" in text
    assert "0.1% without a score" in text and "nan" not in text


def test_few_problems_have_no_intervals_and_their_own_size_is_measured() -> None:
    scores, correct = pool(8, problems=7, samples=3)
    q = verifier_quality(scores, correct)
    assert [at.n for at in q.curve] == [1, 2, 3] and q.fall is None
    assert all(np.isnan(at.chosen.low) and at.chosen.value > 0 for at in q.curve)
    text = q.markdown()
    assert "nan" not in text and "[" not in text
    more = verifier_quality(*pool(8, problems=8, samples=3))
    assert more.curve[0].chosen.low < more.curve[0].chosen.value and more.fall is not None


def test_the_limit_is_the_mean_of_what_problems_tend_to() -> None:
    # Accepted: 0.8 or more. All right samples are, and half of the wrong ones.
    scores = [[0.9, 0.9, 0.9, 0.8, 0.1], [0.9, 0.8, 0.8, 0.1, 0.1]]
    correct = [[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]
    q = verifier_quality(scores, correct, threshold=0.8)
    t, f = q.rates.true_positive, q.rates.false_positive
    limits = [p * t / (p * t + (1 - p) * f) for p in (0.6, 0.2)]
    assert (t, f) == (1.0, 0.5) and q.limit == pytest.approx(np.mean(limits))


def test_a_problem_of_which_nothing_is_accepted_tends_to_one_of_all() -> None:
    q = verifier_quality([[0.9, 0.1], [0.2, 0.1]], [[1, 0], [0, 0]], threshold=0.5)
    assert (q.rates.false_positive, q.limit) == (0.0, 0.5)


def test_groups_are_what_predictions_are_told_within() -> None:
    scores, correct = pool(9, problems=40)
    pooled = verifier_quality(scores, correct)
    alone = verifier_quality(scores, correct, groups=np.arange(40))
    assert pooled.curve[-1].predicted != alone.curve[-1].predicted
    assert alone.curve[1].gap.value == pytest.approx(0.0, abs=0.05)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="smallest pool"):
        verifier_quality([[0.1, 0.2], [0.3]], [[1, 0], [0]], ns=(2,))
    with pytest.raises(InputError, match="first_errors"):
        verifier_quality([[0.1, 0.9]], [[0, 1]], steps=[[0.5]])
    with pytest.raises(InputError, match=r"step_threshold=0\.9: of steps, and there are none"):
        verifier_quality([[0.1, 0.9]], [[0, 1]], step_threshold=0.9)
