"""The help of the command, its version, and the answer to a file that does not exist.

This module imports only what Python itself loads when it starts, so that these answers come at once. All other
commands go through `application`, whose texts come from here.
"""

from __future__ import annotations

import os
import sys

from metagen import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import IO

ABOUT = "Inference-time scaling: which model, which strategy, how many samples give the most for the compute."
#: Commands by their use, in the order of the help. The summary is the first sentence of the command's own help.
GROUPS = {
    "Run": {
        "run": "Run an experiment and report it",
        "study": "Run a study, or go on with it: what is recorded is not paid for again; report it",
        "resume": "Go on with a run or study, tracked as before; what is recorded is not paid for again",
        "grade": "Grade samples that somebody recorded: accuracy, pass@k and votes, with intervals",
        "serve": "Serve the strategies of a file as models of the OpenAI API",
    },
    "Read results": {
        "report": "Show the results of a run or study; make its tables, figures and page (report.html) anew",
        "show": "Look at one problem: candidates, steps, scores, the vote",
        "compare": "Compare two runs, or studies, problem by problem",
        "recommend": "Say what to run under a budget: the configuration, what to expect of it, its experiment",
        "quality": "How good the verifiers of a run are: AUC, regret, calibration, first errors",
        "ls": "List runs: their state, what they did, and the best that they found",
        "view": "Look at runs in a browser, also while they run: curves, problems, search trees, calls",
        "track": "Send a run or study that has been reported to MLflow or Weights & Biases",
    },
    "Write files": {
        "new": "Write an experiment file with a comment on everything in it",
        "schema": "Give the JSON schema of experiment files, by which editors complete and check them",
    },
    "Look around": {
        "doctor": "Say what is installed, what is missing and how to get it, and what this machine can do",
        "models": "List the models that have names; fetch one, or check any",
        "explain": "Show the next-token distribution of a model, before and after each sampling adapter",
    },
}
OPTIONS = (
    ("--version", "Show the version and end."),
    ("--log-level <debug|info|warning|error>", "Write a log.  [env var: METAGEN_LOG]"),
    ("--log-format <text|json>", "One JSON object a line, or text.  [env var: METAGEN_LOG_FORMAT]"),
    ("--log-file <path>", "Append the log here, not to stderr.  [env var: METAGEN_LOG_FILE]"),
    ("--install-completion", "Install completion for the current shell."),
    (
        "--show-completion",
        "Show completion for the current shell, to copy it or customize the installation.",
    ),
    ("-h, --help", "Show this message and exit."),
)
HELP = ("-h", "--help")
#: The variable that a shell sets while it completes the command.
COMPLETION = "_METAGEN_COMPLETE"
#: The error of a file that cannot be read, by the command whose first argument it is.
EXPERIMENT = "cannot read {path!r}: {reason}; give the path of an experiment file"
POOL = "cannot read the pool {path!r}: {reason}; expected a JSONL file in UTF-8"
UNREAD = {"run": EXPERIMENT, "study": EXPERIMENT, "serve": EXPERIMENT, "grade": POOL}
#: Commands whose first argument is a run or a study.
READERS = ("report", "resume")

#: The widest help, and the columns where nothing says how many there are.
WIDEST, COLUMNS = 100, 80
_BOLD, _NAME, _WRONG, _PLAIN = "\x1b[1m", "\x1b[36m", "\x1b[1;31m", "\x1b[0m"
#: C0 and C1 controls but tab and newline, and what changes the direction of the text around it.
_RANGES = (
    (0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F), (0x61C, 0x61C), (0x200E, 0x200F), (0x202A, 0x202E), (0x2066, 0x2069),
)  # fmt: skip
_COMMANDS = {
    code: "\\r" if code == 0x0D else f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for first, last in _RANGES
    for code in range(first, last + 1)
}


