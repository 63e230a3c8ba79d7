"""Reward models that an engine runs: process (PRM) and outcome (ORM).

How a solution becomes an input, and what is read there, is the model's layout (`layouts.py`); which layout a directory
has, `published.py` tells. Scoring is prefill only. It is incremental: children of a search node share their parent's
prefix in the engine's cache, and the values of the steps before are remembered, so that a step costs its own tokens.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import abc
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from metagen.call import Ended, Outcome
from metagen.cost import FREE, Price, Usage, flops_2n, prefill_flops
from metagen.errors import InputError, ModelError, UnsupportedError
from metagen.generators.engine import Engine, Evaluated, EvaluateRequest
from metagen.generators.watch import watch_evaluation
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, digest
from metagen.verifiers.aggregation import AGGREGATIONS, Aggregation, aggregate
from metagen.verifiers.base import PrimitiveVerifier, score_payload
from metagen.verifiers.layouts import Encoder, Laid, Layout, TaggedSteps
from metagen.verifiers.odds import log_odds, sigmoid
from metagen.verifiers.published import (
    Kind,
    LayoutName,
    check_head,
    find_layout,
    layout_of,
    scores,
    special_tokens,
)
from metagen.verifiers.read_once import ReadOnce, names_of, share_out
from metagen.verifiers.steps import Delimiter, whole

__all__ = [
    "AGGREGATIONS",
    "Aggregation",
    "OutcomeRewardModel",
    "ProcessRewardModel",
    "RewardModel",
    "Tags",
    "aggregate",
]

#: Inputs kept, so that what is needed before, for and after an answer is laid out once.
REMEMBERED = 4096
#: Values of steps kept, at about 200 bytes each.
STEPS = 1 << 17


class Tags(TaggedSteps):
    """The tokens by which a language model speaks as a reward model: after each `tag`, `positive` or `negative`."""

    __slots__ = ()

    @classmethod
    def of(cls, model: str | Path, kind: Kind | None = None) -> Tags:
        """From a model's config.json; ModelError if it names none, or is of another kind."""
        layout = layout_of(model, kind)
        if not isinstance(layout, TaggedSteps):
            raise ModelError(
                f"{str(model)!r} has no step tags: it reads {layout!r}; give the layout in their place"
            )
        return cls(**asdict(layout))


@dataclass(frozen=True, slots=True)
class Reading:
    """A solution before the model: its input, and the name of what is read at each position.

    given: the score of what the model is not asked about; None if it is.
    """

    laid: Laid
    names: tuple[bytes, ...] = ()
    given: Score | None = None


NOTHING = Laid((), ())


