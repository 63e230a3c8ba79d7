"""Which tokens a grammar allows next, by llguidance."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Ordered
from threading import Lock
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from metagen.errors import EngineError, InputError, UnsupportedError
from metagen.generators.grammar import Grammar

#: Grammars that stay compiled.
COMPILED = 64


class Matcher:
    """Where one completion stands in a grammar."""

    def __init__(self, matcher: Any, size: int) -> None:
        self._matcher, self._size = matcher, size

    def copy(self) -> Self:
        return type(self)(self._matcher.deep_copy(), self._size)

    def consume(self, tokens: Iterable[int]) -> bool:
        """Go on by tokens; False where they lead out of the grammar, or beyond what can be matched."""
        return bool(self._matcher.consume_tokens(list(tokens)))

    def allowed(self) -> NDArray[np.bool_]:
        """[vocab]: which tokens may come next; the end token where the text may end."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            reason = self._matcher.get_error().split("\n")[0]
            raise EngineError(f"a grammar cannot be matched any further ({reason}); simplify it")
        return np.unpackbits(bits, bitorder="little")[: self._size].astype(np.bool_)


class Constraints:
    """Grammars over one vocabulary."""

    def __init__(self, tokenizer: Any, size: int) -> None:
        self._tokenizer, self._size = tokenizer, size
        self._compiled: OrderedDict[Grammar, Matcher] = OrderedDict()
        self._lock = Lock()

    @classmethod
    def of_tokens(
        cls,
        tokens: Ordered[bytes],
        *,
        special: Iterable[int],
        eos: Iterable[int],
        encode: Callable[[str], Ordered[int]],
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

    def matcher(self, grammar: Grammar, before: Ordered[int] = ()) -> Matcher:
        """Where a completion stands that begins with the tokens `before`.

        Raises InputError for a grammar that is none, that the vocabulary cannot write, or that `before` is not in.
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
        return matcher

    def _compile(self, grammar: Grammar) -> Matcher:
        make = _library().LLMatcher
        try:
            source = getattr(make, f"grammar_from_{grammar.kind}")(grammar.source)
        except ValueError as error:
            raise InputError(f"{grammar.kind} grammar {grammar.source!r:.80}: {error}") from error
        matcher = make(self._tokenizer, source, log_level=0)
        if matcher.is_error():
            reason = " ".join(matcher.get_error().split())
            raise InputError(f"{grammar.kind} grammar {grammar.source!r:.80}: {reason:.300}")
        compiled = Matcher(matcher, self._size)
        try:
            writable = bool(compiled.copy().allowed().any())
        except EngineError:
            writable = False
        if not writable:
            raise InputError(
                f"{grammar.kind} grammar {grammar.source!r:.80}: this model's tokens cannot write what it begins with; "
                "take another model, or texts of the characters that it knows"
            )
        return compiled


class _Vocabulary:
    """What llguidance asks of a tokenizer."""

    def __init__(
        self, tokens: list[bytes], special: list[int], eos: int, encode: Callable[[str], Ordered[int]]
    ) -> None:
        self.tokens, self.special_token_ids, self.eos_token_id = tokens, special, eos
        self.bos_token_id = None
        self._encode = encode

    def __call__(self, text: str) -> list[int]:
        return list(self._encode(text))


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
            f"grammars need llguidance, which cannot be imported ({error}); pip install 'metagen[grammar]'"
        ) from error
    return llguidance
