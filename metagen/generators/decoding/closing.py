"""The shortest way from somewhere in a grammar to the end of a text, by tokens, and masks that keep one open."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

#: Masks keep an end within reach as soon as the tokens left are this many more than the shortest way to it, and four
#: times as many at most. A single token that makes the way longer by more may leave no time to end.
AHEAD = 128
#: What one search tries at most: tokens behind each state, states of equally many tokens, tokens in all: from the
#: beginning of a text, and on the way.
BRANCHES, WIDTH, EFFORT, QUICK = 512, 64, 20_000, 1_000
#: Of places that look alike, how many are kept for each of their virtues.
EACH = 4
#: Masks whose ways are kept, and ways for each.
REMEMBERED, KEPT = 4096, 8

#: Tokens up to the end of a text, the one that ends it included.
Way = tuple[int, ...]


class Ways:
    """Ways to the end of one grammar's texts. States are llguidance's matchers, over all tokens that spell a text.

    start: the beginning of a text. ends: ids that end it. texts: the bytes of each token.

    A search goes breadth-first. Equal texts are one place. Of many texts, of equally many tokens, behind which the same
    tokens may come it goes on with some: those that came past the most different choices, those that came to the same
    one least often, the shortest and the longest. Of the tokens behind them it tries one of each kind that it has seen
    there before. So what it finds is a way, and the shortest one unless what may come next hides what may come later.
    """

    def __init__(self, start: Any, ends: Ordered[int], texts: Ordered[bytes]) -> None:
        self._start, self.ends, self._texts = start, frozenset(ends), texts
        self._end = ends[0]
        self._inner = np.ones(len(texts), np.bool_)
        self._inner[list(ends)] = False
        self._lengths = np.array([len(text) for text in texts])
        self._known: dict[bytes, list[Way]] = {}
        #: So many tokens do not end what was come to in this way.
        self._none: dict[tuple[bytes, Way, int, bytes], int] = {}
        #: By what may come next: tokens that differ in their length, or in what may come behind them.
        self._kinds: dict[bytes, list[int]] = {}

    def shortest(self) -> Way | None:
        """The whole of the shortest text, and what ends it; None if the search came to none."""
        return self._search(self._start, EFFORT, _Search(EFFORT))

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

    def find(self, state: Any, most: int) -> Way | None:
        """A way of at most so many tokens; None if none was found."""
        if most < 1:
            return None
        for way in self._known.get(bytes(state.compute_bitmask()), ()):
            if len(way) <= most and self.closes(state, way):
                return way
        return self._search(state, most, _Search(QUICK))

    def leads(self, state: Any, most: int, origin: tuple[bytes, Way, int]) -> bool:
        """Whether at most so many tokens lead from a state to an end.

        origin: what is known of how it was come to. Where that and what may come next are the same, what could not be
        ended is taken for what cannot.
        """
        kind = (*origin, bytes(state.compute_bitmask()))
        if most <= self._none.get(kind, 0):
            return False
        if self.find(state, most) is not None:
            return True
        if len(self._none) < REMEMBERED:
            self._none[kind] = most
        return False

    def _search(self, start: Any, most: int, search: _Search) -> Way | None:
        """The first end of at most so many tokens."""
        if start.is_accepting():
            return (self._end,)
        level = [_Place((), b"", start, bytes(start.compute_bitmask()))]
        for _ in range(most - 1):
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
            level = [place for alike in found.values() for place in search.some(list(alike.values()))]
            if len(level) > WIDTH:
                search.whole, level = False, sorted(level, key=_far)[:WIDTH]
            if not level:
                return None
        search.whole = False
        return None

    def _tokens(self, mask: bytes, search: _Search) -> list[int]:
        """Tokens to try where these may come: of each kind one, or all; of very many the shortest and the longest."""
        if search.merge and mask in self._kinds:
            search.whole = False
            return self._kinds[mask]
        allowed = np.flatnonzero(unpacked(mask, len(self._inner)) & self._inner)
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
            if way[i:] not in ways and len(ways) < KEPT and (ways or len(self._known) < REMEMBERED):
                # A new list: other threads may be reading the old one.
                self._known[mask] = sorted([*ways, way[i:]], key=len)
            state.consume_token(token)
        return way


@dataclass(slots=True)
class _Search:
    """effort: tokens that may still be tried. merge: leave out what seems alike. whole: whether all was seen."""

    effort: int
    merge: bool = True
    whole: bool = True

    def some(self, alike: list[_Place]) -> list[_Place]:
        """Of places where the same tokens may come, those to go on with."""
        if self.merge and len(alike) > 3 * EACH:
            self.whole = False
            by_length = sorted(alike, key=lambda place: len(place.text))
            far = sorted(alike, key=_far)[:EACH]
            straight = sorted(alike, key=lambda place: (place.repeats, -len(place.seen)))[:EACH]
            chosen = [*far, *straight, *by_length[: EACH // 2], *by_length[-EACH // 2 :]]
            return list({place.text: place for place in chosen}.values())
        return alike


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a search is: tokens and text from its start, what may come next, and how often that came before."""

    way: Way
    text: bytes
    state: Any
    mask: bytes
    seen: frozenset[bytes] = frozenset()
    repeats: int = 0

    def behind(self, token: int, text: bytes, state: Any, mask: bytes) -> _Place:
        """One token on."""
        seen = self.seen | {self.mask}
        return _Place((*self.way, token), self.text + text, state, mask, seen, self.repeats + (mask in seen))