@part
class RewardModel(PrimitiveVerifier):
    """What process and outcome reward models share: an engine, a layout, accounting.

    A value is p(right): of the two label tokens, or the softmax of a classifier's outputs, or the sigmoid of a scalar
    reward. A completion without a step scores 0, and so does one that writes marks of the layout, with the verdict
    `forged`. One beyond the model's context gets the verdict `too long`, and one in which the tokenizer hides the
    marks `unparsable`.

    layout: a Layout, or the name of a published one; None reads it from the model's directory. tags: the layout of
    a language model with step tags. delimiter: what ends a step, if not what the layout has. Raises ModelError or
    UnsupportedError if they do not fit the engine's model.
    """

    #: As the `metagen` entry of a config.json calls such models.
    kind: ClassVar[Kind]

    engine: Engine = field(kw_only=False)
    tags: TaggedSteps | None = field(default=None, kw_only=False)
    layout: Layout | LayoutName | None = None
    name: str
    price: Price | None = FREE

    def __post_init__(self) -> None:
        self._encoder = Encoder(self.engine, self.name)
        #: How it reads a solution.
        self.reads = self._choose()
        labels = self.reads.labels
        self._labels = tuple(map(self._encoder.token, labels)) if labels is not None else None
        self._reserved = self._forbidden()
        self._memory = ReadOnce(STEPS)
        self._readings: dict[bytes, Reading] = {}
        self._fingerprint = digest(type(self).__name__, self.engine.fingerprint, self.reads.identity).hex()

    def _choose(self) -> Layout:
        tags, layout, directory = self.tags, self.layout, self.engine.directory
        if tags is not None and layout is not None:
            raise InputError(f"{self.name}: both tags={tags!r} and layout={layout!r}; give one of them")
        chosen = tags or (find_layout(layout, directory) if isinstance(layout, str) else layout)
        if chosen is None and directory is None:
            raise UnsupportedError(
                f"{self.name}: {self.engine!r} has no config.json to read a layout from; give layout= or tags="
            )
        chosen = chosen or layout_of(directory or "", self.kind)
        if chosen.labels is None and directory is not None:
            check_head(directory, chosen)
        if chosen.labels is not None and directory is not None and scores(directory):
            raise ModelError(
                f"{self.name}: {self.engine!r} has a head that scores and no labels such as {chosen.labels!r}; leave "
                "tags and layout out, or give a layout that reads a head"
            )
        return chosen

    def _forbidden(self) -> tuple[str, ...]:
        """Texts that a candidate cannot write without forging the input."""
        directory = self.engine.directory
        control = special_tokens(directory) if self.reads.chats and directory is not None else ()
        for text in self.reads.reserved:
            self._encoder.token(text)
        return tuple(dict.fromkeys((*self.reads.reserved, *control)))

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @abstractmethod
    def _steps(self, text: str) -> list[str]:
        """What of a completion gets a value."""

    @abstractmethod
    def _score(self, odds: tuple[float, ...]) -> Score:
        """The score from the log-odds of each step."""

    def _read(self, sequence: Sequence) -> Reading:
        """The reading of a sequence, made once for all that need it."""
        found = self._readings.get(sequence.digest)
        if found is None:
            if len(self._readings) == REMEMBERED:
                self._readings.clear()
            found = self._readings[sequence.digest] = self._lay(sequence)
        return found

    def _keep(self, laid: Laid | None) -> Laid | None:
        """The input with the positions that are read."""
        return laid

    def _lay(self, sequence: Sequence) -> Reading:
        steps = self._steps(sequence.text)
        if not steps:
            return Reading(NOTHING, given=Score(0.0, steps=()))
        if any(text in sequence.text for text in self._reserved):
            return Reading(NOTHING, given=Score(0.0, verdict="forged"))
        laid, limit = (
            self._keep(self.reads.lay(self._encoder, sequence.prompt, steps)),
            self.engine.max_context,
        )
        if laid is None:
            return Reading(NOTHING, given=Score(None, verdict="unparsable"))
        if limit is not None and len(laid.ids) > limit:
            return Reading(NOTHING, given=Score(None, verdict="too long"))
        return Reading(laid, names_of(laid.ids, laid.positions))

    async def evaluate(self, sequences: abc.Sequence[Sequence], scope: Scope, ended: Ended) -> list[Outcome]:
        readings = [self._read(s) for s in sequences]
        async with self._memory.claim([n for r in readings for n in r.names]) as (known, missing):
            shares = share_out([r.names for r in readings], missing)
            pairs = [(r, places) for r, places in zip(readings, shares, strict=True) if places]
            answers = await self._ask(pairs)
            new = {
                reading.names[i]: self._odds(row)
                for (reading, places), answer in zip(pairs, answers, strict=True)
                for i, row in zip(places, answer.values, strict=True)
            }
            self._memory.keep(new)
        odds, given = {**known, **new}, iter(answers)
        paid = [next(given) if places else None for places in shares]
        return [self._outcome(r, a, odds, scope) for r, a in zip(readings, paid, strict=True)]

    async def _ask(self, pairs: abc.Sequence[tuple[Reading, list[int]]]) -> list[Evaluated]:
        """What the engine reads of each input, at those places among its positions."""
        requests = [
            EvaluateRequest(
                reading.laid.ids,
                tuple(reading.laid.positions[i] for i in places),
                self._labels,
                outputs=self._labels is None,
            )
            for reading, places in pairs
        ]
        return await watch_evaluation(self.engine, requests) if requests else []

    def _odds(self, row: abc.Sequence[float]) -> float:
        if not 1 <= len(row) <= 2:
            raise ModelError(
                f"{self.name}: {self.engine!r} gives {len(row)} outputs, and a reward model one or two (wrong, right); "
                "score with a verifier of your own"
            )
        return log_odds(row, self.reads.right)

    def _outcome(
        self, reading: Reading, answer: Evaluated | None, odds: Mapping[bytes, float], scope: Scope
    ) -> Outcome:
        if reading.given is not None:
            return Outcome(score_payload(reading.given), Usage())
        ids = reading.laid.ids
        usage = self._price(reading, scope.prefixes(self.engine.fingerprint).add(ids))
        physical = Usage(cached=len(ids), calls=1)
        if answer is not None:
            physical = Usage(prefilled=answer.prefilled, cached=answer.cached, calls=1)
        score = self._score(tuple(odds[name] for name in reading.names))
        return Outcome(score_payload(score), usage, physical)

    def _price(self, reading: Reading, known: int) -> Usage:
        ids, shape = reading.laid.ids, self.engine.shape
        usage = Usage(prefilled=len(ids) - known, cached=known, flops=None, flops_2n=None)
        if shape is not None:
            # The shape's LM head is computed where labels are read; a head that scores costs next to nothing.
            logits = sum(p >= known for p in reading.laid.positions) if self._labels is not None else 0
            exact = prefill_flops(shape, len(ids), known, logits) if len(ids) > known else 0.0
            usage = replace(usage, flops=exact, flops_2n=flops_2n(shape, len(ids) - known))
        return replace(usage, money=self.price.of(usage) if self.price else None)

    def worst(self, sequences: abc.Sequence[Sequence], scope: Scope) -> Usage:
        cache = scope.prefixes(self.engine.fingerprint)
        asked = [r for s in sequences if (r := self._read(s)).given is None]
        bounds = [self._price(r, cache.count_known(r.laid.ids)) for r in asked]
        return replace(Usage.sum(bounds), calls=len(sequences))

    def remember(self, sequences: abc.Sequence[Sequence], scope: Scope) -> None:
        cache = scope.prefixes(self.engine.fingerprint)
        for sequence in sequences:
            cache.note(self._read(sequence).laid.ids)


