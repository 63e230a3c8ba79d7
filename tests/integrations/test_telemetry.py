"""Spans of a solve, as OpenTelemetry's own SDK sees them."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("opentelemetry.sdk", reason="pip install opentelemetry-sdk; it is in the extra `test`")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import (
    error_attributes,
    gen_ai_attributes,
    server_attributes,
)
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from metagen.budget import Budget
from metagen.cost import Usage
from metagen.errors import InputError, MetagenError
from metagen.events import Event
from metagen.generators.function import FunctionGenerator
from metagen.generators.openai.engine import OpenAIEngine
from metagen.generators.torch.engine import TorchEngine
from metagen.integrations import telemetry
from metagen.integrations.telemetry import tracing
from metagen.journal import MemoryJournal
from metagen.runs.directory import RunDirectory
from metagen.strategies.base import Result, Strategy
from metagen.strategies.chain.chain import Chain
from metagen.strategies.chain.steps import Ask
from metagen.strategies.parallel import BestOfN, MajorityVote, Sample
from metagen.strategies.tools import Tool
from metagen.strategies.tree.rebase import Rebase
from metagen.verifiers.function import FunctionVerifier
from metagen.verifiers.numbers import NumberRule
from tests.generators.openai.serving import Asked, Reply, Server
from tests.serve.serving import FILE, QUESTION, serving

PROMPT = "Q:a=12+7;b=a*3;c=b-8;c?\nS:\n"
SHORT = FunctionVerifier(lambda s: 1.0 / (1 + len(s.text)), name="short")


class Traced:
    """What an exporter in memory is given."""

    def __init__(self) -> None:
        self._exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = provider.get_tracer("tests")

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def root(self) -> ReadableSpan:
        (found,) = [one for one in self.spans if one.parent is None]
        return found

    def kind(self, kind: str) -> list[ReadableSpan]:
        return [one for one in self.spans if of(one).get("metagen.kind") == kind]

    def paths(self) -> dict[str, ReadableSpan]:
        """The spans of scopes, by path."""
        return {str(of(one)["metagen.path"]): one for one in self.spans if set(of(one)) >= {"metagen.path"} - {
            "metagen.kind"} and "metagen.kind" not in of(one) and "metagen.path" in of(one)}  # fmt: skip


@pytest.fixture
def traced() -> Traced:
    return Traced()


@pytest.fixture(scope="module")
def engine() -> Iterator[TorchEngine]:
    with TorchEngine("tiny-0.5m", threads=1) as opened:
        yield opened


def of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def identity(span: ReadableSpan) -> int:
    return span.get_span_context().span_id


def saying(*texts: str) -> FunctionGenerator:
    return FunctionGenerator(lambda prompt, seed, index: texts[index % len(texts)])


def solve(traced: Traced, strategy: Strategy, *, content: bool | None = None, **how: Any) -> Result:
    with tracing(strategy, PROMPT, tracer=traced.tracer, content=content) as listen:
        return strategy.solve(PROMPT, on_event=listen, **how)


def known_names() -> set[str]:
    """What OpenTelemetry's own package calls attributes of generative AI and of servers."""
    names: set[str] = set()
    for module in (gen_ai_attributes, server_attributes, error_attributes):
        names |= {value for value in vars(module).values() if isinstance(value, str)}
    return names


def test_names_and_operations_are_those_of_the_conventions(engine: TorchEngine, traced: Traced) -> None:
    operations = {one.value for one in gen_ai_attributes.GenAiOperationNameValues}
    generator = engine.generator(max_tokens=60, stop=("\n\n",), frequency_penalty=0.5)
    solve(traced, BestOfN(generator, n=2, verifier=SHORT, answer=NumberRule()), seed=3, content=True)
    told = [(name, value) for span in traced.spans for name, value in of(span).items()]
    assert {name for name, _ in told if not name.startswith("metagen.")} <= known_names()
    assert {value for name, value in told if name == "gen_ai.operation.name"} <= operations
    (first, _) = traced.kind("sample")
    assert of(first)["gen_ai.request.stop_sequences"] == ("\n\n",)
    assert of(first)["gen_ai.request.frequency_penalty"] == 0.5
    assert not {"gen_ai.request.presence_penalty", "server.address"} & set(of(first))


