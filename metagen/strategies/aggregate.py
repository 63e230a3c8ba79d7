"""Aggregation: from candidates with answer classes and scores to the one that is returned.

Pure functions over precomputed values; parallel strategies, tree searches and offline analysis all
call these. Ties are broken by a salted digest (of the class, then of the member), and sums are exact
before rounding, so permuting the candidates changes nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from metagen.errors import InputError
from metagen.sequence import digest

#: The logarithm of the largest weight in a vote: the sum of many is a float still.
LARGEST: Final = 600.0


@dataclass(frozen=True, slots=True)
class Selection:
    """index: of the chosen candidate. totals: by class, what each class gathered (where there are classes).

    blind: the candidates differ, and nothing was known of any: the tie rule alone has chosen. votes: the totals are
    votes, so that each class has a share of them.
    """

    index: int
    totals: dict[str, float]
    blind: bool = False
    votes: bool = False


def best_of(scores: Sequence[float | None], members: Sequence[str], salt: str) -> Selection:
    """The candidate with the highest score: argmax_i v(y_i). None is worse than any score.

    members: texts that tell candidates apart, for ties. Raises InputError for no candidates.
    """
    _same_length(scores, members)
    order = [(s is not None, s or 0.0) for s in scores]
    best = max(order)
    # In the order of candidates, each text once: of equal candidates the first is taken.
    tied = {m: i for i, m in reversed([*enumerate(members)]) if order[i] == best}
    winner = max(tied, key=lambda member: digest(salt, member))
    return Selection(tied[winner], {}, _blind(scores, members))


def in_order(values: Sequence[float | None], raw: Sequence[float | None]) -> list[float | None]:
    """Numbers in the order of the values; where these are equal, in that of the raw scores they were mapped from.

    For choices that need an order alone: a map into [0, 1] may make equal what its raw scores tell apart. A value
    without a raw score stands for itself.
    """
    keys = [None if v is None else (v, v if r is None else r) for v, r in zip(values, raw, strict=True)]
    ranks = {key: float(rank) for rank, key in enumerate(sorted({key for key in keys if key is not None}))}
    return [None if key is None else ranks[key] for key in keys]


def soft_best_of(
    scores: Sequence[float | None], members: Sequence[str], salt: str, *, beta: float, seed: int
) -> Selection:
    """Candidate i with probability exp(r_i/β) / Σ_j exp(r_j/β) (soft best-of-n, Verdun et al. 2025).

    Drawn as argmax_i r_i/β + g_i, where the Gumbel noise g_i hashes the seed, the salt and the member (of equal
    members, its number among them). β → 0 is best-of-n, β → ∞ one of the candidates at random. What has no score
    is drawn only if nothing has one, and then evenly. Raises InputError for β that is not positive and finite.
    """
    _same_length(scores, members)
    if not 0.0 < beta < math.inf:
        raise InputError(f"beta={beta!r}: expected a finite number > 0; for β = 0 take best-of-n")
    keys = [(member, score is not None, score or 0.0) for score, member in zip(scores, members, strict=True)]
    copies: dict[str, int] = {}
    noisy: dict[int, tuple[bool, float]] = {}
    for i in sorted(range(len(keys)), key=keys.__getitem__):
        member, known, score = keys[i]
        copies[member] = copies.get(member, -1) + 1
        bits = int.from_bytes(digest(str(seed), salt, member, str(copies[member]))[:8], "little")
        uniform = ((bits >> 11) + 0.5) / 2**53
        noisy[i] = known, score / beta - math.log(-math.log(uniform))
    return Selection(max(noisy, key=noisy.__getitem__), {}, _blind(scores, members))


def borda_weights(scores: Sequence[float | None], *, power: float = 1.0) -> list[float | None]:
    """(n − rank + 1)^p of each candidate, rank 1 being the best score (Kang et al. 2025).

    A vote with these weights is a majority for p = 0, and tends to best-of-n as p grows. Equal scores share the mean
    of their ranks' weights. Weights beyond e^600 are divided by n^p. Candidates without a score have no weight, and
    take no rank. Raises InputError for a power below 0.
    """
    if not 0.0 <= power < math.inf:
        raise InputError(f"power={power!r}: expected a finite number ≥ 0")
    order = sorted(score for score in scores if score is not None)
    # Where the powers would be no floats any more, they are told as shares of the largest.
    scale = float(len(order)) if order and power * math.log(len(order)) > LARGEST else 1.0
    weights: dict[float, float] = {}
    for value in set(order):
        first, after = bisect_left(order, value), bisect_right(order, value)
        powers = (((rank + 1.0) / scale) ** power for rank in range(first, after))
        weights[value] = math.fsum(powers) / (after - first)
    return [None if score is None else weights[score] for score in scores]


Rule = Literal["borda", "reciprocal", "instant-runoff"]


def ranked_vote(
    ballots: Sequence[Sequence[str]], members: Sequence[str], salt: str, *, rule: Rule = "borda"
) -> Selection:
    """The winner among classes that each candidate ranks, best first (ranked voting, Wang et al. 2025).

    borda: a class gets m − rank from each ballot, m being the number of classes that have any vote. reciprocal: 1/rank.
    instant-runoff: the class that leads the fewest ballots is struck out until one leads more than half of those
    that still name one; totals are then those of the last count. Only a class that leads some ballot can win, so that
    there is a candidate that answers it. An empty ballot does not vote; of a class named twice the better rank counts.
    Ties: digest of the class, then of the member. Raises InputError for no candidates, and for an unknown rule.
    """
    _same_length(ballots, members)
    if rule not in get_args(Rule):
        raise InputError(f"rule={rule!r}: expected one of {', '.join(get_args(Rule))}")
    ranked = [list(dict.fromkeys(ballot)) for ballot in ballots]
    if not any(ranked):
        return best_of([None] * len(members), members, salt)
    heads = {ballot[0] for ballot in ranked if ballot}
    totals = _runoff(ranked, salt) if rule == "instant-runoff" else _points(ranked, rule)
    winner = max(heads & totals.keys(), key=lambda name: (totals[name], digest(salt, name)))
    inside = [i for i, ballot in enumerate(ranked) if ballot and ballot[0] == winner]
    best = best_of([None] * len(inside), [members[i] for i in inside], salt)
    return Selection(inside[best.index], totals, votes=True)


def _points(ballots: list[list[str]], rule: Rule) -> dict[str, float]:
    named = len({name for ballot in ballots for name in ballot})
    given: dict[str, list[float]] = {}
    for ballot in ballots:
        for rank, name in enumerate(ballot, 1):
            given.setdefault(name, []).append(1.0 / rank if rule == "reciprocal" else float(named - rank))
    return {name: math.fsum(points) for name, points in given.items()}


def _runoff(ballots: list[list[str]], salt: str) -> dict[str, float]:
    """First preferences in the count that decides."""
    standing = {ballot[0] for ballot in ballots if ballot}
    while True:
        counts = dict.fromkeys(standing, 0.0)
        for ballot in ballots:
            choice = next((name for name in ballot if name in standing), None)
            if choice is not None:
                counts[choice] += 1.0
        if max(counts.values()) * 2 > math.fsum(counts.values()) or len(standing) == 1:
            return counts
        standing.remove(min(standing, key=lambda name: (counts[name], digest(salt, name))))


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
    voting = [weight for weight, name in zip(weights, classes, strict=True) if name is not None]
    blind = len(votes) > 1 and all(weight is None for weight in voting)
    totals = {name: math.fsum(ws) for name, ws in votes.items()}
    winner = max(totals, key=lambda name: (totals[name], digest(salt, name)))
    inside = [i for i, name in enumerate(classes) if name == winner]
    best = best_of([weights[i] for i in inside], [members[i] for i in inside], salt)
    return Selection(inside[best.index], totals, blind, votes=True)


def majority_vote(classes: Sequence[str | None], members: Sequence[str], salt: str) -> Selection:
    """The most frequent class (self-consistency, Wang et al. 2023): a weighted vote with equal weights."""
    _same_length(classes, members)
    if all(name is None for name in classes):
        return best_of([None] * len(members), members, salt)
    return weighted_vote(classes, [1.0] * len(classes), members, salt)


def highest_expected_utility(
    expected: Sequence[float],
    weights: Sequence[float | None],
    classes: Sequence[str | None],
    members: Sequence[str],
    salt: str,
) -> Selection:
    """argmax_i of expected utilities that are there already; NaN, not known, is worse than any.

    Ties as in a vote: digest of the class, then the heavier, then the digest of the member. So weighted voting is
    the special case of u(y, y') = 1[same class] to the last tie. totals: the best of each class.
    """
    for values in (expected, weights, classes):
        _same_length(values, members)
    best: dict[str | None, float] = {}
    for value, name in zip(expected, classes, strict=True):
        best[name] = max(best.get(name, -math.inf), -math.inf if math.isnan(value) else value)
    winner = max(best, key=lambda name: (best[name], digest(salt, name) if name is not None else b""))
    inside = [
        i
        for i, (value, name) in enumerate(zip(expected, classes, strict=True))
        if name == winner and (value == best[name] or best[name] == -math.inf)
    ]
    chosen = best_of([weights[i] for i in inside], [members[i] for i in inside], salt)
    told = any(weight is not None for weight in weights)
    known = [value if told and not math.isnan(value) else None for value in expected]
    totals = {name: value for name, value in best.items() if name is not None and value > -math.inf}
    return Selection(inside[chosen.index], totals, _blind(known, members))


def _blind(scores: Sequence[float | None], members: Sequence[str]) -> bool:
    return len(set(members)) > 1 and all(score is None for score in scores)


def _same_length(values: Sequence[Hashable] | Sequence[Sequence[float]], members: Sequence[str]) -> None:
    if not members:
        raise InputError("there are no candidates to aggregate; give at least one")
    if len(values) != len(members):
        raise InputError(f"{len(values)} values for {len(members)} candidates; expected one each")
