"""Verifiers that ask a model in words, and how they come to verdicts: by what an engine can do, or as they are told."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any, Final, Literal

from metagen.cost import FREE, Price
from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator
from metagen.generators.engine import Engine, SamplingParams
from metagen.generators.primitive import EngineGenerator
from metagen.parts import part
from metagen.values import Amount, Count, Quantity
from metagen.verifiers.base import Verifier
from metagen.verifiers.generative.labels import reads_labels
from metagen.verifiers.generative.question import Labels, Question
from metagen.verifiers.generative.respondent import LabelRespondent, Respondent, Way, WritingRespondent

By = Literal["auto", "labels", "samples"]
#: Fields of `Question` that words are given for.
WORDING: Final = ("template", "labels", "cue", "join", "chat")
#: Answers that a judge writes whose probabilities cannot be read, unless it is told how many.
SAMPLES: Final = 4
#: Of a model that says nothing else.
LONGEST: Final = 512


@part
class GenerativeVerifier(Verifier):
    """A verifier that asks a model in words.

    engine, or generator: the model; a generator only writes. by: `labels` reads the labels' probabilities, which an
    engine must be able to; `samples` reads the verdicts in written answers; `auto` takes the labels where the engine
    can. samples: answers that are written, 4 by default, and 1 at temperature 0. critiques: written before labels are
    read, at `temperature`, of at most `max_tokens` tokens (512); a written verdict stands behind a critique of its own,
    so that so many samples are drawn. normalise: as of `LabelRespondent`. template, labels, cue, join, chat: fields of
    `Question` in place of those that the question has.

    Raises InputError for fields that do not fit together or would do nothing, UnsupportedError for labels that the
    engine cannot read.
    """

    engine: Engine | None = field(default=None, kw_only=False)
    generator: Generator | None = None
    by: By = "auto"
    samples: Count | None = None
    critiques: Amount = 0
    temperature: Quantity = 1.0
    max_tokens: Count | None = None
    normalise: bool = True
    template: str | None = None
    labels: Labels | None = None
    cue: str | None = None
    join: str | None = None
    chat: bool | None = None
    #: Tokens of one answer or critique, unless `max_tokens` says something else.
    longest: int = field(init=False, default=LONGEST)
    #: Who answers its question.
    respondent: Respondent = field(init=False)

    @classmethod
    def conflict(cls, given: Mapping[str, Any]) -> str | None:
        """What its fields cannot be to each other: see `Strategy.conflict`."""
        engine, generator, samples, critiques = (
            given[name] for name in ("engine", "generator", "samples", "critiques")
        )
        if (engine is None) == (generator is None):
            return f"engine={engine!r}, generator={generator!r}: expected one of both"
        if samples is not None and critiques and samples != critiques:
            return (
                f"samples={samples!r}, critiques={critiques!r}: a written verdict has its critique before it; give "
                "one of both"
            )
        for name in ("samples", "critiques"):
            many = given[name] or 0
            if engine is not None and given["temperature"] == 0 and many > 1:
                same = f"{many} answers would be one text {many} times"
                return f"temperature=0: {same}; give {name}=1, or a temperature > 0"
        if generator is not None:
            for name, default in (("max_tokens", None), ("temperature", 1.0)):
                if given[name] != default:
                    return f"{name}={given[name]!r}: belongs to the generator; give it there"
            if not given["normalise"]:
                return "normalise=False: of probabilities of labels, which a generator does not tell; leave it out"
        return None

    @property
    def way(self) -> Way:
        """`labels`: probabilities are read. `samples`: verdicts are written."""
        return self.respondent.way

    @property
    def generates(self) -> bool:
        return self.respondent.generates

    @property
    def wording(self) -> dict[str, Any]:
        """The words that were given for the question."""
        return {name: value for name in WORDING if (value := getattr(self, name)) is not None}

    def ask_about(self, question: Question) -> Respondent:
        """The model, asked a question in the way that the fields say."""
        engine = self.engine
        able = engine is not None and reads_labels(engine)
        if self.by == "labels" and not able:
            raise UnsupportedError(
                f"{self.name}: by='labels' reads probabilities of given tokens, which {engine or self.generator!r} "
                "does not tell; leave by out, or give by='samples'"
            )
        if engine is not None and able and self.by != "samples":
            if self.samples is not None:
                raise InputError(
                    f"{self.name}: samples={self.samples!r}: {engine!r} tells the labels' probabilities, which need no "
                    "samples; leave samples out, or give by='samples'"
                )
            if not self.critiques:
                self._refuse(
                    ("temperature", "max_tokens"),
                    f"{engine!r} tells the labels' probabilities, and nothing is written; leave it out, or give "
                    "critiques or by='samples'",
                )
            # The critic's answer ends where it would begin its verdict, which is read and not written.
            stop = (question.cue.strip(),) if question.cue.strip() else ()
            critic = self._writer(engine, stop) if self.critiques else None
            return LabelRespondent(
                engine, question, critic=critic, critiques=self.critiques, normalise=self.normalise,
                price=_price(engine),
            )  # fmt: skip
        self._refuse(("normalise",), "of probabilities of labels, and here answers are written; leave it out")
        writer = self._writer(engine) if engine is not None else self.generator
        assert writer is not None
        several = SAMPLES if self.temperature else 1
        return WritingRespondent(writer, question, samples=self.samples or self.critiques or several)

    def _refuse(self, unused: Iterable[str], why: str) -> None:
        """Raise InputError where one of these fields was given, which would do nothing."""
        for name in unused:
            if getattr(self, name) != getattr(GenerativeVerifier, name):
                raise InputError(f"{self.name}: {name}={getattr(self, name)!r}: {why}")

    def _writer(self, engine: Engine, stop: tuple[str, ...] = ()) -> EngineGenerator:
        params = SamplingParams(
            temperature=self.temperature, max_tokens=self.max_tokens or self.longest, stop=stop
        )
        return EngineGenerator(engine, params, price=_price(engine))


def _price(engine: Engine) -> Price | None:
    price: Price | None = getattr(engine, "price", None) if getattr(engine, "bills", False) else FREE
    return price


def own_wording(model: Engine | Generator | None) -> dict[str, Any]:
    """How a model that was trained as a judge is asked: the `metagen` entry of its config.json, of kind `judge`."""
    directory = getattr(getattr(model, "engine", model), "directory", None)
    path = None if directory is None else directory / "config.json"
    if path is None or not path.is_file():
        return {}
    entry = json.loads(path.read_text("utf-8")).get("metagen")
    if not isinstance(entry, dict) or entry.get("kind") != "judge":
        return {}
    return {name: entry[name] for name in (*WORDING, "max_tokens") if name in entry}


def with_wording(question: Question, wording: Mapping[str, Any]) -> Question:
    """The question with other fields. A label may be a number, as YAML reads it."""
    fields = dict(wording)
    if "labels" in fields:
        fields["labels"] = {str(label): float(worth) for label, worth in fields["labels"].items()}
    return replace(question, **fields)
