"""Judges from flat options: what an experiment file can say of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from metagen.cost import FREE, Price
from metagen.errors import InputError
from metagen.generators.engine import Engine, SamplingParams
from metagen.generators.primitive import EngineGenerator
from metagen.verifiers.generative.judge import ProbabilityJudge
from metagen.verifiers.generative.pairwise import Merge, PairwiseJudge, Strengths, TournamentVerifier
from metagen.verifiers.generative.question import CORRECT, PREFERENCE, RUBRIC, Question
from metagen.verifiers.generative.verifier import GenerativeVerifier

#: Fields of `Question` that words are given for.
WORDING: Final = ("template", "labels", "cue", "join", "chat")
ASKS: Final = {"correct": CORRECT, "rubric": RUBRIC}


def generative(
    engine: Engine,
    *,
    ask: str = "correct",
    critiques: int = 0,
    temperature: float = 1.0,
    max_tokens: int | None = None,
    normalise: bool = True,
    name: str = "judge",
    price: Price | None = FREE,
    **wording: Any,
) -> GenerativeVerifier:
    """A judge of single completions. ask: `correct` or `rubric`; wording: fields of `Question` in place of
    those it has. A model that was trained as a judge is asked as its config.json says, where nothing else is given.

    critiques: how many the same engine writes before, at `temperature`, of at most `max_tokens` tokens each: by
    default what the model's own config.json says, or 512. Raises InputError for what is not known.
    """
    own = own_wording(engine) if ask == "correct" else {}
    most = own.pop("max_tokens", 512)
    wording, max_tokens = {**own, **wording}, most if max_tokens is None else max_tokens
    if ask not in ASKS:
        raise InputError(
            f"{name}: ask={ask!r}: expected one of {', '.join(ASKS)}; word it with template=, labels=, cue="
        )
    question = worded(ASKS[ask], wording, name)
    return GenerativeVerifier(
        _judge(engine, question, critiques, temperature, max_tokens, normalise, price), name=name
    )


def own_wording(engine: Engine) -> dict[str, Any]:
    """How a model that was trained as a judge is asked: the `metagen` entry of its config.json, of kind `judge`."""
    directory = engine.directory
    path = None if directory is None else directory / "config.json"
    if path is None or not path.is_file():
        return {}
    entry = json.loads(path.read_text("utf-8")).get("metagen")
    if not isinstance(entry, dict) or entry.get("kind") != "judge":
        return {}
    return {name: entry[name] for name in (*WORDING, "max_tokens") if name in entry}


def tournament(
    engine: Engine,
    *,
    meetings: int | None = None,
    merge: Merge = "mean",
    strengths: Strengths | None = None,
    critiques: int = 0,
    temperature: float = 1.0,
    max_tokens: int = 512,
    normalise: bool = True,
    name: str = "tournament",
    price: Price | None = FREE,
    **wording: Any,
) -> TournamentVerifier:
    """Win rates among the candidates, by a judge of pairs. Options as of `generative` and `TournamentVerifier`."""
    question = worded(PREFERENCE, wording, name)
    judge = _judge(engine, question, critiques, temperature, max_tokens, normalise, price)
    return TournamentVerifier(
        PairwiseJudge(judge, merge=merge), meetings=meetings, strengths=strengths, name=name
    )


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


def _judge(
    engine: Engine,
    question: Question,
    critiques: int,
    temperature: float,
    max_tokens: int,
    normalise: bool,
    price: Price | None,
) -> ProbabilityJudge:
    critic = None
    if critiques:
        # The critic's answer ends where it would begin its verdict, which is read and not written.
        stop = (question.cue.strip(),) if question.cue.strip() else ()
        params = SamplingParams(temperature=temperature, max_tokens=max_tokens, stop=stop)
        critic = EngineGenerator(engine, params, price=price)
    return ProbabilityJudge(
        engine, question, critic=critic, critiques=critiques, normalise=normalise, price=price
    )
