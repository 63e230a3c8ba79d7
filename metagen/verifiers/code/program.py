"""The program in a sequence: the code in a model's text, and the part of the prompt that belongs to it."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Protocol

from metagen.sequence import Sequence, digest

_FENCED = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.MULTILINE | re.DOTALL)


class ProgramRule(Protocol):
    """Reads the program out of a sequence; None when there is none."""

    @property
    def fingerprint(self) -> str: ...

    def read(self, sequence: Sequence) -> str | None: ...


class FencedProgram:
    """The last fenced block of an answer in the language, else its last fenced block, else all of the text.

    Of several blocks, the last that defines one of the prompt's public `entry_points`, if one does: what stands below
    it is an example of its use. A block that the length cut is taken as far as it goes. The rule for chat models.
    """

    def __init__(self, language: str = "python") -> None:
        self._language = language

    @property
    def fingerprint(self) -> str:
        return digest("fenced program", "2", self._language).hex()

    def read(self, sequence: Sequence) -> str | None:
        blocks: list[tuple[str, str]] = _FENCED.findall(sequence.text)
        names = (self._language, self._language[:2], f"{self._language}3")
        known = [code for name, code in blocks if name.lower() in names]
        found = known or [code for _, code in blocks] or [sequence.text]
        if len(found) > 1 and (points := sequence.prompt.public.get("entry_points")):
            defines = re.compile(
                rf"^[ \t]*(?:(?:async )?def|class) +(?:{'|'.join(map(re.escape, points))})\b", re.M
            )
            found = [code for code in found if defines.search(code)] or found
        # A block in a list is indented as a whole.
        return dedent(found[-1]) if found[-1].strip() else None


class CompletedProgram:
    """The prompt's text and the completion after it, up to the first line that begins a new top-level statement.

    The rule for base models that complete a function, as HumanEval's prompts ask: the rest after the function
    (`if __name__`, `print(…)`, another `def` without a body) is left out. functions: keep further functions
    and classes, which the completed one may call.
    """

    def __init__(self, *, functions: bool = True) -> None:
        kept = r"def |class |@|async def |from |import |[#)\]}]" if functions else "[#)\\]}]"
        self._functions = functions
        self._end = re.compile(rf"^(?!{kept})\S", re.MULTILINE)

    @property
    def fingerprint(self) -> str:
        return digest("completed program", str(self._functions)).hex()

    def read(self, sequence: Sequence) -> str | None:
        text = sequence.text
        # The completion begins in the middle of a line, or of a body: only whole lines can end it.
        first = text.find("\n") + 1
        end = self._end.search(text, first) if first else None
        return (sequence.prompt.text or "") + (text[: end.start()] if end else text)