@part
class ProcessRewardModel(RewardModel):
    """Scores each step; the value of the sequence is an aggregation of the steps.

    Where each step that is read is a request of its own (`reads_apart` of an engine behind HTTP), the aggregation
    `last` reads no other: scores have a value and no steps. A trailing piece without delimiter is a step as well (a
    completion that ended there, or was cut). aggregation: of the scores of steps to the value of the sequence. Raises
    ModelError for a layout that reads whole solutions.
    """

    kind = "prm"

    delimiter: Delimiter | None = None
    aggregation: Aggregation = "last"
    name: str = "prm"

    def __post_init__(self) -> None:
        self._last = self.aggregation == "last" and getattr(self.engine, "reads_apart", False)
        super().__post_init__()
        if not self.reads.stepwise:
            raise ModelError(
                f"{self.name}: {self.reads!r} reads whole solutions; use OutcomeRewardModel, or a layout of steps"
            )

    def _choose(self) -> Layout:
        chosen = super()._choose()
        return chosen if self.delimiter is None else chosen.cut_at(self.delimiter)

    @property
    def records(self) -> str:
        """The values of the steps are recorded, and serve every aggregation; that of the last step alone does not."""
        return self.fingerprint if self._last else self._fingerprint

    @property
    def fingerprint(self) -> str:
        return digest(self._fingerprint, self.aggregation).hex()

    def split(self, text: str) -> list[str]:
        """The steps of a completion, as the layout cuts it."""
        return self.reads.split(text)

    _steps = split

    def _keep(self, laid: Laid | None) -> Laid | None:
        return replace(laid, positions=laid.positions[-1:]) if laid and self._last else laid

    def _score(self, odds: tuple[float, ...]) -> Score:
        values = tuple(map(sigmoid, odds))
        if self._last:
            return Score(values[-1])
        return Score(aggregate(values, self.aggregation), steps=values)

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        found = await super().score(sequences, scope=scope)
        return [
            s if s.steps is None else replace(s, value=aggregate(s.steps, self.aggregation)) for s in found
        ]


@part
class OutcomeRewardModel(RewardModel):
    """Scores the whole solution by one value at its end. A scalar reward, or the log-odds of a head, is kept as raw."""

    kind = "orm"
    whole: ClassVar[bool] = True
    name: str = "orm"

    def _steps(self, text: str) -> list[str]:
        return whole(text)

    def _score(self, odds: tuple[float, ...]) -> Score:
        return Score(sigmoid(odds[0]), raw=None if self._labels is not None else odds[0])
