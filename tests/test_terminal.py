"""What models write and files hold commands no terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.table import Table
from typer.testing import CliRunner

from metagen.cli import app, output

HOSTILE = (
    "\x1b]8;;https://example.invalid\x07click\x1b]8;;\x07",
    "\x1b[2J\x1b[31mred",
    "\x9b31m",
    "over\rwritten\x08\x7f",
    "\u202edetcerid\u202c \u2066x\u2069 \u200f",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_commands_are_shown_and_not_obeyed(text: str) -> None:
    shown = output.plain(f"a\t{text}\nb")
    assert shown.startswith("a\t") and shown.endswith("\nb")
    assert shown.count("\n") == 1 and all(c.isprintable() or c in "\t\n" for c in shown)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("terminal", [False, True])
def test_tables_keep_their_own_colours_and_none_of_the_data(text: str, terminal: bool) -> None:
    file = io.StringIO()
    table = Table("name", "text")
    table.add_row("[bold]one", text)
    output.console(file=file, force_terminal=terminal, width=100).print(table)
    drawn = file.getvalue()
    assert not any(
        mark in drawn for mark in ("\x1b]", "\x1b[2J", "\x1b[31", "\x9b", "\u202e", "\u2066", "\r", "\x07")
    )
    assert ("\x1b[" in drawn) == terminal, "bold heads are its own"
    if not terminal and "\u202e" in text:
        assert "\\u202edetcerid" in drawn, "and nothing is cut"


def test_show_and_errors_pass_the_same_door(tmp_path: Path) -> None:
    pool = tmp_path / "pool.jsonl"
    with pool.open("w") as file:
        for number in range(8):
            samples = [f"{text} {number}" for text in HOSTILE]
            file.write(
                json.dumps({"id": f"p{number}", "samples": samples, "correct": [1, 0, 0, 1, 0]}) + "\n"
            )
    run = tmp_path / "run"
    runner = CliRunner()
    made = runner.invoke(
        app, ["grade", str(pool), "--samples", "samples", "--correct", "correct", "--answer", "text", "--out", str(run)]
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    shown = runner.invoke(app, ["show", str(run), "p1"])
    wrong = runner.invoke(app, ["report", f"no{HOSTILE[0]}run"])
    assert shown.exit_code == 0 and wrong.exit_code == 2
    for text in (made.output, shown.output, wrong.output):
        assert all(c.isprintable() or c in "\t\n" for c in text)
    assert "click" in shown.output