def answer(arguments: list[str]) -> int | None:
    """Answer what needs no command, and return the exit code; None for everything else."""
    if COMPLETION in os.environ:
        return None
    if len(arguments) == 1 and arguments[0] in HELP:
        print(page(sys.stdout))
        return 0
    if arguments == ["--version"]:
        print(f"metagen {__version__}")
        return 0
    if len(arguments) < 2 or not set(HELP).isdisjoint(arguments) or arguments[1].startswith("-"):
        return None
    message = _missing(arguments[0], arguments[1])
    if message is None:
        return None
    print(mark("error: ", sys.stderr) + plain(message), file=sys.stderr)
    return 2


def _missing(command: str, path: str) -> str | None:
    """The message about a first argument that cannot be found; None if it can, or the command has none."""
    if command in UNREAD:
        try:
            os.stat(path)
        except OSError as error:
            return UNREAD[command].format(path=path, reason=error.strerror)
        except ValueError:  # a null character
            return None
    if command in READERS:
        from metagen.runs import names

        if not names.exists(path):
            return names.absent(path)
    return None


# ------------------------------------------------------------------------------------------------ layout


def page(stream: IO[str]) -> str:
    """The help of `metagen`, for this stream."""
    width = columns()
    parts = ["Usage: metagen [OPTIONS] COMMAND [ARGS]...", *wrap(ABOUT, width, 2)]
    for title, commands in GROUPS.items():
        parts += ["", f"{title}:", *table(commands.items(), width)]
    parts += ["", "Options:", *table(OPTIONS, width)]
    parts[1:1] = [""]
    return paint("\n".join(parts), stream)


def table(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Names with what they mean, beside each other; a name that is too long has a line of its own. Nothing is cut."""
    rows = list(rows)
    column = min(max(len(name) for name, _ in rows), max(12, width // 4))
    found: list[str] = []
    for name, text in rows:
        lines = wrap(text, width, column + 4)
        if len(name) <= column and lines:
            found.append(f"  {name:<{column}}  {lines.pop(0).lstrip()}")
        else:
            found.append(f"  {name}")
        found += lines
    return found


def wrap(text: str, width: int, indent: int) -> list[str]:
    """A text in lines of at most so many columns; a word that is longer has a line of its own."""
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(" " * indent + word)
    return lines


def columns() -> int:
    """Columns of a page of help: those that COLUMNS or the terminal says."""
    return min(told_columns() or _terminal() or COLUMNS, WIDEST)


def told_columns() -> int | None:
    """The columns that the environment asks for."""
    said = os.environ.get("COLUMNS", "")
    return int(said) if said.isdecimal() and int(said) > 0 else None


def _terminal() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (AttributeError, OSError, ValueError):
        return 0


# ------------------------------------------------------------------------------------------------ colour


def coloured(stream: IO[str]) -> bool:
    """Whether a stream takes colours: a terminal does, unless NO_COLOR is set; FORCE_COLOR has the last word."""
    if os.environ.get("FORCE_COLOR"):
        return True
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def paint(text: str, stream: IO[str]) -> str:
    """A page of help with bold titles and coloured names, where the stream takes colours."""
    return "\n".join(map(_paint, text.split("\n"))) if coloured(stream) else text


def _paint(line: str) -> str:
    if line.startswith("Usage: "):
        return f"{_BOLD}Usage:{_PLAIN}{line.removeprefix('Usage:')}"
    if line.endswith(":") and not line.startswith(" "):
        return f"{_BOLD}{line}{_PLAIN}"
    if line.startswith("  ") and not line.startswith("   "):
        name, gap, rest = line[2:].partition("  ")
        if gap or name.startswith("-"):
            return f"  {_NAME}{name}{_PLAIN}{gap}{rest}"
    return line


def mark(label: str, stream: IO[str], style: str = _WRONG) -> str:
    """What a message begins with, in colour where the stream takes colours."""
    return f"{style}{label}{_PLAIN}" if coloured(stream) else label


def note(stream: IO[str]) -> str:
    """What a note begins with."""
    return mark("note: ", stream, _BOLD)


def plain(text: str) -> str:
    """The text without what would command a terminal: escape sequences, control characters, marks of direction.

    Data, prompts and what models write may hold them; they are shown as Python writes them.
    """
    return text.translate(_COMMANDS)
