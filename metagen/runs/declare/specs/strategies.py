"""What definitions of strategies hold that no parameter says."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from metagen import trust
from metagen.runs.declare.registry import Section
from metagen.runs.declare.specs.fields import (
    AnyVerifier,
    GeneratorName,
    StrategyName,
    distinct,
    some,
)
from metagen.runs.declare.specs.parts import PluginSpec, Spec, naming
from metagen.runs.declare.specs.prompts import PlainOr
from metagen.sequence import Step, Tokens
from metagen.strategies.prompts import REVISE, FollowUp, Form
from metagen.values import Count, Expects, Text

#: The numbers of candidates that a strategy is run with.
Ladder = Annotated[
    Count | Annotated[tuple[Count, ...], AfterValidator(some), AfterValidator(distinct)],
    Expects("an integer ≥ 1, or a list of them"),
]


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

    def make(self) -> Form[str, str | None]:
        """The form that is described. Raises ConfigError for a function that cannot be imported."""
        if self.form is None:
            return FollowUp(self.words or REVISE.words, self.unsaid)
        found: Form[str, str | None] = trust.load(self.form)
        return found


#: A function, as package.module:function, or what a corrector is asked.
Asked = Annotated[
    str | AskSpec | None,
    PlainOr(AskSpec, "expected package.module:function, or words, such as {words: …}"),
]


class OptionSpec(Spec):
    """Another generator, another strategy over the generator of the grid, or that strategy over that generator.

    n: in place of the strategy's own. generator: another one. strategy: another one.
    """

    generator: GeneratorName | None = None
    strategy: StrategyName | None = None
    n: Count | None = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.generator is None and self.strategy is None:
            raise ValueError("expected a generator, a strategy, or both")
        if self.strategy is None and self.n is not None:
            raise ValueError(
                f"n = {self.n} is of a strategy, and only a generator is named; give strategy, such as a majority, or "
                "leave n out"
            )
        return self

    def names_in(self, section: Section) -> tuple[str, ...]:
        """The parts of a section that it names."""
        name = {"strategies": self.strategy, "generators": self.generator}.get(section)
        return () if name is None else (name,)


#: A number of samples in all, or something else that answers.
Way = Annotated[
    Count | OptionSpec,
    PlainOr(OptionSpec, "expected an integer ≥ 1, or {generator: …, strategy: …, n: …}", Count),
]


class StepSpec(Spec):
    """What a step is: by default, one of the task. tokens: blocks of so many, in place of a delimiter.

    mark: what the step with the answer has in its text, so that the sequence ends with it; by default, what the task
    says. "" for none: a sequence ends with its end token. delimiter: the text that ends a step. max_tokens: of a
    step.
    """

    delimiter: Annotated[str, Field(min_length=1), Expects("the text that ends a step")] | None = None
    mark: Annotated[str, Expects("text of the step with the answer, or ''")] | None = None
    max_tokens: Count = 256
    tokens: Count | None = None

    @model_validator(mode="after")
    def _check_delimiter(self) -> Self:
        if self.tokens is not None and self.delimiter is not None:
            raise ValueError(
                "there are a delimiter and tokens, which stand in its place; leave one of them out"
            )
        if self.tokens is not None and self.mark:
            raise ValueError(
                "there are a mark and tokens, blocks that may end within an answer; leave one of them out"
            )
        if self.tokens is not None and self.max_tokens != type(self).model_fields["max_tokens"].default:
            raise ValueError(
                f"max_tokens = {self.max_tokens} bounds a step that ends at a delimiter, and tokens stand in its "
                "place; leave one of them out"
            )
        return self

    def until(self, delimiter: str, mark: str | None) -> Step | Tokens:
        """What a step is. delimiter, mark: of the task, where the file says nothing."""
        if self.tokens is not None:
            return Tokens(self.tokens)
        own = mark if self.mark is None else self.mark
        return Step(self.delimiter or delimiter, self.max_tokens, own or None)


class PluginStrategySpec(PluginSpec):
    """A strategy of another package."""

    uses = naming(over="strategies", verifier="verifiers")
    verifier: AnyVerifier | None = None
    over: StrategyName | None = None
    n: Ladder | None = None
