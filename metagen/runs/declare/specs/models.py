"""The model of an engine: a directory, an embedded model, or a recipe that makes one language model of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    create_model,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from metagen.generators.models import recipes
from metagen.generators.models.recipes import Recipe
from metagen.runs.declare.specs.fields import local_model
from metagen.runs.declare.specs.parts import ValueSpec
from metagen.runs.declare.specs.values import MadeSpec, dataclass_model
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


def _to_tuple(value: Any) -> Any:
    # Within a recipe values are no longer read as JSON, where lists become tuples by themselves.
    return tuple(value) if isinstance(value, list) else value


Parts = Annotated[tuple[Part, ...], BeforeValidator(_to_tuple)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(_to_tuple), Expects("a list of numbers")]
#: What a file says for the types of recipes' fields.
SAID: Final[dict[Any, Any]] = {
    recipes.Part: Part, recipes.Part | None: Part | None, recipes.Parts: Parts,
    tuple[float, ...]: Numbers, tuple[float, ...] | None: Numbers | None,
}  # fmt: skip


class OneRecipeSpec(MadeSpec):
    """A kind of recipe."""

    def option(self, name: str) -> Any:
        return loadable(super().option(name))


class GuidedFields(OneRecipeSpec):
    """candidates: `all` for all tokens, which is exact."""

    candidates: Annotated[Count | Literal["all"], Expects("an integer ≥ 1, or all")] = 200

    def option(self, name: str) -> Any:
        # None is how a file leaves a field out.
        return None if name == "candidates" and self.candidates == "all" else super().option(name)


#: Recipes by the names that files give them.
KINDS: Final[Mapping[str, type[OneRecipeSpec]]] = {
    kind: dataclass_model(recipe, GuidedFields if recipe is recipes.Guided else OneRecipeSpec, SAID)
    for kind, recipe in {
        "contrastive": recipes.Contrastive, "experts": recipes.Experts, "proxy_tuned": recipes.ProxyTuned,
        "ensemble": recipes.Ensemble, "tilted": recipes.Tilted, "guided": recipes.Guided,
    }.items()
}  # fmt: skip


class RecipeFields(ValueSpec):
    """One recipe, under the name of its kind."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            known = ", ".join(type(self).model_fields)
            raise ValueError(f"expected one of {known}; there are {given or 'none'}")
        return self

    @property
    def value(self) -> Recipe:
        given = (getattr(self, name) for name in type(self).model_fields)
        recipe: Recipe = next(spec for spec in given if spec is not None).value
        return recipe


RecipeSpec: Any = create_model(
    "RecipeSpec", __base__=RecipeFields, __doc__=RecipeFields.__doc__,
    **{kind: (model | None, None) for kind, model in KINDS.items()},  # type: ignore[call-overload]
)  # fmt: skip
# They name one another: a part of a recipe may be a recipe.
for _kind in KINDS.values():
    _kind.model_rebuild(_types_namespace={"RecipeSpec": RecipeSpec})
RecipeSpec.model_rebuild()
# Found by name in other processes.
globals().update({model.__name__: model for model in KINDS.values()})
AnyModel = Annotated[str | RecipeSpec, _NameOrRecipe(MODEL)]


def loadable(value: Any) -> Any:
    """A recipe instead of its definition, also within a list; anything else as it is."""
    if isinstance(value, tuple):
        return tuple(map(loadable, value))
    return value.value if isinstance(value, RecipeFields) else value
