"""Looking for garbage less often while a run is under way."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from metagen.generators.frozen import frozen

#: New containers between two looks.
EVERY = 20_000


@contextmanager
def rarely() -> Iterator[None]:
    """Cycles are looked for every `EVERY` new containers, and not among what is there already.

    A run has thousands of objects in flight that are not garbage, and Python walks through the young of them after
    every 700 new ones: a third of the time of calls that take none themselves. What was set before comes back.
    """
    before = gc.get_threshold()
    if not before[0] or before[0] >= EVERY:
        yield
        return
    with frozen():
        gc.set_threshold(EVERY, *before[1:])
        try:
            yield
        finally:
            gc.set_threshold(*before)
