"""The model of an engine: a directory, an embedded model, or a recipe that makes one language model of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from metagen.generators.models import recipes
from metagen.generators.models.recipes import Recipe
from metagen.runs.declare.specs.fields import local_model
from metagen.runs.declare.specs.parts import Spec
from metagen.values import Count, Expects

#: What an engine's model may be, as messages say it.
MODEL = "a model directory, or the name of an embedded model"


@dataclass(frozen=True, slots=True)
class _NameOrRecipe(Expects):
    """A text names a model, a mapping is a recipe; places of errors are those of the one that was given."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler(schema)]}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        _, recipe = get_args(source)

        def check(value: Any, inner: core_schema.ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
            if isinstance(value, str):
                return local_model(value, info)
            if isinstance(value, dict | recipe):
                return inner(value)
            known = ", ".join(recipe.model_fields)
            raise ValueError(f"expected {self.what}, or a mapping with one of {known}")

        def plain(value: Any) -> Any:
            return value.model_dump(mode="json", exclude_none=True) if isinstance(value, BaseModel) else value

        return core_schema.with_info_wrap_validator_function(
            check,
            handler.generate_schema(recipe),
            serialization=core_schema.plain_serializer_function_ser_schema(plain),
        )


Part = Annotated["str | RecipeSpec", _NameOrRecipe(MODEL)]


def _listed(value: Any) -> Any:
    # Within a recipe values are no longer read as JSON, where lists become tuples by themselves.
    return tuple(value) if isinstance(value, list) else value


class OneRecipeSpec(Spec):
    """A kind of recipe; its fields are those of the recipe, which checks them together."""

    makes: ClassVar[type[Recipe]]

    @model_validator(mode="after")
    def _sound(self) -> Self:
        _ = self.recipe
        return self

    @property
    def recipe(self) -> Recipe:
        """As engines take it."""
        return self.makes(**{name: self.option(name) for name in type(self).model_fields})

    def option(self, name: str) -> Any:
        """A field as the recipe takes it."""
        return loadable(getattr(self, name))


Share = Annotated[float, Field(gt=0, le=1), Expects("a number in (0, 1]")]
Number = Annotated[float, Expects("a number")]
Parts = Annotated[tuple[Part, ...], BeforeValidator(_listed)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(_listed), Expects("a list of numbers")]
Reading = Literal["raw", "sigmoid", "log_sigmoid"]


class ContrastiveSpec(OneRecipeSpec):
    """Contrastive decoding."""

    makes = recipes.Contrastive
    expert: Part
    amateur: Part
    alpha: Share = 0.1
    temperature: Annotated[float, Field(gt=0), Expects("a number > 0")] = 1.0
    beta: Annotated[float, Field(ge=0), Expects("a number ≥ 0")] | None = None
    window: Count | None = None
    sure: Share | None = None


class ExpertsSpec(OneRecipeSpec):
    """Experts and anti-experts."""

    makes = recipes.Experts
    base: Part
    expert: Part | None = None
    anti: Part | None = None
    alpha: Number = 1.0


class ProxyTunedSpec(OneRecipeSpec):
    """Proxy tuning."""

    makes = recipes.ProxyTuned
    large: Part
    tuned: Part
    untuned: Part
    alpha: Number = 1.0


class EnsembleModelSpec(OneRecipeSpec):
    """Several models that agree."""

    makes = recipes.Ensemble
    models: Parts
    how: Literal["mean", "product"] = "mean"
    weights: Numbers | None = None


class TiltedSpec(OneRecipeSpec):
    """Token-wise control by the values of other models."""

    makes = recipes.Tilted
    base: Part
    values: Parts
    weights: Numbers
    reading: Reading = "raw"


class GuidedSpec(OneRecipeSpec):
    """Candidates weighed by a scorer of prefixes."""

    makes = recipes.Guided
    base: Part
    scorer: Part
    weight: Number = 1.0
    candidates: Annotated[Count | Literal["all"], Expects("an integer ≥ 1, or all")] = 200
    output: Annotated[int, Field(ge=0), Expects("an integer ≥ 0")] = 0
    reading: Reading = "log_sigmoid"

    def option(self, name: str) -> Any:
        # None is how a file leaves a field out.
        return None if name == "candidates" and self.candidates == "all" else super().option(name)


class RecipeSpec(Spec):
    """One recipe, under the name of its kind."""

    contrastive: ContrastiveSpec | None = None
    experts: ExpertsSpec | None = None
    proxy_tuned: ProxyTunedSpec | None = None
    ensemble: EnsembleModelSpec | None = None
    tilted: TiltedSpec | None = None
    guided: GuidedSpec | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            known = ", ".join(type(self).model_fields)
            raise ValueError(f"expected one of {known}; there are {given or 'none'}")
        return self

    @property
    def recipe(self) -> Recipe:
        """As engines take it."""
        given = (getattr(self, name) for name in type(self).model_fields)
        one = next(spec for spec in given if spec is not None)
        recipe: Recipe = one.recipe
        return recipe


# They name one another: a part of a recipe may be a recipe.
for _kind in OneRecipeSpec.__subclasses__():
    _kind.model_rebuild()
AnyModel = Annotated[str | RecipeSpec, _NameOrRecipe(MODEL)]


def loadable(value: Any) -> Any:
    """A recipe instead of its definition, also within a list; anything else as it is."""
    if isinstance(value, tuple):
        return tuple(map(loadable, value))
    return value.recipe if isinstance(value, RecipeSpec) else value
