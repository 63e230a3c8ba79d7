"""Logs: silent unless asked for, and structured when they are.

Every logger lies below `metagen`, whose NullHandler keeps a library that nobody configured silent. A record is a
few words that never change and its facts as fields (`extra=`), so that a program can find and count it. What
is logged are names, counts, fingerprints and reasons: no prompts, no completions, no options of engines.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from metagen.errors import InputError

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["text", "json"]

ROOT = "metagen"
#: What every record has; the rest are the fields that were given with it.
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}

logging.getLogger(ROOT).addHandler(logging.NullHandler())


def logger(name: str) -> logging.Logger:
    """The logger of a module (`__name__`), below `metagen`."""
    return logging.getLogger(name)


def configure(level: Level = "info", format: Format = "text", file: Path | None = None) -> None:
    """Write records of `level` and above to stderr, or append them to `file`; replaces an earlier configuration.

    Raises InputError for a file that cannot be written.
    """
    root = logging.getLogger(ROOT)
    for old in [h for h in root.handlers if h.name == ROOT]:
        root.removeHandler(old)
        old.close()
    handler = _Stderr() if file is None else _file(file)
    handler.set_name(ROOT)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    root.addHandler(handler)
    root.setLevel(level.upper())


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """What was given with a record as `extra=`; names that begin with `_` are those of libraries."""
    given = vars(record).items()
    return {name: value for name, value in given if name not in _STANDARD and not name.startswith("_")}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (UTC), `level`, `logger`, `event`, and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """`12:30:59 info: run started experiment=votes problems=100`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(level)s: %(message)s%(fields)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        given = "".join(f" {name}={_word(value)}" for name, value in fields(record).items())
        return self._style._fmt % {
            **vars(record),
            "level": record.levelname.lower(),
            "fields": given,
        }


def _word(value: object) -> str:
    """As it is where it is one word, else quoted."""
    text = str(value)
    return text if text and not set(text) & set(" \t\r\n\"'=") else json.dumps(text)


class _Stderr(logging.StreamHandler[Any]):
    """Writes to what stderr is at that moment: a progress bar, or a test, may have put its own in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def _file(path: Path) -> logging.Handler:
    try:
        return logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise InputError(
            f"cannot write the log {str(path)!r}: {error.strerror}; give another file by --log-file"
        ) from error
