"""Sampling parameters by row: a table that rows enter and leave, and its rows in use as tensors."""

from __future__ import annotations

from collections import abc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metagen.errors import MetagenError
from metagen.generators.decoding.parameters import CUTS, ORDER, SamplingParams
from metagen.generators.decoding.parameters import OFF as DEFAULTS
from metagen.generators.decoding.words import Words
from metagen.generators.torch.send import send

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Colder and hotter temperatures count as these: float32 takes T or 1/T for 0 or infinity beyond.
COLDEST: Final = 1e-37
HOTTEST: Final = 1e37
#: Parameters that are not one column as they are given: their columns, each with how it is read from a value. drop:
#: what top_p cuts off. mu: the surprise that mirostat cuts at next, in bits. dry, xtc: multiplier and probability.
COLUMNS: Final[Mapping[str, Mapping[str, Callable[[Any], float]]]] = {
    "temperature": {"temperature": lambda value: min(max(value, COLDEST), HOTTEST) if value else 0.0},
    "top_p": {"drop": lambda value: 1.0 - value},
    "mirostat": {"tau": lambda m: m.tau, "eta": lambda m: m.eta, "mu": lambda m: 2 * m.tau},
    "dry": {
        "dry": lambda dry: dry.multiplier,
        "dry_base": lambda dry: dry.base,
        "dry_allowed": lambda dry: dry.allowed_length,
        "dry_last": lambda dry: dry.last,
    },
    "xtc": {"xtc": lambda xtc: xtc.probability, "xtc_threshold": lambda xtc: xtc.threshold},
}


def columns(name: str) -> Mapping[str, Callable[[Any], float]]:
    """The columns of a parameter, the one that is on with it first; none where it is no number (`Words`)."""
    return COLUMNS.get(name, {name: float} if isinstance(DEFAULTS[name], int | float) else {})


def _read(read: Callable[[Any], float], value: Any) -> float:
    return 0.0 if value is None else read(value)


_READ: Final = {
    column: (name, read) for name in (*ORDER, "top_logprobs") for column, read in columns(name).items()
}
#: The columns, each with the value that changes nothing. words: a number, of what is said of certain tokens; 0 is
#: nothing.
OFF: Final = {column: _read(read, DEFAULTS[name]) for column, (name, read) in _READ.items()} | {"words": 0.0}
_OFF: Final = np.array(list(OFF.values()))
PLACE: Final = {name: i for i, name in enumerate(OFF)}
#: Those that come after the penalties.
_SHAPING: Final = ("temperature", *(next(iter(columns(name))) for name in CUTS))
#: Those that come before grammars: they look at what came before.
_REMEMBERING: Final = frozenset(
    column for name in ORDER[: ORDER.index("grammar")] for column in columns(name)
)
#: Columns of the cuts that compiled draws make, in their order.
_COMPILED: Final = ("top_k", "drop", "min_p")
_NOTHING: Final = Words()
_CPU: Final = torch.device("cpu")


def values(params: SamplingParams) -> Floats:
    """[columns]: a row of the table, but for its words."""
    return np.array([*(_read(read, getattr(params, name)) for name, read in _READ.values()), 0.0])


