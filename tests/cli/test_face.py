"""The face of the command: whole sentences, one list of commands, and answers that import nothing."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from rich.text import Text
from typer.testing import CliRunner

import metagen
from metagen import cli
from metagen.cli import app, face, output
from metagen.cli.application import FUNCTIONS
from metagen.cli.help import sections, summary

ROOT = Path(metagen.__file__).parents[1]
MAIN = "import sys; from metagen.cli import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, str]:
    """What `main` says without typer."""
    monkeypatch.setattr(sys, "argv", ["metagen", *words])
    monkeypatch.setattr("metagen.cli.application.app", None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code, *capsys.readouterr()


# ------------------------------------------------------------------------------------------ one list of commands


def test_the_page_names_every_command_with_the_first_sentence_of_its_help() -> None:
    group: Any = typer.main.get_command(app)
    context = group.make_context("metagen", ["doctor"], resilient_parsing=True)
    told = {name: text for commands in face.GROUPS.values() for name, text in commands.items()}
    assert dict(sections(group, context)["Commands"]) == told
    assert set(told) == {*FUNCTIONS, "models"}


def test_the_page_names_every_option() -> None:
    group: Any = typer.main.get_command(app)
    context = group.make_context("metagen", ["doctor"], resilient_parsing=True)
    told = [(name, " ".join(text.split())) for name, text in sections(group, context)["Options"]]
    named = [(name, " ".join(text.split())) for name, text in face.OPTIONS]
    assert sorted(told) == sorted(named)


# ------------------------------------------------------------------------------------------------------- layout


@pytest.mark.parametrize("width", [50, 60, 80, 300])
def test_a_page_is_whole_at_every_width(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for words in ([], ["run"], ["grade"], ["models"], ["models", "fetch"]):
        result = CliRunner().invoke(app, [*words, "--help"])
        assert result.exit_code == 0
        text = result.stdout
        assert max(map(len, text.splitlines())) <= min(width, face.WIDEST)
        assert "..." not in text.replace("[ARGS]...", "").replace("[COMMAND]...", "") and "\x1b" not in text
    main = " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())
    assert all(one in main for commands in face.GROUPS.values() for one in commands.values())
    models = " ".join(CliRunner().invoke(app, ["models", "--help"]).stdout.split())
    assert "its package from the Python index, its weights into metagen's cache" in models


def test_the_first_sentence_is_the_summary() -> None:
    assert summary("Bring it: from\n there. And more.\n\nSecond.") == "Bring it: from there"


def test_terminals_get_colours_unless_they_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    shown, bare = face.page(Terminal()), face.page(io.StringIO())
    assert "\x1b[1mRun:\x1b[0m" in shown and "  \x1b[36mdoctor\x1b[0m" in shown
    assert "\x1b[36m--log-level <debug|info|warning|error>\x1b[0m" in shown
    assert "\x1b" not in bare
    plain = shown
    for code in ("\x1b[1m", "\x1b[36m", "\x1b[0m"):
        plain = plain.replace(code, "")
    assert plain == bare, "colours move nothing"
    monkeypatch.setenv("NO_COLOR", "1")
    assert face.page(Terminal()) == bare and face.mark("error: ", Terminal()) == "error: "
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert face.page(io.StringIO()) == shown


def test_help_of_a_command_is_coloured_on_a_terminal() -> None:
    child, terminal = pty.fork()
    if child == 0:
        for name in ("NO_COLOR", "FORCE_COLOR"):
            os.environ.pop(name, None)
        os.environ |= {"TERM": "xterm", "COLUMNS": "70", "PYTHONPATH": str(ROOT)}
        os.execv(sys.executable, [sys.executable, "-m", "metagen.cli", "report", "--help"])
    said = b""
    try:
        while more := os.read(terminal, 4096):
            said += more
    except OSError:  # the other end is closed
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert b"\x1b[1mOptions:\x1b[0m" in said and b"\x1b[36m--trust\x1b[0m" in said


@pytest.mark.parametrize("columns", ["60", "150", None, "none"])
def test_piped_output_has_the_columns_that_are_asked_for(
    columns: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    output.write(Text("x" * 1000))
    wanted = int(columns) if columns in ("60", "150") else output.WIDTH
    assert max(map(len, capsys.readouterr().out.splitlines())) == wanted


# ---------------------------------------------------------------------------------------------- without imports


def loaded(place: Path, code: str, *words: str) -> set[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=place, env=environment
    )
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    "words", [("--help",), ("--version",), ("run", "no.yaml"), ("grade", "no"), ("report", "no")]
)
def test_what_needs_no_command_imports_nothing(words: tuple[str, ...], tmp_path: Path) -> None:
    """Beyond modules of metagen's own and those that any program has."""
    nothing = loaded(tmp_path, "import sys; print(*sys.modules, file=sys.stderr)")
    own = {"metagen", "metagen.cli", "metagen.cli.face", "metagen.runs", "metagen.runs.names", "__future__"}
    assert loaded(tmp_path, MAIN, *words) <= nothing | own
    assert "typer" in loaded(tmp_path, MAIN, "run", "--help"), "the list is that of what was imported"


@pytest.mark.parametrize(
    "words",
    [
        ("run", "sums.yml"), ("study", "no.yaml"), ("serve", "no/x.yaml", "--port", "0"), ("grade", "no.jsonl"),
        ("report", "no"), ("resume", "sum"), ("report", "empty"), ("report", "runs/sums/"), ("run", "a\x1b[31mb"),
        ("run", "file.yaml/x"),
    ],
)  # fmt: skip
def test_the_answer_is_that_of_the_command(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("sums", "votes"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "experiment.yaml").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.yaml").touch()
    if words == ("report", "runs/sums/"):
        assert face.answer(list(words)) is None, "it is there"
        return
    command = CliRunner().invoke(app, list(words))
    assert answered(monkeypatch, capsys, *words) == (2, "", command.stderr)
    assert (command.exit_code, command.stdout) == (2, "")


@pytest.mark.parametrize("words", [("--help",), ("-h",), ("--version",)])
def test_help_and_version_are_those_of_the_command(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = CliRunner().invoke(app, list(words))
    assert answered(monkeypatch, capsys, *words) == (0, command.stdout, "")


@pytest.mark.parametrize(
    "words",
    [(), ("doctor",), ("run",), ("run", "--help"), ("run", "no.yaml", "-h"), ("run", "--limit", "3", "x")],
)
def test_all_else_goes_to_the_commands(words: tuple[str, ...]) -> None:
    assert face.answer(list(words)) is None


def test_shells_that_complete_ask_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(face.COMPLETION, "complete_bash")
    assert face.answer(["--help"]) is None
