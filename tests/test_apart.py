"""An object in a process of its own: what ends that process is one error, whenever it comes."""

from __future__ import annotations

import os
import pickle
from typing import IO

import pytest

from metagen.apart import Apart
from metagen.errors import PluginError


class Worker:
    """Answers by many bytes."""

    def give(self) -> bytes:
        return b"x" * (1 << 20)

    def give_half(self) -> bytes:
        """The process ends while it answers, as one does for which memory is short."""
        pickle.dump = _write_half  # type: ignore[assignment]
        return self.give()


def _write_half(said: object, file: IO[bytes]) -> None:
    whole = pickle.dumps(said)
    file.write(whole[: len(whole) // 2])
    file.flush()
    os._exit(9)


def test_a_process_that_ends_within_its_answer_is_an_error() -> None:
    worker = Apart("the worker", f"{__name__}:Worker", {})
    assert worker.call("give") == b"x" * (1 << 20)
    with pytest.raises(PluginError, match=r"the process of the worker ended \(status 9"):
        worker.call("give_half")
