"""Requests of the OpenAI API, as far as they mean something to a strategy. Everything else is refused by its name."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from metagen.errors import InputError
from metagen.generators.decoding.grammar import Grammar
from metagen.runs.declare.source import nearest
from metagen.serve.errors import ApiError, refuse

R = TypeVar("R", bound="Read")
Positive = Annotated[int, Field(ge=1)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
#: Characters of a schema, at most: the time that its grammar takes grows with their square.
SCHEMA = 100_000
#: Texts that end an answer, at most: every token is compared with them.
STOPS = 64
#: Sampling parameters that are called in the API as they are called here.
SAME = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)


class Read(BaseModel):
    """What is read from outside: nothing unknown, no infinities, and no text or truth value for a number."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


class Limits(Read):
    """What one request may spend: see `Budget`."""

    generated: Annotated[int, Field(ge=0)] | None = None
    prefilled: Annotated[int, Field(ge=0)] | None = None
    calls: Annotated[int, Field(ge=0)] | None = None
    flops: Annotated[float, Field(ge=0)] | None = None
    money: Annotated[float, Field(ge=0)] | None = None
    seconds: Annotated[float, Field(ge=0)] | None = None


#: How headers begin that say what `metagen` may say in a body.
HEADER = "x-metagen-"


class Options(Read):
    """What a request asks of metagen, in the field `metagen` of its body.

    budget: tokens to generate, or limits by name. strategy: another one of the same generator. n: samples of the
    strategy. effort: as `reasoning_effort`. progress: whether a stream tells how the work goes. exhausted: what a
    request gets whose budget ends, what there is or an error.
    """

    budget: Limits | Annotated[int, Field(ge=0)] | None = None
    strategy: str | None = None
    n: Positive | None = None
    effort: Effort | None = None
    progress: bool = True
    exhausted: Literal["answer", "error"] | None = None


class StreamOptions(Read):
    """include_usage: a chunk with the usage comes before the end. include_obfuscation: there is none."""

    include_usage: bool = False
    include_obfuscation: bool = False


class JsonSchema(Read):
    """A schema that the answer must fit."""

    name: str = "answer"
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Read):
    """text, json_object (any JSON), or json_schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class Common(Read):
    """What all endpoints have. Fields of any type change nothing here; clients send them all the same.

    asks: the field that holds the prompt. names: of fields that this endpoint calls otherwise than chats.
    """

    asks: ClassVar[str] = "messages"
    names: ClassVar[Mapping[str, str]] = {}

    model: str
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    stream: bool = False
    metagen: Options = Options()
    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    parallel_tool_calls: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None
    safety_identifier: Any = None

    @classmethod
    def called(cls, error: ApiError) -> ApiError:
        """The error, with its field called as the client called it."""
        for ours, theirs in cls.names.items():
            if error.param is not None and f"{error.param}.".startswith(f"{ours}."):
                error.message = re.sub(rf"^{ours}\b", theirs, error.message)
                error.param = theirs + error.param.removeprefix(ours)
                break
        return error


class Request(Common):
    """What chats and completions have."""

    n: Positive = 1
    max_tokens: Positive | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-100, le=100)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-100, le=100)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    stop: str | Annotated[list[str], Field(max_length=STOPS)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stream_options: StreamOptions | None = None
    verbosity: Any = None

    @property
    def length(self) -> int | None:
        """Tokens of a sample, at most, as the request says it."""
        return self.max_tokens

    @property
    def keeps_logprobs(self) -> bool:
        """Whether log-probabilities are asked for."""
        return False

    @property
    def form(self) -> ResponseFormat | None:
        """What the answer must be."""
        return None

    def sampling(self) -> dict[str, Any]:
        """The sampling parameters that it changes, by `SamplingParams`' names. ApiError for what cannot be had."""
        if self.stream_options is not None and not self.stream:
            raise refuse("stream_options", "this is no stream; give stream: true, or leave it out")
        given = {name: value for name in SAME if (value := getattr(self, name)) is not None}
        if given.get("top_k") == -1:
            given["top_k"] = 0
        if self.length is not None:
            given["max_tokens"] = self.length
        if self.stop is not None and self.stop != "":
            given["stop"] = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        if self.logit_bias:
            try:
                given["logit_bias"] = {int(token): bias for token, bias in self.logit_bias.items()}
            except ValueError:
                raise refuse("logit_bias", "expected ids of tokens") from None
        if self.form is not None:
            if self.form.type != "json_schema" and self.form.json_schema is not None:
                why = f"type {self.form.type!r} does not read it; give type 'json_schema'"
                raise refuse("response_format.json_schema", why)
            if self.form.type != "text":
                given["grammar"] = _grammar(self.form)
        if self.keeps_logprobs:
            given["logprobs"] = True
        return given


