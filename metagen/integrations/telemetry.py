"""OpenTelemetry spans of a solve, by the semantic conventions for generative AI.

    with tracing(strategy, prompt) as listen:
        strategy.solve(prompt, on_event=listen)

One span is for the solve, one for each scope path below it, nested as the paths are, and one for each leaf call with
its real start and end. The span of the solve is the current one while it goes on, so that an outer span is its parent,
and what an HTTP client tells of itself lies within it. The others are written when the solve ends: until then nobody
knows when a scope began.

Attributes are those of semantic-conventions-genai 0.1, and `metagen.*` for what these have no name for. Prompts, texts,
answers and messages of errors are left out, unless `content` is true.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from metagen.errors import InputError, install, lacks

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
except ImportError as error:
    raise ImportError(f"traces need {lacks(error)}: {install('telemetry')}", name=error.name) from error

from metagen.events import Event, Listener
from metagen.generators.engine import CHAT_API
from metagen.generators.primitive import EngineGenerator, Primitive
from metagen.logs import logger
from metagen.sequence import Message, Prompt
from metagen.strategies.base import Observe
from metagen.strategies.tools import Tool
from metagen.verifiers.base import AnswerRule, PrimitiveVerifier, Verifier

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

_LOG = logger(__name__)
#: The variable by which OpenTelemetry's own instrumentations are told to show prompts and texts.
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
#: Spans that wait to be sent: a solve writes all of its own at once.
QUEUE = 65_536
#: Things that a part holds in one list, beyond which they are taken for data, which has no parts in it.
MEMBERS = 64
_FINISHES = {"eos": "stop", "stop": "stop", "length": "length"}
_PARAMETERS = ("temperature", "top_p", "top_k", "max_tokens")
_PENALTIES = ("frequency_penalty", "presence_penalty")
#: Fields of a usage that become attributes.
_USAGE = ("prefilled", "cached", "generated", "flops", "flops_2n", "money", "seconds", "calls")
_CALLS = ("sample", "score", "tool", "call", "error")


@contextmanager
def tracing(
    part: object = None,
    prompt: Prompt | str | Iterable[Message | Mapping[str, Any]] | None = None,
    label: str | None = None,
    *,
    tracer: Tracer | None = None,
    content: bool | None = None,
) -> Iterator[Listener]:
    """Spans of one solve: give what it yields to `on_event`, within the block.

    part: who solves, or several parts; by them the spans know the names of models and verifiers. prompt: tells whether
    models are asked by turns, and is shown with `content`. label: names the solve; by default the class of `part`.
    tracer: of the global provider by default. content: show prompts, texts, answers and messages of errors; by default
    what the environment variable OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says, and that is no.
    """
    tracer = trace.get_tracer("metagen") if tracer is None else tracer
    content = _wants_content() if content is None else content
    asked = None if prompt is None else Prompt.of(prompt)
    label = label or ("solve" if part is None else type(part).__name__)
    given: dict[str, Any] = {"gen_ai.operation.name": "invoke_workflow", "gen_ai.agent.name": label}
    if asked is not None:
        given["metagen.problem"] = asked.problem_id
        if content:
            given["gen_ai.input.messages"] = _messages(asked)
    heard: list[tuple[int, Event]] = []

    def listen(event: Event) -> None:
        if event.kind in _CALLS or event.kind in ("offer", "answer"):
            heard.append((time.time_ns(), event))

    with tracer.start_as_current_span(
        f"invoke_workflow {label}", attributes=given, record_exception=False, set_status_on_exception=False
    ) as root:
        failed = False
        try:
            yield listen
        except BaseException as error:
            failed = True
            _note_error(root, type(error).__name__, error if content else None)
            raise
        finally:
            if root.is_recording():
                try:
                    _Writer(tracer, root, part, asked, content).write(heard, failed)
                except Exception:  # noqa: BLE001 - what is paid for is not lost by it
                    _LOG.warning("the spans of a solve cannot be written", exc_info=True)


def _wants_content() -> bool:
    return os.environ.get(CONTENT, "").strip().lower() in ("true", "1", "span_only", "span_and_event")


def _note_error(span: Span, kind: str, error: BaseException | None = None) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, str(error) if error is not None else kind))
    if error is not None:
        span.record_exception(error)


@dataclass(slots=True)
class _Extent:
    """From when to when something went on, in nanoseconds since 1970."""

    start: int
    end: int

    def take(self, other: _Extent) -> None:
        self.start, self.end = min(self.start, other.start), max(self.end, other.end)


class _Writer:
    """Writes the spans below that of a solve."""

    def __init__(
        self, tracer: Tracer, root: Span, part: object, prompt: Prompt | None, content: bool
    ) -> None:
        self._tracer, self._root, self._prompt, self._content = tracer, root, prompt, content
        self._parts = {} if part is None else _parts(part)

    def write(self, heard: list[tuple[int, Event]], failed: bool) -> None:
        """All of them. failed: an error has ended the solve; scopes in which a call failed are marked by it."""
        scopes: dict[str, _Extent] = {}
        wrong: dict[str, str] = {}
        for at, event in heard:
            extent = _extent(at, event)
            for path in _above(event.path):
                scopes.setdefault(path, _Extent(extent.start, extent.end)).take(extent)
                if event.kind == "error" and failed:
                    wrong[path] = event.error
        contexts = {"": trace.set_span_in_context(self._root)}
        spans: dict[str, Span] = {}
        for path in sorted(scopes, key=lambda one: one.count("/")):
            above, _, role = path.rpartition("/")
            span = self._tracer.start_span(
                role, contexts[above], start_time=scopes[path].start, attributes={"metagen.path": path}
            )
            if path in wrong:
                _note_error(span, wrong[path])
            spans[path], contexts[path] = span, trace.set_span_in_context(span)
        for at, event in heard:
            if event.kind in _CALLS:
                self._write_call(at, event, contexts[event.path])
            else:
                self._note(at, event, spans.get(event.path, self._root))
        for path, span in reversed(spans.items()):
            span.end(scopes[path].end)
        calls = [event for _, event in heard if event.kind in _CALLS]
        self._root.set_attribute("metagen.calls", len(calls))
        self._root.set_attribute("metagen.calls.cached", sum(event.cached for event in calls))

    def _write_call(self, at: int, event: Event, context: Context) -> None:
        extent = _extent(at, event)
        name, kind, described = self._describe(event)
        placed: dict[str, Any] = {
            "metagen.kind": event.kind,
            "metagen.path": event.path,
            "metagen.index": event.index,
        }
        span = self._tracer.start_span(
            name, context, kind, attributes={**placed, **described}, start_time=extent.start
        )
        if event.by:
            span.set_attribute("metagen.by", event.by)
        if event.cached:
            span.set_attribute("metagen.cached", True)
            if event.started is not None:
                span.set_attribute("metagen.recorded_at", event.started)
        if event.refused:
            span.set_attribute("metagen.refused", True)
        if event.kind == "error":
            _note_error(span, event.error)
        if event.finish is not None:
            span.set_attribute("gen_ai.response.finish_reasons", [_FINISHES[event.finish]])
        if event.kind == "score" and event.value is not None:
            span.set_attribute("gen_ai.evaluation.score.value", event.value)
        if self._content and event.text is not None:
            span.set_attribute("gen_ai.output.messages", _output(event))
        span.set_attributes(_usage(event))
        span.end(extent.end)

    def _describe(self, event: Event) -> tuple[str, SpanKind, dict[str, Any]]:
        """The name and kind of a call's span, and who answers."""
        who = self._parts.get(event.by)
        if isinstance(who, EngineGenerator):
            return self._describe_model(who)
        if isinstance(who, Verifier):
            return f"evaluate {who.name}", SpanKind.INTERNAL, {"gen_ai.evaluation.name": who.name}
        if isinstance(who, Tool):
            named = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": who.name}
            return f"execute_tool {who.name}", SpanKind.INTERNAL, named
        name = {"sample": "text_completion", "score": "evaluate", "tool": "execute_tool"}.get(
            event.kind, event.kind
        )
        operation = {"gen_ai.operation.name": name} if event.kind in ("sample", "tool") else {}
        return name, SpanKind.INTERNAL, operation

    def _describe_model(self, who: EngineGenerator) -> tuple[str, SpanKind, dict[str, Any]]:
        provider = type(who.engine).__name__.removesuffix("Engine").lower()
        turns = self._prompt is not None and bool(self._prompt.messages) and self._prompt.form != "text"
        chat = who.chat == CHAT_API or (turns and who.chat is not None)
        operation, model = "chat" if chat else "text_completion", getattr(who.engine, "name", None)
        described: dict[str, Any] = {"gen_ai.operation.name": operation, "gen_ai.provider.name": provider}
        if model is not None:
            described["gen_ai.request.model"] = model
        for name in _PARAMETERS:
            if (value := getattr(who.params, name, None)) is not None:
                described[f"gen_ai.request.{name}"] = value
        described |= {f"gen_ai.request.{n}": v for n in _PENALTIES if (v := getattr(who.params, n))}
        if who.params.stop:
            described["gen_ai.request.stop_sequences"] = list(who.params.stop)
        described |= _server(getattr(who.engine, "base_url", None))
        kind = SpanKind.CLIENT if provider == "openai" else SpanKind.INTERNAL
        return f"{operation} {model}" if model else operation, kind, described

    def _note(self, at: int, event: Event, span: Span) -> None:
        """What is no call: candidates, and the answer."""
        if event.kind == "offer":
            told: dict[str, Any] = {} if event.value is None else {"metagen.value": event.value}
            if self._content and event.key is not None:
                told["metagen.answer"] = event.key
            span.add_event("metagen.offer", told, at)
            return
        if event.finish is not None:
            self._root.set_attribute("gen_ai.response.finish_reasons", [_FINISHES[event.finish]])
        if event.sequence is not None:
            self._root.set_attribute("metagen.exhausted", event.sequence.exhausted)
        self._root.set_attributes(_metagen_usage(event))
        if self._content:
            self._root.set_attribute("gen_ai.output.messages", _output(event))
            if event.key is not None:
                self._root.set_attribute("metagen.answer", event.key)


