"""Temperatures and top_p that are recommended for kinds of text, as a start."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final, Literal

from metagen.errors import InputError

Preset = Literal["code", "creative", "chat", "comments", "data", "exploration"]
#: Temperature and top_p, by use.
PRESETS: Final[Mapping[Preset, tuple[float, float]]] = {
    "code": (0.2, 0.1),
    "creative": (0.7, 0.8),
    "chat": (0.5, 0.5),
    "comments": (0.3, 0.2),
    "data": (0.2, 0.1),
    "exploration": (0.6, 0.7),
}


def preset(name: str) -> dict[str, float]:
    """The parameters of a preset. InputError for one that there is not."""
    for known, (temperature, top_p) in PRESETS.items():
        if name == known:
            return {"temperature": temperature, "top_p": top_p}
    near = get_close_matches(str(name), PRESETS, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    raise InputError(f"{name!r} is no preset; expected one of {', '.join(PRESETS)}{meant}")
