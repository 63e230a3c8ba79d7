"""The likelihood of given sequences under a model, token by token: log-probabilities, surprises and entropies.

The model reads each sequence once (teacher forcing), all of a call in one batch, and what they share from its prefix
cache. Log-probabilities and entropies are in nats, surprises in bits.
"""

from __future__ import annotations

import math
from collections import abc
from dataclasses import dataclass, replace
from typing import Any

from metagen.border import checked
from metagen.call import Ended, Item, Outcome, Request
from metagen.cost import FREE, Price, Usage, flops_2n, prefill_flops
from metagen.errors import PromptError, UnsupportedError
from metagen.generators.decoding.words import spell
from metagen.generators.engine import Engine, Evaluated, EvaluateRequest, SamplingParams
from metagen.generators.watch import wait_for, watch_evaluation
from metagen.journal import Row
from metagen.scope import Scope
from metagen.sequence import Sequence, digest

#: Bits in a nat.
NAT = 1.0 / math.log(2.0)


@dataclass(frozen=True)
class Likelihood:
    """What a model makes of a completion, given its prompt.

    ids: of the completion; tokens that end it are not among them. logprobs: log p(y_i | x, y_<i) of each, in nats; −∞
    where the model rules a token out. entropies: of the distribution that each was one of, in nats; None if not asked
    for. end: log-probability that the text ends behind its last token; None if the engine does not say what ends one.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    entropies: tuple[float, ...] | None = None
    end: float | None = None

    @property
    def logprob(self) -> float:
        """Σ_i log p(y_i | x, y_<i) in nats, without the end."""
        return math.fsum(self.logprobs)

    @property
    def surprises(self) -> tuple[float, ...]:
        """−log₂ p of each token: bits."""
        return tuple(NAT * abs(value) for value in self.logprobs)

    @property
    def perplexity(self) -> float:
        """exp(−(1/|y|) log p(y | x)); 1 for the empty completion."""
        return math.exp(-self.logprob / max(1, len(self.ids)))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A sequence in tokens. first: where its completion begins; requests: what is asked about it."""

    ids: tuple[int, ...]
    first: int
    requests: tuple[EvaluateRequest, ...]


@checked
def likelihoods(
    engine: Engine,
    sequences: abc.Sequence[Sequence],
    *,
    entropies: bool = True,
    params: SamplingParams | None = None,
) -> list[Likelihood]:
    """`alikelihoods` for scripts and notebooks, without limits or records."""
    return wait_for(alikelihoods(engine, sequences, entropies=entropies, params=params))


@checked
async def alikelihoods(
    engine: Engine,
    sequences: abc.Sequence[Sequence],
    *,
    entropies: bool = True,
    params: SamplingParams | None = None,
    scope: Scope | None = None,
    price: Price | None = FREE,
) -> list[Likelihood]:
    """The likelihood of each sequence, in order.

    Ids that a sequence carries are read as they are; other completions are encoded together with their prompt, and
    begin where that encoding leaves the prompt's. params: read the distribution that tokens are drawn from under these,
    behind all adapters; None: the raw model's. scope: what it is recorded and charged under; with none, nothing is.
    price: of the engine's tokens, for its limits. If a budget ends, the first that fit, in order.

    Raises PromptError for what does not fit the model's context, and for a completion without ids that the tokens
    cannot write, or that merges with the whole prompt into one token; UnsupportedError for an engine that has no token
    ids, or cannot read what is asked.
    """
    each = [_ask(engine, sequence, entropies, params) for sequence in sequences]
    # By ids, too: a text can be written in several ways.
    names = [digest(s.digest, repr(one.ids)) for s, one in zip(sequences, each, strict=True)]
    asked = dict(zip(names, each, strict=True))
    if not asked:
        return []
    calls = _Calls(engine, asked, scope or Scope.root("likelihood"), price)
    under = params.fingerprint if params else ""
    by = digest("likelihood", engine.fingerprint, repr(entropies), under).hex()
    request = Request("score", by, tuple(Item(name) for name in asked))
    rows = await calls.scope.call(request, calls.execute, calls.worst, calls.remember)
    found = {row.content: _likelihood(asked[row.content], row, entropies) for row in rows}
    return [found[name] for name in names if name in found]


