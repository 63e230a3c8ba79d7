"""Recorded pools in a study: an independent half of the samples, and what recorded critiques would have cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from metagen.errors import InputError
from metagen.runs.curves.study import Curve, Ints, StudyResult
from metagen.runs.note import Note
from metagen.runs.table.pools import Pool

#: The fact that critiques are in the costs.
COUNTED: Final = "critiques_counted"
#: The fact that the independent pools are halves of those that were recorded.
HALVES: Final = "halves"


# ------------------------------------------------------------------------------------------------ halves


def halves(pool: Pool, seed: int = 0) -> tuple[Pool, Pool]:
    """Two pools that share no sample: a random half of each problem's, and the rest.

    Curves are measured on the first, ⌊N/2⌋ samples, and judged against limits of the second. Both keep the costs of
    the whole, which are expectations for n samples whichever they are. InputError where no problem has two samples.
    """
    if not (pool.sizes >= 2).any():
        most = int(max(pool.sizes, default=0))
        raise InputError(
            f"limit.halves: no problem has 2 samples to divide (the most are {most}); "
            "record more, or leave out the limit"
        )
    keys = np.random.default_rng(seed).random(pool.classes.shape)
    there = np.arange(keys.shape[1]) < pool.sizes[:, None]
    order = np.argsort(np.where(there, keys, np.inf), axis=1, kind="stable")
    first = pool.sizes // 2
    return _take(pool, order, np.zeros_like(first), first), _take(pool, order, first, pool.sizes - first)


def _take(pool: Pool, order: NDArray[np.int64], start: Ints, sizes: Ints) -> Pool:
    """The pool of `sizes` samples of each problem, from place `start` of an order on; rows padded as in `Pool`."""
    places = np.arange(int(sizes.max()))
    there = places < sizes[:, None]
    columns = np.take_along_axis(order, np.where(there, start[:, None] + places, 0), axis=1)

    def take(values: NDArray[Any], missing: Any) -> NDArray[Any]:
        return np.where(there, np.take_along_axis(values, columns, axis=1), missing)

    return Pool(
        classes=take(pool.classes, -1),
        eligible=take(pool.eligible, False),
        correct=take(pool.correct, False),
        scores={name: take(values, np.nan) for name, values in pool.scores.items()},
        levels=pool.levels,
        sizes=sizes,
        raw={name: take(values, np.nan) for name, values in pool.raw.items()},
    )


# ------------------------------------------------------------------------------------------------ critiques


def add_critique_costs(result: StudyResult) -> StudyResult:
    """The result with what recorded critiques take, in `flops_2n` and tokens; one that has them is returned as it is.

    A recorded score costs its run nothing. facts: `splitting.critiques` says how many critiques each score is the mean
    of, `critique_cost` what one takes, in samples of the same model; n samples with k critiques each then cost
    2N·T·n·(1 + k·cost). Where exact FLOPs are unknown, `verification` has the part of the critiques in these. Without
    the facts, or without 2N·T, the scores count as free, and a note says so. Raises InputError for a price below 0.
    """
    if result.facts.get(COUNTED):
        return result
    price = result.facts.get("critique_cost")
    critiques = _critiques(result.facts.get("splitting"))
    if price is not None and not (math.isfinite(price) and price >= 0):
        raise InputError(
            f"study.splitting.cost_of_critique = {price!r}: expected a number ≥ 0, in samples of the model"
        )
    notes: dict[str, Note] = {}
    curves = tuple(_add_costs(curve, critiques, price, notes) for curve in result.curves)
    return replace(
        result, curves=curves, notes=(*result.notes, *notes.values()), facts={**result.facts, COUNTED: True}
    )


def _critiques(splitting: Any) -> dict[str, int]:
    """Verifier → the number of critiques that its score is the mean of."""
    given = splitting.get("critiques", {}) if isinstance(splitting, Mapping) else {}
    return {str(verifier): int(count) for count, verifier in given.items()}


def _add_costs(
    curve: Curve, critiques: Mapping[str, int], price: float | None, notes: dict[str, Note]
) -> Curve:
    verifier, flops = curve.verifier, curve.costs.get("flops_2n")
    if curve.source != "pool" or verifier is None or curve.oracle:
        return curve
    # A verifier that ran is in the costs, or makes them unknown.
    if np.isnan(curve.verification).all() or (np.nan_to_num(curve.verification) > 0).any():
        return curve
    if flops is None or np.isnan(flops).all():
        text = f"scores {verifier} of {curve.model} count as free: 2N·T is unknown; give study.sizes.{curve.model}"
        notes[f"{verifier} of {curve.model}"] = Note(verifier, text)
        return curve
    count = critiques.get(verifier)
    if price is None or count is None:
        what = "cost_of_critique" if count is not None else "critiques and cost_of_critique"
        text = f"scores {verifier} count as free; if a model wrote them, give study.splitting, with {what}"
        notes[verifier] = Note(verifier, text)
        return curve
    written = (
        f"{count} critique{'' if count == 1 else 's'} of {price:g} samples{'' if count == 1 else ' each'}"
    )
    text = f"a score {verifier} counts as {written}: stated, not measured"
    notes[verifier] = Note(verifier, text)
    judged = flops * count * price
    exact = curve.costs.get("flops", np.full_like(flops, np.nan))
    verification = np.where(np.isnan(exact), judged, curve.verification)
    tokens = {
        name: curve.costs[name] * (1 + count * price)
        for name in ("generated", "tokens")
        if name in curve.costs
    }
    total = {**curve.costs, **tokens, "flops_2n": flops + judged}
    return replace(curve, costs=total, verification=verification)
