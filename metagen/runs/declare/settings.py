"""Settings of strategies: what they change, what they are called, and a definition with one of them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from metagen.runs.declare.study import GENERATOR

#: Words for the setting that changes nothing.
AS_WRITTEN: Final = "as written"


def split(setting: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a setting changes in the strategy, and in the generator."""
    own = {key: value for key, value in setting.items() if not key.startswith(GENERATOR)}
    generator = {
        key.removeprefix(GENERATOR): value for key, value in setting.items() if key.startswith(GENERATOR)
    }
    return own, generator


def words(setting: Mapping[str, Any]) -> str:
    """A setting as people read it: `temperature=0.2, verifier=min`."""
    return ", ".join(f"{key}={_word(value)}" for key, value in setting.items()) or AS_WRITTEN


def variant(name: str, setting: Mapping[str, Any]) -> str:
    """The name of a part with a setting: `rebase.temperature-0.1`, and the name itself without one."""
    if not setting:
        return name
    text = ".".join(f"{key}-{_word(value)}" for key, value in setting.items())
    plain = re.sub(r"[^A-Za-z0-9._+-]+", "-", text)
    if plain != text:
        # What a name cannot hold is told apart by its digest.
        plain += "." + hashlib.sha256(text.encode()).hexdigest()[:6]
    return f"{name}.{plain}"


def overlay(data: Mapping[str, Any], setting: Mapping[str, Any]) -> dict[str, Any]:
    """A definition with a setting laid over it; `step.tokens` reaches into a mapping."""
    whole: dict[str, Any] = deepcopy(dict(data))
    for key, value in setting.items():
        node, *rest = key.split(".")
        target = whole
        for below in rest:
            inner = target.get(node)
            target[node] = dict(inner) if isinstance(inner, dict) else {}
            target, node = target[node], below
        target[node] = deepcopy(value)
    return whole


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
