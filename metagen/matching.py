"""Regular expressions of others, which may backtrack without end: they are matched in a process that can be ended.

Python matches without letting go of the interpreter, so that no thread and no deadline gets through to it.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from metagen.errors import InputError

#: Seconds for one text.
LIMIT = 10.0
#: Characters up to which a pattern with one repetition is matched here: that is quick, whatever the text.
SHORT = 10_000
_REPEATS: Final = re.compile(r"[*+{]")
#: A group that is repeated, and what a group holds in the match again.
_NESTED: Final = re.compile(r"\)[*+{]|\(\?P=|\\[1-9]")
_PROGRAM = """
import json, re, sys
for line in sys.stdin:
    pattern, flags, text, start, last, ended = json.loads(line)
    found = None
    for match in re.compile(pattern, flags).finditer(text, start):
        if ended or match.end() < len(text):
            found = match
        if not last:
            break
    said = None if found is None else (found.end(), found.groups(), found.groupdict())
    print(json.dumps(said), flush=True)
"""


class Found(NamedTuple):
    """A match: where it ends, and what its groups hold, by place and by name."""

    end: int
    groups: tuple[str | None, ...]
    named: Mapping[str, str | None]


def first_match(pattern: re.Pattern[str], text: str, start: int = 0) -> Found | None:
    """The first match from `start` on. InputError if it takes longer than `LIMIT` seconds."""
    return _match(pattern, text, start, last=False, ended=True)


def last_match(pattern: re.Pattern[str], text: str, *, ended: bool = True) -> Found | None:
    """The last match. InputError if it takes longer than `LIMIT` seconds.

    ended: the text was not cut off. In one that was, a match that reaches its end does not count: more might have
    followed.
    """
    return _match(pattern, text, 0, last=True, ended=ended)


def _match(pattern: re.Pattern[str], text: str, start: int, *, last: bool, ended: bool) -> Found | None:
    if os.name == "nt" or not sys.executable or (len(text) <= SHORT and _quick(pattern.pattern)):
        found = None
        for match in pattern.finditer(text, start):
            found = match if ended or match.end() < len(text) else found
            if not last:
                break
        return None if found is None else Found(found.end(), found.groups(), found.groupdict())
    said = _matcher().ask((pattern.pattern, pattern.flags, text, start, last, ended))
    if said is _LATE:
        raise InputError(
            f"the regular expression {pattern.pattern!r} took longer than {LIMIT:g} s on a text of {len(text)} "
            f"characters, {text[:60]!r}…; write one without a repetition inside of a repetition"
        )
    return None if said is None else Found(said[0], tuple(said[1]), said[2])


def _quick(pattern: str) -> bool:
    """Whether matching takes no more than about the square of the text's length."""
    return len(_REPEATS.findall(pattern)) <= 1 and not _NESTED.search(pattern)


_LATE: Final = object()


class _Matcher:
    """The process that matches, one text at a time; another one after one that was ended."""

    def __init__(self) -> None:
        self.owner, self._lock = os.getpid(), threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, asked: tuple[Any, ...]) -> Any:
        """What the process says, or `_LATE`."""
        with self._lock:
            try:
                for _ in range(2):  # one that somebody else has ended is started again
                    if (said := self._ask(json.dumps(asked).encode() + b"\n")) is not None:
                        return said if said is _LATE else json.loads(said)
                    self.end()
            except BaseException:
                self.end()
                raise
        raise InputError(f"the process that matches {asked[0]!r} ended by itself; look for what ends it")

    def _ask(self, line: bytes) -> Any:
        if self._process is None:
            command = [sys.executable, "-I", "-S", "-c", _PROGRAM]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()
        except BrokenPipeError:
            return None
        said, deadline = b"", time.monotonic() + LIMIT
        while not said.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                self.end()
                return _LATE
            if not (part := os.read(process.stdout.fileno(), 1 << 16)):
                return None
            said += part
        return said

    def end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what was not read
                    pipe.close()


_one: _Matcher | None = None


def _matcher() -> _Matcher:
    """This process's own."""
    global _one
    if _one is None or _one.owner != os.getpid():
        _one = _Matcher()
        atexit.register(_one.end)
    return _one
