"""What goes between the driver and a replica."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from metagen import errors
from metagen.cost import ModelShape, Price
from metagen.errors import EngineError, InputError, MetagenError, NumericsError, PluginError
from metagen.generators.engine import (
    Engine,
    EngineStats,
    Evaluated,
    EvaluateRequest,
    Generated,
    GenerateRequest,
    Sample,
)
from metagen.sequence import Sequence

Request = GenerateRequest | list[EvaluateRequest]
Answer = Generated | list[Evaluated]


class Codec(Protocol):
    """What renders prefixes and encodes texts as an engine does: its tokenizer, in the driver."""

    def render(self, prefix: Sequence) -> tuple[int, ...] | None: ...

    def encode(self, text: str) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A pickled request, under a number that its reply has too."""

    number: int
    request: bytes


@dataclass(frozen=True, slots=True)
class Fault:
    """An error of an engine, by the names of its classes: those of other packages may not be importable here.

    asked: it answers the request, as every replica would; else something is wrong with this one.
    """

    names: tuple[str, ...]
    message: str
    asked: bool

    @classmethod
    def of(cls, error: BaseException, *, asked: bool = False) -> Self:
        names = tuple(one.__name__ for one in type(error).__mro__)
        # What an engine of another package raises may be this machine's fault; what it returns is its own.
        raised = isinstance(error, PluginError) and error.__cause__ is not None
        return cls(names, str(error), asked or (isinstance(error, InputError | NumericsError) and not raised))

    def __str__(self) -> str:
        return f"{self.names[0]}: {self.message}" if self.message else self.names[0]

    def error(self) -> MetagenError:
        """The error that the caller gets: of the nearest class that metagen has."""
        found = (getattr(errors, name, None) for name in self.names)
        kind = next((one for one in found if isinstance(one, type) and issubclass(one, MetagenError)), None)
        return EngineError(str(self)) if kind is None else kind(self.message)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer or a fault. ended: samples that had ended when the request was cancelled or failed."""

    number: int
    answer: Answer | None = None
    fault: Fault | None = None
    ended: dict[int, Sample] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class News:
    """What a replica says when it is asked: replies that are ready, its engine's counters, and samples that have ended
    of calls that have not: by the call's number and theirs, with the tokens of the prefix if these are told.
    """

    replies: list[Reply]
    stats: EngineStats
    ended: list[tuple[int, int, Sample, int | None]]


@dataclass(frozen=True, slots=True)
class Facts:
    """What does not change of an engine while it is open."""

    name: str
    fingerprint: str
    tokenizer_fingerprint: str | None
    shape: ModelShape | None
    directory: Path | None
    max_context: int | None
    supports: frozenset[str]
    bills: bool
    price: Price | None
    chat: str | None = None
    reads_labels: bool = True
    reads_apart: bool = False

    @classmethod
    def of(cls, engine: Engine) -> Self:
        # Engines of others may have been written before there was anything beyond plain sampling.
        supports: Any = getattr(engine, "supports", frozenset())
        bills, price = getattr(engine, "bills", False), getattr(engine, "price", None)
        return cls(
            repr(engine), engine.fingerprint, engine.tokenizer_fingerprint, engine.shape, engine.directory,
            engine.max_context, supports, bills, price, getattr(engine, "chat", None),
            getattr(engine, "reads_labels", engine.tokenizer_fingerprint is not None),
            getattr(engine, "reads_apart", False),
        )  # fmt: skip
