"""The process that does what has no bound of its own: `python -m metagen.verifiers.math.worker`.

Reads a JSON object per line from stdin (`answer`, `percent`, `deadline` in seconds) and answers with one on stdout
(`key`, or `verdict`). It ends with its parent, and kills itself some time after a deadline that nobody enforced.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
from collections.abc import Iterator
from typing import Final

from metagen.verifiers.math import foreign
from metagen.verifiers.math.arithmetic import Beyond, Undefined
from metagen.verifiers.math.canonical import UNPARSABLE, Verdict, may_be_foreign, worded
from metagen.verifiers.math.grammar import parse
from metagen.verifiers.math.keys import Keys
from metagen.verifiers.math.tree import Unreadable
from metagen.verifiers.math.words import prose

#: Of address space: a large intermediate value ends the process, not the machine.
MEMORY: Final = 2 << 30
#: Seconds between two looks at whether the parent still lives.
_LOOK: Final = 5.0


def wide(answer: str, *, percent: bool) -> Verdict:
    """The verdict on an answer, by whatever it takes."""
    if (words := prose(answer)) is not None:
        return Verdict(words)
    keys = Keys(foreign.solutions)
    try:
        return Verdict(keys.key(parse(answer, percent=percent)))
    except (Beyond, Unreadable):
        pass
    if may_be_foreign(answer):
        try:
            return Verdict(keys.key(foreign.parse(answer, percent=percent)))
        except (Beyond, Unreadable, Undefined):
            pass
    return worded(answer)


def requests(parent: int) -> Iterator[dict[str, object]]:
    """What the parent asks, until it closes the pipe or is gone."""
    waiting = b""
    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    while True:
        while b"\n" not in waiting:
            if not poll.poll(_LOOK * 1000):
                if os.getppid() != parent:
                    return
                continue
            if not (piece := os.read(0, 1 << 16)):
                return
            waiting += piece
        line, _, waiting = waiting.partition(b"\n")
        yield json.loads(line)


def main() -> None:
    """Answer requests until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY if hard < 0 else min(MEMORY, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    # Nothing that is printed on the way may pass for an answer.
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    parent = int(sys.argv[1]) if len(sys.argv) > 1 else os.getppid()
    _send(out, {"ready": True})
    for request in requests(parent):
        # Seconds of this process, not of the clock: the whole machine may be paused.
        signal.setitimer(signal.ITIMER_PROF, float(str(request["deadline"])) + 2.0)
        try:
            verdict = wide(str(request["answer"]), percent=request["percent"] == "hundredths")
        except MemoryError:
            _send(out, {"key": None, "verdict": "timeout"})
            return
        except RecursionError:
            verdict = UNPARSABLE
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        _send(out, verdict._asdict())


def _send(out: int, reply: dict[str, object]) -> None:
    os.write(out, json.dumps(reply).encode() + b"\n")


if __name__ == "__main__":
    main()
