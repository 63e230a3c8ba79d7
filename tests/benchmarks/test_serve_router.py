"""Ray Serve's router in the simulation: it learns as Ray Serve does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

import pytest

from benchmarks.rivals.serve_router import ServeRouter

TREE = "ray.llm._internal.serve.routing_policies.prefix_aware.prefix_tree"


class PrefixTree:
    """Of whole texts, with the interface of Ray Serve's, which needs packages that tests do not have."""

    def __init__(self) -> None:
        self.holders: dict[str, list[str]] = {}

    def add_tenants(self, tenants: Sequence[str], time: int) -> None:
        self.tenants = list(tenants)

    def insert(self, text: str, tenant: str, time: int) -> None:
        self.holders.setdefault(text, []).append(tenant)

    def prefix_match(self, text: str, tenants: Sequence[str]) -> tuple[str, list[str] | None]:
        return (text, self.holders[text]) if text in self.holders else ("", None)

    def get_smallest_tenants(self) -> list[str]:
        return self.tenants


@pytest.fixture
def router(monkeypatch: pytest.MonkeyPatch) -> ServeRouter:
    module = ModuleType(TREE)
    module.PrefixTree = PrefixTree  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, TREE, module)
    found = ServeRouter(threshold=2)
    for name in ("a", "b", "c"):
        found.join(name)
    return found


def test_it_learns_where_a_prompt_went_also_while_queues_differ(router: ServeRouter) -> None:
    prompt = tuple(range(20))
    router.began("a", None, 5)
    chosen = router.choose(prompt)
    router.began(chosen, prompt, 1)
    router.release("a", 5)
    assert chosen != "a" and router.choose(tuple(range(20))) == chosen


def test_queues_that_differ_by_more_than_the_threshold_count_for_more_than_prefixes(
    router: ServeRouter,
) -> None:
    prompt = tuple(range(20))
    router.began("a", prompt, 2)
    assert router.choose(prompt) == "a"
    router.began("a", prompt, 1)
    assert router.choose(prompt) != "a"
