"""Writers that the tests of chains are made of."""

from __future__ import annotations

from collections.abc import Callable

from metagen.generators.engine import Sample as Drawn
from metagen.generators.function import FunctionGenerator
from metagen.sequence import Prompt, Sequence

PROMPT = Prompt("p", text="What is it?", public={"hint": 1})


def says(write: Callable[[str], str | Drawn], name: str = "says") -> FunctionGenerator:
    """A generator that writes by what it reads: prompt and completion so far, as one text."""

    def function(prefix: Sequence, seed: int, index: int) -> str | Drawn:
        words = prefix.prompt.text or "".join(f"<{m.role}>{m.content}" for m in prefix.prompt.messages)
        return write(words + prefix.text)

    return FunctionGenerator(function, name=name, count=len, max_tokens=2000)


ECHO = says(lambda text: f"[{text}]", "echo")
