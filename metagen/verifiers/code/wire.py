"""Lines of JSON as they cross between a sandbox and this process: written, bounded, parsed."""

from __future__ import annotations

import json
import re
from typing import Any

from metagen.verifiers.code.inside.values import CONTAINER

#: Bytes of a line that is looked at in a thread.
LONG = 64 * 1024
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"')


def written(message: dict[str, Any]) -> bytes:
    """A message as a line."""
    return json.dumps(message).encode() + b"\n"


def parsed(line: bytes) -> Any:
    """The JSON of a line; None if it is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def crowded(line: bytes, room: int) -> bool:
    """Whether a line opens more lists and objects than values of `room` bytes can: two for each that contains others.

    Each costs far more here than in the line: one of nothing else would take long to parse, in one go.
    """
    most = 2 * room // CONTAINER + 4096
    if line.count(b"[") + line.count(b"{") <= most:
        return False
    bare = _TEXT.sub(b"", line)
    return bare.count(b"[") + bare.count(b"{") > most
