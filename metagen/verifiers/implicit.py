"""Implicit process rewards: the log-ratio of two language models, one of which was trained by outcomes alone.

Yuan et al. 2024, "Free process rewards without process labels" (arXiv:2412.01981): if an outcome reward is
parameterised as r(y) = β log π_φ(y)/π_ref(y), then

    q_t = Σ_{i ≤ t} β log π_φ(y_i | y_<i)/π_ref(y_i | y_<i)

is the exponential average of r over completions by π_ref, a Q value, and the reward of the t-th step is r_t = q_t −
q_{t−1}: the sum over the tokens of that step. Cui et al. 2025, PRIME (arXiv:2502.01456), train such models online.
"""

from __future__ import annotations

import asyncio
import math
from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate

from metagen.call import Ended, Outcome
from metagen.cost import FREE, Price, Usage, flops_2n, prefill_flops
from metagen.errors import InputError, UnsupportedError
from metagen.generators.engine import Engine, Evaluated, EvaluateRequest
from metagen.generators.watch import watch_evaluation
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.values import Positive
from metagen.verifiers.aggregation import Aggregation, aggregate
from metagen.verifiers.base import PrimitiveVerifier, score_payload
from metagen.verifiers.odds import sigmoid
from metagen.verifiers.read_once import ReadOnce, names_of, share_out
from metagen.verifiers.steps import Delimiter, steps_of

#: Traces kept, and log-ratios of tokens, at about 200 bytes each.
REMEMBERED = 512
TOKENS = 1 << 20


@dataclass(frozen=True, slots=True)
class Traced:
    """A solution in tokens. starts: where each step begins, and at last where the last ends; starts[0] ends the prompt.

    names: of each token after the prompt. given: the score of what the models are not asked about; None if they are.
    """

    ids: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    names: tuple[bytes, ...] = ()
    given: Score | None = None


