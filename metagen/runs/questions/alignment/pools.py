"""Reward against KL divergence of the models of a study, from their pools of samples.

Two ways. Averages over subsets of a pool say what the best of n wins; its KL divergence has a bound, and an estimator
from the probabilities of what is chosen. And a pool *as* a model, which writes each of its N samples with probability
1/N, can be enumerated: every policy has an exact reward and KL divergence there, soft and pessimistic ones and the tilt
included. As N grows that model is the real one; policies that choose among n ≪ N draws are near to it.

What is not eligible (cut, or without an answer) has the least reward of its problem, for it loses to whatever is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metagen.analysis.alignment import (
    best_of_n_pmf,
    kl,
    kl_bound,
    kl_estimate,
    pessimistic_pmf,
    soft_best_of_n_pmf,
    tilt,
    tilt_at,
)
from metagen.analysis.estimators import subset_share
from metagen.analysis.intervals import Support, interval
from metagen.analysis.ranks import standing
from metagen.analysis.verifier_quality import chosen_shares
from metagen.runs.curves.measured import FEW
from metagen.runs.curves.study import Floats, Votes
from metagen.runs.note import Note
from metagen.runs.questions.pools import trim

#: Soft best-of-n, in units of the reward. What is drawn of N samples to choose among: N/DRAWN at most.
BETAS, DRAWN = (1.0, 0.3, 0.1, 0.03), 4
#: Weights of the tilt, in units of the reward.
WEIGHTS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


@dataclass(frozen=True, eq=False)
class Rewarded:
    """Samples of one model with rewards, [problems, samples]: rows that are complete.

    reward: what chooses. gold: what is meant, 1 for right and 0 for wrong, or another reward. logprob: log p(y), NaN
    where it is unknown. others: rewards of all verifiers that do not know the answers, [verifiers, problems, samples].
    """

    model: str
    verifier: str
    reward: Floats
    gold: Floats
    logprob: Floats
    others: Floats
    notes: tuple[Note, ...] = ()

    @property
    def samples(self) -> int:
        return int(self.reward.shape[1])

    @property
    def binary(self) -> bool:
        """Whether gold is right or wrong, so that its means are probabilities."""
        return bool(np.isin(self.gold, (0.0, 1.0)).all())


def read_rewards(
    votes: Votes,
    verifier: str,
    gold: str = "correct",
    known: Sequence[str] = (),
    temperature: float | None = 1.0,
    adapters: str = "",
) -> Rewarded:
    """The problems of a pool (`trim`) that have as many samples as any, each with a score; notes say what is left out.

    gold: `correct`, or a verifier. known: verifiers whose scores make an ensemble. temperature, adapters (as of
    `reading.adapter_settings`): of the samples; their log-probabilities are those of the model at 1 without any, and
    otherwise say nothing of what was drawn.
    """
    votes = trim(votes)
    where, notes = f"{votes.model} by {verifier}", []
    width = int(votes.sizes.max(initial=0))
    needed = [votes.scores[verifier], *([] if gold == "correct" else [votes.scores[gold]])]
    whole = votes.sizes == width
    scored = np.all([np.isfinite(x[:, :width]).all(axis=1) for x in needed], axis=0)
    rows = np.flatnonzero(whole & scored)
    if not whole.all():
        notes.append(
            Note(where, f"on {int(whole.sum())} of {len(whole)} problems, those with {width} samples each")
        )
    if missing := int((whole & ~scored).sum()):
        notes.append(
            Note(where, f"{missing} problems are left out, because some of their samples have no score")
        )

    def of(values: Floats) -> Floats:
        some = np.asarray(values[rows, :width], np.float64)
        able = votes.eligible[rows, :width]
        least = some.min(axis=1, keepdims=True) if some.size else some
        return np.where(able | ~able.any(axis=1, keepdims=True), some, np.minimum(least, 0.0))

    given = {v: of(votes.scores[v]) for v in known if v in votes.scores}
    others = [scores for scores in given.values() if np.isfinite(scores).all()]
    if left := [v for v, scores in given.items() if not np.isfinite(scores).all()]:
        notes.append(
            Note(where, f"{', '.join(left)}: not in the ensemble, because some samples have no score")
        )
    logprob = np.array(votes.logprob[rows, :width], np.float64)
    unknown = int((~np.isfinite(logprob)).sum())
    if (temperature != 1.0 or adapters) and unknown < logprob.size:
        at = "an unknown temperature" if temperature is None else f"{temperature:g}"
        at += f" with {adapters}" if adapters else ""
        notes.append(
            Note(where, "only the bound on KL is shown: log-probabilities are the model's at temperature 1, and "
                        f"samples are drawn at {at}")
        )  # fmt: skip
        logprob[:] = np.nan
    elif unknown:
        notes.append(
            Note(where, f"only the bound on KL is shown: its estimate needs log-probabilities, and {unknown} of "
                        f"{logprob.size} samples have none")
        )  # fmt: skip
    meant = votes.correct[rows, :width].astype(float) if gold == "correct" else of(votes.scores[gold])
    shape = (len(others), len(rows), width)
    return Rewarded(
        votes.model,
        verifier,
        of(votes.scores[verifier]),
        meant,
        logprob,
        np.reshape(others, shape),
        tuple(notes),
    )


# --------------------------------------------------------------------------------------- by subsets


@dataclass(frozen=True, slots=True, eq=False)
class Best:
    """The best of n, averaged over subsets. reward, gold, wins, gold_wins: [problems].

    bound: on KL. estimate: of KL, NaN without log-probabilities. wins: P(above one fresh sample) + ½ P(equal), by the
    reward; gold_wins: the same by gold, NaN unless gold is right or wrong.
    """

    n: int
    bound: float
    estimate: float
    reward: Floats
    gold: Floats
    wins: Floats
    gold_wins: Floats


def best(pool: Rewarded, ns: Sequence[int]) -> list[Best]:
    """The best of each n, exact over all subsets."""
    plain, found = pool.gold.mean(axis=1), []
    for n in ns:
        shares = chosen_shares(pool.reward, n)
        # Without the rounding errors of sums, so that what is always right is exactly 1.
        gold = np.round((shares * pool.gold).sum(axis=1), 12)
        # Of logarithms of a probability, rounding may leave one above 0.
        far = (shares * kl_estimate(n, np.exp(np.minimum(pool.logprob, 0.0)))).sum(axis=1)
        found.append(
            Best(
                n, kl_bound(n), float(far.mean()) if len(far) else math.nan, (shares * pool.reward).sum(axis=1),
                gold, _wins(pool.reward, n), 0.5 * (1.0 + gold - plain) if pool.binary else np.full_like(gold, np.nan),
            )
        )  # fmt: skip
    return found


def _wins(reward: Floats, n: int) -> Floats:
    """[problems]: the best of n others against each sample; exact over subsets, NaN where there are not n others."""
    size = reward.shape[1]
    if n >= size:
        return np.full(len(reward), np.nan)
    lower, equal = standing(reward)
    below = subset_share(size - 1, n)
    return np.asarray(1.0 - 0.5 * (below[lower + equal - 1] + below[lower]).mean(axis=1))


# --------------------------------------------------------------------------------- pools as models


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """A policy on pools as models, [problems] each: its KL divergence, reward and gold; and, of the tilt that goes as
    far on each problem, the reward. knob: what was turned, as words.
    """

    policy: str
    knob: str
    kl: Floats
    reward: Floats
    gold: Floats
    optimal: Floats


def reaches(pool: Rewarded, ns: Sequence[int]) -> list[Reach]:
    """Best-of-n, soft best-of-n of the largest n, pessimistic best-of-n by all verifiers, and the tilt."""
    most, rows = max(ns), list(pool.reward)
    p = np.full(pool.samples, 1.0 / pool.samples)
    made = [("best-of-n", f"n = {n}", [best_of_n_pmf(p, r, n) for r in rows]) for n in ns]
    for beta in BETAS:
        soft = [soft_best_of_n_pmf(p, r, most, beta) for r in rows]
        made.append((f"soft best-of-{most}", f"β = {beta:g}", soft))
    if len(pool.others) > 1:
        each = list(zip(pool.others.mean(axis=0), pool.others.std(axis=0), strict=True))
        name = f"pessimistic, {len(pool.others)} verifiers"
        for n in ns[1:]:
            made.append(
                (name, f"n = {n}", [pessimistic_pmf(p, mean, n, 1.0, spread) for mean, spread in each])
            )
    made += [("tilt", f"λ = {lam:g}", [tilt(p, r, lam) for r in rows]) for lam in WEIGHTS]
    return [_reach(pool, p, policy, knob, np.array(q)) for policy, knob, q in made]


def _reach(pool: Rewarded, p: Floats, policy: str, knob: str, q: Floats) -> Reach:
    far = np.array([kl(one, p) for one in q])
    won = (q * pool.reward).sum(axis=1)
    pairs = zip(pool.reward, far.tolist(), strict=True)
    optimal = won if policy == "tilt" else np.array([tilt_at(p, r, one)[0] @ r for r, one in pairs])
    return Reach(policy, knob, far, won, (q * pool.gold).sum(axis=1), optimal)


@dataclass(frozen=True, slots=True)
class Share:
    """Of the reward that the tilt gains over the model at equal KL divergence, what a policy gains; with bounds."""

    estimate: float
    low: float
    high: float


def share(pool: Rewarded, reach: Reach, *, resamples: int = 2000, seed: int = 0) -> Share:
    """Gains summed over problems; percentile bootstrap over problems, NaN for fewer than `FEW`.

    NaN where the tilt gains nothing, as with rewards that are all equal.
    """
    plain = pool.reward.mean(axis=1)
    ours, most = reach.reward - plain, reach.optimal - plain
    if not most.sum() > 1e-12:
        return Share(math.nan, math.nan, math.nan)
    estimate = float(ours.sum() / most.sum())
    if len(ours) < FEW:
        return Share(estimate, math.nan, math.nan)
    picked = np.random.default_rng(seed).integers(len(ours), size=(resamples, len(ours)))
    gained = most[picked].sum(axis=1)
    shares = ours[picked].sum(axis=1)[gained > 0] / gained[gained > 0]
    low, high = np.quantile(shares, (0.025, 0.975)).tolist()
    return Share(estimate, low, high)


def ladder(samples: int, most: int) -> list[int]:
    """1, 2, 4, … up to `most`, and to the samples that there are."""
    return [2**i for i in range(max(1, min(samples, most)).bit_length())]


def mean_of(values: Floats, *, support: Support | None = None) -> tuple[float, float, float]:
    """Mean over problems with its 95% interval; bounds NaN for fewer than `FEW`, all NaN where a value is unknown.

    values: [problems]. support: of the values (see `intervals.interval`).
    """
    if not values.size or not np.isfinite(values).all():
        return math.nan, math.nan, math.nan
    if len(values) < FEW:
        return float(values.mean()), math.nan, math.nan
    found = interval(values, support=support)
    return float(found.estimate), float(found.low), float(found.high)
