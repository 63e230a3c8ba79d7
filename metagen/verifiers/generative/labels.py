"""The probabilities of labels at the end of a prompt: one evaluation, recorded and charged as a score is."""

from __future__ import annotations

import math
from collections import abc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from metagen.call import Ended, Item, Outcome, Request
from metagen.cost import Price, Usage, flops_2n, prefill_flops
from metagen.errors import InputError, UnsupportedError
from metagen.generators.engine import Engine, Evaluated, EvaluateRequest
from metagen.generators.watch import watch_evaluation
from metagen.journal import Row
from metagen.scope import Scope
from metagen.sequence import Sequence, digest


@dataclass(frozen=True, slots=True)
class Reading:
    """shares: of each label among the labels; they sum to 1. mass: the probability of all labels together.

    verdict: in place of shares, why there are none.
    """

    shares: tuple[float, ...] = ()
    mass: float = 0.0
    verdict: str | None = None


UNREACHED = Reading(verdict="unscored")


def reads_labels(engine: Engine) -> bool:
    """Whether an engine tells the probabilities of given tokens: it says so itself, or it has token ids."""
    return bool(getattr(engine, "reads_labels", engine.tokenizer_fingerprint is not None))


class LabelReader:
    """Reads p(label | sequence) for each label: the product over its tokens, from the raw model.

    asks: fingerprint of what is asked; with the name of a sequence it determines the sequence.
    Raises UnsupportedError for an engine without token ids, and InputError if the tokens of one label begin
    with those of another: then one would count as both.
    """

    def __init__(self, engine: Engine, labels: abc.Sequence[str], asks: str, price: Price | None) -> None:
        if not reads_labels(engine):
            raise UnsupportedError(
                f"{engine!r} does not tell the probabilities of given tokens, so those of labels cannot be read; "
                "use WritingRespondent with a generator"
            )
        self._engine, self._price = engine, price
        self._ids = [engine.encode(label) for label in labels]
        for (a, one), (b, other) in permutations(zip(labels, self._ids, strict=True), 2):
            if other[: len(one)] == one:
                raise InputError(
                    f"the tokens of label {b!r} begin with those of {a!r} ({list(one)!r}) in {engine!r}; "
                    "choose labels of which none begins another"
                )
        self.fingerprint = digest("labels", engine.fingerprint, asks, *labels).hex()

    async def read(self, asked: abc.Sequence[tuple[bytes, Sequence]], scope: Scope) -> list[Reading]:
        """One reading for each (name, sequence); it is recorded under the name.

        What a budget left out gets the verdict `unscored`; where that is all, the limit's refusal is raised.
        """
        distinct = dict(asked)
        if not distinct:
            return []
        requests = [self._requests(sequence) for sequence in distinct.values()]
        by_name = dict(zip(distinct, requests, strict=True))
        items = tuple(Item(name) for name in distinct)

        async def execute(positions: abc.Sequence[int], cap: int | None, ended: Ended) -> list[Outcome]:
            return await self._evaluate([requests[i] for i in positions], scope)

        def worst(positions: abc.Sequence[int], cap: int | None) -> Usage:
            return self._worst([requests[i] for i in positions], scope)

        def remember(rows: list[Row]) -> None:
            cache = scope.prefixes(self._engine.fingerprint)
            for row in rows:
                for request in by_name[row.content]:
                    cache.add(_fed(request))

        rows = await scope.call(Request("score", self.fingerprint, items), execute, worst, remember)
        readings = {row.content: _reading(row.payload or {}) for row in rows}
        return [readings.get(name, UNREACHED) for name, _ in asked]

    def _requests(self, sequence: Sequence) -> list[EvaluateRequest]:
        """One for all labels of one token, and one for each longer label; none if a label does not fit the context."""
        prefix = self._engine.render(sequence) or ()
        limit = self._engine.max_context
        if limit is not None and len(prefix) + max(map(len, self._ids)) > limit:
            return []
        end = len(prefix) - 1
        single = tuple(ids[0] for ids in self._ids if len(ids) == 1)
        requests = [EvaluateRequest(prefix, (end,), single)] if single else []
        requests += [
            EvaluateRequest((*prefix, *ids), tuple(range(end, end + len(ids))))
            for ids in self._ids
            if len(ids) > 1
        ]
        return requests

    async def _evaluate(self, asked: list[list[EvaluateRequest]], scope: Scope) -> list[Outcome]:
        flat = [request for requests in asked for request in requests]
        answers = iter(await watch_evaluation(self._engine, flat) if flat else [])
        return [self._outcome(requests, [next(answers) for _ in requests], scope) for requests in asked]

    def _outcome(self, requests: list[EvaluateRequest], answers: list[Evaluated], scope: Scope) -> Outcome:
        if not requests:
            return Outcome({"verdict": "too long"}, Usage())
        short: list[float] = []
        long: list[float] = []
        for request, answer in zip(requests, answers, strict=True):
            if request.labels is not None:
                short += answer.values[0]
            else:
                long.append(sum(row[0] for row in answer.values))
        ones, others = iter(short), iter(long)
        logprobs = [next(ones) if len(ids) == 1 else next(others) for ids in self._ids]
        cache = scope.prefixes(self._engine.fingerprint)
        usage = Usage.sum(self._usage(r, cache.add(_fed(r))) for r in requests)
        physical = Usage(
            prefilled=_total(a.prefilled for a in answers), cached=_total(a.cached for a in answers), calls=1
        )
        return Outcome(_payload(logprobs), usage, physical)

    def _worst(self, asked: list[list[EvaluateRequest]], scope: Scope) -> Usage:
        cache = scope.prefixes(self._engine.fingerprint)
        bounds = []
        for requests in asked:
            for i, request in enumerate(requests):
                # All labels of one sequence follow on the same tokens, which the first pays for.
                least = request.positions[0] + 1 if i else 0
                bounds.append(self._usage(request, max(least, cache.count_known(_fed(request)))))
        return replace(Usage.sum(bounds), calls=len(asked))

    def _usage(self, request: EvaluateRequest, known: int) -> Usage:
        total, shape = len(_fed(request)), self._engine.shape
        usage = Usage(prefilled=total - known, cached=known, flops=None, flops_2n=None)
        if shape is not None:
            exact = prefill_flops(shape, total, known, len(request.positions)) if total > known else 0.0
            usage = replace(usage, flops=exact, flops_2n=flops_2n(shape, total - known))
        return replace(usage, money=self._price.of(usage) if self._price else None)


def _fed(request: EvaluateRequest) -> tuple[int, ...]:
    """The tokens that the model has to read; the last one of a label is only looked up."""
    return request.ids[: request.positions[-1] + 1]


def _payload(logprobs: abc.Sequence[float]) -> dict[str, Any]:
    """Shares and mass of labels, as JSON."""
    top = max(logprobs)
    if top == -math.inf:
        return {"verdict": "unparsable"}
    weights = [math.exp(value - top) for value in logprobs]
    total = math.fsum(weights)
    return {"labels": [w / total for w in weights], "mass": min(1.0, math.exp(top) * total)}


def _reading(payload: Mapping[str, Any]) -> Reading:
    return Reading(tuple(payload.get("labels", ())), payload.get("mass", 0.0), payload.get("verdict"))


def _total(counts: Iterable[int | None]) -> int | None:
    """None as soon as one is unknown."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
