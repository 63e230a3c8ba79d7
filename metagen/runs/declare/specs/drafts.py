"""What drafts for an engine."""

from __future__ import annotations

from typing import Any, Self

from pydantic import model_validator

from metagen.generators.decoding.draft import Draft
from metagen.generators.models import sources
from metagen.runs.declare.specs.models import AnyModel, loadable
from metagen.runs.declare.specs.values import MadeSpec, dataclass_model
from metagen.values import Count


class DraftFields(MadeSpec):
    """model: a model that drafts. ngram: the longest end of the text that is looked up in it, in place of a model."""

    model: AnyModel | None = None
    ngram: Count | None = None

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if (self.model is None) == (self.ngram is None):
            raise ValueError(
                "expected a model that drafts, or ngram for a lookup in the text; give one of them"
            )
        _ = self.value
        return self

    def option(self, name: str) -> Any:
        if name == "model":
            return sources.resolve(self.model) if isinstance(self.model, str) else loadable(self.model)
        return self.ngram or 0 if name == "ngram" else super().option(name)


DraftSpec = dataclass_model(Draft, DraftFields)
