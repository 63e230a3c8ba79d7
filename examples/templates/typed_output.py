"""Typed output: a pydantic model out of a text, asked for again with what was wrong."""

from __future__ import annotations

import sys

from model import solve
from pydantic import BaseModel, Field

import metagen as mg
from metagen.strategies.chain.typed import Typed


class Event(BaseModel):
    """What happens, where, and how many come."""

    title: str
    place: str
    guests: int = Field(ge=0)


def build(generator: mg.Generator) -> Typed[Event]:
    return Typed(generator, Event, tries=3, chat=True)


if __name__ == "__main__":
    solve(build, sys.argv[1:])
