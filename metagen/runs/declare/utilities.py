"""Minimum Bayes risk as an experiment file has it: a utility in a few words, made into an object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self

from pydantic import model_validator

from metagen.errors import InputError
from metagen.generators.base import Generator
from metagen.runs.declare.specs.fields import Labels
from metagen.runs.declare.specs.parts import Spec
from metagen.strategies.knockout import pairwise
from metagen.strategies.parallel import MBR
from metagen.values import Fraction, Switch, Text
from metagen.verifiers.base import AnswerRule, Verifier
from metagen.verifiers.generative.judge import Judge
from metagen.verifiers.generative.pairwise import PreferenceUtility
from metagen.verifiers.generative.way import WORDING, worded
from metagen.verifiers.utility.base import Utility
from metagen.verifiers.utility.exact import ExactAnswer
from metagen.verifiers.utility.judge import AGAINST_REFERENCE, JudgeUtility
from metagen.verifiers.utility.pruning import ConfidencePruning


class UtilitySpec(Spec):
    """How good one text is if another were right.

    kind: a measure of texts, `exact` answers, `judge`, which asks the model of a judge to rate one answer against
    another, or `preference`, which asks the judge of a tournament. of: what is compared, the whole completions or the
    answers that are read in them. aggregate: compare with the mean of all (`bleu`, `chrf`). prune: drop candidates that
    will not win, with this confidence. template, labels, cue, join, chat: what the judge is asked, in other words.
    """

    kind: Literal["exact", "token_f1", "rouge_l", "bleu", "chrf", "edit", "judge", "preference"]
    of: Literal["text", "answer"] = "text"
    aggregate: Switch = False
    prune: Fraction | None = None
    template: Text | None = None
    labels: Labels | None = None
    cue: Text | None = None
    join: Text | None = None
    chat: Switch | None = None

    @property
    def wording(self) -> dict[str, Any]:
        """Of the judge's question, what is given."""
        return {name: value for name in WORDING if (value := getattr(self, name)) is not None}

    @model_validator(mode="after")
    def _asks(self) -> Self:
        if self.kind != "judge" and self.wording:
            raise ValueError(
                f"{next(iter(self.wording))} words what a judge is asked; give it with kind: judge"
            )
        return self


def mbr(
    generator: Generator,
    n: int,
    *,
    utility: UtilitySpec,
    verifier: Verifier | None = None,
    judge: Verifier | None = None,
    answer: AnswerRule,
) -> MBR:
    """Minimum Bayes risk under a utility that is described. judge: who rates (a judge) or prefers (a tournament)."""
    made = _make(utility, answer, judge)
    if utility.prune is not None:
        made = ConfidencePruning(made, alpha=utility.prune)
    return MBR(generator, n, utility=made, verifier=verifier, answer=answer)


vars(mbr).update(chooses=True)


def _make(spec: UtilitySpec, answer: AnswerRule, judge: Verifier | None) -> Utility:
    if spec.kind == "exact":
        return ExactAnswer(answer)
    if spec.kind == "judge":
        if not isinstance(judge, Judge):
            raise InputError(
                "a utility of kind judge needs judge:, the name of a verifier of kind judge, whose model rates answers"
            )
        return JudgeUtility(judge.about_pairs(worded(AGAINST_REFERENCE, spec.wording)))
    if spec.kind == "preference":
        if judge is None:
            raise InputError(
                "a utility of kind preference needs judge:, the name of a verifier of kind tournament"
            )
        return PreferenceUtility(pairwise(judge))
    options: dict[str, Any] = {"answer": answer if spec.of == "answer" else None}
    if spec.aggregate:
        options["aggregate"] = True
    return _measures()[spec.kind](**options)


def _measures() -> dict[str, Callable[..., Utility]]:
    """The measures of texts; their libraries are imported here, when one is asked for."""
    from metagen.verifiers.utility.bleu import BLEU
    from metagen.verifiers.utility.chrf import ChrF
    from metagen.verifiers.utility.edit import EditSimilarity
    from metagen.verifiers.utility.rouge import RougeL
    from metagen.verifiers.utility.token_f1 import TokenF1

    return {"bleu": BLEU, "chrf": ChrF, "edit": EditSimilarity, "rouge_l": RougeL, "token_f1": TokenF1}
