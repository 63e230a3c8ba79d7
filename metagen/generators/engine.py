"""The Engine protocol: what runs a model, and the two requests that it answers.

*Generate* samples continuations of one prefix; *Evaluate* reads a model at given positions: log-probabilities,
or the outputs of a head that scores (reward models, likelihoods, speculation). Engines never hear of
strategies, scopes or budgets: seeds and limits come with the request, accounting comes with the answer.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from metagen.attempts import UNTOLD, Attempt
from metagen.border import checked, one_each, promises
from metagen.cost import ModelShape
from metagen.errors import InputError
from metagen.generators.decoding.adapters import (
    ADAPTERS,
    MOST,
    XTC,
    Ban,
    Bias,
    Dry,
    Mirostat,
    SequenceBias,
    check_adapters,
    count,
    in_order,
)
from metagen.generators.decoding.adapters import real as _real
from metagen.generators.decoding.adapters import whole as _whole
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.presets import preset
from metagen.generators.decoding.search import SearchSpec, StochasticBeamSearch
from metagen.sequence import Finish, Sequence, Thought, Until

#: Tokens of prompts that were computed for a sample, that were read from a cache, and both together, None if unknown;
#: and tokens that were generated for it and others it was asked for with, None where each sample knows its own.
Share = tuple[int | None, int | None, int | None, int | None]
#: A server's chat API, by which it reads messages, and makes a text the user's turn.
CHAT_API: Final = "api"
#: Parameters that came later: they are no part of a fingerprint while they are off.
_LATER = (*ADAPTERS, "grammar", "top_logprobs", "search", "healing", "log_mass", "thought_end")
#: Parameters that cut tokens off, by what is left of the distribution before them.
_CUTS = (
    "top_n_sigma", "top_h", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "xtc", "mirostat",
)  # fmt: skip


@checked
@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a generator decodes. They belong to the generator: other parameters, another generator.

    temperature: 0 is greedy, exactly. top_k: 0 is off. top_p: 1 is off.
    max_tokens: of the whole completion, counted from the prompt, ancestors included.
    stop: texts that end the completion; the text is cut before the stop text.
    stop_token_ids: ids that end it, besides the model's end-of-sequence tokens.
    ignore_eos: go on after end-of-sequence tokens (for measurements).
    logprobs: keep the log-probability of each token.
    grammar: texts that the completion is held to; log-probabilities stay those of the model without it.
    healing: where the prompt ends within what a longer token may write, its last tokens are dropped and their bytes are
    forced, so that the completion may begin within a token. What is drawn for the dropped ones counts.
    log_mass: keep log w(y) = Σ_t log Σ_{x allowed} p(x | y_<t), p behind the adapters: what the masks of grammar and
    healing left. Samples weighted by w are draws of p, given that they are allowed. A greedy completion has none.
    Adapters (`docs/decoding`), in the order in which they work; all of them are off by default:

    logit_bias: ids, or texts of one token, and what is added to their logits.
    sequence_bias: texts, or tuples of ids, and what is added to the logit of the last token of each, behind the others.
    repetition_penalty: θ; divides the logits of tokens that occur in prompt or completion, multiplies negative ones.
    presence_penalty, frequency_penalty: taken off the logits of tokens in the completion, once and for each occurrence.
    dry: takes off the more, the longer the repetition that a token would go on with (`Dry`).
    no_repeat_ngram: n; no n tokens of prompt and completion come twice. banned: texts, or sequences of ids, that are
    not completed; a text as it is encoded alone and behind a space. min_tokens: of the whole completion, before a token
    may end it. forced: a text, or ids, that it begins with.
    top_n_sigma, top_h, top_k, top_p, min_p, typical_p, epsilon_cutoff, eta_cutoff: cut tokens off, after temperature.
    min_tokens_to_keep: of the best tokens, so many stay whatever these cut. xtc: cuts the best ones (`XTC`).
    mirostat: cuts tokens off last, by the surprise of what the request has drawn so far.

    top_logprobs: k; keep the confidence of each token, C = −(1/k) Σ_j log p_j over the k most probable tokens of the
    raw model at its place (Fu et al. 2025, eq. 2). 0 is off. It changes nothing that is drawn.
    thought_end: the text that ends a thought, such as "</think>": what a completion has up to it is kept apart as its
    thought (`Sequence.thought`), and only the rest is its text. Off while it is empty.
    search: what chooses the continuations together (`metagen.generators.decoding.search`); None draws each for itself.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: bool = False
    grammar: Grammar | None = None
    top_logprobs: int = 0
    search: SearchSpec | None = None
    healing: bool = False
    log_mass: bool = False
    top_n_sigma: float = 0.0
    min_tokens_to_keep: int = 1
    top_h: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    epsilon_cutoff: float = 0.0
    eta_cutoff: float = 0.0
    xtc: XTC | None = None
    mirostat: Mirostat | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry: Dry | None = None
    no_repeat_ngram: int = 0
    logit_bias: Mapping[int | str, float] | Bias = ()
    sequence_bias: Mapping[Ban, float] | SequenceBias = ()
    banned: tuple[Ban, ...] = ()
    min_tokens: int = 0
    forced: Ban = ()
    thought_end: str = ""

    def __post_init__(self) -> None:
        for name in ("logit_bias", "sequence_bias"):
            object.__setattr__(self, name, in_order(getattr(self, name)))

        def expect(ok: bool, name: str, what: str) -> None:
            if not ok:
                raise InputError(f"{name}={getattr(self, name)!r}: {what}")

        warm = _real(self.temperature) and self.temperature >= 0.0
        expect(warm, "temperature", "expected a number ≥ 0 (0 is greedy)")
        expect(count(self.top_k), "top_k", f"expected an integer from 0 (off) to {MOST}")
        expect(
            _real(self.top_p) and 0.0 < self.top_p <= 1.0, "top_p", "expected a number in (0, 1] (1 is off)"
        )
        expect(_whole(self.max_tokens) and self.max_tokens >= 1, "max_tokens", "expected an integer ≥ 1")
        expect(self.max_tokens <= MOST_TOKENS, "max_tokens", f"expected at most {MOST_TOKENS:,}")
        stop: Any = self.stop
        expect(not isinstance(stop, str), "stop", "expected a tuple of strings, not one string")
        texts = isinstance(stop, tuple) and all(isinstance(text, str) for text in stop)
        expect(texts, "stop", "expected a tuple of strings")
        expect(all(self.stop), "stop", "a stop string is empty; remove it")
        ends: Any = self.stop_token_ids
        ids = isinstance(ends, tuple) and all(map(_whole, ends))
        expect(ids, "stop_token_ids", "expected a tuple of integers")
        held = self.grammar is not None
        expect(not held or isinstance(self.grammar, Grammar), "grammar", "expected a Grammar, or None")
        expect(
            not (held and self.ignore_eos),
            "grammar",
            "it says itself where a text ends; leave ignore_eos off",
        )
        expect(isinstance(self.healing, bool), "healing", "expected True or False")
        expect(
            isinstance(self.thought_end, str),
            "thought_end",
            'expected a text such as "</think>", or "" (off)',
        )
        expect(isinstance(self.log_mass, bool), "log_mass", "expected True or False")
        searching = self.search is None or isinstance(self.search, SearchSpec)
        expect(searching, "search", "expected a search such as BeamSearch, or None")
        together = self.search is not None and self.mirostat is not None
        expect(
            not together,
            "search",
            "mirostat follows what is drawn, and a search draws nothing; leave one out",
        )
        cold = isinstance(self.search, StochasticBeamSearch) and self.temperature == 0
        expect(
            not cold,
            "search",
            "it draws, and temperature=0 is greedy; give a temperature > 0, or a beam search",
        )
        # Of one token, −log p is small where the model is sure: the opposite of a confidence.
        several = _whole(self.top_logprobs) and (self.top_logprobs == 0 or self.top_logprobs >= 2)
        expect(several, "top_logprobs", "expected an integer ≥ 2, or 0 (off)")
        check_adapters(self, expect)
        drawn = self.search is None
        expect(drawn or not self.log_mass, "log_mass", "a search draws nothing to be weighed; leave one out")
        if self.log_mass and self.temperature > 0 and (cuts := self.cuts):
            raise InputError(
                f"log_mass={self.log_mass!r}: {cuts[0]}={getattr(self, cuts[0])!r} cuts by what masks leave, so that "
                "their mass is no weight of what is drawn; leave one out"
            )

    @property
    def fingerprint(self) -> str:
        """Names the parameters. Those that came later add nothing while they are off."""
        given = {f.name: (getattr(self, f.name), f.default) for f in fields(self)}
        parts = [f"{k}={v!r}" for k, (v, default) in given.items() if k not in _LATER or v != default]
        return f"SamplingParams({', '.join(parts)})"

    @property
    def adapters(self) -> tuple[str, ...]:
        """Names of the adapters beyond temperature, top_k and top_p that are on."""
        return tuple(name for name, off in ADAPTERS.items() if getattr(self, name) != off)

    @property
    def cuts(self) -> tuple[str, ...]:
        """Names of the adapters that cut tokens off and are on."""
        off = {f.name: f.default for f in fields(self)}
        return tuple(name for name in _CUTS if getattr(self, name) != off[name])

    @property
    def weighs(self) -> bool:
        """Whether what masks leave is kept: it is asked for, and something is drawn."""
        return self.log_mass and self.temperature > 0

    @property
    def biases(self) -> Bias:
        """logit_bias as pairs: ids first, then texts."""
        assert isinstance(self.logit_bias, tuple)
        return self.logit_bias

    @property
    def sequences(self) -> SequenceBias:
        """sequence_bias as pairs."""
        assert isinstance(self.sequence_bias, tuple)
        return self.sequence_bias

    @classmethod
    def preset(cls, name: str, **others: Any) -> Self:
        """Parameters that are recommended for a use (`presets.PRESETS`), and others beside them or in their place."""
        return cls().replace(**preset(name) | others)

    def replace(self, **changes: Any) -> Self:
        """These parameters with some changed. InputError for one that there is not."""
        known = [f.name for f in fields(self)]
        for name in changes:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                meant = f"; did you mean {near[0]!r}?" if near else ""
                raise InputError(
                    f"{name!r} is no sampling parameter; expected some of {', '.join(known)}{meant}"
                )
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """Continue `prefix` once per seed.

    max_tokens: new tokens at most, per sample (the caller has already taken ancestors and caps into
    account). `params.max_tokens` is not looked at by engines.
    ranks: with `params.search`, which of its results are asked for, one for each seed; 0 is the best.
    ended: the samples that have ended, by number, as the engine notes them (`note`): they are kept whatever becomes of
    the others. heard: is told of each but the last, of which the answer tells, with the tokens of the prefix if the
    engine knows them and has no ids; called in the engine's thread.
    shares: what these took physically, where the engine says so. begin: keeps the account of attempts (`attempt`).
    """

    prefix: Sequence
    seeds: tuple[int, ...]
    params: SamplingParams
    max_tokens: int
    until: Until = None
    ranks: tuple[int, ...] = ()
    ended: dict[int, Sample] = field(default_factory=dict, compare=False, repr=False)
    shares: dict[int, Share] = field(default_factory=dict, compare=False, repr=False)
    heard: Callable[[int, Sample, int | None], None] | None = field(default=None, compare=False, repr=False)
    begin: Callable[[abc.Sequence[int]], Awaitable[Attempt]] | None = field(
        default=None, compare=False, repr=False
    )

    async def attempt(self, numbers: abc.Sequence[int]) -> Attempt:
        """Before samples are asked for, and before they are asked for again; for engines that say `tells_attempts`.

        Say of the attempt that it was `free`, where that is known; else it is charged at its worst case unless its
        samples end. Raises BudgetExhausted if the limits leave no room for trying again. In any event loop.
        """
        return UNTOLD if self.begin is None else await self.begin(numbers)

    def note(
        self, number: int, sample: Sample, prefix_tokens: int | None = None, *, share: Share | None = None
    ) -> None:
        """A sample has ended. From whatever thread; of one request from one thread at a time.

        share: what it took physically, if the engine can say that of each sample; of those that were asked for together
        the first has it all.
        """
        self.ended[number] = sample
        if share is not None:
            self.shares[number] = share
        if self.heard is not None and len(self.ended) < len(self.seeds):
            self.heard(number, sample, prefix_tokens)


@dataclass(frozen=True, slots=True)
class Sample:
    """One continuation: what was added to the prefix.

    ids: new token ids, the end-of-sequence or stop token not included; empty if the engine has none.
    generated: tokens decoded, the end token included (this is what was paid for).
    step_end: for `until=Step`, the offset in `text` just after the delimiter; None if it was not reached.
    logprob: sum over decoded tokens (the end token included) under the raw model; None if unknown.
    token_logprobs, token_confidences: one number for each decoded token, where they are kept.
    computed: tokens that were decoded for it and not for another sample of the request, which began alike; None: all.
    forced: of `generated`, tokens that a grammar forced: run together with others, and drawn by nobody.
    score: by which a search ranks it.
    log_mass: of all decoded tokens (`SamplingParams.log_mass`); None if it is not kept.
    thought: what was thought before `text`, which does not hold it; `ids` and `generated` do.
    """

    text: str
    ids: tuple[int, ...] | None
    generated: int | None
    logprob: float | None = None
    token_logprobs: tuple[float, ...] | None = None
    finish: Finish | None = None
    cut: bool = False
    step_end: int | None = None
    token_confidences: tuple[float, ...] | None = None
    computed: int | None = None
    forced: int = 0
    score: float | None = None
    log_mass: float | None = None
    thought: Thought | None = None


@dataclass(frozen=True, slots=True)
class Generated:
    """The answer to a Generate request.

    prefix_ids: the rendered prefix; None if the engine has no ids. prefix_tokens: its length; None if unknown.
    prefilled, cached: prefix tokens of the request that were computed, and that were read from a
    prefix cache: physical, summed over its samples; None if unknown, never 0 for unknown.
    """

    samples: tuple[Sample, ...]
    prefix_ids: tuple[int, ...] | None = None
    prefix_tokens: int | None = None
    prefilled: int | None = None
    cached: int | None = None


@dataclass(frozen=True, slots=True)
class EvaluateRequest:
    """Read a model at positions: at position t it has seen ids[: t + 1].

    ids: the whole input. positions: indices into ids. What is read there depends on the model's head:

    - of a language model, log-probabilities over the full vocabulary: of each id in `labels`, or, if labels is
      None, of the token that follows, ids[t + 1];
    - of a model whose head scores (a classifier, a value head), with outputs=True, all numbers that the head
      gives, raw; labels is None.

    entropies: of a language model, the entropy of its next-token distribution at each position, too.
    params: read the distribution that tokens are drawn from under these, behind all adapters, where a token that is
    cut off has −∞; None: the raw model's. start: where the completion begins in ids, for adapters that look at it.

    Engines refuse to read from one kind what only the other has.
    """

    ids: tuple[int, ...]
    positions: tuple[int, ...]
    labels: tuple[int, ...] | None = None
    outputs: bool = False
    entropies: bool = False
    params: SamplingParams | None = None
    start: int = 0


@dataclass(frozen=True, slots=True)
class Evaluated:
    """`values[i][j]` at position i: the log-probability of label j in nats (or of the following token, j = 0), or
    output j of a head that scores, raw.

    prefilled, cached: tokens computed, and read from a prefix cache; None if unknown.
    entropies: H = −Σ_x p(x) log p(x) over the vocabulary at each position, in nats; None if not asked for.
    """

    values: tuple[tuple[float, ...], ...]
    prefilled: int | None = None
    cached: int | None = None
    entropies: tuple[float, ...] | None = None


@dataclass(slots=True)
class EngineStats:
    """Physical counters of an engine since it was opened; waste included."""

    requests: int = 0
    samples: int = 0
    prefilled: int = 0
    cached: int = 0
    generated: int = 0
    aborted_tokens: int = 0
    extra: dict[str, float] = field(default_factory=dict)


#: Tokens of one sample: beyond that it is a slip.
MOST_TOKENS: Final = 1_000_000


def _one_a_seed(answer: Generated, given: Mapping[str, Any]) -> str | None:
    samples, seeds = len(answer.samples), len(given["request"].seeds)
    return None if samples == seeds else f"{samples} samples for {seeds} seeds; expected one each"


class Engine(Protocol):
    """An explicit context manager with its own thread or process.

    Thread-safe entry: `generate` and `evaluate` may be awaited from any event loop, by thousands of
    coroutines at once; cancelling one frees what it holds. Errors of one request never harm another.

    One that may wait before it begins with samples, or tries again by itself, has `tells_attempts = True` and awaits
    `GenerateRequest.attempt` before each attempt. Of others one attempt at all samples begins with the request; it is
    known to have cost nothing if they raise an InputError.

    An engine may have `silence`, seconds: where none of its counters (`stats`) moves for so long and no sample ends,
    whoever waits gets an EngineError. Without it, or with None, it has to end its own waits.
    """

    @property
    def fingerprint(self) -> str:
        """Names the weights and numerics: equal fingerprints promise equal distributions."""
        ...

    @property
    def tokenizer_fingerprint(self) -> str | None:
        """Names the tokenizer; None if the engine has no token ids."""
        ...

    @property
    def shape(self) -> ModelShape | None:
        """For the cost model; None if unknown."""
        ...

    @property
    def directory(self) -> Path | None:
        """Where the model lies; None if it is not on this machine."""
        ...

    @property
    def max_context(self) -> int | None:
        """Tokens of prompt and completion together, at most."""
        ...

    @property
    def stats(self) -> EngineStats: ...

    @property
    def chat(self) -> str | None:
        """By what the model reads messages: `CHAT_API`, or the name of its chat template, which a text goes past.

        None if it has none, as far as is known here.
        """
        ...

    @property
    def supports(self) -> frozenset[str]:
        """What beyond plain sampling it can do, in the words of `metagen.generators.decoding.adapters.BEYOND`.

        `grammar`; `closing`, grammars with `close` or without `canonical`; `healing`; `top_logprobs`; `search`; and the
        adapters that it has, by their names.
        """
        ...

    def render(self, prefix: Sequence) -> tuple[int, ...] | None:
        """Ids of prompt and completion so far: chat template applied, a partial assistant turn continued.

        Ids that the sequence already carries under this tokenizer are used as they are.
        None if the engine has no token ids.
        """
        ...

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text, nothing added. A special token's own name is read as that token."""
        ...

    @promises(_one_a_seed)
    async def generate(self, request: GenerateRequest) -> Generated: ...

    @promises(one_each("requests"))
    async def evaluate(self, requests: list[EvaluateRequest]) -> list[Evaluated]: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
