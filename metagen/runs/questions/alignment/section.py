"""The report's section on alignment: what choosing by a reward wins, how far it goes, and what is optimal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isinf, isnan, nan
from typing import TYPE_CHECKING

import numpy as np

from metagen.analysis.comparison import holm, p_number
from metagen.analysis.intervals import SHARES
from metagen.analysis.selection import over_optimisation
from metagen.runs.curves.study import StudyResult
from metagen.runs.note import Note
from metagen.runs.questions.alignment import shown
from metagen.runs.questions.alignment.enumerable import exact
from metagen.runs.questions.alignment.pools import BETAS, DRAWN, share
from metagen.runs.questions.alignment.studied import Studied, study_pools
from metagen.runs.questions.section import Finding, Plot, Section, Table
from metagen.runs.words import difference, join_words, with_interval
from metagen.runs.words import share as percent

if TYPE_CHECKING:
    from metagen.runs.declare.study import AlignmentSpec

TEXT = (
    "A strategy that chooses by a reward is a policy π; KL(π ‖ p) is its distance from the model p. No policy wins "
    "more at its distance than the tilt p·exp(λr)/Z, which needs the soft value of every prefix. On models that can be "
    "enumerated, all figures are exact. For the study's models, averages over subsets of a pool give the gain of the "
    "best of n. log n − (n−1)/n bounds its KL, and the probabilities of the chosen samples estimate it. Each pool also "
    "serves as a model that writes its samples with equal probability. There KL, soft and pessimistic choices and the "
    f"tilt are exact, for n up to the samples divided by {DRAWN}. A sample that was cut, or has no answer, has the "
    "lowest reward of its problem."
)
#: What is said where there is no ensemble.
PESSIMIST = "pessimistic best-of-n needs scores of two verifiers on one pool"
#: The soft choice that is told.
SOFT = BETAS[2]


def section(result: StudyResult, spec: AlignmentSpec | None = None) -> Section:
    """Reward against KL divergence; what cannot be computed is a note.

    spec: which models and rewards. None: all models, each by its first verifier, and right or wrong is what is meant.
    """
    wanted = list(study_pools(result, spec))
    every = [one for one in wanted if isinstance(one, Studied)]
    notes = [note for one in wanted for note in (one.pool.notes if isinstance(one, Studied) else (one,))]
    meant = "accuracy" if spec is None or spec.gold == "correct" else spec.gold
    pictures: list[Plot] = []
    tables: list[Table] = []
    if spec is None or spec.enumerable:
        pictures.append(shown.exact_plot())
        tables.append(shown.exact_table())
    if every:
        pictures += [*shown.reach_plots(every, meant, result), shown.proxy_plot(every, meant)]
        tables += [shown.best_table(every, meant), shown.reach_table(every, meant)]
    for made, said in (shown.blockwise_table(result), shown.ratio_table(result)):
        tables += made
        notes += said
    notes += [
        Note(f"{one.pool.model} by {one.pool.verifier}", "fewer than 8 problems: no interval, no test")
        for one in every
        if one.few
    ]
    return Section(
        "alignment", "Alignment: reward against KL", TEXT, tuple(_falls(every, meant)), tuple(pictures), tuple(tables),
        tuple(dict.fromkeys(notes)),
    )  # fmt: skip


def question(result: StudyResult, spec: AlignmentSpec | None = None) -> Finding:
    """How near best-of-n, plain, soft and pessimistic, comes to the most that can be won at its KL divergence.

    The estimate is that of plain best-of-n with the largest n, of the first model; exact values are in the sentence.
    """
    asked = "How far from the optimal trade-off of reward and KL is best-of-n, plain, soft and pessimistic?"
    claim = (
        "best-of-n goes at most log n − (n−1)/n nats from its model; as outputs of a memoryless model with an additive "
        "reward grow long, it wins what the optimal policy wins at its KL"
    )
    source = "Beirami et al. 2024, arXiv:2401.01879; Yang et al. 2024, arXiv:2404.01730"
    toys = f"On enumerable models, exactly: {join_words(list(_exactly()))}."
    plain, words, small = None, [], False
    for one in (one for one in study_pools(result, spec) if isinstance(one, Studied)):
        told = []
        if one.pool.samples < 2 * DRAWN:  # n = 1 alone, which chooses nothing
            small = True
            continue
        for policy in dict.fromkeys(r.policy for r in one.reached if r.policy != "tilt"):
            ours = [r for r in one.reached if r.policy == policy]
            last = next((r for r in ours if r.knob == f"β = {SOFT:g}"), ours[-1])
            found = share(one.pool, last)
            if not isnan(found.estimate):
                plain = plain or found
                won = with_interval(found.estimate, found.low, found.high)
                told.append(f"{policy} ({last.knob}) {won} at {last.kl.mean():.2f} nats")
        if told:
            alone = "" if len(one.pool.others) > 1 else f" ({PESSIMIST})"
            words.append(f"{one.pool.model} by {one.pool.verifier}: {join_words(told)}{alone}")
    if plain is None:
        why = "This study has no rewards for this question"
        if small:
            why = f"A choice among two, of samples divided by {DRAWN}, needs pools of {2 * DRAWN} samples or more"
        return Finding(
            asked,
            f"{why}. {toys}",
            claim=claim,
            source=source,
            shown=False,
        )
    return Finding(
        asked,
        f"Of what the optimal policy gains in reward at the same KL, {'; '.join(words)}. {toys}", 100 * plain.estimate,
        100 * plain.low, 100 * plain.high, "% of the optimal gain", claim=claim, source=source,
    )  # fmt: skip


def _exactly() -> Iterator[str]:
    """What best of 16 and a soft form of it win of the tilt's, model by model."""
    for model, reached in exact():
        found = {(r.policy, r.knob): r.reward / r.optimal for r in reached if r.optimal > 0}
        plain, soft = found["best-of-n", "n = 16"], found["soft best-of-16", "β = 0.5 sd"]
        yield f"{percent(plain)} by best-of-16 and {percent(soft)} by its soft form ({model.name})"


