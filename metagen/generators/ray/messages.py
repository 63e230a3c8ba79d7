"""What goes between the driver and a replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from metagen import errors
from metagen.attempts import State
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
    Share,
)
from metagen.sequence import Sequence

Request = GenerateRequest | list[EvaluateRequest]
Answer = Generated | list[Evaluated]


class Codec(Protocol):
    """What renders prefixes and encodes texts as an engine does: its tokenizer, in the driver.

    If it has a method `decode`, it also writes ids as text.
    """

    def render(self, prefix: Sequence) -> tuple[int, ...] | None: ...

    def encode(self, text: str) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A pickled request, under a number that its reply has too. load: samples or texts."""

    number: int
    request: bytes
    load: int


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
    """An answer or a fault. ended: samples that had ended when the request was cancelled or failed; shares: what each
    took, as far as the engine has said so; told: the tokens of the prefix, likewise.
    """

    number: int
    answer: Answer | None = None
    fault: Fault | None = None
    ended: dict[int, Sample] = field(default_factory=dict)
    shares: dict[int, Share] = field(default_factory=dict)
    told: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Begun:
    """An attempt of an engine's own, at samples of a call or at its reading. number: the call's; name: its own in the
    replica.

    state: None where it asks for leave to begin, else what became of it. share: of a reading, what is read again of it;
    None for the whole of it.
    """

    number: int
    name: int
    samples: tuple[int, ...] = ()
    state: State | None = None
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave for an attempt, by its name. refusal: of what a BudgetExhausted is made, if there is none."""

    name: int
    refusal: tuple[str, float, float, float, str] | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A sample that has ended of a call that has not: by the call's number and its own (`GenerateRequest.note`)."""

    number: int
    sample: int
    made: Sample
    tokens: int | None
    share: Share | None


@dataclass(frozen=True, slots=True)
class News:
    """What a replica says when it is asked: its engine's counters, replies that are ready, and what came of other
    calls, in the order in which it came. others: the load of other clients.
    """

    replies: list[Reply]
    stats: EngineStats
    events: list[Ended | Begun]
    others: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """What does not change of an engine while it is open.

    decodes: whether it writes ids as text. ends, vocabulary: empty and None where it does not tell them.
    """

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
    tells_attempts: bool = False
    takes_tools: bool = False
    decodes: bool = False
    ends: tuple[int, ...] = ()
    vocabulary: int | None = None

    @classmethod
    def of(cls, engine: Engine) -> Self:
        # Engines of others may have been written before there was anything beyond plain sampling.
        supports: Any = getattr(engine, "supports", frozenset())
        bills, price = getattr(engine, "bills", False), getattr(engine, "price", None)
        return cls(
            repr(engine), engine.fingerprint, engine.tokenizer_fingerprint, engine.shape, engine.directory,
            engine.max_context, supports, bills, price, getattr(engine, "chat", None),
            getattr(engine, "reads_labels", engine.tokenizer_fingerprint is not None),
            getattr(engine, "reads_apart", False), getattr(engine, "tells_attempts", False),
            _takes_tools(engine), hasattr(engine, "decode"), tuple(getattr(engine, "ends", ())),
            getattr(engine, "vocabulary", None),
        )  # fmt: skip


def _takes_tools(engine: Engine) -> bool:
    """Whether prompts may tell of tools. A chat template that cannot be read is an error of prompts that need it."""
    try:
        return bool(getattr(engine, "takes_tools", False))
    except Exception:  # noqa: BLE001 - whatever a library raises of a template
        return False


@dataclass(frozen=True, slots=True)
class Roster:
    """What the owner of replicas tells a guest: who may be asked. client: the guest's name.

    actors: the replicas' handles, by name. near: its share of them, which it prefers. over: why there are none, and
    none will come.
    """

    client: str
    facts: Facts
    actors: Mapping[str, Any]
    near: frozenset[str]
    over: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What a guest tells the owner of the replicas.

    loads: what is outstanding at each replica that it may still ask. waiting: what waits for one. lost: why it gave
    up others. attempts: requests that it had to repeat so far.
    """

    loads: Mapping[str, int]
    waiting: int = 0
    lost: Mapping[str, str] = field(default_factory=dict)
    attempts: int = 0