def test_a_call_of_a_server_names_its_address(traced: Traced) -> None:
    async def reply(asked: Asked) -> Reply:
        choices = [
            {"index": i, "text": "A:4", "finish_reason": "stop"} for i in range(asked.body.get("n", 1))
        ]
        return Reply(
            body={"choices": choices, "usage": {"prompt_tokens": 3, "completion_tokens": len(choices)}}
        )

    with (
        Server(reply).open() as behind,
        OpenAIEngine("m", base_url=behind.url, api="completions", max_context=400) as engine,
    ):
        solve(traced, Sample(engine.generator(max_tokens=9)), seed=1)
        port = int(behind.url.split(":")[2].split("/")[0])
    (call,) = traced.kind("sample")
    assert call.kind is SpanKind.CLIENT
    assert (of(call)["server.address"], of(call)["server.port"]) == ("127.0.0.1", port)


def test_every_leaf_call_is_a_span_and_the_tokens_add_up(engine: TorchEngine, traced: Traced) -> None:
    strategy = BestOfN(
        engine.generator(max_tokens=60, temperature=0.7), n=5, verifier=SHORT, answer=NumberRule()
    )
    result = solve(traced, strategy, seed=3)
    root, samples, scores = traced.root(), traced.kind("sample"), traced.kind("score")
    assert root.name == "invoke_workflow BestOfN" and of(root)["gen_ai.operation.name"] == "invoke_workflow"
    assert len(samples) == 5 and {one.name for one in samples} == {"text_completion tiny-0.5m"}
    for one in samples:
        assert of(one)["gen_ai.request.model"] == "tiny-0.5m" and of(one)["gen_ai.provider.name"] == "torch"
        assert of(one)["gen_ai.request.temperature"] == 0.7 and of(one)["gen_ai.request.max_tokens"] == 60
        assert one.kind is SpanKind.INTERNAL and of(one)["gen_ai.response.finish_reasons"] in (
            ("stop",),
            ("length",),
        )
    assert sum(of(one)["gen_ai.usage.output_tokens"] for one in samples) == result.usage.generated
    spent = sum(of(one)["gen_ai.usage.input_tokens"] for one in samples)
    assert result.usage.prefilled is not None and result.usage.cached is not None
    assert spent == result.usage.prefilled + result.usage.cached
    assert sum(of(one)["metagen.usage.flops"] for one in samples) == result.usage.flops
    assert {of(one)["gen_ai.evaluation.name"] for one in scores} == {"short"}
    best = max(of(one)["gen_ai.evaluation.score.value"] for one in scores)
    assert best == pytest.approx(1.0 / (1 + len(result.text)))
    assert of(root)["metagen.usage.generated"] == result.usage.generated
    assert of(root)["metagen.calls"] == len(samples) + len(scores) == result.usage.calls


def test_spans_nest_as_the_scopes_do_and_lie_within_each_other(engine: TorchEngine, traced: Traced) -> None:
    result = solve(traced, Rebase(engine.generator(max_tokens=60), n=4, verifier=SHORT, answer=NumberRule()))
    scopes, root = traced.paths(), traced.root()
    recorded = {row.path for row in result.trace.rows}
    assert len(recorded) > 2 and recorded <= set(scopes) | {""}
    for path, span in scopes.items():
        above = path.rpartition("/")[0]
        assert parent(span) == identity(scopes[above] if above else root)
    by_id = {identity(one): one for one in traced.spans}
    for span in traced.spans:
        assert span.start_time is not None and span.end_time is not None and span.start_time <= span.end_time
        if "metagen.kind" in of(span):
            path = of(span)["metagen.path"]
            assert parent(span) == identity(scopes[path])
        if span.parent is not None and span.parent.span_id != identity(root):
            outer = by_id[span.parent.span_id]
            assert outer.start_time is not None and outer.end_time is not None
            assert outer.start_time <= span.start_time and span.end_time <= outer.end_time
    started = sorted(int(row.started * 1e9) for row in result.trace.rows)
    calls = [one for one in traced.spans if "metagen.kind" in of(one)]
    assert sorted(one.start_time or 0 for one in calls) == started


