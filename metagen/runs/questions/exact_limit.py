"""Limits of votes where they are known: an enumerable model, its pools, and argmax Σ v·g itself.

The problems are beginnings of palindromes: what a model may make of the first letters, one of which is right. A word
is an answer of its own, and right if it is a palindrome. Weights are those of a verifier that sees palindromes dimly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metagen.analysis.estimators import majority_at_k, weighted_at_k
from metagen.analysis.limits import exact_vote_limit, vote_limit
from metagen.runs.questions.alignment.enumerable import palindromes
from metagen.runs.questions.section import Table
from metagen.runs.words import share

#: Samples of the pool whose curve ends there, and of the independent one.
SAMPLES, OTHERS = 64, 256
#: Weights of a palindrome and of another word.
SEEN, UNSEEN = 0.7, 0.3
#: Letters that are given, at most.
GIVEN = 3


@dataclass(frozen=True, slots=True)
class Ends:
    """One vote, means over the problems.

    measured: at n = `SAMPLES`, the whole of one pool. plug_in: the leader of `OTHERS` other samples; stable: the share
    of problems whose halves agree on it. exact: of the distribution.
    """

    vote: str
    problems: int
    measured: float
    plug_in: float
    stable: float
    exact: float


def ends(seed: int = 0) -> tuple[Ends, ...]:
    """The plain and the weighted vote."""
    model = palindromes()
    words = list(model.of)
    begun = sorted({word[:length] for word in words for length in range(GIVEN + 1) if 2 not in word[:length]})
    rng = np.random.default_rng(seed)
    weight, right = np.where(model.r > 0, SEEN, UNSEEN), model.r > 0
    laws = [np.where([word[: len(start)] == start for word in words], model.p, 0.0) for start in begun]
    laws = [law / law.sum() for law in laws]
    one, other = (np.stack([rng.choice(len(words), n, p=law) for law in laws]) for n in (SAMPLES, OTHERS))
    ids = np.arange(len(words))
    found = []
    for vote, weights in (("plain", None), ("weighted", weight)):
        measured = (
            majority_at_k(one, right[one], [SAMPLES], rng)
            if weights is None
            else weighted_at_k(one, weights[one], right[one], [SAMPLES], rng)
        )
        limit = vote_limit(other, right[other], None if weights is None else weights[other])
        exact = float(np.mean([exact_vote_limit(law, ids, right, weights) for law in laws]))
        found.append(
            Ends(vote, len(laws), float(measured.accuracy.mean()), limit.estimate, limit.stable, exact)
        )
    return tuple(found)


def table() -> Table:
    """What a pool and a plug-in limit make of a limit that is known."""
    every = ends()
    rows = tuple(
        (e.vote, str(e.problems), share(e.measured), share(e.plug_in), share(e.stable), share(e.exact))
        for e in every
    )
    caption = (
        f"The same on a model with a known limit, because it can be enumerated. Its problems are {every[0].problems} "
        f"beginnings of words, and palindromes are right. The columns are votes over {SAMPLES} samples, the plug-in "
        f"limit of {OTHERS} others, and argmax Σ v·g of the model itself."
    )
    columns = ("vote", "problems", f"at n = {SAMPLES}", "plug-in limit", "halves agree", "exact limit")
    return Table("saturation-exact", caption, columns, rows, frozenset({1, 2, 3, 4, 5}))
