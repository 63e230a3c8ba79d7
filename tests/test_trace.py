"""The trace is a tree, and every node's usage is that of the leaves below it."""

from __future__ import annotations

import asyncio
from typing import Any

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.budget import Budget
from metagen.cost import Usage
from metagen.errors import BudgetExhausted
from metagen.generators.function import FunctionGenerator
from metagen.journal import Limit, Row, RowKeys, Status
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.strategies.parallel import BestOfN
from metagen.trace import Trace
from metagen.verifiers.function import FunctionVerifier

paths = st.lists(st.sampled_from(["0", "1", "sample", "node"]), max_size=4).map("/".join)
counts = st.none() | st.integers(0, 9)
usages = st.builds(
    Usage, prefilled=counts, cached=counts, generated=counts, calls=st.integers(0, 1), flops=counts
)


def row(path: str, index: int, usage: Usage, physical: Usage, status: Status = "complete") -> Row:
    limit = Limit("B", "calls", 1.0) if status == "refused" else None
    key = RowKeys("g", "p", path)(b"c", index, limit)
    return Row(key, "p", path, "generate", "g", b"c", index, {}, usage, physical, status, limit)


rows = st.lists(
    st.builds(row, paths, st.integers(0, 2), usages, usages, st.sampled_from(["complete", "refused"]))
)


def check(trace: Trace) -> networkx.DiGraph[Any]:
    graph = trace.graph()
    assert networkx.is_arborescence(graph)
    leaves = [n for n in graph if "row" in graph.nodes[n]]
    assert len(leaves) == len(trace.rows)
    for node in graph:
        below = [graph.nodes[n]["row"] for n in {node, *networkx.descendants(graph, node)} if n in leaves]
        assert graph.nodes[node]["usage"] == Usage.sum(r.usage for r in below)
        assert graph.nodes[node]["physical"] == Usage.sum(r.physical for r in below)
        assert {"kind", "label", "status"} <= set(graph.nodes[node])
    assert graph.nodes[""]["usage"] == trace.usage and graph.nodes[""]["kind"] == "problem"
    return graph


@settings(max_examples=40)
@given(rows)
def test_usage_adds_up_on_every_node(recorded: list[Row]) -> None:
    """Rows at any depth, the same row twice, a refusal beside its record, unknown counts."""
    check(Trace.of("p", recorded))


def test_the_trace_of_a_strategy_shows_its_calls_and_what_was_refused() -> None:
    async def main() -> Trace:
        generator = FunctionGenerator(lambda prefix, seed, index: "y" * index, count=len, max_tokens=8)
        verifier = FunctionVerifier(lambda sequence: len(sequence.text) / 10)
        scope = Scope.root("p", budget=Budget(calls=9), label="B")
        prefix = Sequence(Prompt("p", text="what?"))
        strategy = BestOfN(generator, 6, verifier=verifier)
        await strategy.generate(prefix, scope=scope)
        with pytest.raises(BudgetExhausted):
            await generator.generate(prefix, scope=scope.child("late"))
        return scope.trace

    trace = asyncio.run(main())
    graph = check(trace)
    assert {"0", "0/sample", "0/score", "late"} <= set(graph)
    kinds = [graph.nodes[n]["kind"] for n in graph.successors("0/sample")]
    assert kinds and set(kinds) == {"generate"}
    assert trace.usage.calls == 9
    assert [graph.nodes[n]["status"] for n in graph.successors("late")] == ["refused"]
