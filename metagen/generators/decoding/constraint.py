"""Which tokens a grammar allows next, by llguidance."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import OrderedDict, abc
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from metagen.errors import EngineError, InputError, UnsupportedError, install
from metagen.generators.decoding.closing import Watch, Ways, unpack
from metagen.generators.decoding.grammar import Grammar

#: Grammars that stay compiled.
COMPILED = 64
#: Tokens tried, when a grammar is compiled, before it passes for one that has texts.
TRIED = 256
#: Tokens of the longest text that an error message looks for.
LONGEST = 4_096

Mask = NDArray[np.bool_]


class Held(ABC):
    """What a completion is held to, and where it stands in it.

    left: tokens that may still come, the end token among them, for a grammar that closes; None: no end is in sight.
    size: of the vocabulary.
    """

    size: int

    @property
    def free(self) -> bool:
        """Whether it allows all that may come from here on."""
        return False

    @abstractmethod
    def copy(self) -> Self: ...

    @abstractmethod
    def consume(self, tokens: Iterable[int]) -> bool:
        """Go on by tokens; False where they lead out, or beyond what can be matched."""

    @abstractmethod
    def allowed_tokens(self, left: int | None = None) -> Mask:
        """[vocab]: which tokens may come next. EngineError where that cannot be told any more."""

    def forced_tokens(self, left: int | None = None, most: int = 64) -> list[int]:
        """The tokens that must come next, at most `most`: `allowed_tokens` leaves no other. Never an end token."""
        found: list[int] = []
        at = self
        while (
            len(found) < most
            and not at.free
            and (token := at._only(None if left is None else left - len(found))) is not None
        ):
            if at is self:
                at = self.copy()
            at.consume([token])
            found.append(token)
        return found

    def accepts(self, tokens: abc.Sequence[int], left: int | None = None) -> int:
        """How many of these tokens `allowed_tokens` leaves, one after another."""
        at, count = self.copy(), 0
        for token in tokens:
            if not at.allowed_tokens(None if left is None else left - count)[token]:
                break
            at.consume([token])
            count += 1
        return count

    def _only(self, left: int | None) -> int | None:
        """The only token that may come next; None if there are others, or if it ends the text."""
        (some,) = np.nonzero(self.allowed_tokens(left))
        return int(some[0]) if len(some) == 1 else None


class Matcher(Held):
    """Where one completion stands in a grammar."""

    def __init__(self, matcher: Any, size: int, ends: frozenset[int], watch: Watch | None = None) -> None:
        self._matcher, self.size, self._ends, self._watch = matcher, size, ends, watch
        self._bits: bytes | None = None

    def copy(self) -> Self:
        watch = self._watch.copy() if self._watch is not None else None
        other = type(self)(self._matcher.deep_copy(), self.size, self._ends, watch)
        other._bits = self._bits
        return other

    def consume(self, tokens: Iterable[int]) -> bool:
        """Go on by tokens; False where they lead out of the grammar, or beyond what can be matched."""
        ids = list(tokens)
        ends = bool(ids) and ids[-1] in self._ends
        if ends:
            ids.pop()
        self._bits = None
        if self._watch is not None:
            self._watch.consume(ids)
        # Where nothing but the end can follow the library has stopped by itself, and takes no end.
        return bool(self._matcher.consume_tokens(ids)) and (not ends or bool(self._matcher.is_accepting()))

    def allowed_tokens(self, left: int | None = None) -> Mask:
        """[vocab]: which tokens may come next; the end token where the text may end."""
        mask = unpack(self._mask(), self.size)
        return mask if self._watch is None or left is None else self._watch.keep(mask, left)

    def way(self, left: int) -> int | None:
        """Tokens up to an end that is at most so many away; None if there is none, or the grammar does not close."""
        way = None if self._watch is None else self._watch.way(left)
        return None if way is None else len(way)

    def _mask(self) -> bytes:
        if self._bits is None:
            bits = bytes(self._matcher.compute_bitmask())
            if self._matcher.is_error():
                reason = self._matcher.get_error().split("\n")[0]
                raise EngineError(f"a grammar cannot be matched any further ({reason:.200}); simplify it")
            self._bits = bits
        return self._bits

    def _only(self, left: int | None) -> int | None:
        if self._watch is None or left is None:
            bits = int.from_bytes(self._mask(), "little")
            token = bits.bit_length() - 1 if bits.bit_count() == 1 else None
        else:
            token = super()._only(left)
        return None if token in self._ends else token


def masks(held: abc.Sequence[Held], left: abc.Sequence[int | None]) -> tuple[Mask, dict[int, EngineError]]:
    """[K, vocab] of what each allows, and the errors of those that cannot tell, by their place: these allow all."""
    rows: list[Mask] = []
    lost: dict[int, EngineError] = {}
    for i, (one, most) in enumerate(zip(held, left, strict=True)):
        try:
            rows.append(one.allowed_tokens(most))
        except EngineError as error:
            lost[i] = error
            rows.append(np.ones(one.size, np.bool_))
    return np.stack(rows), lost


class Constraints:
    """Grammars over one vocabulary."""

    def __init__(self, tokenizer: Any, size: int) -> None:
        self._tokenizer, self._size = tokenizer, size
        self._ends = tuple(dict.fromkeys(int(i) for i in tokenizer.eos_tokens))
        self._compiled: OrderedDict[Grammar, Matcher] = OrderedDict()
        self._texts: list[bytes] | None = None
        self._lock = Lock()

    @classmethod
    def of_tokens(
        cls,
        tokens: abc.Sequence[bytes],
        *,
        special: Iterable[int],
        eos: Iterable[int],
        encode: Callable[[str], abc.Sequence[int]],
    ) -> Self:
        """tokens: the bytes of each. special: those that stand for no text. eos: those that end a completion.

        Raises UnsupportedError without llguidance, or without an end token.
        """
        ends = _some(eos)
        vocabulary = _Vocabulary(list(tokens), sorted(special), ends[0], encode)
        library = _library()
        wrapped = library.TokenizerWrapper(vocabulary)
        return cls(library.LLTokenizer(wrapped, n_vocab=len(tokens), eos_token=ends, slices=[]), len(tokens))

    @classmethod
    def of_json(cls, source: str, size: int, *, eos: Iterable[int]) -> Self:
        """source: a tokenizer.json whose tokens are bytes, as those of most models. ValueError for another kind."""
        return cls(_library().LLTokenizer(source, n_vocab=size, eos_token=_some(eos)), size)

    @property
    def texts(self) -> list[bytes]:
        """The bytes of each token; none of those that stand for no text."""
        if self._texts is None:
            ll = self._tokenizer
            silent = ll.is_special_token
            self._texts = [b"" if silent(i) else bytes(ll.decode_bytes([i])) for i in range(self._size)]
        return self._texts

    def matcher(self, grammar: Grammar, before: abc.Sequence[int] = (), left: int | None = None) -> Matcher:
        """Where a completion stands that begins with the tokens `before` and may have `left` more.

        Raises InputError for a grammar that is none, that the vocabulary cannot write, that `before` is not in, or that
        closes and cannot within `left`.
        """
        with self._lock:
            if (known := self._compiled.get(grammar)) is None:
                known = self._compiled[grammar] = self._compile(grammar)
                if len(self._compiled) > COMPILED:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(grammar)
            matcher = known.copy()
        if before and not matcher.consume(before):
            raise InputError(
                f"the prefix does not begin a text of the grammar {grammar.source!r:.80}; "
                "continue a prefix that was written under it, or start from the prompt"
            )
        if grammar.close and left is not None and matcher.way(left) is None:
            raise self._endless(grammar, matcher.way(LONGEST), left)
        return matcher

    def _compile(self, grammar: Grammar) -> Matcher:
        source = self._source(grammar)
        matcher = self._make(grammar, source if grammar.canonical else _all_spellings(source))
        watch = None
        ways = Ways(matcher, self._ends, self.texts)
        if ways.hopeless(TRIED):
            raise InputError(
                f"{grammar.kind} grammar {grammar.source!r:.80}: this model's tokens cannot write what it begins with, "
                "or no text of it to its end; take another model, or texts of the characters that it knows"
            )
        if grammar.close:
            free = self._make(grammar, _all_spellings(source)) if grammar.canonical else matcher
            ways = Ways(free, self._ends, self.texts, dense=grammar.kind == "json_schema")
            watch = Watch(ways, free.deep_copy(), ways.shortest())
        return Matcher(matcher, self._size, frozenset(self._ends), watch)

    def _endless(self, grammar: Grammar, least: int | None, left: int) -> InputError:
        """least: tokens of the shortest end that was found, if one was."""
        place = f"{grammar.kind} grammar {grammar.source!r:.80} with close=True"
        if least is None:
            free = grammar.kind == "json_schema" and '"whitespace_flexible": false' not in grammar.source
            other = "set compact white space (compact=True)" if free else "simplify it"
            return InputError(f"{place}: no end was found in a bounded search; leave close off, or {other}")
        return InputError(
            f"{place}: no end within max_tokens, of which {left} are left: the shortest that was found has {least}, "
            "the end token included; raise max_tokens, or leave close off"
        )

    def _source(self, grammar: Grammar) -> str:
        """The grammar as the library holds it."""
        try:
            return str(getattr(_library().LLMatcher, f"grammar_from_{grammar.kind}")(grammar.source))
        except ValueError as error:
            raise InputError(f"{grammar.kind} grammar {grammar.source!r:.80}: {error}") from error

    def _make(self, grammar: Grammar, source: str) -> Any:
        """A matcher of the library."""
        matcher = _library().LLMatcher(self._tokenizer, source, log_level=0)
        if matcher.is_error():
            reason = " ".join(matcher.get_error().partition("<backtrace>")[0].split())
            raise InputError(f"{grammar.kind} grammar {grammar.source!r:.80}: {reason:.300}")
        return matcher


class _Vocabulary:
    """What llguidance asks of a tokenizer."""

    def __init__(
        self, tokens: list[bytes], special: list[int], eos: int, encode: Callable[[str], abc.Sequence[int]]
    ) -> None:
        self.tokens, self.special_token_ids, self.eos_token_id = tokens, special, eos
        self.bos_token_id = None
        self._encode, self._special = encode, frozenset(special)
        self._ids = {text: i for i, text in enumerate(tokens) if text and i not in self._special}
        self._longest = max(map(len, self._ids), default=0)

    def __call__(self, text: str) -> list[int]:
        """Ids that spell a text, and no special ones; ValueError where none do."""
        ids, wanted = list(self._encode(text)), text.encode()
        if not self._special.isdisjoint(ids) or b"".join(self.tokens[i] for i in ids) != wanted:
            ids = longest(wanted, self._ids, self._longest)
            if b"".join(self.tokens[i] for i in ids) != wanted:
                raise ValueError(f"no tokens spell {text!r}")
        return ids


def longest(text: bytes, ids: Mapping[bytes, int], most: int) -> list[int]:
    """Tokens of a text, always the longest that fits, up to where none does. most: bytes of the longest of all."""
    found: list[int] = []
    at = 0
    while at < len(text):
        size = next((n for n in range(min(most, len(text) - at), 0, -1) if text[at : at + n] in ids), 0)
        if not size:
            break
        found.append(ids[text[at : at + size]])
        at += size
    return found


def _all_spellings(source: str) -> str:
    """A grammar whose forced bytes may be spelled by any tokens."""
    inner = json.loads(source)["grammars"][0] if source.lstrip().startswith("{") else {"lark_grammar": source}
    inner = {key: value for key, value in inner.items() if value is not None} | {"name": "text"}
    outer = {"lark_grammar": '%llguidance {"no_forcing": true}\nstart: @text'}
    return json.dumps({"grammars": [outer, inner]})


def _some(eos: Iterable[int]) -> list[int]:
    ends = sorted(eos)
    if not ends:
        raise UnsupportedError("a grammar needs an end token, and this model has none")
    return ends


def _library() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise UnsupportedError(
            f"grammars need llguidance, which cannot be imported ({error}); {install('grammar')}"
        ) from error
    return llguidance
