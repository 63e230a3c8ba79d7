"""The shortest way from somewhere in a grammar to the end of a text, by tokens, and masks that keep one open."""

from __future__ import annotations

import math
from collections import abc
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from metagen.logs import logger

_LOG = logger(__name__)
#: Masks keep an end within reach as soon as the tokens left are this many more than the way to it that is known. A
#: single token that makes the way longer by more may leave no time to end.
AHEAD = 128
#: Tokens that one search tries at most: from the beginning of a text, for a shorter one, where a way was lost, and
#: near the limit. And of these, behind one state.
EFFORT, LESS, LOST, QUICK = 40_000, 8_000, 8_000, 1_000
BRANCHES = 512
#: To leave a part of a way out: tokens tried, and tokens in its place.
SHORTCUT, DEPTH = 128, 12
#: Places of a way that are looked at, to go on there.
JOINTS = 24
#: Places of equally many tokens that a search goes on with: a narrow one, and one that misses less.
NARROW, WIDE = 8, 64
#: Masks whose ways are kept, and ways for each.
REMEMBERED, KEPT = 4096, 8

#: Tokens up to the end of a text, the one that ends it included.
Way = tuple[int, ...]


class Ways:
    """Ways to the end of one grammar's texts. States are llguidance's matchers, over all tokens that spell a text.

    start: the beginning of a text. ends: ids that end it. texts: the bytes of each token. dense: white space is tried
    only where nothing else may come.

    A search goes breadth-first, until a text may end, or goes on as a way does that is known. Equal texts are one
    place. Of many texts, of equally many tokens, behind which the same tokens may come it goes on with some: those that
    came past the most different choices, those that came to the same one least often, the shortest and the longest. Of
    the tokens behind them it tries one of each kind that it has seen there before. So what it finds is a way, and the
    shortest one unless what may come next hides what may come later.
    """

    def __init__(
        self, start: Any, ends: abc.Sequence[int], texts: abc.Sequence[bytes], dense: bool = False
    ) -> None:
        self._start, self.ends, self._texts = start, frozenset(ends), texts
        self._end = ends[0]
        self._inner = np.ones(len(texts), np.bool_)
        self._inner[list(ends)] = False
        self._visible = np.array([not dense or not text or bool(text.strip()) for text in texts])
        self._lengths = np.array([len(text) for text in texts])
        self._known: dict[bytes, list[Way]] = {}
        #: So many tokens do not end what was come to in this way.
        self._none: dict[tuple[bytes, Way, int, bytes], int] = {}
        #: By what may come next: tokens that differ in their length, or in what may come behind them.
        self._kinds: dict[bytes, list[int]] = {}
        self._told = False

    def shortest(self) -> Way | None:
        """The whole of the shortest text, and what ends it; None if the search came to none."""
        way = self._search(self._start, EFFORT, _Search(EFFORT, NARROW))
        if way is None:
            way = self._search(self._start, EFFORT, _Search(EFFORT))
        else:
            way = self._search(self._start, len(way) - 1, _Search(LESS)) or way
        return None if way is None else self._shorten(way)

    def hopeless(self, effort: int) -> bool:
        """Whether it is certain, after so many tokens tried, that no text of the grammar can be written."""
        if self._search(self._start, effort, _Search(effort)) is not None:
            return False
        search = _Search(effort, merge=False)
        return self._search(self._start, effort, search) is None and search.whole

    def length(self, token: int) -> int:
        """Of a token, in bytes."""
        return len(self._texts[token])

    def closes(self, state: Any, way: Way) -> bool:
        """Whether a way leads from a state to an end."""
        if len(way) == 1:
            return way == (self._end,) and bool(state.is_accepting())
        return int(state.validate_tokens(list(way))) == len(way)

    def find(self, state: Any, most: int, near: Way | None = None, effort: int = QUICK) -> Way | None:
        """A way of at most so many tokens; None if none was found. near: a way that led on from close by."""
        if most < 1:
            return None
        for way in self._known.get(bytes(state.compute_bitmask()), ()):
            if len(way) <= most and self.closes(state, way):
                return way
        return self._search(state, most, _Search(effort), near)

    def rest(self, state: Any, mask: bytes, way: Way, most: int) -> Way | None:
        """A last part of a way, of at most so many tokens, that leads from a state to an end."""
        joints = (
            i for i in range(max(0, len(way) - most), len(way)) if mask[way[i] >> 3] >> (way[i] & 7) & 1
        )
        return next((way[i:] for i in islice(joints, JOINTS) if self.closes(state, way[i:])), None)

    def behind(self, state: Any, most: int, origin: tuple[bytes, Way, int]) -> Way | None:
        """A way of at most so many tokens behind a token; None if none was found.

        origin: what may come in the place of the last token, the way from there, and the length of the token. Where
        that and what may come next are the same, what could not be ended is taken for what cannot.
        """
        kind = (*origin, bytes(state.compute_bitmask()))
        if most <= self._none.get(kind, 0):
            return None
        way = self.find(state, most, origin[1])
        if way is None and len(self._none) < REMEMBERED:
            self._none[kind] = most
        return way

    def tell(self) -> None:
        """Say once that a text may be cut."""
        if not self._told:
            self._told = True
            _LOG.warning("no end of a text was found near its limit", extra={"ahead": AHEAD, "tried": LOST})

    def _shorten(self, way: Way) -> Way:
        """A way without the detours that short searches find."""
        state, effort, i = self._start.deep_copy(), EFFORT, 0
        while i < len(way) - 1 and effort > 0:
            shorter = None
            if _choices(bytes(state.compute_bitmask())) > 1:
                search = _Search(given := min(SHORTCUT, effort), depth=DEPTH)
                shorter = self._search(state, len(way) - i - 1, search, way[i:])
                effort -= given - search.effort
            if shorter is None:
                state.consume_token(way[i])
                i += 1
            else:
                way = (*way[:i], *shorter)
        return self._keep(self._start, way)

    def _search(self, start: Any, most: int, search: _Search, near: Way | None = None) -> Way | None:
        """The first end of at most so many tokens."""
        if start.is_accepting():
            return (self._end,)
        level = [_Place((), b"", start, bytes(start.compute_bitmask()))]
        for depth in range(min(most, search.depth)):
            if near is not None and (way := self._join(level, most - depth, near)) is not None:
                return self._keep(start, way)
            if depth >= most - 1:
                break
            found: dict[bytes, dict[bytes, _Place]] = {}
            for place in level:
                kinds: dict[tuple[bytes, int], int] = {}
                for token in (tokens := self._tokens(place.mask, search)):
                    text = self._texts[token]
                    state = place.state.deep_copy()
                    state.consume_token(token)
                    if state.is_accepting():
                        return self._keep(start, (*place.way, token, self._end))
                    mask = bytes(state.compute_bitmask())
                    if not state.is_error():
                        kinds.setdefault((mask, len(text)), token)
                        alike = found.setdefault(mask, {})
                        alike.setdefault(place.text + text, place.behind(token, text, state, mask))
                search.effort -= len(tokens)
                if len(self._kinds) < REMEMBERED:
                    self._kinds.setdefault(place.mask, list(kinds.values()))
                if search.effort <= 0:
                    search.whole = False
                    return None
            level = search.places([search.some(list(alike.values())) for alike in found.values()])
            if not level:
                return None
        search.whole = False
        return None

    def _join(self, level: list[_Place], most: int, near: Way) -> Way | None:
        """A way that goes on from one of these places as another one does."""
        for place in level:
            if (rest := self.rest(place.state, place.mask, near, most)) is not None:
                return *place.way, *rest
        return None

    def _tokens(self, mask: bytes, search: _Search) -> list[int]:
        """Tokens to try where these may come: of each kind one, or all; of very many the shortest and the longest."""
        if search.merge and mask in self._kinds:
            search.whole = False
            return self._kinds[mask]
        may = unpack(mask, len(self._inner)) & self._inner
        if search.merge and (visible := may & self._visible).any():
            search.whole, may = False, visible
        allowed = np.flatnonzero(may)
        if len(allowed) > BRANCHES:
            search.whole = False
            order = allowed[np.argsort(self._lengths[allowed], kind="stable")]
            allowed = np.concatenate([order[: BRANCHES // 2], order[-BRANCHES // 2 :]])
        return list(map(int, allowed))

    def _keep(self, start: Any, way: Way) -> Way:
        """Remember a way from each place on it."""
        state = start.deep_copy()
        for i, token in enumerate(way[:-1]):
            mask = bytes(state.compute_bitmask())
            ways = self._known.get(mask, [])
            if way[i:] not in ways and (ways or len(self._known) < REMEMBERED):
                # A new list: other threads may be reading the old one.
                self._known[mask] = sorted([*ways, way[i:]], key=len)[:KEPT]
            state.consume_token(token)
        return way


@dataclass(slots=True)
class _Search:
    """effort: tokens that may still be tried. width: places of equally many tokens to go on with. depth: tokens of a
    way, or before it goes on as another. merge: leave out what seems alike. whole: whether all was seen.
    """

    effort: int
    width: int = WIDE
    depth: int = EFFORT
    merge: bool = True
    whole: bool = True

    def some(self, alike: list[_Place]) -> list[_Place]:
        """Of places where the same tokens may come, those to go on with."""
        each = self.width // 16 or 1
        if self.merge and len(alike) > 3 * each:
            self.whole = False
            by_length = sorted(alike, key=lambda place: len(place.text))
            far = sorted(alike, key=_far)[:each]
            straight = sorted(alike, key=_straight)[:each]
            chosen = [*far, *straight, *by_length[: (each + 1) // 2], *by_length[-(each // 2) :][: each // 2]]
            return list({place.text: place for place in chosen}.values())
        return alike

    def places(self, groups: list[list[_Place]]) -> list[_Place]:
        """Of groups of such places, those to go on with."""
        level = [place for group in groups for place in group]
        if len(level) > self.width:
            far = sorted(level, key=_far)[: self.width // 2]
            straight = sorted(level, key=_straight)[: self.width // 2]
            self.whole, level = False, list({id(place): place for place in (*far, *straight)}.values())
        return level


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a search is: tokens and text from its start, what may come next, what came before that, and in bits how
    much there was to choose from where the same had come before.
    """

    way: Way
    text: bytes
    state: Any
    mask: bytes
    seen: frozenset[bytes] = frozenset()
    repeats: float = 0.0

    def behind(self, token: int, text: bytes, state: Any, mask: bytes) -> _Place:
        """One token on."""
        seen = self.seen | {self.mask}
        bits = math.log2(_choices(mask) or 1) if mask in seen else 0.0
        return _Place((*self.way, token), self.text + text, state, mask, seen, self.repeats + bits)


def _far(place: _Place) -> tuple[float, float]:
    """Orders places: first those that came past the most different choices, and seldom to the same one."""
    return -len(place.seen), place.repeats


def _straight(place: _Place) -> tuple[float, float]:
    """Orders places: first those that seldom came to the same choice, and past the most different ones."""
    return place.repeats, -len(place.seen)


class Watch:
    """What keeps an end within reach of one completion.

    way: to the end, from where it stands; None if the search came to none. lost: tokens since no way was known.
    """

    def __init__(self, ways: Ways, state: Any, way: Way | None = None) -> None:
        self._ways, self._state, self._way, self._lost = ways, state, way, int(way is None)
        #: Ways behind tokens that masks have left.
        self._behind: dict[int, Way] = {}

    def copy(self) -> Self:
        other = type(self)(self._ways, self._state.deep_copy(), self._way)
        other._lost, other._behind = self._lost, self._behind
        return other

    def consume(self, tokens: Iterable[int]) -> None:
        """Go on by tokens. A way is followed, or found again, however far the limit is."""
        for token in tokens:
            self._state.consume_token(token)
            if (way := self._behind.get(token)) is not None:
                self._way, self._lost = way, 0
            elif not self._state.is_error():
                self._follow()
            self._behind = {}

    def way(self, most: int) -> Way | None:
        """A way to the end of at most so many tokens; None if none was found."""
        if self._lost:
            return None
        if self._way is None or len(self._way) > most:
            if (way := self._ways.find(self._state, most, self._way)) is None:
                return None
            self._way = way
        return self._way

    def keep(self, allowed: NDArray[np.bool_], left: int) -> NDArray[np.bool_]:
        """Of [vocab] allowed tokens, those behind which `left` − 1 more can end the text; at least one.

        All of them where no end is known.
        """
        if (way := self.way(left)) is None and left <= AHEAD:
            self._ways.tell()
        if way is None or left > len(way) + AHEAD:
            return allowed
        kept, behind = np.zeros_like(allowed), dict[int, Way]()
        here = bytes(self._state.compute_bitmask())
        for token in np.flatnonzero(allowed).tolist():
            if token in self._ways.ends:
                kept[token] = True
            elif (rest := self._rest(token, way, left - 1, here)) is not None:
                kept[token], behind[token] = True, rest
        if not kept.any():
            # The tokens that the tokenizer would take are too many: others spell it in time.
            kept[way[0]], behind[way[0]] = True, way[1:]
        # A new one: copies may be reading the old one.
        self._behind = behind
        return kept

    def _follow(self) -> None:
        """A way from one token on. It is searched for at once, and again behind 1, 3, 7 … tokens more."""
        ways, state, old = self._ways, self._state, self._way
        found: Way | None = None
        if old is not None:
            after = (old,) if self._lost else (old[1:], old)
            found = next((way for way in after if way and ways.closes(state, way)), None)
            found = found or ways.rest(state, bytes(state.compute_bitmask()), old, len(old) - 1)
        if found is None and not self._lost & (self._lost + 1):
            found = ways.find(state, EFFORT, old, LOST)
        self._way, self._lost = (old, self._lost + 1) if found is None else (found, 0)

    def _rest(self, token: int, way: Way, most: int, here: bytes) -> Way | None:
        """A way of at most so many tokens behind this one. here: what may come in its place."""
        for rest in (way, way[1:]):
            if rest and len(rest) <= most and self._ways.closes(self._state, (token, *rest)):
                return rest
        state = self._state.deep_copy()
        state.consume_token(token)
        return self._ways.behind(state, most, (here, way, self._ways.length(token)))


def _choices(mask: bytes) -> int:
    """How many tokens may come."""
    return int.from_bytes(mask, "little").bit_count()


def unpack(bits: bytes, size: int) -> NDArray[np.bool_]:
    """[vocab] of a mask in bits."""
    return np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")[:size].astype(np.bool_)
