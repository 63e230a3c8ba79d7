"""Grammars: sets of texts that a completion is held to. Engines that support them mask the tokens that lead out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel

from metagen.errors import InputError

Kind = Literal["regex", "json_schema", "lark"]


@dataclass(frozen=True, slots=True, repr=False)
class Grammar:
    """The texts that a completion may be, from its first character to its end, partial prefixes included.

    kind and source: a regular expression, a JSON schema, or a grammar in the Lark format, as llguidance reads them, so
    without look-around and back-references. Masking is local: among the tokens that are allowed the model chooses as it
    would, so that this is *not* the model's distribution given that its text is in the grammar.

    canonical: where the grammar leaves one way to go on, its text is written in the tokens that the tokenizer gives it;
    False allows all tokens that spell it.
    close: near max_tokens allow only what can still be ended in time, down to the shortest way to an end; a max_tokens
    that no text fits in is an error. Raises InputError for an unknown kind, or an empty source.
    """

    kind: Kind
    source: str
    canonical: bool = True
    close: bool = False

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"grammar kind={self.kind!r}: expected one of {', '.join(get_args(Kind))}")
        _text(self.kind, self.source)
        if not self.source:
            raise InputError(f"a {self.kind} grammar is empty; give the texts that may be written")
        for name in ("canonical", "close"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"grammar {name}={getattr(self, name)!r}: expected True or False")

    def __repr__(self) -> str:
        # It is a part of fingerprints, to which what came later adds nothing while it is as it was before.
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        parts = [f"{k}={v!r}" for k, v in given.items() if not isinstance(v, bool) or v != (k == "canonical")]
        return f"Grammar({', '.join(parts)})"

    @classmethod
    def regex(cls, pattern: str, **how: bool) -> Self:
        r"""Texts that match a pattern as a whole; `\d` is the ASCII digits alone. how: canonical, close."""
        # \d is what people write for 0-9; the library takes it for the digits of all scripts.
        _text("regex", pattern)
        digits = re.sub(r"\\(.)", lambda m: "[0-9]" if m[1] == "d" else m[0], pattern, flags=re.DOTALL)
        return cls("regex", digits, **how)

    @classmethod
    def choice(cls, options: Iterable[str], **how: bool) -> Self:
        """One of several texts. how: canonical, close. Raises InputError for no options, and for empty ones."""
        given: Any = options
        if isinstance(given, str) or not isinstance(given, Iterable):
            alone = f", as in Grammar.choice([{given!r:.40}])" if isinstance(given, str) else ""
            raise InputError(f"options={given!r:.80}: expected a list of texts{alone}")
        texts = list(given)
        if not texts or not all(isinstance(text, str) and text for text in texts):
            raise InputError(f"options={texts!r:.80}: expected at least one text, none of them empty")
        return cls("regex", "|".join(re.escape(text) for text in texts), **how)

    @classmethod
    def lark(cls, source: str, **how: bool) -> Self:
        """A context-free grammar in the Lark format. how: canonical, close."""
        return cls("lark", source, **how)

    @classmethod
    def json(
        cls, schema: Mapping[str, Any] | type[BaseModel] | str, *, compact: bool = False, **how: bool
    ) -> Self:
        """JSON that fits a schema, or a pydantic model's, with its properties in their order. how: canonical, close.

        compact: no white space between what JSON consists of. Where it is free a model may write nothing else. Raises
        InputError for a schema that is none.
        """
        if not isinstance(compact, bool):
            raise InputError(f"compact={compact!r}: expected True or False")
        return cls("json_schema", _schema(schema, compact), **how)


def _text(kind: Kind, source: Any) -> None:
    """InputError for what is no text."""
    if not isinstance(source, str):
        raise InputError(f"a {kind} grammar of {source!r:.80}: expected its text")


def _schema(given: Any, compact: bool) -> str:
    """A schema as text. InputError for what is none."""
    expected = "expected a JSON schema as a dictionary or as text, or a pydantic model's class"
    schema = given
    if isinstance(given, type):
        if not issubclass(given, BaseModel):
            raise InputError(f"schema={given!r:.80}: {expected}, such as {{'type': 'integer'}}")
        schema = given.model_json_schema()
    elif isinstance(given, str):
        try:
            schema = json.loads(given)
        except json.JSONDecodeError as error:
            raise InputError(f"schema={given!r:.80} is no JSON ({error}); {expected}") from error
    if not isinstance(schema, Mapping | bool) or isinstance(given, bool):
        raise InputError(f"schema={given!r:.80}: {expected}")
    if compact and schema is not False:
        schema = {} if schema is True else dict(schema)  # both allow all JSON
        schema["x-guidance"] = {**schema.get("x-guidance", {}), "whitespace_flexible": False}
    elif isinstance(given, str):
        return given
    try:
        return json.dumps(schema)
    except (TypeError, ValueError) as error:
        raise InputError(f"schema={given!r:.80} cannot be written as JSON ({error}); {expected}") from error
