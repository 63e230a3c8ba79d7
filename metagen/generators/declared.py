"""What an engine can do beyond plain sampling, told by its options: for the engine itself, and for a dry run.

A class of engines has its declaration as `declares`, which is called with the model's tokenizer, or None where that is
not here, and then with the options of the engine by their names. It opens no connection and loads no model.
"""

from __future__ import annotations

from functools import cached_property
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from metagen.errors import InputError, UnsupportedError
from metagen.generators.decoding.draft import Draft
from metagen.generators.decoding.parameters import BEYOND, SamplingParams
from metagen.generators.decoding.phrases import Phrases, check_room, phrase_ids
from metagen.generators.decoding.search import ConstrainedBeamSearch, SearchSpec
from metagen.generators.decoding.words import Words

if TYPE_CHECKING:
    from metagen.generators.decoding.constraint import Constraints
    from metagen.generators.tokenizer import Tokenizer

#: Rows of a torch engine that decode at once, unless said.
ROWS: Final = 256


class Declared(Protocol):
    """Of an engine with given options."""

    @property
    def supports(self) -> frozenset[str]:
        """As `Engine.supports`."""
        ...

    def check(self, params: SamplingParams) -> None:
        """Raises InputError, or UnsupportedError, for what the engine refuses of them whatever the prompt."""
        ...


def refuse_together(params: SamplingParams, who: str) -> None:
    """UnsupportedError for min_p with top_p, which vLLM and servers apply in the other order. who: `vLLM cuts`."""
    if params.min_p and params.top_p != 1:
        raise UnsupportedError(
            f"min_p={params.min_p!r} with top_p={params.top_p!r}: {who} by min_p first, which makes another "
            "distribution; leave one of them out, or use TorchEngine"
        )


class TorchDeclared:
    """Of TorchEngine: all there is. With a draft there is no mirostat, whose cut follows each token that is drawn."""

    def __init__(
        self,
        tokenizer: Tokenizer | None = None,
        /,
        *,
        draft: Draft | None = None,
        max_batch: int = ROWS,
        **others: Any,
    ) -> None:
        self._tokenizer, self._max_batch = tokenizer, max_batch
        self.supports = BEYOND if draft is None else BEYOND - {"mirostat"}
        self._constraints: Constraints | None = None
        self._lock = Lock()

    def check(self, params: SamplingParams) -> None:
        """InputError for what no prompt would make good: words, phrases and grammars that the model's tokens cannot
        write or max_tokens cuts, and a search that is too wide.
        """
        if self._tokenizer is not None:
            self._check_words(params, self._tokenizer)
        if params.search is not None:
            self.check_rows(params.search)

    def _check_words(self, params: SamplingParams, tokenizer: Tokenizer) -> None:
        encode, decode, size = tokenizer.encode, tokenizer.decode, tokenizer.vocab_size
        if params.search is not None:
            params.search.check(1, size)
            if isinstance(params.search, ConstrainedBeamSearch):
                phrases = Phrases(phrase_ids(params.search, encode, decode, size))
                check_room(params.search, phrases.fewest_tokens(phrases.start()), params.max_tokens)
        Words.of(params, encode, decode, size, tokenizer.eos)
        if params.grammar is not None:
            self.constraints().matcher(params.grammar, (), params.max_tokens)

    def check_rows(self, spec: SearchSpec) -> None:
        """InputError for a search that takes more rows than there are."""
        if spec.rows > self._max_batch:
            raise InputError(
                f"a {spec.kind} search takes {spec.rows} rows, and the engine has max_batch={self._max_batch}; "
                "raise it, or search less widely"
            )

    def constraints(self) -> Constraints:
        """Grammars over the tokenizer's vocabulary."""
        with self._lock:
            if self._constraints is None:
                assert self._tokenizer is not None
                self._constraints = self._tokenizer.constraints()
            return self._constraints


def refuse_masked(params: SamplingParams) -> None:
    """UnsupportedError for log-probabilities under a grammar, which vLLM tells behind the grammar's mask."""
    if params.grammar is not None and (params.logprobs or params.top_logprobs):
        raise UnsupportedError(
            f"{'logprobs' if params.logprobs else 'top_logprobs'} with a grammar: vLLM tells those behind the "
            "grammar's mask, not the model's; leave one of them out, or use TorchEngine"
        )


class VLLMDeclared:
    """Of VLLMEngine: some adapters; `grammar` too, if the tokens are bytes, as vLLM matches grammars over no others."""

    #: Adapters that vLLM has under the same meaning and name, wherever a sample is gone on with.
    adapters: ClassVar[frozenset[str]] = frozenset({"min_p", "repetition_penalty", "logit_bias"})
    #: What vLLM takes for a temperature, besides 0.
    temperatures: ClassVar[tuple[float, float]] = (0.01, 2.0)

    def __init__(self, tokenizer: Tokenizer | None = None, /, **others: Any) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def supports(self) -> frozenset[str]:
        # Nobody knows without the library that tells, which vLLM brings.
        tokens = self._tokenizer if find_spec("llguidance") is not None else None
        held = {"grammar"} if tokens is None or tokens.writes_bytes else set[str]()
        return frozenset({"top_logprobs", *held, *self.adapters})

    def check(self, params: SamplingParams) -> None:
        """InputError for a temperature that vLLM would change, and for words that the tokens cannot write;
        UnsupportedError for adapters that vLLM has not, and for top_p with min_p.
        """
        low, high = self.temperatures
        temperature = params.temperature
        if temperature and not low <= temperature <= high:
            raise InputError(
                f"temperature={temperature!r}: vLLM takes 0 (greedy), or {low} to {high}; choose one of these"
            )
        if lacking := [name for name in params.on if name not in self.adapters]:
            raise UnsupportedError(
                f"{lacking[0]}={getattr(params, lacking[0])!r}: vLLM has this in another meaning, or not at all; "
                "leave it out, or use TorchEngine"
            )
        refuse_together(params, "vLLM cuts")
        refuse_masked(params)
        if (tokens := self._tokenizer) is not None:
            Words.of(params, tokens.encode, tokens.decode, tokens.vocab_size, tokens.eos)