def _server(url: str | None) -> dict[str, Any]:
    """Where a server is asked; nothing for an engine of this process."""
    found = urlsplit(url or "")
    if found.hostname is None:
        return {}
    return {
        "server.address": found.hostname,
        "server.port": found.port or {"http": 80, "https": 443}[found.scheme],
    }


def _extent(at: int, event: Event) -> _Extent:
    """When an event happened: a call from its start to its end; what the journal answers, when it did so."""
    if event.started is None or event.ended is None or event.cached or event.refused:
        return _Extent(at, at)
    start = int(event.started * 1e9)
    return _Extent(start, max(start, int(event.ended * 1e9)))


def _above(path: str) -> Iterator[str]:
    """A path and those that it lies below, the outermost first."""
    parts = [one for one in path.split("/") if one]
    for count in range(1, len(parts) + 1):
        yield "/".join(parts[:count])


def _usage(event: Event) -> dict[str, Any]:
    """What a call used. What the journal answers, or a limit refuses, has asked no model: it has no `gen_ai.usage`."""
    found, usage = _metagen_usage(event), event.usage
    if usage is None or event.cached or event.refused:
        return found
    if event.kind == "sample":
        if usage.prefilled is not None and usage.cached is not None:
            found["gen_ai.usage.input_tokens"] = usage.prefilled + usage.cached
            found["gen_ai.usage.cache_read.input_tokens"] = usage.cached
        if usage.generated is not None:
            found["gen_ai.usage.output_tokens"] = usage.generated
    return found


