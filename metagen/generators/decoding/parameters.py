"""What a vocabulary refuses of sampling parameters, whatever the prompt: told before there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from metagen.generators.decoding.phrases import Phrases, check_room, phrase_ids
from metagen.generators.decoding.search import ConstrainedBeamSearch
from metagen.generators.decoding.words import Words
from metagen.generators.engine import SamplingParams

if TYPE_CHECKING:
    from metagen.generators.decoding.constraint import Constraints
    from metagen.generators.tokenizer import Tokenizer


def check_parameters(
    params: SamplingParams, tokenizer: Tokenizer, constraints: Callable[[], Constraints]
) -> None:
    """constraints: grammars over the tokenizer's vocabulary; they are asked for only where there is a grammar.

    Raises InputError for a search that is wider than the vocabulary, for phrases that do not fit into max_tokens, for
    words and ids that the tokens cannot write, and for a grammar that is none, or of which they can write no text.
    """
    encode, decode, size = tokenizer.encode, tokenizer.decode, tokenizer.vocab_size
    if params.search is not None:
        params.search.check(1, size)
        if isinstance(params.search, ConstrainedBeamSearch):
            phrases = Phrases(phrase_ids(params.search, encode, decode, size))
            check_room(params.search, phrases.needed(phrases.start()), params.max_tokens)
    Words.of(params, encode, decode, size, tokenizer.eos)
    if params.grammar is not None:
        constraints().matcher(params.grammar, (), params.max_tokens)