def _falls(every: Sequence[Studied], meant: str) -> Iterator[Finding]:
    """Whether what is meant falls as n grows; one family of tests over the models."""
    claim = "the true goal first rises with the KL of best-of-n by a proxy, and then falls"
    source = "Gao et al. 2023, arXiv:2210.10760"
    fine = [one for one in every if not one.few and len(one.bests) > 1]
    found = [
        over_optimisation(
            np.stack([b.gold for b in one.bests]), [b.n for b in one.bests],
            support=SHARES if one.pool.binary else None,
        )
        for one in fine
    ]  # fmt: skip
    corrected = holm([fall.difference.p_value for fall in found])
    for one, fall, p in zip(fine, found, corrected, strict=True):
        asked = f"Does best-of-n over-optimise {one.pool.verifier} on {one.pool.model}?"
        d = fall.difference
        rise = f"{one.bests[0].reward.mean():.3f} to {one.bests[-1].reward.mean():.3f}"
        steps = f"from {percent(fall.at_peak)} at n = {fall.peak} to {percent(fall.at_largest)} at n = {fall.largest}"
        apart = difference(d.estimate, d.low, d.high)
        fell, rose = fall.found and p <= 0.05, d.low > 0
        if fell:
            number = p_number(p)
            equal = "" if number.startswith("<") else "= "
            alone = f", corrected for {len(fine)} models (Holm); the interval is not" if len(fine) > 1 else ""
            said = f"Yes: {meant} falls {steps}, {apart} points (p {equal}{number}{alone})"
        elif rose:
            said = f"No: {meant} rises to the largest n, {steps}, {apart} points"
        else:
            least = "none of any size" if isinf(d.detectable) else f"{100 * d.detectable:.1f} points"
            told = "" if isnan(d.detectable) else f" (smallest detectable difference {least})"
            said = f"{meant[:1].upper()}{meant[1:]} is not shown to fall{told}: {steps}, {apart} points"
        yield Finding(
            asked,
            f"{said}. The reward that chooses rises from {rise}.",
            100 * d.estimate,
            100 * d.low,
            100 * d.high,
            "points",
            p,
            nan if fell or rose else 100 * d.detectable,
            claim,
            source,
            fell or rose,
        )
