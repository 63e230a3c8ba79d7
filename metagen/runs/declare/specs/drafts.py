"""What drafts for an engine."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from metagen.generators.decoding.draft import MOST_DRAFTS, Draft
from metagen.generators.models import sources
from metagen.runs.declare.specs.models import AnyModel, loadable
from metagen.runs.declare.specs.parts import ValueSpec
from metagen.values import Count, Expects, Switch


class DraftSpec(ValueSpec):
    """The fields of Draft: a model that drafts, or the longest end of the text that is looked up in it."""

    model: AnyModel | None = None
    ngram: Count | None = None
    tokens: Count = 4
    verify: Literal["token", "block"] | None = None
    drafts: Annotated[int, Field(ge=1, le=MOST_DRAFTS), Expects(f"an integer from 1 to {MOST_DRAFTS}")] = 1
    adapt: Switch = False

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if (self.model is None) == (self.ngram is None):
            raise ValueError(
                "expected a model that drafts, or ngram for a lookup in the text; give one of them"
            )
        self.value  # noqa: B018 - it raises what is wrong
        return self

    @property
    def value(self) -> Draft:
        """As engines take it."""
        model = sources.resolve(self.model) if isinstance(self.model, str) else loadable(self.model)
        return Draft(model, self.tokens, self.verify, self.drafts, self.adapt, self.ngram or 0)