@dataclass(frozen=True, eq=False)
class RowParams:
    """The table's rows in use [R, columns] in float64. A temperature of 0 is greedy.

    known: what the numbers of the column `words` mean. faults: where it is noted why adapters of other packages fail,
    by the words that name them (`history.apply_own_`); None: they raise.
    """

    table: Floats
    known: tuple[Words, ...] = (_NOTHING,)
    device: torch.device = _CPU
    faults: dict[Words, MetagenError] | None = None
    _made: dict[tuple[str, torch.dtype], Tensor] = field(default_factory=dict, repr=False)
    _parts: dict[str, tuple[Tensor | None, RowParams]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        rows: Iterable[SamplingParams],
        words: abc.Sequence[Words] | None = None,
        device: torch.device = _CPU,
    ) -> RowParams:
        """words: of each row; None: nothing is said of certain tokens."""
        table = np.stack([values(params) for params in rows])
        known = tuple(dict.fromkeys((_NOTHING, *(words or ()))))
        if words is not None:
            table[:, PLACE["words"]] = [known.index(one) for one in words]
        return cls(table, known, device)

    def __len__(self) -> int:
        return len(self.table)

    def take(self, index: Ints | abc.Sequence[int]) -> RowParams:
        """The parameters of the rows `index` [n], picked or repeated."""
        return RowParams(self.table[np.asarray(index, np.int64)], self.known, self.device, self.faults)

    def at(self, mu: Floats) -> RowParams:
        """The same, with other cuts of mirostat [R]."""
        table = self.table.copy()
        table[:, PLACE["mu"]] = mu
        made = {key: column for key, column in self._made.items() if key[0] != "mu"}
        other = RowParams(table, self.known, self.device, self.faults, made, self._parts)
        # What is found out lazily does not depend on the cuts.
        other.__dict__.update({k: v for k, v in self.__dict__.items() if k not in other.__dict__})
        return other

    def part(self, name: str) -> tuple[Tensor | None, RowParams]:
        """The rows [K] in which a column is on and that are not greedy, and their parameters; None for all rows."""
        if (made := self._parts.get(name)) is None:
            on = (self.own(name) != OFF[name]) & (self.own("temperature") > 0)
            rows = np.flatnonzero(on)
            made = (None, self) if on.all() else (self.tensor(rows), self.take(rows))
            self._parts[name] = made
        return made

    def on(self, *names: str) -> Tensor:
        """[K]: the rows in which some of these columns are on."""
        places = [PLACE[name] for name in names]
        return self.tensor(np.flatnonzero((self.table[:, places] != _OFF[places]).any(1)))

    def own(self, name: str) -> Floats:
        """[R]: a column as it is."""
        return self.table[:, PLACE[name]]

    def column(self, name: str, like: Tensor) -> Tensor:
        """[R, 1]: a column in the number format of `like`, where `like` is."""
        key = name, like.dtype
        if (made := self._made.get(key)) is None:
            made = self._made[key] = self.tensor(self.own(name)).to(like.dtype)[:, None]
        return made

    def tensor(self, array: NDArray[Any]) -> Tensor:
        """An array of any shape, on the rows' device."""
        return send(array, self.device)

    @cached_property
    def used(self) -> frozenset[str]:
        """The columns in which some row differs from off; what is not here is skipped."""
        differ = (self.table != _OFF).any(0)
        return frozenset(name for name, other in zip(OFF, differ, strict=True) if other)

    @property
    def shapes(self) -> bool:
        """Whether any row has an adapter that comes after the penalties."""
        return not self.used.isdisjoint(_SHAPING)

    @cached_property
    def plain(self) -> bool:
        """Whether nothing but temperatures shapes what is drawn, and nothing is asked for but the tokens."""
        return self.used <= {"temperature"}

    @cached_property
    def nearly_plain(self) -> bool:
        """Whether only temperatures, top_k, top_p and min_p shape what is drawn, and only tokens are asked for."""
        return self.used <= {"temperature", *_COMPILED}

    @cached_property
    def cuts(self) -> Floats | None:
        """[R, 3]: top_k, what top_p cuts off, and min_p; None where no row has any of them."""
        if self.used.isdisjoint(_COMPILED):
            return None
        return self.table[:, [PLACE[name] for name in _COMPILED]]

    @property
    def mirostat(self) -> bool:
        """Whether any row's cut follows the surprise of what it has drawn."""
        return "tau" in self.used

    @cached_property
    def remembers(self) -> bool:
        """Whether any row's adapters look at what came before."""
        return bool(self.used & _REMEMBERING) or any(
            words.forced or words.sequences or words.adapters or any(len(one) > 1 for one in words.banned)
            for words in self.words
        )

    @cached_property
    def forbids(self) -> NDArray[np.bool_]:
        """[R]: whether a row's adapters may forbid a token, or follow each: nothing is run ahead of them."""
        found = (self.own("no_repeat_ngram") > 0) | (self.own("min_tokens") > 0) | (self.own("tau") > 0)
        for words, rows in self.words.items():
            found[rows] |= bool(words.banned or words.forced or words.adapters)
        return found

    @cached_property
    def any_greedy(self) -> bool:
        return bool((self.own("temperature") == 0).any())

    @cached_property
    def most_logprobs(self) -> int:
        """The largest of top_logprobs; 0 if no row asks for confidences."""
        return int(self.own("top_logprobs").max(initial=0.0))

    @cached_property
    def words(self) -> dict[Words, Ints]:
        """By the words that are said of certain tokens: the rows [K] of which they are said."""
        if "words" not in self.used:
            return {}
        numbers = self.own("words").astype(np.int64)
        return {self.known[w]: np.flatnonzero(numbers == w) for w in np.unique(numbers).tolist() if w}

    @cached_property
    def bias(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Row, token and what is added to its logit, [K] each; None if there are none."""
        rows, found = self._spread(lambda words: words.bias, 2)
        return (
            (self.tensor(rows), self.tensor(found[:, 0].astype(np.int64)), self.tensor(found[:, 1]))
            if len(rows)
            else None
        )

    @cached_property
    def banned(self) -> dict[int, tuple[Tensor, Tensor]]:
        """By length: rows [K], and sequences [K, length]."""
        lengths = sorted({len(one) for words in self.words for one in words.banned})
        return {
            n: self._ids(lambda words, n=n: [one for one in words.banned if len(one) == n], n)  # type: ignore[misc]
            for n in lengths
        }

    @cached_property
    def sequences(self) -> dict[int, tuple[Tensor, Tensor, Tensor]]:
        """By length: rows [K], sequences [K, length], and what is added to the last token of each [K]."""
        found = {}
        for n in sorted({len(ids) for words in self.words for ids, _ in words.sequences}):
            rows, both = self._spread(
                lambda words, n=n: [(*ids, bias) for ids, bias in words.sequences if len(ids) == n],  # type: ignore[misc]
                n + 1,
            )
            found[n] = (
                self.tensor(rows),
                self.tensor(both[:, :-1].astype(np.int64)),
                self.tensor(both[:, -1]),
            )
        return found

    @cached_property
    def breakers(self) -> tuple[Tensor, Tensor]:
        """Rows [K] and tokens [K, 1] that no repetition runs across."""
        return self._ids(lambda words: [(one,) for one in words.breakers], 1)

    @cached_property
    def ends(self) -> tuple[Tensor, Tensor]:
        """Rows [K] and tokens [K, 1] that wait until min_tokens are there."""
        return self._ids(lambda words: [(one,) for one in words.ends], 1)

    @cached_property
    def forced(self) -> Tensor | None:
        """[R, longest]: what completions begin with, padded by −1; None if none is forced."""
        longest = max((len(words.forced) for words in self.words), default=0)
        if not longest:
            return None
        ids = np.full((len(self), longest), -1, np.int64)
        for words, rows in self.words.items():
            ids[rows, : len(words.forced)] = words.forced
        return self.tensor(ids)

    def _ids(
        self, pick: Callable[[Words], abc.Sequence[abc.Sequence[int]]], width: int
    ) -> tuple[Tensor, Tensor]:
        rows, found = self._spread(pick, width)
        return self.tensor(rows), self.tensor(found.astype(np.int64))

    def _spread(
        self, pick: Callable[[Words], abc.Sequence[abc.Sequence[float]]], width: int
    ) -> tuple[Ints, Floats]:
        """One entry for each row and each thing picked from its words: the rows [K], the things [K, width]."""
        every, things = [np.empty(0, np.int64)], [np.empty((0, width))]
        for words, rows in self.words.items():
            if picked := pick(words):
                every.append(np.repeat(rows, len(picked)))
                things.append(np.tile(np.array(picked, np.float64).reshape(-1, width), (len(rows), 1)))
        return np.concatenate(every), np.concatenate(things)


class Parameters:
    """A table over at most `capacity` rows, dense from 0 to `count`."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        self.count = 0
        self._table = np.tile(_OFF, (capacity, 1))
        self._known: dict[Words, int] = {_NOTHING: 0}
        #: Of the step that is under way (`RowParams`).
        self.faults: dict[Words, MetagenError] = {}
        self._device = device
        self._made: RowParams | None = None

    @property
    def rows(self) -> RowParams:
        """Of the rows in use."""
        if self._made is None:
            table = self._table[: self.count].copy()
            self._made = RowParams(table, tuple(self._known), self._device, self.faults)
        return self._made

    def add(self, rows: Ints, params: SamplingParams, words: Words | None = None) -> None:
        """These new `rows` [n], the next ones, decode under the parameters."""
        if len(self._known) > 2 * len(self._table):
            self._forget()
        self.grow(len(rows))
        self._table[rows] = values(params)
        self._table[rows, PLACE["words"]] = self._known.setdefault(words or _NOTHING, len(self._known))

    def grow(self, more: int) -> None:
        """So many rows more are in use; what they decode under is yet to be said."""
        self.count += more
        self._made = None

    def fork(self, sources: Ints, targets: Ints) -> None:
        """Let the rows `targets` [n] decode as the rows `sources` [n] do, from where these are."""
        self._table[targets] = self._table[sources]
        self._made = None

    def remove(self, holes: Ints, movers: Ints, left: int) -> None:
        """Put the rows `movers` [n] in the places `holes` [n]; `left` rows remain."""
        self._table[holes] = self._table[movers]
        self.count = left
        self._made = None

    def follow(self, rows: Ints, mu: Floats | None) -> None:
        """Take over the cuts of mirostat mu [n] that a draw leaves behind in `rows` [n] (`Draw.mu`)."""
        if mu is not None:
            self._table[rows, PLACE["mu"]] = mu
            self._made = self.rows.at(self._table[: self.count, PLACE["mu"]])

    def _forget(self) -> None:
        """Drop the words of which no row in use speaks."""
        column, known = self._table[: self.count, PLACE["words"]], list(self._known)
        numbers = np.unique(np.append(column, 0.0)).astype(np.int64)
        self._known = {known[old]: new for new, old in enumerate(numbers.tolist())}
        column[:] = np.searchsorted(numbers, column)
