"""The file of what was found: written anew, whole, after each row, so that any end leaves what came before it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

#: States of a piece: not begun or cut off; all tasks done; something failed; what it needs is not here.
OPEN, DONE, FAILED, MISSING = "open", "done", "failed", "missing"


@dataclass
class Record:
    """machine: what it was measured on last. pieces: by name the state, the tasks done, and seconds. rows: in order;
    `on` of a row has what was otherwise on the machine when it was measured.
    """

    path: Path
    machine: dict[str, Any] = field(default_factory=dict)
    pieces: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Self:
        if not path.exists():
            return cls(path)
        data = json.loads(path.read_text())
        return cls(path, data["machine"], data["pieces"], data["rows"])

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_suffix(f".{os.getpid()}.tmp")
        data = {"machine": self.machine, "pieces": self.pieces, "rows": self.rows}
        unfinished.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
        unfinished.replace(self.path)

    def go_on(self, machine: dict[str, Any]) -> None:
        """Measure on this machine from here on; rows that are kept remember what is otherwise on it now."""
        was = {k: v for k, v in self.machine.items() if k in machine and machine[k] != v}
        for row in self.rows if was else ():
            row["on"] = was | row.get("on", {})
        self.machine = machine

    def piece(self, name: str) -> dict[str, Any]:
        return self.pieces.setdefault(name, {"state": OPEN, "tasks": [], "seconds": 0.0})

    def add(self, piece: str, task: str, row: dict[str, Any], **more: Any) -> None:
        self.rows.append({"piece": piece, "task": task, **row, **more})
        self.write()

    def forget(self, piece: str) -> None:
        """Drop the rows of what the piece has not done, which it measures anew."""
        done = self.piece(piece)["tasks"]
        self.rows = [row for row in self.rows if row["piece"] != piece or row["task"] in done]

    def left(self, names: list[str]) -> Iterator[str]:
        """Pieces that are neither done nor failed."""
        return (name for name in names if self.piece(name)["state"] in (OPEN, MISSING))
