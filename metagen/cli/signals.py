"""Signals that end a command: interrupts, whoever sends them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

#: Those that a terminal, a scheduler and a lost connection send.
ENDING: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class Interrupted(KeyboardInterrupt):
    """An interrupt by a signal, whose number it has."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def exit_code(error: KeyboardInterrupt) -> int:
    """128 and the number of the signal, as shells tell it."""
    return 128 + (error.number if isinstance(error, Interrupted) else signal.SIGINT)


@contextmanager
def heed() -> Iterator[list[int]]:
    """SIGTERM (of SLURM, Kubernetes and others, before they kill) and SIGHUP interrupt as SIGINT does: what has ended
    is recorded, and the run can be resumed. A second signal ends the process at once.

    A signal that is ignored, as under nohup, stays so. Does nothing outside of the main thread. Gives a list in which
    the number of the signal is, once it has come: code of others may make another error of the interrupt.
    """
    come: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield come
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    mine = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]

    def interrupt(number: int, frame: FrameType | None) -> None:
        for other in mine:
            signal.signal(other, signal.SIG_DFL)
        come.append(number)
        raise Interrupted(number)

    for number in mine:
        signal.signal(number, interrupt)
    try:
        yield come
    finally:
        for number in mine:
            signal.signal(number, before[number])
