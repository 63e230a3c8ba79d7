"""A module of the benchmarks in a process of its own: memory, threads and caches of one say nothing of the next."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection

from rich.console import Console

from benchmarks.row import Row
from metagen.generators.compiled import build


def measured(name: str) -> Iterator[Row]:
    """The rows of a module, as they come. Raises RuntimeError where it fails, which it has told by itself."""
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(name, sender))
    process.start()
    sender.close()
    try:
        while (row := receiver.recv()) is not None:
            yield row
    except EOFError:
        raise RuntimeError(f"{name} failed") from None
    finally:
        receiver.close()
        process.join()


def _measure(name: str, sender: Connection) -> None:
    build.build()
    try:
        for row in importlib.import_module(f"benchmarks.{name}").rows():
            sender.send(row)
        sender.send(None)
    except Exception:  # noqa: BLE001 - the others go on
        Console().print_exception()
    finally:
        sender.close()
