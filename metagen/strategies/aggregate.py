"""Aggregation: from candidates with answer classes and scores to the one that is returned.

Pure functions over precomputed values; parallel strategies, tree searches and offline analysis all
call these. Ties are broken by a salted digest (of the class, then of the member), and sums are exact
before rounding, so permuting the candidates changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from metagen.errors import InputError
from metagen.sequence import digest


@dataclass(frozen=True, slots=True)
class Selection:
    """index: of the chosen candidate. totals: by class, what each class gathered (votes only)."""

    index: int
    totals: dict[str, float]


def best_of(scores: Sequence[float | None], members: Sequence[str], salt: str) -> Selection:
    """The candidate with the highest score: argmax_i v(y_i). None is worse than any score.

    members: texts that tell candidates apart, for ties. Raises InputError for no candidates.
    """
    _same_length(scores, members)
    order = [(s is not None, s or 0.0, digest(salt, m)) for s, m in zip(scores, members, strict=True)]
    return Selection(max(range(len(order)), key=order.__getitem__), {})


def weighted_vote(
    classes: Sequence[str | None], weights: Sequence[float | None], members: Sequence[str], salt: str
) -> Selection:
    """The class with the largest total weight: argmax_a Σ_i v(y_i) 1[a_i = a]; of it, the heaviest member.

    Candidates without a class (no answer) do not vote, and without a weight count nothing. If nobody
    votes, the best by weight is taken. Ties: digest of the class, then of the member.
    """
    _same_length(classes, members)
    _same_length(weights, members)
    votes: dict[str, list[float]] = {}
    for name, weight in zip(classes, weights, strict=True):
        if name is not None:
            votes.setdefault(name, []).append(weight or 0.0)
    if not votes:
        return best_of(weights, members, salt)
    totals = {name: math.fsum(ws) for name, ws in votes.items()}
    winner = max(totals, key=lambda name: (totals[name], digest(salt, name)))
    inside = [i for i, name in enumerate(classes) if name == winner]
    best = best_of([weights[i] for i in inside], [members[i] for i in inside], salt)
    return Selection(inside[best.index], totals)


def majority_vote(classes: Sequence[str | None], members: Sequence[str], salt: str) -> Selection:
    """The most frequent class (self-consistency, Wang et al. 2023): a weighted vote with equal weights."""
    return weighted_vote(classes, [1.0] * len(classes), members, salt)


def minimum_bayes_risk(
    utilities: Sequence[Sequence[float]], weights: Sequence[float | None], members: Sequence[str], salt: str
) -> Selection:
    """argmax_i Σ_j w_j u(y_i, y_j): `utilities[i][j]` is how good candidate i is if j were right.

    Weighted voting is the case u(y, y') = 1[same class].
    """
    _same_length(utilities, members)
    _same_length(weights, members)
    expected = [math.fsum(u * (w or 0.0) for u, w in zip(row, weights, strict=True)) for row in utilities]
    return best_of(expected, members, salt)


def _same_length(values: Sequence[Hashable] | Sequence[Sequence[float]], members: Sequence[str]) -> None:
    if not members:
        raise InputError("there are no candidates to aggregate; give at least one")
    if len(values) != len(members):
        raise InputError(f"{len(values)} values for {len(members)} candidates; expected one each")
