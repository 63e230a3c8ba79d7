"""Phrases that must occur: as token ids, whether a text has room for them, and how much of them a prefix holds."""

from __future__ import annotations

from collections import abc
from collections.abc import Callable, Iterable

from metagen.errors import InputError
from metagen.generators.decoding.search import ConstrainedBeamSearch
from metagen.generators.decoding.words import spell

#: Tokens of each phrase that a prefix ends with, or all of them once it has held the phrase.
Progress = tuple[int, ...]


class Phrases:
    """Phrases of token ids, each followed by its own automaton (Knuth, Morris and Pratt), so that they may overlap."""

    def __init__(self, phrases: abc.Sequence[tuple[int, ...]]) -> None:
        self._phrases = tuple(phrases)
        self._falls = [_falls(phrase) for phrase in phrases]
        #: What the end of one phrase is of the beginning of another, and which phrases each phrase holds.
        self._shared = [[_overlap(a, b) for b in phrases] for a in phrases]
        self._holds = [frozenset(j for j, b in enumerate(phrases) if _within(b, a)) for a in phrases]
        self._behind: dict[tuple[int, frozenset[int]], int] = {}

    def start(self, before: Iterable[int] = ()) -> Progress:
        """Behind the tokens of a completion so far."""
        progress: Progress = (0,) * len(self._phrases)
        for token in before:
            progress = self.after(progress, token)
        return progress

    def after(self, progress: Progress, token: int) -> Progress:
        """One token on."""
        return tuple(
            self._step(i, at, token) if at < len(self._phrases[i]) else at for i, at in enumerate(progress)
        )

    def following(self, progress: Progress) -> list[int]:
        """The tokens that lead on in a phrase that is not held yet."""
        ahead = [p[at] for p, at in zip(self._phrases, progress, strict=True) if at < len(p)]
        return list(dict.fromkeys(ahead))

    def fewest_tokens(self, progress: Progress) -> int:
        """The fewest tokens after which all phrases are held, where phrases may overlap."""
        left = frozenset(i for i, at in enumerate(progress) if at < len(self._phrases[i]))
        return min((len(self._phrases[i]) - progress[i] + self._after(i, left) for i in left), default=0)

    @property
    def size(self) -> int:
        """Tokens of all phrases."""
        return sum(map(len, self._phrases))

    def _after(self, last: int, left: frozenset[int]) -> int:
        """The fewest tokens that write the phrases `left` behind phrase `last`, in whatever order."""
        if not (left := left - self._holds[last]):
            return 0
        if (known := self._behind.get((last, left))) is None:
            known = self._behind[last, left] = min(
                len(self._phrases[i]) - self._shared[last][i] + self._after(i, left) for i in left
            )
        return known

    def _step(self, i: int, at: int, token: int) -> int:
        phrase, falls = self._phrases[i], self._falls[i]
        while at and phrase[at] != token:
            at = falls[at - 1]
        return at + (phrase[at] == token)


def phrase_ids(
    spec: ConstrainedBeamSearch,
    encode: Callable[[str], abc.Sequence[int]],
    decode: Callable[[list[int]], str],
    size: int,
) -> list[tuple[int, ...]]:
    """The phrases as token ids. encode, decode: ids of a text, and back. size: of the vocabulary.

    Raises InputError for texts that its tokens cannot write, and for ids that it does not have.
    """
    phrases: list[tuple[int, ...]] = []
    for phrase in spec.phrases:
        ids = spell(phrase, encode, decode, size) if isinstance(phrase, str) else phrase
        if ids is None:
            raise InputError(
                f"constrained_beam search: the tokens cannot write the phrase {phrase!r}; leave it out, or give ids"
            )
        if not all(0 <= i < size for i in ids):
            raise InputError(
                f"constrained_beam search: phrase {phrase!r}: the model's ids are 0 … {size - 1}; give ids of "
                "its own, or a text"
            )
        phrases.append(ids)
    return phrases


def check_room(spec: ConstrainedBeamSearch, needed: int, limit: int) -> None:
    """InputError for phrases that need more tokens than a text may still have."""
    if needed > limit:
        raise InputError(
            f"constrained_beam search: phrases={spec.phrases!r:.200} need {needed} tokens, and {limit} are left of "
            f"max_tokens; raise it by {needed - limit}, or leave phrases out"
        )


def _falls(phrase: tuple[int, ...]) -> list[int]:
    """For each beginning of a phrase, how much of the phrase its own end is."""
    falls, at = [0], 0
    for token in phrase[1:]:
        while at and phrase[at] != token:
            at = falls[at - 1]
        at += phrase[at] == token
        falls.append(at)
    return falls


def _overlap(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """How many tokens at the end of `a` are the beginning of `b`, not all of either."""
    return next((n for n in range(min(len(a), len(b)) - 1, 0, -1) if a[-n:] == b[:n]), 0)


def _within(b: tuple[int, ...], a: tuple[int, ...]) -> bool:
    return any(a[i : i + len(b)] == b for i in range(len(a) - len(b) + 1))
