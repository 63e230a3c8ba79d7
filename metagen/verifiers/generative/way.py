"""How a judge comes to its verdicts: by what its engine can do, or as it is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal, get_args

from metagen.cost import FREE, Price
from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator
from metagen.generators.engine import Engine, SamplingParams
from metagen.generators.primitive import EngineGenerator
from metagen.verifiers.generative.labels import reads_labels
from metagen.verifiers.generative.question import Question
from metagen.verifiers.generative.respondent import LabelRespondent, Respondent, WritingRespondent

By = Literal["auto", "labels", "samples"]
#: Fields of `Question` that words are given for.
WORDING: Final = ("template", "labels", "cue", "join", "chat")
#: Answers that a judge writes whose probabilities cannot be read, unless it is told how many.
SAMPLES: Final = 4
#: Tokens of one answer or critique, at most, unless something else is said.
LONGEST: Final = 512


def respondent(
    engine: Engine | None,
    generator: Generator | None,
    question: Question,
    *,
    name: str,
    by: By = "auto",
    samples: int | None = None,
    critiques: int = 0,
    temperature: float = 1.0,
    max_tokens: int | None = None,
    normalise: bool = True,
) -> Respondent:
    """Who answers the question. by: `labels` reads the labels' probabilities, which an engine must be able to;
    `samples` reads what is written; `auto` takes the labels where the engine can, else the samples.

    engine, generator: one of both; a generator only writes. samples: answers that are written, 4 by default.
    critiques: written before labels are read, at `temperature`, of at most `max_tokens` tokens (512); where verdicts
    are written, each is behind a critique of its own, so that so many samples are drawn. normalise: as of
    `LabelRespondent`. Raises InputError for what does not fit together, UnsupportedError for labels that the engine
    cannot read.
    """
    if (engine is None) == (generator is None):
        raise InputError(f"{name}: engine={engine!r}, generator={generator!r}: expected one of both")
    if by not in get_args(By):
        raise InputError(f"{name}: by={by!r}: expected one of {', '.join(get_args(By))}")
    if samples is not None and critiques and samples != critiques:
        raise InputError(
            f"{name}: samples={samples!r}, critiques={critiques!r}: a written verdict has its critique before it; give "
            "one of both"
        )
    able = engine is not None and reads_labels(engine)
    if by == "labels" and not able:
        raise UnsupportedError(
            f"{name}: by='labels' reads probabilities of given tokens, which {engine or generator!r} does not tell; "
            "leave by out, or give by='samples'"
        )
    if able and by != "samples":
        assert engine is not None
        if samples is not None and by == "auto":
            raise InputError(
                f"{name}: samples={samples!r}: {engine!r} tells the labels' probabilities, which need no samples; "
                "leave samples out, or give by='samples'"
            )
        # The critic's answer ends where it would begin its verdict, which is read and not written.
        stop = (question.cue.strip(),) if question.cue.strip() else ()
        critic = _writer(engine, temperature, max_tokens, stop) if critiques else None
        return LabelRespondent(
            engine, question, critic=critic, critiques=critiques, normalise=normalise, price=_price(engine)
        )
    if generator is None:
        assert engine is not None
        generator = _writer(engine, temperature, max_tokens)
    return WritingRespondent(generator, question, samples=samples or critiques or SAMPLES)


def _writer(
    engine: Engine, temperature: float, max_tokens: int | None, stop: tuple[str, ...] = ()
) -> EngineGenerator:
    params = SamplingParams(temperature=temperature, max_tokens=max_tokens or LONGEST, stop=stop)
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


def worded(question: Question, wording: Mapping[str, Any], name: str) -> Question:
    """The question with other fields. A label may be a number, as YAML reads it. InputError for an unknown field."""
    unknown = sorted(set(wording) - set(WORDING))
    if unknown:
        raise InputError(f"{name}: unknown option {unknown[0]!r}; a question has {', '.join(WORDING)}")
    fields = dict(wording)
    if "labels" in fields:
        if not isinstance(fields["labels"], Mapping):
            raise InputError(f"{name}: labels={fields['labels']!r}: expected labels with what each is worth")
        fields["labels"] = {str(label): float(worth) for label, worth in fields["labels"].items()}
    return replace(question, **fields)