def _far(place: _Place) -> tuple[int, int]:
    """Orders places: first those that came past the most different choices, and seldom to the same one."""
    return -len(place.seen), place.repeats


class Watch:
    """What keeps an end within reach of one completion."""

    def __init__(self, ways: Ways, state: Any, way: Way | None = None) -> None:
        self._ways, self._state, self._way = ways, state, way

    def copy(self) -> Self:
        return type(self)(self._ways, self._state.deep_copy(), self._way)

    def consume(self, tokens: Iterable[int]) -> None:
        for token in tokens:
            self._state.consume_token(token)
            if self._way is not None:
                after = self._way[1:], self._way
                self._way = next((w for w in after if w and self._ways.closes(self._state, w)), None)

    def way(self, most: int) -> Way | None:
        """A way to the end of at most so many tokens; None if none was found."""
        if self._way is None or len(self._way) > most:
            self._way = self._ways.find(self._state, most)
        return self._way

    def keep(self, allowed: NDArray[np.bool_], left: int) -> NDArray[np.bool_]:
        """Of [vocab] allowed tokens, those behind which `left` − 1 more can end the text; at least one.

        All of them where nothing can end it any more.
        """
        if left > 4 * AHEAD or (way := self.way(left)) is None or left > len(way) + AHEAD:
            return allowed
        kept = np.zeros_like(allowed)
        here = bytes(self._state.compute_bitmask())
        for token in np.flatnonzero(allowed).tolist():
            kept[token] = token in self._ways.ends or self._open(token, way, left - 1, here)
        if not kept.any():
            # The tokens that the tokenizer would take are too many: others spell it in time.
            kept[way[0]] = True
        return kept

    def _open(self, token: int, way: Way, most: int, here: bytes) -> bool:
        """Whether `most` tokens can end the text behind this one. here: what may come in its place."""
        for rest in (way, way[1:]):
            if rest and len(rest) <= most and self._ways.closes(self._state, (token, *rest)):
                return True
        state = self._state.deep_copy()
        state.consume_token(token)
        return self._ways.leads(state, most, (here, way, self._ways.length(token)))


def unpacked(bits: bytes, size: int) -> NDArray[np.bool_]:
    """[vocab] of a mask in bits."""
    return np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")[:size].astype(np.bool_)
