"""What definitions of strategies hold that no parameter says, and those that are learned from a run."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from metagen.runs.declare.registry import Section
from metagen.runs.declare.specs.fields import (
    AnyVerifier,
    GeneratorName,
    RunName,
    StrategyName,
    distinct,
    some,
)
from metagen.runs.declare.specs.parts import PartSpec, PluginSpec, Spec, naming
from metagen.values import Count, Expects, Number, Quantity, Text

#: The numbers of candidates that a strategy is run with.
Ladder = Annotated[
    Count | Annotated[tuple[Count, ...], AfterValidator(some), AfterValidator(distinct)],
    Expects("an integer ≥ 1, or a list of them"),
]


class StrategySpec(PartSpec):
    """over: another strategy, which takes the place of the generator. It runs on the generator of the grid."""

    uses = naming(over="strategies")
    over: StrategyName | None = None


class AskSpec(Spec):
    """What a corrector is asked. words: our turn after the candidate, with {feedback} in it; unsaid: without feedback.

    form: a function in place of words, package.module:function, (prompt, candidate, feedback) -> Prompt.
    """

    words: Text | None = None
    unsaid: Text | None = None
    form: Text | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.form is not None and (self.words or self.unsaid) is not None:
            raise ValueError("there are words and a form; give one of them")
        return self


class OptionSpec(Spec):
    """Another generator, another strategy over the generator of the grid, or that strategy over that generator.

    n: in place of the strategy's own.
    """

    generator: GeneratorName | None = None
    strategy: StrategyName | None = None
    n: Count | None = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.generator is None and self.strategy is None:
            raise ValueError("expected a generator, a strategy, or both")
        return self


class MeanSpec(Spec):
    """What a problem may cost on average: one limit."""

    generated: Quantity | None = None
    prefilled: Quantity | None = None
    calls: Quantity | None = None
    flops: Quantity | None = None
    money: Quantity | None = None

    @property
    def limit(self) -> str:
        """The limited one."""
        (name,) = self.model_fields_set
        return name

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.model_dump(exclude_none=True)) != 1 or len(self.model_fields_set) != 1:
            raise ValueError("expected one limit, such as {flops: 2.0e+9}")
        return self


class ByDifficultySpec(StrategySpec):
    """The agreement of the first samples, or the verifier's mean score, says how to go on.

    then: one more than edges, hardest first; each is a number of samples in all, or something else that answers.
    Without both they are learned from the configurations of a held-out run, for a mean cost and at most so many groups.
    """

    uses = naming(over="strategies", verifier="verifiers", then="strategies")
    by_hand = frozenset({"held_out", "mean", "groups"})
    kind: Literal["by_difficulty"]
    first: Count = 4
    edges: tuple[Number, ...] | None = None
    then: tuple[Count | OptionSpec, ...] | None = None
    held_out: RunName | None = None
    mean: MeanSpec | None = None
    groups: Count = 5
    predictor: Literal["agreement", "mean_score"] = "agreement"
    verifier: AnyVerifier | None = None

    @model_validator(mode="after")
    def _given_or_learned(self) -> Self:
        there = [value is not None for value in (self.edges, self.then, self.held_out, self.mean)]
        if there not in ([True, True, False, False], [False, False, True, True]):
            raise ValueError(
                "expected a table, edges and then, or what to learn it from, held_out (a run on other problems) and "
                "mean (what a problem may cost on average, such as {flops: 2.0e+9})"
            )
        if self.held_out is not None and self.over is not None:
            raise ValueError(
                f"over: {self.over} beside held_out: a table is learned from samples of the grid's generator; leave "
                "out over, or give edges and then"
            )
        return self

    def named(self, section: Section) -> tuple[str, ...]:
        plain = {"strategies": (self.over,), "verifiers": (self.verifier,)}.get(section, ())
        field = {"strategies": "strategy", "generators": "generator"}.get(section, "")
        ways = (getattr(option, field, None) for option in self.then or ())
        return tuple(name for name in (*plain, *ways) if name is not None)


class StepSpec(Spec):
    """What a step is: by default, one of the task. tokens: blocks of so many, in place of a delimiter.

    mark: what the step with the answer has in its text, so that the sequence ends with it; by default, what the task
    says. "" for none: a sequence ends with its end token.
    """

    delimiter: Annotated[str, Field(min_length=1), Expects("the text that ends a step")] | None = None
    mark: Annotated[str, Expects("text of the step with the answer, or ''")] | None = None
    max_tokens: Count = 256
    tokens: Count | None = None

    @model_validator(mode="after")
    def _delimited(self) -> Self:
        if self.tokens is not None and self.mark:
            raise ValueError(
                "there are a mark and tokens, blocks that may end within an answer; leave one of them out"
            )
        return self


class PluginStrategySpec(PluginSpec):
    """A strategy of another package."""

    uses = naming(over="strategies", verifier="verifiers")
    verifier: AnyVerifier | None = None
    over: StrategyName | None = None
    n: Ladder | None = None
