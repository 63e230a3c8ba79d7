"""Waiting for an engine: with an error where there is no news from it, or from plain functions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any, TypeVar

from metagen.errors import EngineError
from metagen.generators.engine import Engine, EngineStats, Evaluated, EvaluateRequest

T = TypeVar("T")
#: Seconds after which an engine on this machine that shows no progress is given up (`Engine.silence`).
SILENCE = 600.0
#: Looks at an engine within its limit.
LOOKS = 4
_COUNTERS = tuple(one.name for one in fields(EngineStats))


async def watch_answer(engine: Engine, answer: Awaitable[T], told: Callable[[], object] = int) -> T:
    """The answer of an engine. EngineError when there is no news for `engine.silence` seconds, up to a quarter more.

    News are a change of any of the engine's counters (`Engine.stats`), whoever they are counted for, and of what `told`
    returns. An engine without a limit, None, is waited for in any case. The request is cancelled first.
    """
    silence: float | None = getattr(engine, "silence", None)
    if silence is None:
        return await answer
    loop, clock = asyncio.get_running_loop(), asyncio.timeout(None)
    known, heard = _counters(engine, told), loop.time()
    step = silence / LOOKS
    timer: asyncio.TimerHandle | None = None

    def look() -> None:
        nonlocal known, heard, timer
        if (now := _counters(engine, told)) != known:
            known, heard = now, loop.time()
        if loop.time() - heard >= silence:
            clock.reschedule(loop.time())
        else:
            timer = loop.call_later(step, look)

    timer = loop.call_later(step, look)
    try:
        async with clock:
            return await answer
    except TimeoutError:
        if not clock.expired():
            raise
        raise EngineError(
            f"no news from {engine!r} for {silence:g} s: no sample ended, and none of its counters moved; what is "
            "recorded stays, and `metagen resume DIRECTORY` goes on; if it is only slow, raise the engine's `silence`"
        ) from None
    finally:
        if timer is not None:
            timer.cancel()


async def watch_evaluation(engine: Engine, requests: list[EvaluateRequest]) -> list[Evaluated]:
    """`Engine.evaluate`, watched."""
    return await watch_answer(engine, engine.evaluate(requests))


def _counters(engine: Engine, told: Callable[[], object]) -> tuple[Any, ...]:
    stats = engine.stats
    values = (getattr(stats, name) for name in _COUNTERS)
    return (told(), *(dict(value) if isinstance(value, dict) else value for value in values))


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, which runs in a loop and a thread of its own: a notebook has a loop already."""
    with ThreadPoolExecutor(1, "wait_for") as thread:
        return thread.submit(asyncio.run, work).result()
