"""Engines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from metagen import trust
from metagen.errors import ConfigError
from metagen.generators.models import sources
from metagen.generators.openai.body import refuse_secrets
from metagen.generators.openai.dialects import DIALECTS
from metagen.generators.openai.keys import HIDDEN, HOSTED, address, is_variable, names_key, without_keys
from metagen.generators.openai.limiter import Concurrency
from metagen.generators.openai.retries import Patience
from metagen.runs.declare.specs.fields import Context, EngineName, FileName, ModelName, at_home
from metagen.runs.declare.specs.models import AnyModel
from metagen.runs.declare.specs.parts import PartSpec, naming
from metagen.values import Expects


def _adapter(path: str, info: ValidationInfo) -> str:
    base = info.context.base if isinstance(info.context, Context) else Path()
    folder = (base / at_home(path)).resolve()
    if not (folder / "adapter_config.json").is_file():
        raise ValueError(
            f"there is no adapter_config.json in {str(folder)!r}; expected a LoRA adapter's directory"
        )
    return str(folder)


AdapterName = Annotated[str, Expects("the directory of a LoRA adapter"), AfterValidator(_adapter)]


class LocalSpec(PartSpec):
    """A local model: a directory, an embedded model, or a recipe of several.

    The other fields are those of what makes the engine.
    """

    model: AnyModel

    def options(self) -> dict[str, Any]:
        given = {name: value for name, value in super().options().items() if value is not None}
        return given | {"model": sources.resolve(self.model)} if isinstance(self.model, str) else given


class AdapterSpec(LocalSpec):
    """An adapter on an engine of the file that runs its base: both are computed in one batch.

    engine: a torch engine over the base.
    """

    engine: EngineName
    model: ModelName
    uses = naming(engine="engines")


class VLLMSpec(LocalSpec):
    """A local model on vLLM; the other fields are those of VLLMEngine.

    args: vLLM's own engine arguments, which it checks when the engine is made.
    """

    model: ModelName
    lora: AdapterName | None = None
    args: Annotated[dict[str, Any], Expects("a mapping of vLLM's engine arguments")] = Field(default={})

    @field_validator("args")
    @classmethod
    def _names_no_code(cls, args: dict[str, Any]) -> dict[str, Any]:
        for name, value in args.items():
            if runs := next(_code(name, value), None):
                trust.remote(f"vLLM's {name}: {runs!r}")
        return args

    def options(self) -> dict[str, Any]:
        given = super().options()
        args: dict[str, Any] = given.pop("args")
        if twice := sorted(args.keys() & given.keys()):
            raise ConfigError(f"engines: args.{twice[0]} is given beside {twice[0]}; keep the latter")
        return args | given


#: `package.module.Class`, `module:function`, or a file of code.
_NAMES_CODE = re.compile(r"[A-Za-z_]\w*([.:][A-Za-z_]\w*)+|.*\.py")


def _code(name: str, value: object) -> Iterator[object]:
    """What of an argument has vLLM run code of others: that of a model's directory, or what a name or a file has."""
    if isinstance(value, Mapping):
        for inner, one in value.items():
            yield from _code(str(inner), one)
    elif isinstance(value, list):
        for one in value:
            yield from _code(name, one)
    elif (value is True and name == "trust_remote_code") or (
        isinstance(value, str) and (name.endswith("_plugin") or _NAMES_CODE.fullmatch(value))
    ):
        yield value


def _variable(name: str) -> str:
    if not is_variable(name):
        raise ValueError(
            "expected the name of an environment variable, in capitals, which holds the key; keys are read from the "
            "environment only, never from a file"
        )
    return name


def _address(url: str) -> str:
    if url == HIDDEN:
        raise ValueError(
            "expected an address such as http://localhost:8000/v1 alone, without a name, a password or a query, where "
            "keys are put; put the key in an environment variable and name it by api_key_env"
        )
    return address(url)


def _public(extra: dict[str, Any]) -> dict[str, Any]:
    refuse_secrets(extra)
    return extra


class OpenAISpec(PartSpec):
    """A server that speaks the OpenAI API; the other fields are those of OpenAIEngine."""

    base_url: Annotated[
        str, Expects("an address such as http://localhost:8000/v1"), AfterValidator(_address)
    ] = HOSTED
    api: Literal["completions", "chat"] = "chat"
    dialect: Literal["openai", "vllm", "sglang", "llamacpp", "ollama"] = "openai"
    tokenizer: ModelName | None = None
    shape: FileName | None = None
    api_key_env: (
        Annotated[str, Expects("the name of an environment variable"), AfterValidator(_variable)] | None
    ) = None
    extra_body: Annotated[
        dict[str, Any], Expects("a mapping of fields of requests"), AfterValidator(_public)
    ] = Field(default={})
    concurrency: Concurrency = Concurrency()
    patience: Patience = Patience()

    @model_validator(mode="after")
    def _understood(self) -> Self:
        """The options that a server of this dialect would ignore are refused."""
        length, room = (getattr(self, name, None) for name in ("length_field", "max_context"))
        structured, goes_on = (getattr(self, name, None) for name in ("structured_outputs", "continuation"))
        DIALECTS[self.dialect].check(
            self.api,
            length or "max_tokens",
            self.extra_body,
            room,
            structured=bool(structured),
            continuation=goes_on,
        )
        return self

    @model_validator(mode="before")
    @classmethod
    def _unread(cls, data: Any) -> Any:
        """What may hold a key is taken out before anything can be said of it."""
        if not isinstance(data, Mapping):
            return data
        data = dict(data)
        for name in [name for name in data if name not in cls.model_fields]:
            # A key under a name of its own is answered where keys are named.
            data["api_key_env" if names_key(name) else name] = HIDDEN
            if names_key(name):
                del data[name]
        url, variable, extra = (data.get(name) for name in ("base_url", "api_key_env", "extra_body"))
        if isinstance(url, str) and any(mark in url for mark in "@?#"):
            data["base_url"] = HIDDEN
        if isinstance(variable, str) and not is_variable(variable):
            data["api_key_env"] = HIDDEN
        if isinstance(extra, Mapping):
            data["extra_body"] = without_keys(extra)
        return data
