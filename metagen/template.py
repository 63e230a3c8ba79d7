"""Templates: texts with places in braces, filled by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from metagen.errors import InputError

#: A place, or a word in braces that is meant as it stands.
_PLACE: Final = re.compile(r"\{\{(\w+)\}\}|\{([A-Za-z_]\w*)\}")


@dataclass(frozen=True)
class Template:
    """`{name}` is a place; `{{name}}` writes {name}; other braces, as in JSON, are text."""

    text: str

    @cached_property
    def places(self) -> tuple[str, ...]:
        """The names, each once, in order."""
        return tuple(dict.fromkeys(match[2] for match in _PLACE.finditer(self.text) if match[2]))

    def fill(self, values: Mapping[str, str]) -> str:
        """The text with its places filled, in one pass: braces inside of a value are no places."""
        return _PLACE.sub(lambda m: f"{{{m[1]}}}" if m[1] else values[m[2]], self.text)

    def expecting(self, *places: str, optional: tuple[str, ...] = (), name: str) -> Template:
        """This template, if it has these places, and none but the optional ones beside; else InputError.

        name: of the parameter, for the message.
        """
        if not set(places) <= set(self.places) <= {*places, *optional}:
            wanted = ", ".join(f"{{{place}}}" for place in places)
            more = ", ".join(f"{{{place}}}" for place in optional)
            raise InputError(
                f"{name}={self.text!r:.80}: it has places for {list(self.places)!r}; expected "
                f"{wanted}{' and perhaps ' if wanted and more else ''}{more or ('' if wanted else 'none')}"
            )
        return self


def escape(text: str) -> str:
    """A text as a part of a template: no place in it is one."""
    return re.sub(r"\{(\w+)\}", r"{{\1}}", text)