def _ask(engine: Engine, sequence: Sequence, entropies: bool, params: SamplingParams | None) -> _Asked:
    ids, head = engine.render(sequence), engine.render(Sequence(sequence.prompt))
    if ids is None or head is None:
        raise UnsupportedError(
            f"{engine!r} has no token ids, so it cannot read a given text; use an engine that has, such as TorchEngine"
        )
    _check_written(engine, sequence)
    pairs = enumerate(zip(ids, head, strict=False))
    first = next((i for i, (a, b) in pairs if a != b), min(len(ids), len(head)))
    if not first:
        raise PromptError(
            f"the completion {sequence.text!r:.40} merges with the only token of its prompt; give a longer prompt"
        )
    requests = []
    if first < len(ids):
        places = tuple(range(first - 1, len(ids) - 1))
        requests.append(EvaluateRequest(ids, places, entropies=entropies, params=params, start=first))
    ends: tuple[int, ...] = getattr(engine, "ends", ())
    if ends:
        requests.append(EvaluateRequest(ids, (len(ids) - 1,), ends, params=params, start=first))
    return _Asked(ids, first, tuple(requests))


def _check_written(engine: Engine, sequence: Sequence) -> None:
    """A completion without ids is what its tokens write: an unknown token has a likelihood of its own."""
    own = sequence.tokens
    size, decode = getattr(engine, "vocabulary", None), getattr(engine, "decode", None)
    read = own is not None and own.tokenizer == engine.tokenizer_fingerprint
    if read or not sequence.text or size is None or decode is None:
        return
    if spell(sequence.text, engine.encode, decode, size) is None:
        raise PromptError(
            f"the tokens cannot write the completion {sequence.text!r:.80}: {engine!r} has no likelihood of it; leave "
            "it out, or give ids"
        )


@dataclass(frozen=True, slots=True)
class _Calls:
    """The leaf call of some sequences, by digest."""

    engine: Engine
    asked: dict[bytes, _Asked]
    scope: Scope
    price: Price | None

    async def execute(self, positions: abc.Sequence[int], cap: int | None, ended: Ended) -> list[Outcome]:
        some = self._some(positions)
        answers = iter(
            await watch_evaluation(self.engine, [request for one in some for request in one.requests])
        )
        return [self._outcome(one, [next(answers) for _ in one.requests]) for one in some]

    def worst(self, positions: abc.Sequence[int], cap: int | None) -> Usage:
        cache = self.scope.prefixes(self.engine.fingerprint)
        usages = [self._usage(one, cache.count_known(one.ids)) for one in self._some(positions)]
        return replace(Usage.sum(usages), calls=len(positions))

    def remember(self, rows: list[Row]) -> None:
        for row in rows:
            self.scope.prefixes(self.engine.fingerprint).add(self.asked[row.content].ids)

    def _some(self, positions: abc.Sequence[int]) -> list[_Asked]:
        everything = list(self.asked.values())
        return [everything[i] for i in positions]

    def _outcome(self, one: _Asked, answers: list[Evaluated]) -> Outcome:
        payload: dict[str, Any] = {"logprobs": []}
        for request, answer in zip(one.requests, answers, strict=True):
            if request.labels is not None:
                payload["end"] = _total(answer.values[0])
                continue
            payload["logprobs"] = [_finite(value) for (value,) in answer.values]
            if answer.entropies is not None:
                payload["entropies"] = list(answer.entropies)
        known = self.scope.prefixes(self.engine.fingerprint).add(one.ids)
        physical = Usage.sum(Usage(prefilled=a.prefilled, cached=a.cached) for a in answers)
        return Outcome(payload, self._usage(one, known), replace(physical, calls=1))

    def _usage(self, one: _Asked, known: int) -> Usage:
        total, shape = len(one.ids), self.engine.shape
        usage = Usage(prefilled=total - known, cached=known, flops=None, flops_2n=None)
        if shape is not None:
            logits = total - max(known, one.first - 1)
            exact = prefill_flops(shape, total, known, logits) if total > known else 0.0
            usage = replace(usage, flops=exact, flops_2n=flops_2n(shape, total - known))
        return replace(usage, money=self.price.of(usage) if self.price else None)


def _likelihood(one: _Asked, row: Row, entropies: bool) -> Likelihood:
    data = row.payload or {}
    return Likelihood(
        one.ids[one.first :],
        tuple(map(_value, data["logprobs"])),
        tuple(data.get("entropies", ())) if entropies else None,
        _value(data["end"]) if "end" in data else None,
    )


def _total(logprobs: abc.Sequence[float]) -> float | None:
    """The logarithm of Σ p, as JSON."""
    return _finite(math.log(mass) if (mass := math.fsum(map(math.exp, logprobs))) else -math.inf)


def _finite(value: float) -> float | None:
    """JSON has no −∞."""
    return value if math.isfinite(value) else None


def _value(recorded: float | None) -> float:
    return -math.inf if recorded is None else recorded