def _metagen_usage(event: Event) -> dict[str, Any]:
    if event.usage is None:
        return {}
    values = {name: getattr(event.usage, name) for name in _USAGE}
    return {f"metagen.usage.{name}": value for name, value in values.items() if value is not None}


def _messages(prompt: Prompt) -> str:
    turns = prompt.messages or (Message("user", prompt.text or ""),)
    return json.dumps([_message(one.role, one.content) for one in turns], ensure_ascii=False)


def _output(event: Event) -> str:
    message = _message("assistant", event.text or "")
    if event.finish is not None:
        message["finish_reason"] = _FINISHES[event.finish]
    return json.dumps([message], ensure_ascii=False)


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _parts(whole: object) -> dict[str, Any]:
    """What leaves records inside a part, and itself, by the fingerprints in them."""
    found: dict[str, Any] = {}
    seen, waiting = {id(whole)}, [whole]
    while waiting:
        part = waiting.pop()
        if isinstance(part, AnswerRule):
            continue
        if isinstance(part, Primitive | Tool):
            found.setdefault(part.fingerprint, part)
        elif isinstance(part, PrimitiveVerifier):
            found.setdefault(part.records, part)
        for held in _held(part):
            if id(held) not in seen:
                seen.add(id(held))
                waiting.append(held)
    return found


def _held(part: object) -> Iterable[Any]:
    """What a part holds; nothing of engines, nor of generators that decode with one."""
    if hasattr(type(part), "tokenizer_fingerprint"):
        return ()
    if isinstance(part, Mapping):
        return part.values() if len(part) <= MEMBERS else ()
    if isinstance(part, list | tuple):
        return part if len(part) <= MEMBERS else ()
    plain = type(part).__module__ == "builtins" or not hasattr(part, "__dict__")
    return () if plain else vars(part).values()


# -- sending -------------------------------------------------------------------------------------------


@contextmanager
def exporting() -> Iterator[Observe]:
    """What opens the spans of each solve of a run or a server, which are sent where OpenTelemetry's variables say.

    A program that has set a provider of its own keeps it. Else one is set: it sends to OTEL_EXPORTER_OTLP_ENDPOINT over
    HTTP, or writes to the terminal with OTEL_TRACES_EXPORTER=console, and sends the rest when the block ends. Raises
    InputError for packages that are not installed and for an exporter that is not known.
    """
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        yield tracing
        return
    provider = _provider()
    trace.set_tracer_provider(provider)
    try:
        yield tracing
    finally:
        provider.shutdown()


def _provider() -> TracerProvider:
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise _missing(error) from None
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    provider = TracerProvider(resource=Resource.create({} if named else {"service.name": "metagen"}))
    if (exporter := _exporter()) is not None:
        queue = None if "OTEL_BSP_MAX_QUEUE_SIZE" in os.environ else QUEUE
        provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=queue))
    return provider


def _exporter() -> SpanExporter | None:
    name = os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower()
    if name == "none":
        return None
    if name == "console":
        import sys

        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.stderr)
    if name != "otlp":
        raise InputError(
            f"OTEL_TRACES_EXPORTER={name!r} is not known here; expected otlp, console or none, or start metagen by "
            "opentelemetry-instrument, which sets an exporter of its own"
        )
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise _missing(error) from None
    return OTLPSpanExporter()


def _missing(error: ImportError) -> InputError:
    return InputError(f"traces need {lacks(error)}: {install('telemetry')}")
