"""Which samples belong to a curve: the pool that it was measured on, and the independent one of its limit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.stats import rankdata

from metagen.runs.curves.study import Bools, Curve, Ints, StudyResult, Votes


def own_pool(result: StudyResult, model: str) -> Votes | None:
    """The test samples of a model, with its settings as written; None without any."""
    mine = [v for v in result.votes if (v.model, v.role) == (model, "test")]
    found = next((v for v in mine if v.generator in ("", model)), mine[0] if mine else None)
    return None if found is None else trim(found)


def limit_pool(result: StudyResult, curve: Curve) -> Votes | None:
    """The independent samples of the curve's generator, which tell its limit; None without its verifier's scores."""
    mine = [
        v for v in result.votes if (v.model, v.role, v.generator) == (curve.model, "limit", curve.generator)
    ]
    return next((trim(v) for v in mine if _weighs(v, curve)), None)


def trim(votes: Votes) -> Votes:
    """A pool of unequal numbers of samples, cut to what nine problems of ten have: see `complete_problems`.

    Whatever weighs problems alike needs as many samples of each, and a few that were cut short should not decide how
    many.
    """
    have = votes.sizes[votes.sizes > 0]
    if not len(have) or have.min() == have.max():
        return votes
    width = int(np.quantile(have, 0.1, method="lower"))
    return replace(
        votes, classes=votes.classes[:, :width], correct=votes.correct[:, :width], eligible=votes.eligible[:, :width],
        scores={name: scores[:, :width] for name, scores in votes.scores.items()}, tokens=votes.tokens[:, :width],
        logprob=votes.logprob[:, :width], sizes=np.minimum(votes.sizes, width),
    )  # fmt: skip


def _weighs(votes: Votes, curve: Curve) -> bool:
    """Whether these samples have the weights of the curve's vote."""
    if curve.kind == "majority" or curve.verifier is None:
        return True
    return curve.verifier in votes.scores and bool(np.isfinite(votes.scores[curve.verifier]).any())


def complete_problems(votes: Votes) -> Bools:
    """[problems] that have as many samples as any."""
    return np.asarray(votes.sizes == votes.sizes.max(initial=0)) & (votes.sizes > 0)


def dense(classes: Ints) -> Ints:
    """Class ids as 0, 1, … of each row, −1 for no vote, [problems, samples], as `classes` are.

    Rules that count votes make a column of each id.
    """
    ids = np.maximum(classes, -1)
    ranks = np.asarray(rankdata(ids, method="dense", axis=1), dtype=np.int64) - 1
    return np.asarray(ranks - (ids.min(axis=1, keepdims=True) < 0), dtype=np.int64)
