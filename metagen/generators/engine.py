"""The Engine protocol: what runs a model, and the two requests that it answers.

*Generate* samples continuations of one prefix; *Evaluate* reads a model at given positions: log-probabilities,
or the outputs of a head that scores (reward models, likelihoods, speculation). Engines never hear of
strategies, scopes or budgets: seeds and limits come with the request, accounting comes with the answer.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from metagen.attempts import UNTOLD, Attempt
from metagen.border import call, one_each, promises
from metagen.cost import ModelShape
from metagen.generators.decoding.parameters import SamplingParams as SamplingParams
from metagen.sequence import Finish, Sequence, Thought, Until

#: Tokens of prompts that were computed for a sample, that were read from a cache, and both together, None if unknown;
#: and tokens that were generated for it and others it was asked for with, None where each sample knows its own.
Share = tuple[int | None, int | None, int | None, int | None]
#: A server's chat API, by which it reads messages, and makes a text the user's turn.
CHAT_API: Final = "api"


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """Continue `prefix` once per seed.

    max_tokens: new tokens at most, per sample (the caller has already taken ancestors and caps into
    account). `params.max_tokens` is not looked at by engines.
    ranks: with `params.search`, which of its results are asked for, one for each seed; 0 is the best.
    ended: the samples that have ended, by number, as the engine notes them (`note`): they are kept whatever becomes of
    the others. heard: is told of each but the last, of which the answer tells, with the tokens of the prefix if the
    engine knows them and has no ids; called in the engine's thread.
    shares: what these took physically, where the engine says so. told: the tokens of the prefix, as the engine said
    them with a sample; empty if it has not. begin: keeps the account of attempts (`attempt`).
    written: is told, now and then, of the text of a sample so far, by engines that can. Each text begins with the one
    before it, and the sample's begins with all of them: what a later token may still change is held back. Nothing is
    told of a sample that has been noted, nor when the request is over. Called in the engine's thread. Where `heard` or
    `written` raises, this request alone fails.
    """

    prefix: Sequence
    seeds: tuple[int, ...]
    params: SamplingParams
    max_tokens: int
    until: Until = None
    ranks: tuple[int, ...] = ()
    ended: dict[int, Sample] = field(default_factory=dict, compare=False, repr=False)
    shares: dict[int, Share] = field(default_factory=dict, compare=False, repr=False)
    told: list[int] = field(default_factory=list, compare=False, repr=False)
    heard: Callable[[int, Sample, int | None], None] | None = field(default=None, compare=False, repr=False)
    begin: Callable[[abc.Sequence[int]], Awaitable[Attempt]] | None = field(
        default=None, compare=False, repr=False
    )
    written: Callable[[int, str], None] | None = field(default=None, compare=False, repr=False)

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
        if share is not None:
            self.shares[number] = share
        if prefix_tokens is not None:
            self.told[:] = [prefix_tokens]
        self.ended[number] = sample  # last: another thread may look
        if self.heard is not None and len(self.ended) < len(self.seeds):
            call(self, self.heard, number, sample, prefix_tokens)

    def tell(self, number: int, text: str) -> None:
        """Tell `written`, if anybody listens, of the text of a sample so far. PluginError if it raises."""
        if self.written is not None:
            call(self, self.written, number, text)


@dataclass(frozen=True, slots=True)
class Sample:
    """One continuation: what was added to the prefix.

    ids: new token ids, the end-of-sequence or stop token not included; empty if the engine has none.
    generated: tokens decoded, the end token included (this is what was paid for).
    step_end: for `until=Step`, the offset in `text` just after the delimiter; None if it was not reached.
    logprob: sum over decoded tokens (the end token included) under the raw model; None if unknown.
    token_logprobs, token_confidences: one number for each decoded token, where they are kept; without those of the
    prompt that healing writes as they were, which `ids` do not hold either.
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

    An engine may have `name`, the model's as whoever opened it gave it: traces show it.

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
    def stats(self) -> EngineStats:
        """Counters since it was opened."""
        ...

    @property
    def chat(self) -> str | None:
        """By what the model reads messages: `CHAT_API`, or the name of its chat template, which a text goes past.

        None if it has none, as far as is known here.
        """
        ...

    @property
    def supports(self) -> frozenset[str]:
        """What beyond plain sampling it can do, in the words of `metagen.generators.decoding.parameters.BEYOND`.

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
    async def generate(self, request: GenerateRequest) -> Generated:
        """One sample for each seed, in order.

        Raises UnsupportedError for what it does not have, InputError for a request that is none or does not fit the
        context, and EngineError unless it is open.
        """
        ...

    @promises(one_each("requests"))
    async def evaluate(self, requests: list[EvaluateRequest]) -> list[Evaluated]:
        """One answer for each request, in order. Raises as `generate`; UnsupportedError if it reads no given ids."""
        ...

    def __enter__(self) -> Self:
        """Open it: before that, and after its closing, each request is an EngineError."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it; whoever waits gets an EngineError. May be called twice."""
        ...
