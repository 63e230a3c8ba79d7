"""A stream in random order with little of it in memory: what is drawn comes from a window that moves over it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
#: Problems that wait in memory while a run goes over its task.
WINDOW = 1024


def shuffle(items: Iterable[T], window: int = WINDOW, seed: int = 0) -> Iterator[T]:
    """All items once, in an order that the seed decides.

    At no time are more than `window` items taken that were not given on. Up to so many are shuffled uniformly; of
    more, an item comes at most `window` places before its turn, and seldom many times that after it.
    """
    rng, items = random.Random(seed), iter(items)
    waiting = list(islice(items, window))
    while waiting:
        place = rng.randrange(len(waiting))
        waiting[place], waiting[-1] = waiting[-1], waiting[place]
        yield waiting.pop()
        waiting.extend(islice(items, 1))