class ChatRequest(Request):
    """POST /v1/chat/completions."""

    messages: Annotated[list[dict[str, Any]], Field(min_length=1)]
    max_completion_tokens: Positive | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    reasoning_effort: Effort | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    function_call: Any = None
    modalities: list[str] | None = None
    audio: Any = None
    prediction: Any = None
    web_search_options: Any = None

    @property
    def length(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def keeps_logprobs(self) -> bool:
        return bool(self.logprobs)

    @property
    def form(self) -> ResponseFormat | None:
        return self.response_format

    @property
    def told_tools(self) -> list[dict[str, Any]] | None:
        """The tools that the model may call; None if there are none."""
        return None if self.tool_choice == "none" else self.tools or None

    def sampling(self) -> dict[str, Any]:
        one_of_both("max_tokens", self.max_tokens, "max_completion_tokens", self.max_completion_tokens)
        if self.functions:
            raise refuse("functions", "the old form of tools; send tools")
        if self.tool_choice not in (None, "none", "auto"):
            raise refuse("tool_choice", f"{self.tool_choice!r:.60} cannot be promised; expected auto or none")
        if self.parallel_tool_calls is False and self.told_tools:
            raise refuse("parallel_tool_calls", "one call at most cannot be promised; leave it out")
        if self.top_logprobs:
            raise refuse("top_logprobs", "only the tokens that were drawn are kept; leave it out")
        for name in ("audio", "prediction", "web_search_options"):
            if getattr(self, name) is not None:
                raise refuse(name, "not supported; leave it out")
        if self.modalities is not None and self.modalities != ["text"]:
            raise refuse("modalities", "answers are text")
        return super().sampling()


class CompletionRequest(Request):
    """POST /v1/completions."""

    asks = "prompt"

    prompt: str | list[str] | list[int] | list[list[int]]
    best_of: Positive | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    suffix: str | None = None

    @property
    def keeps_logprobs(self) -> bool:
        return self.logprobs is not None

    @property
    def prompts(self) -> list[str]:
        """The texts that are to be continued."""
        given = [self.prompt] if isinstance(self.prompt, str) else self.prompt
        if not given or not all(isinstance(one, str) and one for one in given):
            raise refuse("prompt", "expected a text, or a list of texts; token ids are not supported")
        return [str(one) for one in given]

    def sampling(self) -> dict[str, Any]:
        if self.best_of not in (None, self.n):
            raise refuse("best_of", "a strategy chooses by itself; give metagen.n, and leave best_of out")
        if (self.logprobs or 0) > 1:
            raise refuse("logprobs", "only the tokens that were drawn are kept; expected 0 or 1")
        if self.echo:
            raise refuse("echo", "prompts are not repeated; leave it out")
        if self.suffix:
            raise refuse("suffix", "texts are continued, not filled in; leave it out")
        return super().sampling()


def one_of_both(name: str, value: Any, other: str, beside: Any) -> None:
    """ApiError for two fields of one meaning that say different things."""
    if value is not None and beside is not None and value != beside:
        raise refuse(name, f"{value!r}, and {other} is {beside!r}; give one of both")


def read_json(body: bytes | bytearray) -> Any:
    """The JSON of a body. ApiError for what is none, and for what has two meanings: a field that is given twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ApiError(400, f"{twice!r:.80} is given twice", param=twice[:80], code="invalid_json")
        return found

    def refuse_constant(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    def number(text: str) -> float:
        if math.isinf(value := float(text)):
            raise ValueError(f"{text:.20} is too large a number")
        return value

    try:
        found = json.loads(body, object_pairs_hook=unique, parse_constant=refuse_constant, parse_float=number)
        if re.search(rb"\\u[dD][89a-fA-F]", body):
            json.dumps(found, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ApiError(400, "the body holds half a character, such as \\ud800", code="invalid_json") from None
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is no JSON: {error}", code="invalid_json") from None
    return found


def parse(kind: type[R], body: Any, headers: Mapping[str, str]) -> R:
    """A request from the JSON of its body, and from headers `x-metagen-…` where the body does not say them.

    Raises ApiError that names the field at fault.
    """
    if not isinstance(body, dict):
        raise ApiError(400, f"expected a JSON object, got {type(body).__name__}", code="invalid_json")
    beside = {
        name: _of_header(name, value)
        for header, value in headers.items()
        if (name := header.removeprefix(HEADER)) != header
    }
    own = {} if body.get("metagen") is None else body["metagen"]
    if beside and isinstance(own, dict):
        body = {**body, "metagen": {**beside, **own}}
    given = {name: value for name, value in body.items() if value is not None}
    try:
        return kind.model_validate(given)
    except ValidationError as errors:
        raise _fault(kind, given, errors) from None


def _of_header(name: str, value: str) -> Any:
    """The value of an option: a text is itself, and all else is JSON."""
    if name in ("strategy", "effort", "exhausted"):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _fault(kind: type[Read], body: dict[str, Any], errors: ValidationError) -> ApiError:
    """The deepest fault, by its place in the body; where a value may be of several kinds, by all of them."""
    faults = [(_place(one, body), one) for one in errors.errors(include_url=False)]
    place, first = max(faults, key=lambda one: len(one[0]))  # the first of the deepest
    path = ".".join(place)
    if first["type"] == "extra_forbidden":
        owners: dict[tuple[str, ...], type[Read]]
        owners = {(): kind, ("metagen",): Options, ("metagen", "budget"): Limits}
        owner = owners.get(place[:-1])
        known = [] if owner is None else list(owner.model_fields)
        near = nearest(place[-1], known)
        # The fields of a body are many, most of them OpenAI's; those of metagen are few.
        told = f"; expected one of {', '.join(known)}" if known and owner is not kind and not near else near
        return ApiError(400, f"{path}: no such field{told}", param=path, code="unknown_field")
    if first["type"] == "missing":
        return ApiError(400, f"{path}: missing", param=path, code="missing_field")
    said = " or ".join(dict.fromkeys(_expected(one["msg"]) for other, one in faults if other == place))
    return ApiError(
        400, f"{path} = {first['input']!r:.80}: expected {said}", param=path, code="invalid_value"
    )


def _place(fault: ErrorDetails, body: Any) -> tuple[str, ...]:
    """Where a fault is. The names of types that pydantic adds are left out: they are not in the body."""
    place: list[str] = []
    here: Any = body
    for part in fault["loc"]:
        if isinstance(part, int) if isinstance(here, list) else isinstance(here, dict) and part in here:
            here = here[part]
            place.append(str(part))
    return (*place, str(fault["loc"][-1])) if fault["type"] == "missing" else tuple(place)


def _expected(message: str) -> str:
    """What pydantic expects, in words of JSON."""
    said = re.sub(r" or instance of \w+", "", message.removeprefix("Input should be "))
    return (
        said.replace("a valid dictionary", "an object")
        .replace("a valid integer", "an integer")
        .replace("valid ", "")
    )


def _grammar(form: ResponseFormat) -> Grammar:
    try:
        if form.type == "json_object":
            return Grammar.json({"type": "object"})
        if form.json_schema is None:
            raise refuse("response_format.json_schema", "missing")
        made = Grammar.json(form.json_schema.schema_)
    except InputError as error:
        raise refuse("response_format", str(error)) from None
    if len(made.source) > SCHEMA:
        raise refuse(
            "response_format",
            f"a schema of {len(made.source):,} characters is more than this server reads; expected at most {SCHEMA:,}",
        )
    return made
