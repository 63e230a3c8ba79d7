"""Python code of others that may never end, such as a chat template: it is ended."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import TypeVar

from metagen.errors import MetagenError

T = TypeVar("T")


class _Ended(BaseException):
    """Raised inside of what has taken too long; no template catches it."""


def run_bounded(work: Callable[[], T], seconds: float, late: Callable[[], MetagenError]) -> T:
    """Run `work`, Python code, for at most so many seconds; then end it and raise the error that `late` makes."""
    result: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            errors.append(error)

    thread = threading.Thread(target=run, name="metagen-bounded", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        assert thread.ident is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Ended))
        raise late()
    if errors:
        raise errors[0]
    return result[0]
