"""Grammars: sets of texts that a completion is held to. Engines that support them mask the tokens that lead out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel

from metagen.errors import InputError

Kind = Literal["regex", "json_schema", "lark"]


@dataclass(frozen=True, slots=True)
class Grammar:
    """The texts that a completion may be, from its first character to its end, partial prefixes included.

    kind and source: a regular expression, a JSON schema, or a grammar in the Lark format, as llguidance reads them, so
    without look-around and back-references. Masking is local: among the tokens that are allowed the model chooses as it
    would, so that this is *not* the model's distribution given that its text is in the grammar.
    """

    kind: Kind
    source: str

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"grammar kind={self.kind!r}: expected one of {', '.join(get_args(Kind))}")
        if not self.source:
            raise InputError(f"a {self.kind} grammar is empty; give the texts that may be written")

    @classmethod
    def regex(cls, pattern: str) -> Self:
        r"""Texts that match a pattern as a whole; `\d` is the ASCII digits alone."""
        # \d is what people write for 0-9; the library takes it for the digits of all scripts.
        return cls("regex", re.sub(r"((?:^|[^\\])(?:\\\\)*)\\d", r"\1[0-9]", pattern))

    @classmethod
    def choice(cls, options: Iterable[str]) -> Self:
        """One of several texts."""
        texts = list(options)
        if not texts or not all(texts):
            raise InputError(f"options={texts!r}: expected at least one text, none of them empty")
        return cls("regex", "|".join(re.escape(text) for text in texts))

    @classmethod
    def lark(cls, source: str) -> Self:
        """A context-free grammar in the Lark format."""
        return cls("lark", source)

    @classmethod
    def json(cls, schema: Mapping[str, Any] | type[BaseModel] | str) -> Self:
        """JSON that fits a schema, or a pydantic model's, with its properties in their order."""
        if isinstance(schema, type):
            schema = schema.model_json_schema()
        return cls("json_schema", schema if isinstance(schema, str) else json.dumps(schema))
