"""A coroutine waited for where no loop may be at hand, and where one may be running already, as in a notebook."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def waited(work: Coroutine[Any, Any, T]) -> T:
    """What it returns, or raises; it runs in a loop and a thread of its own."""
    with ThreadPoolExecutor(1, "waited") as thread:
        return thread.submit(asyncio.run, work).result()
