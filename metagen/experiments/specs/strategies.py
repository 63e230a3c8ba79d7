"""Strategies."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from metagen.experiments.specs.fields import (
    Count,
    Expects,
    GeneratorName,
    Quantity,
    StrategyName,
    Switch,
    VerifierName,
)
from metagen.experiments.specs.parts import PartSpec, PluginSpec, Spec, naming

Positive = Annotated[float, Field(gt=0), Expects("a number > 0")]
Share = Annotated[float, Field(ge=0, le=1), Expects("a number in [0, 1]")]


class StrategySpec(PartSpec):
    """over: another strategy, which takes the place of the generator. It runs on the generator of the grid."""

    uses = naming(over="strategies")
    over: StrategyName | None = None


class PlainStrategySpec(StrategySpec):
    """One sample, as it comes or greedy."""

    kind: Literal["sample", "greedy"]


class ParallelSpec(StrategySpec):
    """A strategy over n candidates. n: by default, those of the grid."""

    n: Count | None = None


class VoteSpec(ParallelSpec):
    """The most frequent answer."""

    kind: Literal["majority"]


class ScoredSpec(ParallelSpec):
    """A strategy over n candidates that needs a verifier."""

    uses = naming(over="strategies", verifier="verifiers")
    verifier: VerifierName


class ScoredStrategySpec(ScoredSpec):
    """A strategy that selects by a verifier's scores."""

    kind: Literal["best_of_n", "weighted"]


class SoftBestSpec(ScoredSpec):
    """Candidate i with probability ∝ exp(r_i/β)."""

    kind: Literal["soft_best_of_n"]
    beta: Positive
    raw: Switch = False


class BordaSpec(ScoredSpec):
    """A vote by ranks: (n − r + 1)^p votes for rank r."""

    kind: Literal["borda"]
    power: Quantity = 1.0


class RejectionSpec(ScoredSpec):
    """The first candidate that the verifier accepts."""

    kind: Literal["rejection"]
    threshold: Share = 0.5
    batch: Count = 1


class UtilitySpec(Spec):
    """How good one text is if another were right.

    kind: a measure of texts, `exact` answers, or `preference`, which asks the judge of a tournament. of: what is
    compared, the whole completions or the answers that are read in them. aggregate: compare with the mean of all
    (`bleu`, `chrf`). prune: drop candidates that will not win, with this confidence.
    """

    kind: Literal["exact", "token_f1", "rouge_l", "bleu", "chrf", "edit", "preference"]
    of: Literal["text", "answer"] = "text"
    aggregate: Switch = False
    prune: Annotated[float, Field(gt=0, le=1), Expects("a confidence in (0, 1]")] | None = None


class MBRSpec(ParallelSpec):
    """The candidate of the highest expected utility; weighted by scores, if there is a verifier."""

    uses = naming(over="strategies", verifier="verifiers", judge="verifiers")
    kind: Literal["mbr"]
    utility: UtilitySpec
    verifier: VerifierName | None = None
    judge: VerifierName | None = None


class UniversalSpec(ParallelSpec):
    """A model names the most consistent candidate; by default the generator itself."""

    uses = naming(over="strategies", judge="generators")
    kind: Literal["universal"]
    judge: GeneratorName | None = None
    votes: Count = 1


class KnockOutSpec(ParallelSpec):
    """Candidates meet in pairs; judge: a verifier of kind `tournament`."""

    uses = naming(over="strategies", judge="verifiers")
    kind: Literal["knockout"]
    judge: VerifierName


class MixtureSpec(StrategySpec):
    """Layers of agents that read what the layer before has written; the generator of the grid has the last word."""

    uses = naming(over="strategies", agents="generators")
    kind: Literal["mixture"]
    agents: Annotated[tuple[GeneratorName, ...], Field(min_length=1)]
    layers: Count = 1


class PluginStrategySpec(PluginSpec):
    """A strategy of another package."""

    uses = naming(over="strategies", verifier="verifiers")
    verifier: VerifierName | None = None
    over: StrategyName | None = None
    n: Count | None = None