@part
class ImplicitProcessRewardModel(PrimitiveVerifier):
    """Scores steps by r_t, or, if `cumulative`, by q_t; the sigmoid maps both into [0, 1], as the paper's cross-entropy
    objective does for whole solutions. raw: q of the whole text, which is the outcome reward of a finished solution.

    engine, reference: language models π_φ and π_ref with one tokenizer. beta: the β of the training, such as 0.001
    for EurusPRM (model card of PRIME-RL/EurusPRM-Stage2, which uses q_t). Tokens that end a sequence are not counted.
    A completion without a step, such as a blank one, scores 0. Verdicts: `too long` beyond the context of either model,
    `impossible` for a token that a model rules out, `unparsable` where the prompt's only token merges with the text.

    Both models read each token once: tokens that candidates share are not read again. delimiter: ends a step.
    cumulative: score steps by q_t, in place of r_t. aggregation: of the scores of steps to the value.
    reference_price: of the tokens of the reference model. Raises InputError for a model that is its own reference;
    UnsupportedError for engines without token ids, or with different tokenizers.
    """

    engine: Engine = field(kw_only=False)
    reference: Engine = field(kw_only=False)
    beta: Positive
    delimiter: Delimiter = "\n"
    cumulative: bool = False
    aggregation: Aggregation = "last"
    name: str = "implicit"
    price: Price | None = FREE
    reference_price: Price | None = FREE

    def __post_init__(self) -> None:
        engine, reference, name = self.engine, self.reference, self.name
        if engine.tokenizer_fingerprint is None or reference.tokenizer_fingerprint is None:
            raise UnsupportedError(f"{name}: {engine!r} and {reference!r} both need token ids")
        if engine.tokenizer_fingerprint != reference.tokenizer_fingerprint:
            raise UnsupportedError(
                f"{name}: {engine!r} and {reference!r} have different tokenizers, so their probabilities of a token "
                "cannot be compared; give the reference model that the training started from"
            )
        if engine.fingerprint == reference.fingerprint:
            raise InputError(
                f"{name}: {engine!r} is its own reference, so every log-ratio is 0; give the two models"
            )
        self._models = ((engine, self.price), (reference, self.reference_price))
        self._memory = ReadOnce(TOKENS)
        self._traces: dict[bytes, Traced] = {}
        what = (repr(self.beta), self.delimiter, repr(self.cumulative))
        self._records = digest("implicit", engine.fingerprint, reference.fingerprint, *what).hex()

    @property
    def records(self) -> str:
        """The values of the steps are recorded, and serve every aggregation."""
        return self._records

    @property
    def fingerprint(self) -> str:
        return digest(self._records, self.aggregation).hex()

    def split(self, text: str) -> list[str]:
        """The steps of a completion, delimiters kept, as `steps_of` cuts them."""
        return steps_of(text, self.delimiter)

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        found = await super().score(sequences, scope=scope)
        return [
            s if s.steps is None else replace(s, value=aggregate(s.steps, self.aggregation)) for s in found
        ]

    # -- tokens ----------------------------------------------------------------------------------

    def _trace(self, sequence: Sequence) -> Traced:
        """The trace of a sequence, made once for all that need it."""
        found = self._traces.get(sequence.digest)
        if found is None:
            if len(self._traces) == REMEMBERED:
                self._traces.clear()
            found = self._traces[sequence.digest] = self._lay(sequence)
        return found

    def _lay(self, sequence: Sequence) -> Traced:
        """Text is encoded as one, so steps end where the encodings of their prefixes stop agreeing with it."""
        steps = self.split(sequence.text)
        if not steps:
            return Traced(given=Score(0.0, steps=()))
        ids = self._encode(sequence, sequence.text)
        ends = accumulate(map(len, steps), initial=0)
        starts = [_agree(ids, self._encode(sequence, sequence.text[:end])) for end in ends]
        if not starts[0]:
            return Traced(given=Score(None, verdict="unparsable"))
        if any(e.max_context is not None and len(ids) > e.max_context for e, _ in self._models):
            return Traced(given=Score(None, verdict="too long"))
        return Traced(ids, tuple(starts), names_of(ids, range(len(ids)))[starts[0] :])

    def _encode(self, sequence: Sequence, text: str) -> tuple[int, ...]:
        return self.engine.render(Sequence(sequence.prompt, text)) or ()

    # -- reading ---------------------------------------------------------------------------------

    async def evaluate(self, sequences: abc.Sequence[Sequence], scope: Scope, ended: Ended) -> list[Outcome]:
        traces = [self._trace(s) for s in sequences]
        async with self._memory.claim([n for t in traces for n in t.names]) as (known, missing):
            shares = share_out([t.names for t in traces], missing)
            pairs = [(t, places) for t, places in zip(traces, shares, strict=True) if places]
            ours, theirs = await self._ask([_request(t, places) for t, places in pairs])
            new = {
                trace.names[i]: a - b
                for (trace, places), one, other in zip(pairs, ours, theirs, strict=True)
                for i, (a,), (b,) in zip(places, one.values, other.values, strict=True)
            }
            self._memory.keep(new)
        ratios, given = {**known, **new}, iter(zip(ours, theirs, strict=True))
        paid = [next(given) if places else () for places in shares]
        return [self._outcome(t, a, ratios, scope) for t, a in zip(traces, paid, strict=True)]

    async def _ask(self, requests: list[EvaluateRequest]) -> tuple[list[Evaluated], list[Evaluated]]:
        """What both models say, side by side."""
        if not requests:
            return [], []
        try:
            async with asyncio.TaskGroup() as group:
                ours = group.create_task(watch_evaluation(self.engine, requests))
                theirs = group.create_task(watch_evaluation(self.reference, requests))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors.exceptions[0].__cause__
        return ours.result(), theirs.result()

    def _outcome(
        self, trace: Traced, answers: tuple[Evaluated, ...], ratios: Mapping[bytes, float], scope: Scope
    ) -> Outcome:
        if trace.given is not None:
            return Outcome(score_payload(trace.given), Usage())
        usage = self._price(trace, [scope.prefixes(e.fingerprint).add(trace.ids) for e, _ in self._models])
        read = [Usage(prefilled=a.prefilled, cached=a.cached) for a in answers]
        physical = Usage.sum(read) if read else Usage(cached=2 * len(trace.ids))
        return Outcome(score_payload(self._score(trace, ratios)), usage, replace(physical, calls=1))

    def _score(self, trace: Traced, ratios: Mapping[bytes, float]) -> Score:
        tokens = [ratios[name] for name in trace.names]
        if not all(map(math.isfinite, tokens)):
            return Score(None, verdict="impossible")
        first = trace.starts[0]
        bounds = zip(trace.starts, trace.starts[1:], strict=False)
        steps = [self.beta * math.fsum(tokens[a - first : b - first]) for a, b in bounds]
        raw = math.fsum(steps)
        values = tuple(map(sigmoid, accumulate(steps) if self.cumulative else steps))
        return Score(aggregate(values, self.aggregation), raw=raw, steps=values)

    # -- accounting ------------------------------------------------------------------------------

    def _price(self, trace: Traced, known: abc.Sequence[int]) -> Usage:
        """Logical usage: both models read all that they do not know."""
        usages = []
        for (engine, price), k in zip(self._models, known, strict=True):
            total, shape = len(trace.ids), engine.shape
            usage = Usage(prefilled=total - k, cached=k, flops=None, flops_2n=None)
            if shape is not None:
                logits = total - max(k, trace.starts[0])
                exact = prefill_flops(shape, total, k, logits) if total > k else 0.0
                usage = replace(usage, flops=exact, flops_2n=flops_2n(shape, total - k))
            usages.append(replace(usage, money=price.of(usage) if price else None))
        return Usage.sum(usages)

    def worst(self, sequences: abc.Sequence[Sequence], scope: Scope) -> Usage:
        caches = [scope.prefixes(engine.fingerprint) for engine, _ in self._models]
        asked = [t for s in sequences if (t := self._trace(s)).given is None]
        bounds = [self._price(t, [cache.count_known(t.ids) for cache in caches]) for t in asked]
        return replace(Usage.sum(bounds), calls=len(sequences))

    def remember(self, sequences: abc.Sequence[Sequence], scope: Scope) -> None:
        for engine, _ in self._models:
            cache = scope.prefixes(engine.fingerprint)
            for sequence in sequences:
                cache.add(self._trace(sequence).ids)


def _request(trace: Traced, places: abc.Sequence[int]) -> EvaluateRequest:
    """The log-probabilities of those tokens after the prompt, each read at the token before it."""
    first = trace.starts[0]
    return EvaluateRequest(trace.ids[: first + places[-1] + 1], tuple(first + i - 1 for i in places))


def _agree(a: abc.Sequence[int], b: abc.Sequence[int]) -> int:
    """How many ids two texts have in common at their start."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
