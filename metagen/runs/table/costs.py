"""What n candidates are expected to cost, from what the N candidates of a pool have cost.

A random n-subset of a pool pays once for what its candidates share (the prompt), and for each of its
candidates: E[cost of n] = shared + Σ_i P(i is needed) · own_i. Sample i is needed with probability n / N;
the score of a candidate that occurs c times in the pool with 1 − C(N−c, n) / C(N, n), since equal
candidates are scored once. At n = N this is what the pool has cost, to the last token. What candidates
share beyond the prompt (the beginnings of their texts, in a verifier's cache) is spread over them evenly.
"""

from __future__ import annotations

from collections import Counter, abc
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metagen.analysis.estimators import pass_at_k
from metagen.cost import Usage, flops_2n, prefill_flops
from metagen.journal import Row
from metagen.sequence import Sequence

Floats = NDArray[np.float64]
#: Columns of a usage, in the order of its fields.
USAGE = tuple(f.name for f in fields(Usage))
#: Their values.
values_of = attrgetter(*USAGE)
#: Where a pool lies below its problem: the paths of the parallel strategies.
POOL = "0"
SAMPLING, SCORING = "sample", "score"

_PREFILLED, _CACHED = USAGE.index("prefilled"), USAGE.index("cached")


@dataclass(frozen=True, slots=True)
class Part:
    """What generation, or one verifier, spent on a pool.

    size: candidates of the pool. shared: usage that is paid once. own: usage by item, [items, fields], NaN
    for unknown. counts: candidates that need each item.
    """

    name: str
    size: int
    shared: Floats
    own: Floats
    counts: tuple[int, ...]

    def expected_usage(self, n: int) -> dict[str, float | None]:
        """Expected usage of n candidates, by name; None is unknown."""
        return usage_columns(self.shared + _probability_of_need(self.size, self.counts, n) @ self.own)


def generation(usages: abc.Sequence[Usage], maker: Any) -> Part:
    """The samples of a pool: one of them paid for the prompt, the others read it from the logical cache."""
    own = _matrix(usages)
    prefilled = own[:, _PREFILLED]
    shared = np.zeros(len(USAGE))
    # Prompts that were recorded sample by sample, and that no other read from a cache, are each sample's own.
    reads = prefilled.min(initial=np.inf) == 0 or (own[:, _CACHED] > 0).any()
    if len(own) > 1 and reads and np.isfinite(prefilled).all():
        shared = _once(maker, int(prefilled.max() - prefilled.min()), logits=1)
        own[prefilled.argmax()] -= shared
    return Part("generation", len(own), shared, own, (1,) * len(own))


def scoring(name: str, rows: Iterable[Row], candidates: abc.Sequence[Sequence], maker: Any) -> Part:
    """The scores of a pool by one verifier; rows that name no candidate belong to all of them alike."""
    rows = list(rows)
    # Who records nothing, as scores that are recorded already, names no candidate.
    counts = Counter(s.digest for s in candidates) if rows else Counter[bytes]()
    named: dict[bytes, Usage] = {}
    for row in rows:
        if row.content in counts:  # members of an ensemble have a row each
            named[row.content] = named.get(row.content, Usage()) + row.usage
    rest = Usage.sum(row.usage for row in rows if row.content not in counts)
    own = _matrix([*named.values(), rest])
    shared = np.zeros(len(USAGE))
    cached = own[:-1, _CACHED]
    payers = np.flatnonzero(cached == 0)
    if (cached > 0).any() and len(payers):
        shared = _once(maker, int(cached[cached > 0].min()), logits=0)
        own[payers[0]] -= shared
    return Part(name, len(candidates), shared, own, (*(counts[content] for content in named), 1))


@lru_cache(maxsize=256)
def _probability_of_need(size: int, counts: tuple[int, ...], n: int) -> Floats:
    """The probability that n of `size` candidates hold one of so many. Problems of a pool are alike in this."""
    return pass_at_k(size, counts, n)


def by_sample(rows: Iterable[Row], path: str, size: int) -> list[Usage]:
    """Usage of each sample that was drawn under `path`; what a nested strategy spent counts for its sample.

    Refused and lost samples spent nothing, logically; their numbers and paths may be those of another pool.
    """
    usages: list[list[Usage]] = [[] for _ in range(size)]
    for row in rows:
        if row.payload is None:
            continue
        below = row.path.removeprefix(path).strip("/").partition("/")[0]
        usages[int(below) if below else row.index].append(row.usage)
    return [parts[0] if len(parts) == 1 else Usage.sum(parts) if parts else Usage() for parts in usages]


def is_scoring(row: Row) -> bool:
    """Whether a row was spent on judging, and not on generating."""
    return row.kind == "score" or SCORING in row.path.split("/")


def usage_columns(values: Iterable[float | None]) -> dict[str, float | None]:
    """The columns of a usage; NaN becomes None."""
    return {name: None if v is None or v != v else float(v) for name, v in zip(USAGE, values, strict=True)}


def _matrix(usages: Iterable[Usage]) -> Floats:
    usages = list(usages)
    # Recorded samples that cost the same share their usage.
    found = {id(u): [np.nan if v is None else v for v in values_of(u)] for u in usages}
    return np.array([found[id(u)] for u in usages], dtype=np.float64)


def _once(maker: Any, tokens: int, logits: int) -> Floats:
    """The usage of prefilling `tokens` that others then read from a cache."""
    shape = getattr(getattr(maker, "engine", None), "shape", None)
    price = getattr(maker, "price", None)
    usage = Usage(
        prefilled=tokens,
        cached=-tokens,
        flops=prefill_flops(shape, tokens, logits=logits) if shape and tokens else 0,
        flops_2n=flops_2n(shape, tokens) if shape else 0,
        # Who pays for the prompt once does not pay for reading it from the cache.
        money=price.of(Usage(prefilled=tokens, cached=-tokens)) if price else 0,
    )
    return np.asarray(_matrix([usage])[0])
