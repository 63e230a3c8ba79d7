"""Where a call stands: its problem, its path, and the limits above it. Scopes hand places to what runs below them."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from typing import Any

from metagen.budget import DIMENSIONS, Account, Budget
from metagen.events import Listener
from metagen.history import History
from metagen.journal import Journal
from metagen.prefixes import Prefixes

#: Told of a place's path, and of what is asked or grown there: see `Scope.tell`.
Watch = Callable[[str, object, bytes], None]
#: Limits that are counted; the others are measured.
_COUNTS = ("generated", "prefilled", "calls")


class Problem:
    """What all places of one problem share. shared: the limits above it, which others may share. began_by: the
    configuration that attempts are noted for; None where a journal has one, or nobody tells them apart.
    """

    __slots__ = (
        "began_by",
        "history",
        "id",
        "journal",
        "label",
        "listener",
        "order",
        "paths",
        "prefixes",
        "seed",
        "shared",
        "watch",
    )

    def __init__(
        self,
        id: str,
        seed: int,
        journal: Journal,
        label: str,
        order: int,
        listener: Listener | None,
        watch: Watch | None = None,
        shared: tuple[Account, ...] = (),
        began_by: str | None = None,
    ) -> None:
        self.shared, self.began_by = shared, began_by
        self.id, self.seed, self.journal, self.label = id, seed, journal, label
        self.order, self.listener, self.watch = order, listener, watch
        self.prefixes: dict[str, Prefixes] = {}
        self.history = History()
        self.paths: set[str] = set()


class Place:
    """A place in the tree of one problem's calls.

    path: roles and positions from the problem down to here. account: the lowest limit that binds here, if any.
    above: the place that this one is nested in. speaks: what is written here is the answer, as it comes. limited:
    whether a limit at or above this place cut short or refused something here or below.
    """

    __slots__ = ("_order", "above", "account", "limited", "path", "problem", "speaks")

    def __init__(
        self, problem: Problem, path: str, account: Account | None, above: Place | None, speaks: bool = False
    ) -> None:
        self.problem, self.path, self.account, self.above = problem, path, account, above
        self.speaks = speaks
        self.limited = False
        self._order: tuple[Any, ...] | None = None

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts paths by the numbers and the words in them, after the place of the problem among others."""
        if self._order is None:
            parts = re.split(r"[/.]", self.path)
            keys = tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts)
            self._order = (self.problem.order, keys)
        return self._order

    @property
    def own_accounts(self) -> tuple[Account, ...]:
        """The accounts that begin at this place, root first; at the top those above the problem too."""
        accounts = self.account.path if self.account else ()
        above = self.above.account if self.above else None
        return accounts[len(above.path) if above else 0 :]

    def left(self) -> Budget:
        """What remains, over all limits that bind here."""
        if self.account is None:
            return Budget()
        limits: dict[str, Any] = {}
        for name, amount in zip(DIMENSIONS, self.account.left(), strict=True):
            if amount != math.inf:
                limits[name] = int(max(0.0, amount)) if name in _COUNTS else max(0.0, amount)
        if self.account.deadline != math.inf:
            limits["seconds"] = max(0.0, self.account.deadline - time.monotonic())
        return Budget(**limits)

    def mark(self, owner: str) -> None:
        """Note that a limit bound, here and on all places up to the one that owns the limit."""
        place: Place | None = self
        while place is not None:
            place.limited = True
            if any(account.owner == owner for account in place.own_accounts):
                return
            place = place.above
