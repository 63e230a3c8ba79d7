"""Generators that are held to a JSON schema, where their engines can do that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from metagen.generators.base import Generator
from metagen.generators.decoding.grammar import Grammar

#: How llguidance reads a schema. White space is as Python writes it: where it is free, a model may write nothing else
#: to its last token. What grammars cannot say is let pass.
GUIDANCE: Final = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "lenient": True,
}


def held(generator: Generator, schema: Mapping[str, Any]) -> Generator:
    """The generator, held to JSON of a schema in place of a grammar of its own; as it is, where it cannot be held.

    Who reads what it writes reads it as if it were free: its length may cut it, and grammars cannot say all that a
    schema can.
    """
    if "grammar" not in getattr(generator, "supports", ()):
        return generator
    return generator.replace(grammar=Grammar.json({**schema, "x-guidance": GUIDANCE}))