def test_texts_are_shown_only_where_that_is_asked_for(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = MajorityVote(saying("the secret is\nA:3", "the secret is\nA:5"), n=3, answer=NumberRule())
    solve(traced, strategy)
    assert "secret" not in everything(traced) and PROMPT.strip() not in everything(traced)
    shown = Traced()
    solve(shown, strategy, content=True)
    (message,) = json.loads(of(shown.root())["gen_ai.input.messages"])
    assert message == {"role": "user", "parts": [{"type": "text", "content": PROMPT}]}
    (answer,) = json.loads(of(shown.root())["gen_ai.output.messages"])
    assert answer["parts"][0]["content"] == "the secret is\nA:3" and of(shown.root())["metagen.answer"] == "3"
    texts = {
        json.loads(of(one)["gen_ai.output.messages"])[0]["parts"][0]["content"]
        for one in shown.kind("sample")
    }
    assert texts == {"the secret is\nA:3", "the secret is\nA:5"}
    monkeypatch.setenv(telemetry.CONTENT, "true")
    again = Traced()
    solve(again, strategy)
    assert "secret" in everything(again)


def everything(traced: Traced) -> str:
    return "".join(one.to_json() for one in traced.spans)


def test_a_replay_asks_nobody(engine: TorchEngine, traced: Traced) -> None:
    strategy, journal = Sample(engine.generator(max_tokens=40)), MemoryJournal()
    strategy.solve(PROMPT, journal=journal)
    solve(traced, strategy, journal=journal)
    (call,) = traced.kind("sample")
    assert of(call)["metagen.cached"] is True and of(call)["metagen.usage.generated"] > 0
    assert not [name for name in of(call) if name.startswith("gen_ai.usage")]
    root = traced.root()
    assert root.start_time is not None and call.start_time is not None and root.start_time <= call.start_time
    assert of(root)["metagen.calls.cached"] == 1


def test_what_a_limit_refuses_is_marked(traced: Traced) -> None:
    solve(traced, MajorityVote(saying("3", "4", "5"), n=3, answer=NumberRule()), budget=Budget(calls=2))
    assert [of(one).get("metagen.refused", False) for one in traced.kind("sample")] == [False, False, True]
    assert of(traced.root())["metagen.exhausted"] is True
    assert traced.root().status.status_code is StatusCode.UNSET


def test_an_error_is_a_status_of_the_call_and_of_all_above_it(traced: Traced) -> None:
    def fail(prompt: str, seed: int, index: int) -> str:
        raise ValueError("my secret")

    strategy = Chain(
        {"first": Ask(saying("fine"), "{prompt}"), "last": Ask(FunctionGenerator(fail), "{first}")}
    )
    with pytest.raises(MetagenError):
        solve(traced, strategy)
    (call,) = traced.kind("error")
    scopes = traced.paths()
    failed = {path for path, one in scopes.items() if one.status.status_code is StatusCode.ERROR}
    assert failed == {"0", "0/last"} and "0/first" in scopes
    for span in (call, traced.root()):
        assert span.status.status_code is StatusCode.ERROR and of(span)["error.type"] in (
            "PluginError",
            "ValueError",
        )
    assert "secret" not in everything(traced)
    shown = Traced()
    with pytest.raises(MetagenError):
        solve(shown, strategy, content=True)
    assert "secret" in everything(shown) and shown.root().events[-1].name == "exception"


def test_an_error_that_a_listener_hears_of_comes_before_the_end() -> None:
    def fail(prompt: str, seed: int, index: int) -> str:
        raise ValueError("no")

    heard: list[Event] = []
    with pytest.raises(MetagenError):
        Sample(FunctionGenerator(fail)).solve("?", on_event=heard.append)
    (told,) = heard
    assert told.kind == "error" and told.path == "0/sample" and told.error and told.by
    assert told.started is not None and told.ended is not None and told.started <= told.ended


def test_an_outer_span_is_the_parent(traced: Traced) -> None:
    with traced.tracer.start_as_current_span("request") as outer:
        solve(traced, Sample(saying("7")))
    (root,) = [one for one in traced.spans if one.name == "invoke_workflow Sample"]
    assert parent(root) == outer.get_span_context().span_id


def test_what_is_traced_within_a_call_lies_within_the_solve(traced: Traced) -> None:
    def write(prompt: str, seed: int, index: int) -> str:
        with traced.tracer.start_as_current_span("http"):
            return "7"

    solve(traced, Sample(FunctionGenerator(write)))
    (inner,) = [one for one in traced.spans if one.name == "http"]
    assert parent(inner) == identity(traced.root())


def test_solves_side_by_side_are_not_mixed(traced: Traced) -> None:
    async def one(name: str) -> None:
        strategy = MajorityVote(saying("3", "3", "5"), n=3, answer=NumberRule())
        with tracing(strategy, PROMPT, name, tracer=traced.tracer) as listen:
            await strategy.asolve(PROMPT, on_event=listen)

    async def main() -> None:
        await asyncio.gather(*(one(f"solve-{i}") for i in range(4)))

    asyncio.run(main())
    roots = {identity(one): one.name for one in traced.spans if one.parent is None}
    assert len(set(roots.values())) == 4
    traces = {one.get_span_context().trace_id for one in traced.spans}
    assert len(traces) == 4 and len(traced.kind("sample")) == 12


def test_a_tool_has_its_name(traced: Traced) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    tool = Tool(add)
    with tracing(tracer=traced.tracer) as listen:
        listen(Event("tool", "0/add", started=1.0, ended=2.0, usage=Usage(calls=1), by=tool.fingerprint))
    assert traced.kind("tool")[0].name == "execute_tool"
    told = Traced()
    with tracing(_Holder(tool), tracer=told.tracer) as listen:
        listen(Event("tool", "0/add", started=1.0, ended=2.0, usage=Usage(calls=1), by=tool.fingerprint))
    (call,) = told.kind("tool")
    assert call.name == "execute_tool add" and of(call)["gen_ai.tool.name"] == "add"
    assert (call.start_time, call.end_time) == (10**9, 2 * 10**9)


class _Holder:
    def __init__(self, tool: Tool) -> None:
        self.tools = [tool]


def test_a_server_traces_each_request(tmp_path: Path, traced: Traced) -> None:
    from functools import partial

    observe = partial(tracing, tracer=traced.tracer)
    with serving(tmp_path, FILE, observe=observe) as running:
        body = {"model": "small/majority@4", "prompt": QUESTION, "seed": 1}
        whole = httpx.post(f"{running.url}/completions", json=body, timeout=60).json()
        assert len(traced.kind("sample")) == 4
        streamed = {**body, "stream": True, "model": "small/one"}
        assert httpx.post(f"{running.url}/completions", json=streamed, timeout=60).status_code == 200
    names = [one.name for one in traced.spans if one.parent is None]
    assert names == ["invoke_workflow small/majority@4", "invoke_workflow small/one"]
    assert whole["choices"][0]["text"] and QUESTION.strip() not in everything(traced)


@pytest.mark.parametrize("name", ["jaeger", "otlp,console"])
def test_an_exporter_that_is_not_known_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", name)
    with pytest.raises(InputError, match="expected otlp, console or none"), telemetry.exporting():
        pass


def test_a_run_traces_each_problem_and_part(place: Path, traced: Traced) -> None:
    from functools import partial

    from metagen.runs.declare import schema
    from metagen.runs.work import build, runner

    setup = schema.load(place / "sums.yaml")
    with build.open_setup(setup) as opened:
        state = runner.run(
            opened, RunDirectory.at(place / "out"), observe=partial(tracing, tracer=traced.tracer)
        )
    assert state.status == "complete"
    roots = [one for one in traced.spans if one.parent is None]
    assert {of(one)["metagen.problem"] for one in roots} == {f"sum-{i}" for i in range(8)}
    names = [of(one)["gen_ai.agent.name"] for one in roots]
    assert {name: names.count(name) for name in set(names)} == {"toy": 8, "toy/adaptive@4": 8}
    # Of adaptive, the samples are those of the pool.
    assert sum("metagen.cached" not in of(one) for one in traced.kind("sample")) == 64
    assert sum("metagen.cached" in of(one) for one in traced.kind("sample")) >= 16
    assert {of(one)["gen_ai.evaluation.name"] for one in traced.kind("score")} == {"judge"}
    assert "=?" not in everything(traced) and "A:" not in everything(traced)


def test_the_command_sends_spans_to_a_collector(place: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="pip install -e '.[telemetry]'")
    import os
    import subprocess
    import sys

    bodies = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *given: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [sys.executable, "-m", "metagen.cli", "run", "sums.yaml", "--out", "out", "--telemetry"]
        where = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
        done = subprocess.run(command, env={**os.environ, **where}, capture_output=True, text=True, cwd=place)
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert {path for path, _ in bodies} == {"/v1/traces"}
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    spans, services = [], set()
    for _, body in bodies:
        request = ExportTraceServiceRequest()
        request.ParseFromString(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
        for resource in request.resource_spans:
            services |= {
                one.value.string_value for one in resource.resource.attributes if one.key == "service.name"
            }
            spans += [span for scope in resource.scope_spans for span in scope.spans]
    assert services == {"metagen"}
    assert sum(not span.parent_span_id for span in spans) == 16  # eight problems; a pool and one strategy


def test_shards_are_refused_by_name(place: Path) -> None:
    from metagen.runs.declare import schema
    from metagen.runs.work import build, runner

    text = (place / "sums.yaml").read_text().replace("{concurrency: 2}", "{kind: ray, shards: 1}")
    (place / "sums.yaml").write_text(text)
    with (
        build.open_setup(schema.load(place / "sums.yaml")) as opened,
        pytest.raises(InputError, match="without traces"),
    ):
        runner.run(opened, RunDirectory(place / "out"), observe=tracing)


def test_packages_that_are_not_installed_are_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from typer.testing import CliRunner

    from metagen.cli import app

    monkeypatch.delitem(sys.modules, "metagen.integrations.telemetry")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    result = CliRunner().invoke(app, ["run", "sums.yaml", "--out", "out", "--telemetry"])
    assert result.exit_code == 2 and "[telemetry]" in result.output and "opentelemetry" in result.output
