"""The records of a file of recorded samples one after another, each with the place where it is read again.

A file is JSONL, or one JSON list. It is never in memory as a whole.
"""

from __future__ import annotations

import codecs
import json
import os
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from metagen.errors import DataError

Record = dict[str, Any]
#: Bytes of a JSON list that are read at a time.
CHUNK: Final = 1 << 20
#: What JSON takes for blanks.
BLANKS: Final = re.compile(r"[ \t\n\r]*")
#: How files begin that have to be unpacked first, and what does that.
PACKED: Final = {b"\x1f\x8b": "gunzip", b"\x28\xb5\x2f\xfd": "unzstd", b"BZh": "bunzip2", b"\xfd7zXZ": "unxz"}


class Place(NamedTuple):
    """Bytes from start to end, in which records stand; number: of the first, a line from 1 or an entry from 0."""

    number: int
    start: int
    end: int


class RecordFile:
    """A file that can be read from its beginning, and at any place that was told before.

    Raises DataError for what cannot be read, and at a place in a file that has changed since it was opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if path.exists() and not path.is_file():
                raise DataError(
                    f"the pool {str(path)!r} is no file that can be read at any place, as every problem of it is; "
                    "write it to a disk first"
                )
            with path.open("rb") as file:
                self._state = _state(file)
                mark = file.read(8)
                self._base = len(codecs.BOM_UTF8) if mark.startswith(codecs.BOM_UTF8) else 0
                file.seek(self._base)
                head = b" "
                while head.isspace():
                    head = file.read(CHUNK)
        except OSError as error:
            raise self._unreadable(error) from error
        if tool := next((tool for packed, tool in PACKED.items() if mark.startswith(packed)), None):
            raise DataError(f"the pool {str(path)!r} is packed; unpack it first ({tool} does)")
        #: Whether it is one JSON list.
        self.listed = head.lstrip().startswith(b"[")

    def __iter__(self) -> Iterator[tuple[Place, Record]]:
        """All records, with their places."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._base)
                for place, record in (self._entries if self.listed else self._lines)(file):
                    if not isinstance(record, dict):
                        raise DataError(
                            f"{self.describe_place(place.number)} is {record!r:.60}; expected one object a line"
                        )
                    yield place, record
        except (OSError, UnicodeDecodeError) as error:
            raise self._unreadable(error) from error

    def at(self, place: Place) -> Iterator[tuple[str, Record]]:
        """The records of a place, each with where it stands in words."""
        try:
            with self.path.open("rb") as file:
                if _state(file) != self._state:
                    raise DataError(f"the pool {str(self.path)!r} was changed while it was read; start again")
                file.seek(place.start)
                text = file.read(place.end - place.start).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise self._unreadable(error) from error
        if self.listed:
            yield from (
                (self.describe_place(number), one)
                for number, one in enumerate(json.loads(f"[{text}]"), place.number)
            )
            return
        for number, line in enumerate(text.split("\n"), place.number):
            if line.strip():
                yield self.describe_place(number), json.loads(line)

    def describe_place(self, number: int) -> str:
        """The place of a record, in words."""
        return f"{str(self.path)!r}, {'entry' if self.listed else 'line'} {number}"

    def _lines(self, file: IO[bytes]) -> Iterator[tuple[Place, Any]]:
        # Lines end at "\n" alone: texts may hold other characters that end lines elsewhere.
        start = self._base
        for number, line in enumerate(file, 1):
            end = start + len(line)
            text = line.decode()
            if text.strip():
                yield Place(number, start, end), _json(text, self.describe_place(number))
            start = end

    def _entries(self, file: IO[bytes]) -> Iterator[tuple[Place, Any]]:
        window, before = _Window(file, self._base), "["
        for number in count():
            if window.peek() != before:
                break
            window.advance(window.at + 1)
            if not number and window.peek() == "]":
                break
            try:
                value, start, end = window.value()
            except (ValueError, RecursionError):
                break
            yield Place(number, start, end), value
            before = ","
        if window.peek() == "]":
            window.advance(window.at + 1)
            if not window.peek():
                return
        # As whoever reads the list whole sees what is wrong with it.
        _json(self.path.read_text(encoding="utf-8-sig"), f"{str(self.path)!r}")
        raise DataError(f"{str(self.path)!r} is no JSON list; expected one, or one object a line")

    def _unreadable(self, error: Exception) -> DataError:
        reason = error.strerror if isinstance(error, OSError) else error
        return DataError(f"cannot read the pool {str(self.path)!r}: {reason}; expected a JSONL file in UTF-8")


class _Window:
    """A part of a text. at: up to where it is done with; byte: where in the file that is."""

    def __init__(self, file: IO[bytes], byte: int) -> None:
        self._file, self._decoder = file, codecs.getincrementaldecoder("utf-8")()
        self._scan = json.JSONDecoder().raw_decode
        self._ended = False
        self.text, self.at, self.byte = "", 0, byte

    def peek(self) -> str:
        """The next character that is no blank; none at the end."""
        while True:
            match = BLANKS.match(self.text, self.at)
            self.advance(match.end() if match else self.at)
            if self.at < len(self.text) or not self._fill(CHUNK):
                return self.text[self.at : self.at + 1]

    def advance(self, to: int) -> None:
        self.byte += len(self.text[self.at : to].encode())
        self.at = to

    def value(self) -> tuple[Any, int, int]:
        """The next value, and the bytes from where to where it stands. ValueError or RecursionError for none."""
        self.peek()
        size = CHUNK
        while True:
            try:
                value, end = self._scan(self.text, self.at)
            except (ValueError, RecursionError):
                if not self._fill(size):
                    raise
            else:
                # What ends with the window may go on behind it, as a number does.
                if end < len(self.text) or not self._fill(size):
                    start = self.byte
                    self.advance(end)
                    return value, start, self.byte
            size *= 2

    def _fill(self, size: int) -> bool:
        """Read on; False at the end of the file."""
        if self._ended:
            return False
        data = self._file.read(size)
        self._ended = not data
        self.text, self.at = self.text[self.at :] + self._decoder.decode(data, final=self._ended), 0
        return True


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place} is not JSON ({error}); expected one object a line") from error


def _state(file: IO[bytes]) -> tuple[int, ...]:
    """Names a file as it is now."""
    now = os.fstat(file.fileno())
    return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns
