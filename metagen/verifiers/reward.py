"""Reward models that are language models with step tags: process (PRM) and outcome (ORM).

Form of the published PRMs (Math-Shepherd, Wang et al. 2024): a tag token follows each step, and at
its position the model says by two label tokens whether the step is right. Scoring is prefill only,
and children of a search node share their parent's prefix, so scores are incremental.
"""

from __future__ import annotations

import dataclasses
import json
import math
from abc import abstractmethod
from collections.abc import Sequence as Ordered
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal

from metagen.call import Outcome
from metagen.cost import FREE, Price, Usage, flops_2n, prefill_flops
from metagen.errors import InputError, ModelError, UnsupportedError
from metagen.generators.engine import Engine, Evaluated, EvaluateRequest
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.verifiers.base import PrimitiveVerifier, score_payload

Aggregation = Literal["last", "min", "mean", "product"]
#: Requests kept, so that what is needed before, for and after an answer is encoded once.
REMEMBERED = 4096
AGGREGATIONS: tuple[Aggregation, ...] = ("last", "min", "mean", "product")


@dataclasses.dataclass(frozen=True, slots=True)
class Tags:
    """The tokens by which a reward model speaks: after each `tag`, `positive` or `negative`."""

    tag: str = "<step>"
    positive: str = "<+>"
    negative: str = "<->"
    delimiter: str = "\n"

    @classmethod
    def of(cls, model: str | Path, kind: str | None = None) -> Tags:
        """From the `metagen` entry of a model's config.json; ModelError if there is none, or of another kind."""
        path = Path(model) / "config.json"
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelError(
                f"cannot read {str(path)!r}: {error}; give the directory of a reward model"
            ) from error
        entry = config.get("metagen") if isinstance(config, dict) else None
        entry = entry if isinstance(entry, dict) else {}
        known = {f.name: entry[f.name] for f in dataclasses.fields(cls) if f.name in entry}
        if "tag" not in known:
            raise ModelError(
                f"{str(path)!r} names no step tag: expected an entry "
                '"metagen": {"tag": …, "positive": …, "negative": …}, or give tags='
            )
        if kind is not None and entry.get("kind", kind) != kind:
            raise ModelError(
                f"{str(path)!r} is of kind {entry['kind']!r}, and is used as {kind!r}: "
                "one scores steps, the other whole solutions; give the verifier the kind of the model"
            )
        return cls(**known)


def aggregate(steps: Ordered[float], how: Aggregation) -> float:
    """One value from the values of the steps; 0 for no steps at all."""
    if not steps:
        return 0.0
    match how:
        case "last":
            return steps[-1]
        case "min":
            return min(steps)
        case "mean":
            return math.fsum(steps) / len(steps)
        case "product":
            return math.prod(steps)
    raise InputError(f"aggregation {how!r} is unknown; expected one of {', '.join(AGGREGATIONS)}")


class RewardModel(PrimitiveVerifier):
    """What process and outcome reward models share: an engine, tags, accounting.

    A completion without a step scores 0, and so does one that writes the model's own tag, with the verdict `forged`;
    one beyond the model's context gets the verdict `too long`.

    tags: None reads them from the model's config.json.
    """

    #: As the `metagen` entry of a config.json calls such models.
    kind: ClassVar[str]

    def __init__(self, engine: Engine, tags: Tags | None, *, name: str, price: Price | None) -> None:
        if engine.tokenizer_fingerprint is None:
            raise UnsupportedError(
                f"{name}: a reward model needs an engine with token ids; {engine!r} has none"
            )
        if tags is None:
            if engine.directory is None:
                raise UnsupportedError(f"{name}: {engine!r} has no config.json to read tags from; give tags=")
            tags = Tags.of(engine.directory, self.kind)
        self.engine, self.tags, self.name, self.price = engine, tags, name, price
        self._encode = lru_cache(1 << 14)(engine.encode)
        self._requests: dict[bytes, EvaluateRequest] = {}
        self._tag = self._token(tags.tag)
        self._labels = (self._token(tags.positive), self._token(tags.negative))
        self._fingerprint = digest(type(self).__name__, engine.fingerprint, repr(tags)).hex()

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def _token(self, text: str) -> int:
        ids = self.engine.encode(text)
        if len(ids) != 1:
            raise ModelError(
                f"{self.name}: the tokenizer of {self.engine!r} has no token {text!r} (it makes {len(ids)} of it); "
                "give the tags that the model was trained with"
            )
        return ids[0]

    def _ask(self, sequence: Sequence) -> EvaluateRequest:
        """The request of a sequence, made once for all that need it."""
        found = self._requests.get(sequence.digest)
        if found is None:
            if len(self._requests) == REMEMBERED:
                self._requests.clear()
            found = self._requests[sequence.digest] = self._request(sequence)
        return found

    @abstractmethod
    def _request(self, sequence: Sequence) -> EvaluateRequest:
        """Ids of prompt and completion with tags; positions of the tags."""

    @abstractmethod
    def _score(self, values: tuple[float, ...]) -> Score:
        """The score from the probability of the positive label at each tag."""

    async def evaluate(self, sequences: Ordered[Sequence], scope: Scope) -> list[Outcome]:
        requests = [self._ask(s) for s in sequences]
        given = [self._unasked(s, r) for s, r in zip(sequences, requests, strict=True)]
        asked = [request for request, score in zip(requests, given, strict=True) if score is None]
        answers = iter(await self.engine.evaluate(asked) if asked else [])
        return [
            self._outcome(request, next(answers), scope)
            if score is None
            else Outcome(score_payload(score), Usage())
            for request, score in zip(requests, given, strict=True)
        ]

    def _unasked(self, sequence: Sequence, request: EvaluateRequest) -> Score | None:
        """The score of what the model is not asked about; None if it is."""
        if not request.positions:
            return Score(0.0, steps=())
        if self.tags.tag in sequence.text:
            return Score(0.0, verdict="forged")
        limit = self.engine.max_context
        return None if limit is None or len(request.ids) <= limit else Score(None, verdict="too long")

    def _asked(self, sequences: Ordered[Sequence]) -> list[EvaluateRequest]:
        return [r for s in sequences if self._unasked(s, r := self._ask(s)) is None]

    def _outcome(self, request: EvaluateRequest, answer: Evaluated, scope: Scope) -> Outcome:
        values = tuple(_sigmoid(yes - no) for yes, no in answer.logprobs)
        cache = scope.prefixes(self.engine.fingerprint)
        usage = self._priced(len(request.ids), cache.add(request.ids), len(request.positions))
        physical = Usage(prefilled=answer.prefilled, cached=answer.cached, calls=1)
        return Outcome(score_payload(self._score(values)), usage, physical)

    def _priced(self, total: int, known: int, logits: int) -> Usage:
        usage = Usage(prefilled=total - known, cached=known, flops=None, flops_2n=None)
        if self.engine.shape is not None:
            exact = prefill_flops(self.engine.shape, total, known, logits) if total > known else 0.0
            usage = dataclasses.replace(
                usage, flops=exact, flops_2n=flops_2n(self.engine.shape, total - known)
            )
        return dataclasses.replace(usage, money=self.price.of(usage) if self.price else None)

    def worst(self, sequences: Ordered[Sequence], scope: Scope) -> Usage:
        cache = scope.prefixes(self.engine.fingerprint)
        asked = self._asked(sequences)
        bounds = [self._priced(len(r.ids), cache.known(r.ids), len(r.positions)) for r in asked]
        return dataclasses.replace(Usage.sum(bounds), calls=len(sequences))

    def remember(self, sequences: Ordered[Sequence], scope: Scope) -> None:
        cache = scope.prefixes(self.engine.fingerprint)
        for request in self._asked(sequences):
            cache.add(request.ids)


class ProcessRewardModel(RewardModel):
    """Scores each step; the value of the sequence is an aggregation of the steps.

    A trailing piece without delimiter is a step as well (a completion that ended there, or was cut).
    """

    kind = "prm"

    def __init__(
        self,
        engine: Engine,
        tags: Tags | None = None,
        *,
        aggregation: Aggregation = "last",
        name: str = "prm",
        price: Price | None = FREE,
    ) -> None:
        aggregate((), aggregation)
        if aggregation not in AGGREGATIONS:
            raise InputError(
                f"aggregation {aggregation!r} is unknown; expected one of {', '.join(AGGREGATIONS)}"
            )
        self.aggregation = aggregation
        super().__init__(engine, tags, name=name, price=price)

    @property
    def records(self) -> str:
        """The values of the steps are recorded, and serve every aggregation."""
        return self._fingerprint

    @property
    def fingerprint(self) -> str:
        return digest(self._fingerprint, self.aggregation).hex()

    def split(self, text: str) -> list[str]:
        """The steps of a completion, delimiters kept."""
        parts = text.split(self.tags.delimiter)
        steps = [part + self.tags.delimiter for part in parts[:-1]]
        return [*steps, parts[-1]] if parts[-1] else steps

    def _request(self, sequence: Sequence) -> EvaluateRequest:
        ids = list(self.engine.render(Sequence(sequence.prompt)) or ())
        positions = []
        for step in self.split(sequence.text):
            ids += [*self._encode(step), self._tag]
            positions.append(len(ids) - 1)
        return EvaluateRequest(tuple(ids), tuple(positions), self._labels)

    def _score(self, values: tuple[float, ...]) -> Score:
        return Score(aggregate(values, self.aggregation), steps=values)

    async def score(self, sequences: Ordered[Sequence], *, scope: Scope) -> list[Score]:
        scores = await super().score(sequences, scope=scope)
        return [
            s if s.steps is None else dataclasses.replace(s, value=aggregate(s.steps, self.aggregation))
            for s in scores
        ]


class OutcomeRewardModel(RewardModel):
    """Scores the whole solution by one tag at its end."""

    kind = "orm"

    def __init__(
        self,
        engine: Engine,
        tags: Tags | None = None,
        *,
        name: str = "orm",
        price: Price | None = FREE,
    ) -> None:
        super().__init__(engine, tags, name=name, price=price)

    def _request(self, sequence: Sequence) -> EvaluateRequest:
        ids = (
            *(self.engine.render(Sequence(sequence.prompt)) or ()),
            *self.engine.encode(sequence.text),
            self._tag,
        )
        return EvaluateRequest(ids, (len(ids) - 1,), self._labels)

    def _score(self, values: tuple[float, ...]) -> Score:
        return Score(values[0])


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))
