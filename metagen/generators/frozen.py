"""What is loaded and lives on, left out of the search for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class Freezer:
    """Python freezes what there is, and thaws all that is frozen, of a whole process at once: so there is one count."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._within = 0
        self._others = False

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Collections leave out the objects that there are by now, until the last one is out of here.

        What the program had frozen itself before the first one came stays so, and all else with it.
        """
        with self._lock:
            if not self._within:
                self._others = gc.get_freeze_count() > 0
            self._within += 1
            gc.freeze()
        try:
            yield
        finally:
            with self._lock:
                self._within -= 1
                if not self._within and not self._others:
                    gc.unfreeze()


frozen = Freezer().frozen
