"""Minimum Bayes risk as an experiment file has it, and utilities that are made of more than their fields."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from metagen.errors import InputError
from metagen.generators.base import Generator
from metagen.generators.models import sources
from metagen.runs.declare import registry
from metagen.runs.declare.specs.fields import ModelName
from metagen.strategies.knockout import pairwise
from metagen.strategies.parallel import MBR
from metagen.values import Count, Text
from metagen.verifiers.base import AnswerRule, Verifier
from metagen.verifiers.code.outputs import ProgramOutputs
from metagen.verifiers.code.program import ProgramRule
from metagen.verifiers.code.sandbox import Sandbox
from metagen.verifiers.generative.judge import Judge
from metagen.verifiers.generative.pairwise import PreferenceUtility
from metagen.verifiers.generative.question import Labels
from metagen.verifiers.generative.way import with_wording
from metagen.verifiers.utility.base import Utility
from metagen.verifiers.utility.embedding import EmbeddingCosine
from metagen.verifiers.utility.execution import Agreement, ExecutionAgreement
from metagen.verifiers.utility.judge import AGAINST_REFERENCE, JudgeUtility
from metagen.verifiers.utility.pooling import MeanPooling


def mbr(
    generator: Generator,
    n: int,
    *,
    utility: Utility,
    verifier: Verifier | None = None,
    judge: Verifier | None = None,
    answer: AnswerRule,
) -> MBR:
    """Minimum Bayes risk under a utility. judge: the verifier of a utility that needs one and names none.

    utility: how good one candidate is if another were right. verifier: weighs candidates by their scores.
    """
    return MBR(generator, n, utility=utility, verifier=verifier, answer=answer)


def _asked(given: Mapping[str, Any]) -> str | None:
    """What a judge cannot be to the definition of the utility: see `Strategy.conflict`."""
    judge, utility = given["judge"], given["utility"]
    if judge is None:
        return None
    if "judge" not in registry.parameters("utilities", utility.kind):
        those = [k for k in registry.KINDS["utilities"] if "judge" in registry.parameters("utilities", k)]
        return (
            f"judge = {judge!r}: the utility {utility.kind} asks no judge; leave judge out, or take a utility of kind "
            f"{' or '.join(those)}"
        )
    own = getattr(utility, "judge", None)
    return (
        None if own is None else f"judge = {judge!r}: the utility has its own, {own!r}; leave one of them out"
    )


vars(mbr).update(chooses=True, conflict=_asked)


def rating(
    judge: Verifier | None = None,
    *,
    template: Text | None = None,
    labels: Labels | None = None,
    cue: Text | None = None,
    join: Text | None = None,
    chat: bool | None = None,
) -> JudgeUtility:
    """The model of a judge rates one answer against another. template, labels, cue, join, chat: the words for that.

    Raises InputError for another verifier.
    """
    if not isinstance(judge, Judge):
        raise InputError(
            "a utility of kind judge needs judge:, a verifier of kind judge, whose model rates answers"
        )
    given: dict[str, Any] = {
        "template": template, "labels": labels, "cue": cue, "join": join, "chat": chat
    }  # fmt: skip
    wording = {name: value for name, value in given.items() if value is not None}
    return JudgeUtility(judge.about_pairs(with_wording(AGAINST_REFERENCE, wording)))


def preference(judge: Verifier | None = None) -> PreferenceUtility:
    """The judge of a tournament prefers one answer to another. Raises InputError without one."""
    if judge is None:
        raise InputError("a utility of kind preference needs judge:, a verifier of kind tournament")
    return PreferenceUtility(pairwise(judge))


def embedding(
    model: ModelName,
    *,
    prefix: str = "",
    device: str = "cpu",
    batch: Count = 32,
    answer: AnswerRule | None = None,
) -> EmbeddingCosine:
    """The cosine of the mean hidden states of a model, a Hugging Face directory. prefix: put before each text.

    model: the directory. device: of torch. batch: texts at a time.
    """
    return EmbeddingCosine(_pooling(model, prefix, device, batch), answer=answer)


@cache
def _pooling(model: str, prefix: str, device: str, batch: int) -> MeanPooling:
    """One for all strategies of a run."""
    return MeanPooling(sources.resolve(model), prefix=prefix, device=device, batch=batch)


def execution(
    sandbox: Sandbox, *, program: ProgramRule | None = None, agreement: Agreement = "share"
) -> ExecutionAgreement:
    """How far two programs print alike on a problem's public inputs, in a sandbox.

    agreement: the share of inputs on which both print alike, or whether all are.
    """
    return ExecutionAgreement(ProgramOutputs(sandbox, program=program), agreement=agreement)
