"""What happens in a solve, told as it happens: for progress, streams and tracing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from metagen.cost import Usage
from metagen.journal import Row
from metagen.sequence import Finish, Sequence

T = TypeVar("T")
E = TypeVar("E")
#: The kinds of events. Leaf calls of other kinds than these, such as tools of another package, are told as `call`.
Kind = Literal["sample", "score", "tool", "call", "error", "offer", "commit", "text", "thought", "answer"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a solve.

    kind: `sample`, `score`, `tool`, `call`: a leaf call has ended. `error`: one has failed. `offer`: the strategy
    holds a candidate for an answer. `commit`: the strategy will keep this beginning of its answer. `text`, `thought`:
    more of the answer has been written, by a call whose text is the answer. `answer`: the end.
    path, index: the place of a call in the problem, and its number there.
    text: what was written. value: the score, or how good the strategy holds a candidate; None if unknown. key: the
    answer that a candidate was read to have. finish: how a sample or the answer ended.
    usage: logical, of this call. started, ended: wall clock in seconds since 1970, of a call; None elsewhere. cached:
    the call was answered from the journal. by: fingerprint of what answered. refused: a limit left no room for it.
    error: the class of the error with which a call failed. sequence: of `offer`, `commit` and `answer`.
    """

    kind: Kind
    path: str = ""
    index: int = 0
    text: str | None = None
    value: float | None = None
    key: str | None = None
    finish: Finish | None = None
    usage: Usage | None = None
    started: float | None = None
    ended: float | None = None
    cached: bool = False
    by: str = ""
    refused: bool = False
    error: str = ""
    sequence: Sequence | None = field(default=None, repr=False)


#: Told of events in the event loop of the solve, one after the other. It must return soon.
Listener = Callable[[Event], None]


async def follow(work: Callable[[Callable[[E], None]], Coroutine[Any, Any, T]]) -> AsyncGenerator[E | T]:
    """The events that work tells a listener, as they happen, and at last its result. Leaving the iteration ends it."""
    events: asyncio.Queue[E | None] = asyncio.Queue()
    task = asyncio.ensure_future(work(events.put_nowait))
    task.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        yield await task
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # it has been heard, or nobody listens any more


def of_row(row: Row, *, cached: bool) -> Event:
    """The event of a leaf call that has ended."""
    data = row.payload or {}
    kinds: dict[str, Kind] = {"generate": "sample", "score": "score", "tool": "tool"}
    value = data.get("value")
    return Event(
        kinds.get(row.kind, "call"),
        row.path,
        row.index,
        data.get("text") if row.kind == "generate" else None,
        value if row.kind == "score" and isinstance(value, int | float) else None,
        finish=data.get("finish"),
        usage=row.usage,
        started=row.started,
        ended=row.started + row.usage.seconds,
        cached=cached,
        by=row.by,
        refused=row.status == "refused",
    )
