"""Typed outputs: sample, validate with pydantic, and ask again with what was wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from metagen.errors import InputError, PromptError
from metagen.generators.base import Generator
from metagen.generators.decoding.grammar import Grammar
from metagen.parts import fingerprint, part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, Until, digest
from metagen.strategies.base import Result, Strategy
from metagen.strategies.chain.steps import PROMPT, reply_to
from metagen.strategies.tools import faults
from metagen.template import Template
from metagen.values import Count
from metagen.verifiers.generative.question import in_words

#: How llguidance reads a schema. White space is as Python writes it: where it is free, a model may write nothing else
#: to its last token. What grammars cannot say is let pass.
GUIDANCE: Final = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "lenient": True,
}


def hold(generator: Generator, schema: Mapping[str, Any]) -> Generator:
    """The generator, held to JSON of a schema in place of a grammar of its own; as it is, where it cannot be held.

    Who reads what it writes reads it as if it were free: its length may cut it, and grammars cannot say all that a
    schema can. Objects have the fields of the schema and no others (`closed`).
    """
    if "grammar" not in getattr(generator, "supports", ()):
        return generator
    return generator.replace(grammar=Grammar.json({**closed(schema), "x-guidance": GUIDANCE}))


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema, in which objects that do not speak of further fields have none.

    A schema lets pass what it does not name, and readers drop it. A model that is held to it would write on: small ones
    add field after field, to their last token. Parts of `allOf` stay open, since each knows a part of the fields only.
    """
    found = dict(schema)
    for key in ("properties", "$defs", "patternProperties"):
        if isinstance(fields := found.get(key), Mapping):
            found[key] = {name: _closed(part) for name, part in fields.items()}
    for key in ("items", "additionalProperties"):
        found |= {key: _closed(found[key])} if key in found else {}
    for key in ("anyOf", "oneOf", "prefixItems"):
        if isinstance(parts := found.get(key), list):
            found[key] = [_closed(part) for part in parts]
    if "properties" in found and "allOf" not in found:
        found.setdefault("additionalProperties", False)
    return found


def _closed(part: Any) -> Any:
    return closed(part) if isinstance(part, Mapping) else part


M = TypeVar("M", bound=BaseModel)

ASK: Final = (
    "{prompt}\n\nAnswer with one JSON object that fits this schema, and with nothing else:\n{schema}\n"
)
AGAIN: Final = "That does not fit the schema: {error}\nAnswer again, with the JSON object alone:\n"
#: The name under which the result says whether it is valid.
TYPED: Final = "typed"

_FENCED = re.compile(r"```[ \t]*(?:json)?[^\n`]*\n(.*?)```", re.DOTALL)


@part
class Typed(Strategy, Generic[M]):
    """A sequence that holds a `model` in JSON: `Typed(generator, Person).parse(result)` gives the Person.

    A generator that supports grammars is held to the schema, and writes nothing else. Asks at most `tries` times; each
    time after the first with the last reply, and what pydantic found wrong with it. The first reply that is valid is
    returned, else the last one, with the score 0 and the faults as its feedback under `typed`. A reply may have words
    or a code fence around the JSON. Where reply and faults are more than the model's context holds, it is not asked
    again.

    ask: may have the places {prompt} and {schema}. again: has {error}; it follows what was asked and replied, as a
    text, or with `chat` as a turn of its own. model: a class of pydantic. tries: samples at most, each told what was
    wrong with the one before.
    """

    generator: Generator = field(kw_only=False)
    model: type[M] = field(kw_only=False)
    tries: Count = 3
    ask: str = ASK
    again: str = AGAIN
    chat: bool = False

    def __post_init__(self) -> None:
        schema = self.model.model_json_schema()
        self._held, self.schema = hold(self.generator, schema), json.dumps(schema, ensure_ascii=False)
        self._ask = Template(self.ask).expecting(optional=(PROMPT, "schema"), name="ask")
        self._again = Template(self.again).expecting("error", name="again")
        self.accepts_prefix = PROMPT in self._ask.places  # where a partial answer is shown as well

    @property
    def fingerprint(self) -> str:
        # Models of one name may have other fields.
        return digest(self.schema, fingerprint(self)).hex()

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        first = self._ask.fill({PROMPT: in_words(prefix.prompt) + prefix.text, "schema": self.schema})
        turns, reply = [first], prefix
        for i in range(self.tries):
            try:
                asking = reply_to(
                    prefix, *turns, generator=self._held, scope=scope.child(f"try/{i}"), chat=self.chat
                )
                said = await scope.attempt(asking)
            except PromptError:
                if i == 0:
                    raise
                break
            if said is None:  # a limit ends it: the last reply is returned
                break
            fault = self.fault(said.text)
            reply = said.reroot(prefix).with_score(TYPED, Score(float(fault is None), feedback=fault))
            scope.offer(reply, float(fault is None))
            if fault is None:
                break
            turns = [first, said.text, self._again.fill({"error": fault})]
        return reply

    def fault(self, text: str) -> str | None:
        """What is wrong with a reply; None if it holds a valid object."""
        try:
            self._read(text)
        except (ValidationError, ValueError) as error:
            return faults(error) if isinstance(error, ValidationError) else str(error)
        return None

    def parse(self, result: Result | Sequence | str) -> M:
        """The object in a result; InputError, with what is wrong, if it holds none."""
        text = result if isinstance(result, str) else result.text
        try:
            return self._read(text)
        except (ValidationError, ValueError) as error:
            fault = faults(error) if isinstance(error, ValidationError) else str(error)
            raise InputError(
                f"{text[:60]!r} is no {self.model.__name__} ({fault}); look at the score {TYPED!r} of a result first"
            ) from None

    def _read(self, text: str) -> M:
        return self.model.model_validate_json(json_of(text))


def json_of(text: str) -> str:
    """The JSON in a reply: all of it, else its last code fence, else the first object in it. ValueError if none."""
    fenced: list[str] = _FENCED.findall(text)
    for piece in (text, *fenced[-1:]):
        if piece.strip().startswith(("{", "[")):
            try:
                json.loads(piece)
            except (ValueError, RecursionError):
                continue
            return piece.strip()
    decoder = json.JSONDecoder()
    for match in re.finditer(r"\{", text):
        try:
            _, end = decoder.raw_decode(text, match.start())
        except RecursionError:
            break  # what nests too deeply does so from any of its beginnings: looking on would take for ever
        except ValueError:
            continue
        return text[match.start() : int(end)]
    raise ValueError("there is no JSON object in it")
