"""How a task asks, as a file has it: a text, or the turns of a chat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationInfo,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from metagen.errors import InputError
from metagen.runs.declare.specs.parts import PartSpec, Spec
from metagen.tasks.template import Turns, Wording
from metagen.values import Expects, fits

Said = Annotated[str, Field(min_length=1), Expects("a text that is not empty")]


class ShotSpec(Spec):
    """An example: what a user says, and what the assistant answers. user: the question. assistant: the answer."""

    user: Said
    assistant: Said


class TurnsSpec(Spec):
    """The turns of a chat: examples stand before the question, `assistant` begins the answer.

    system: what the model is told first. shots: examples. user: the question, with places for it. assistant: the
    beginning of the answer.
    """

    system: Said | None = None
    # Not strictly: behind a function the lists of a file are lists of Python.
    shots: Annotated[tuple[ShotSpec, ...], Field(strict=False)] = ()
    user: Said
    assistant: Said | None = None


@dataclass(frozen=True, slots=True)
class PlainOr:
    """Checks a mapping as a model, and all else as a plain value, so that faults name the model's field."""

    model: type[Spec]
    expected: str
    plain: Any = str | None

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [TypeAdapter(self.plain).json_schema(), handler(schema)]}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def check(value: Any, model: core_schema.ValidatorFunctionWrapHandler) -> Any:
            if isinstance(value, Mapping | self.model):
                return model(value)
            if not fits(value, self.plain, strict=True):
                raise PydanticCustomError("expected", "{what}", {"what": self.expected})
            return value

        def dump(value: Any) -> Any:
            return value.model_dump(mode="json", exclude_none=True) if isinstance(value, Spec) else value

        return core_schema.no_info_wrap_validator_function(
            check,
            handler.generate_schema(self.model),
            serialization=core_schema.plain_serializer_function_ser_schema(dump),
        )


Prompted = Annotated[
    str | TurnsSpec | None,
    PlainOr(TurnsSpec, "expected a text with {question} in it, or turns, such as {user: …}"),
]


class PromptedSpec(PartSpec):
    """A task with a prompt of the user's own. places: what it may have places for, and has one at least.

    prompt: another wording than the task's own: a text, or turns.
    """

    places: ClassVar[tuple[str, ...]] = ("question",)
    #: Whether fields of the task's records fill other places.
    open: ClassVar[bool] = False
    prompt: Prompted = None

    def options(self) -> dict[str, Any]:
        return super().options() | {"prompt": _wording(self.prompt)}

    @field_validator("prompt", mode="after")
    @classmethod
    def _check_places(cls, given: str | TurnsSpec | None) -> str | TurnsSpec | None:
        if (wording := _wording(given)) is not None:
            try:
                Turns.of(wording).expecting(*cls.places, others=cls.open)
            except InputError as error:
                raise ValueError(str(error)) from None
        return given


def _wording(given: str | TurnsSpec | None) -> Wording | None:
    return given.model_dump(exclude_none=True) if isinstance(given, TurnsSpec) else given


class PublicPromptSpec(PromptedSpec):
    """A task with a wording of its own, and with worked examples for models that follow no instructions.

    form: how the prompt is sent, as `chat`, `text` or `auto`; `few_shot` is a text with worked examples.
    """

    form: Literal["chat", "text", "auto", "few_shot", "few_shot_chat"] = "chat"

    @field_validator("form", mode="after")
    @classmethod
    def _one_wording(cls, form: str, info: ValidationInfo) -> str:
        if form in ("few_shot", "few_shot_chat") and info.data.get("prompt") is not None:
            raise ValueError(
                "few_shot has a wording of its own, and there is a prompt; leave one of them out: turns have their "
                "examples under shots"
            )
        return form
