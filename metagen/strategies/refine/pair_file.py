"""A JSONL file of pairs that grows problem by problem and survives an interruption at any moment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import filelock

from metagen.errors import DataError
from metagen.sequence import Prompt
from metagen.strategies.refine.pairs import Pair


class PairFile:
    """Pairs in `path`; beside it `.progress` says which problems are whole, and where in the file each ends.

    made: names the options; a file that others have made is refused. What an interruption left behind the last whole
    problem is cut off when the file is opened. Raises DataError for a file that is not of this kind.
    """

    def __init__(self, path: Path, made: str) -> None:
        self.path, self.made = path, made
        self.progress = path.with_name(f"{path.name}.progress")
        #: What was noted of each finished problem, by `name`.
        self.finished: dict[str, dict[str, Any]] = {}
        self._files: list[BinaryIO] = []
        self._lock = filelock.FileLock(f"{path}.lock")

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=0)
        except filelock.Timeout:
            raise DataError(
                f"{str(self.path)!r} is being written by another process; wait for it, or name another file"
            ) from None
        try:
            self._open()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _open(self) -> None:
        begun = self.progress.exists()
        if self.path.exists() and not begun:
            raise DataError(
                f"{str(self.path)!r} exists, and {self.progress.name!r} does not: it was not made by collecting pairs; "
                "move it away, or name another file"
            )
        self._files = [path.open("r+b" if begun else "w+b") for path in (self.path, self.progress)]
        self._read() if begun else self._append(self._files[1], [{"made": self.made}])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()
        self._lock.release()

    @staticmethod
    def name(prompt: Prompt) -> str:
        """Tells problems apart, by id and content: what `finished` has them under."""
        return f"{prompt.problem_id}/{prompt.digest.hex()}"

    def add(self, prompt: Prompt, pairs: Iterable[Pair], noted: dict[str, int]) -> None:
        """Append the pairs of a problem. They are on disk before the problem counts as whole."""
        data, progress = self._files
        records = [pair.record() for pair in pairs]
        end = self._append(data, records)
        name = self.name(prompt)
        note = {"problem": prompt.problem_id, "name": name, "end": end, "pairs": len(records), **noted}
        self._append(progress, [note])
        self.finished[name] = note

    def _read(self) -> None:
        data, progress = self._files
        whole = progress.read().rpartition(b"\n")[0]
        try:
            head, *notes = [json.loads(line) for line in whole.splitlines()] or [{"made": self.made}]
            made, self.finished = head["made"], {note["name"]: note for note in notes}
            end = max((int(note["end"]) for note in notes), default=0)
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(
                f"{str(self.progress)!r} is damaged ({error!r}); to start over, remove it and {self.path.name!r}"
            ) from None
        if made != self.made:
            raise DataError(
                f"{str(self.path)!r} was made with another strategy or other options; name another file, or remove it "
                f"together with {self.progress.name!r}"
            )
        if data.seek(0, os.SEEK_END) < end:
            raise DataError(
                f"{str(self.path)!r} has {data.tell()} bytes where {self.progress.name!r} counts {end}; "
                "remove both to start over"
            )
        data.truncate(end)
        progress.truncate(len(whole) + 1 if whole else 0)
        if not whole:
            self._append(progress, [{"made": self.made}])

    @staticmethod
    def _append(file: BinaryIO, records: Iterable[dict[str, Any]]) -> int:
        """Where the file ends with these records, one a line, on disk."""
        file.seek(0, os.SEEK_END)
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
        file.flush()
        os.fsync(file.fileno())
        return file.tell()
