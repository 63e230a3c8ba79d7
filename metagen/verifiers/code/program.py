"""The program in a sequence: the code in a model's text, and the part of the prompt that belongs to it."""

from __future__ import annotations

import re
from collections import abc
from textwrap import dedent
from typing import Final, Protocol

from metagen.sequence import Sequence, digest
from metagen.verifiers.source import parse

_FENCED = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.MULTILINE | re.DOTALL)
#: Ends that are tried.
TRIES: Final = 64
#: Top-level lines that a program goes on with.
_BEGINS: Final = "def |class |@|async def |from |import "
_DEFINES: Final = r"^[ \t]*(?:(?:async )?def|class) +(?:{})\b"


class ProgramRule(Protocol):
    """Reads the program out of a sequence; None when there is none."""

    @property
    def fingerprint(self) -> str: ...

    def read(self, sequence: Sequence) -> str | None: ...


class FencedProgram:
    """The last fenced block of an answer in the language, else its last fenced block, else all of the text.

    Where the prompt's public `entry_points` tell what is asked for, it is the last block that defines one of them, else
    the last that defines anything: blocks that call functions show their use. LiveCodeBench and APPS, whose programs
    may be classes, tell none, and have their last block. If no block defines anything, and the
    text before the first fence does, that text is the program: some models close a fence that they did not open.
    A block that the length cut is taken as far as it goes. The rule for chat models.
    """

    def __init__(self, language: str = "python") -> None:
        self._language = language

    @property
    def fingerprint(self) -> str:
        return digest("fenced program", "3", self._language).hex()

    def read(self, sequence: Sequence) -> str | None:
        text, points = sequence.text, sequence.prompt.public.get("entry_points")
        blocks: list[tuple[str, str]] = _FENCED.findall(text)
        names = (self._language, self._language[:2], f"{self._language}3")
        known = [code for name, code in blocks if name.lower() in names]
        found = known or [code for _, code in blocks] or [text]
        if blocks and points:
            found = _defining(found, points) or _defining([text[: text.index("```")]], ()) or found
        # A block in a list is indented as a whole.
        return dedent(found[-1]) if found[-1].strip() else None


def _defining(pieces: list[str], points: abc.Iterable[str]) -> list[str]:
    """Those that define one of the names, else those that define anything."""
    names = "|".join(map(re.escape, points))
    asked = [code for code in pieces if re.search(_DEFINES.format(names), code, re.M)] if names else []
    return asked or [code for code in pieces if re.search(_DEFINES.format(r"\w+"), code, re.M)]


class CompletedProgram:
    """The prompt's text and the completion after it, up to the first line that begins a new top-level statement.

    The rule for base models that complete a function, as HumanEval's prompts ask: the rest after the function
    (`if __name__`, `print(…)`) is left out. functions: keep further functions and classes, which the completed one may
    call, but for those at the end that are no Python, as where the length cut them.
    """

    def __init__(self, *, functions: bool = True) -> None:
        kept = rf"{_BEGINS}|[#)\]}}]" if functions else "[#)\\]}]"
        self._functions = functions
        self._end = re.compile(rf"^(?!{kept})\S", re.MULTILINE)

    @property
    def fingerprint(self) -> str:
        return digest("completed program", "2", str(self._functions)).hex()

    def read(self, sequence: Sequence) -> str | None:
        head, text = sequence.prompt.text or "", sequence.text
        # The completion begins in the middle of a line, or of a body: only whole lines can end it.
        first = text.find("\n") + 1
        end = self._end.search(text, first) if first else None
        kept = text[: end.start()] if end else text
        further = re.finditer(f"^(?:{_BEGINS})", kept[first:], re.MULTILINE) if first else ()
        cuts = reversed([first + line.start() for line in further])
        # Something of the function has to be left.
        ends = [len(kept), *(at for at in cuts if kept[:at].strip())][:TRIES]
        return next((p for at in ends if _is_python(p := head + kept[:at])), head + kept)


def _is_python(program: str) -> bool:
    try:
        parse(program)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True
