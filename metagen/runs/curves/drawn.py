"""What a generator does to its model besides a temperature: with any of it, samples are not draws of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from metagen.generators.decoding.parameters import OFF as EVERY
from metagen.generators.decoding.parameters import ORDER

#: Settings that change what is drawn, with what turns them off.
OFF: Final[Mapping[str, Any]] = {
    name: EVERY[name] for name in (*ORDER, "healing", "search") if name != "temperature"
}


def adapted(definition: Mapping[str, Any]) -> str:
    """The settings of a generator's definition that are on, as words: `top_p=0.9, grammar`. Empty: none are."""
    on = {name: definition.get(name) for name, off in OFF.items() if definition.get(name, off) != off}
    return ", ".join(
        f"{name}={value:g}" if isinstance(value, float | int) and value is not True else name
        for name, value in on.items()
        if value
    )
