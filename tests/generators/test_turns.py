"""Turns of requests that must not meet: apart, fair, and safe whoever is cancelled when. No vLLM is needed."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.generators.turns import Kind, Turns

OTHER: dict[Kind, Kind] = {"best": "labels", "labels": "best"}


class Guest:
    """A request that comes for a turn, and stays until it is told to go."""

    def __init__(self, turns: Turns, kind: Kind) -> None:
        self.kind, self.state = kind, "waits"
        self._go = asyncio.Event()
        self.task = asyncio.create_task(self._visit(turns))

    async def _visit(self, turns: Turns) -> None:
        async with turns.of(self.kind):
            self.state = "inside"
            try:
                await self._go.wait()
            finally:
                self.state = "gone"

    def leave(self) -> None:
        self._go.set()

    def cancel(self) -> None:
        self.task.cancel()


async def settle(steps: int = 8) -> None:
    for _ in range(steps):
        await asyncio.sleep(0)


def states(guests: list[Guest]) -> list[str]:
    return [guest.state for guest in guests]


def check(guests: list[Guest]) -> None:
    """What holds whenever all that can move has moved."""
    alive = [guest for guest in guests if not guest.task.done()]
    inside = Counter(guest.kind for guest in alive if guest.state == "inside")
    waiting = Counter(guest.kind for guest in alive if guest.state == "waits")
    assert not (inside["best"] and inside["labels"]), "they have met"
    assert not waiting["plain"], "a plain request waits for nobody"
    for kind, other in OTHER.items():
        if waiting[kind]:
            assert inside["best"] + inside["labels"], "somebody waits, and nobody is in"
            assert inside[other] or waiting[other], "a kind waits for itself"


def test_kinds_share_a_turn_and_plain_requests_go_along() -> None:
    async def main() -> list[str]:
        turns = Turns()
        guests = [Guest(turns, kind) for kind in ("best", "best", "plain", "labels", "plain")]
        await settle()
        return states(guests)

    assert asyncio.run(main()) == ["inside", "inside", "inside", "waits", "inside"]


def test_newcomers_of_the_present_kind_queue_behind_who_waits() -> None:
    async def main() -> None:
        turns = Turns()
        first, label, late = (Guest(turns, kind) for kind in ("best", "labels", "best"))
        await settle()
        assert states([first, label, late]) == ["inside", "waits", "waits"]
        later = Guest(turns, "labels")
        first.leave()
        await settle()
        assert states([label, later, late]) == ["inside", "inside", "waits"], "one turn for all that wait"
        last = Guest(turns, "labels")
        await settle()
        assert last.state == "waits", "this kind's newcomers queue as well"
        label.leave()
        later.leave()
        await settle()
        assert states([late, last]) == ["inside", "waits"]

    asyncio.run(main())


@pytest.mark.parametrize("stream", ["best", "labels"])
def test_a_stream_of_one_kind_does_not_starve_the_other(stream: Kind) -> None:
    """Of the stream somebody is always there: the next one comes before the last one goes."""

    async def main() -> int:
        turns = Turns()
        guests = [Guest(turns, stream) for _ in range(3)]
        await settle()
        other = Guest(turns, OTHER[stream])
        for steps in range(100):
            await settle()
            if other.state == "inside":
                return steps
            guests.append(Guest(turns, stream))
            next(guest for guest in guests if guest.state == "inside").leave()
        return 100

    assert asyncio.run(main()) == 3, "it waits for the three that were in"


def test_the_last_one_that_waits_for_the_other_kind_is_cancelled() -> None:
    """Those who queued behind it have nobody to wait for any more."""

    async def main() -> None:
        turns = Turns()
        first, label, late = (Guest(turns, kind) for kind in ("best", "labels", "best"))
        await settle()
        label.cancel()
        await settle()
        assert states([first, late]) == ["inside", "inside"]

    asyncio.run(main())


def test_who_is_cancelled_between_being_let_in_and_going_in_gives_its_turn_back() -> None:
    async def main() -> None:
        turns = Turns()
        first, label, late = (Guest(turns, kind) for kind in ("best", "labels", "best"))
        await settle()
        first.leave()
        while not first.task.done():
            await settle(1)
        assert label.state == "waits", "it is let in, and has not run yet"
        label.cancel()
        await settle()
        assert label.task.cancelled() and late.state == "inside"

    asyncio.run(main())


def test_what_fails_or_is_cancelled_within_gives_its_turn_back() -> None:
    async def fail(turns: Turns) -> None:
        async with turns.of("best"):
            raise KeyError

    async def main() -> None:
        turns = Turns()
        with pytest.raises(KeyError):
            await fail(turns)
        guest, label = Guest(turns, "best"), Guest(turns, "labels")
        await settle()
        guest.cancel()
        await settle()
        assert label.state == "inside"

    asyncio.run(main())


#: What happens, to a newcomer of which kind or to which of those that are there, and the steps of the loop after it.
COME = st.tuples(st.just("come"), st.sampled_from(["best", "labels", "plain"]))
GO = st.tuples(st.sampled_from(["leave", "cancel"]), st.integers(0, 3))
EVENTS = st.tuples(COME | GO, st.sampled_from([0, 1, 2, 8]))


@settings(max_examples=300)
@given(st.lists(EVENTS, min_size=10, max_size=30))
def test_in_any_order_of_events_nobody_meets_and_nobody_is_forgotten(
    events: list[tuple[tuple[str, Any], int]],
) -> None:
    async def main() -> None:
        turns, guests = Turns(), list[Guest]()
        for (what, which), steps in events:
            alive = [guest for guest in guests if not guest.task.done()]
            if what == "come":
                guests.append(Guest(turns, which))
            elif alive:
                guest = alive[which % len(alive)]
                guest.leave() if what == "leave" else guest.cancel()
            await settle(steps)
            if steps == 8:
                check(guests)
        await settle()
        check(guests)
        for guest in guests:
            guest.leave()
        await asyncio.wait_for(asyncio.gather(*(g.task for g in guests), return_exceptions=True), 10)
        again = [Guest(turns, "best"), Guest(turns, "best")]
        await settle()
        assert states(again) == ["inside", "inside"], "nothing is left of those who have gone"
        for guest in again:
            guest.cancel()
        await asyncio.gather(*(guest.task for guest in again), return_exceptions=True)

    asyncio.run(main())
