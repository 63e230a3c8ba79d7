"""The router: long prefixes attract, load repels, the dead are forgotten, memory is bounded."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from metagen.errors import EngineError, InputError
from metagen.generators.routing import Router

BLOCK = 4


def router(*names: str, **options: float) -> Router:
    made = Router(block=BLOCK, **options)  # type: ignore[arg-type]  # of several types
    for name in names:
        made.join(name)
    return made


def blocks(*values: int) -> tuple[int, ...]:
    """Ids of whole blocks, one for each value."""
    return tuple(value for value in values for _ in range(BLOCK))


def test_the_longest_prefix_wins() -> None:
    made = router("a", "b", "c")
    made.holds("a", blocks(1))
    made.holds("b", blocks(1, 2))
    made.holds("c", blocks(7, 1, 2, 3))
    assert made.choose(blocks(1, 2, 3)) == "b"
    assert made.match_length("b", blocks(1, 2, 3)) == 2 * BLOCK
    assert made.match_length("c", blocks(1, 2, 3)) == 0, "a block counts only behind the same blocks"


def test_a_part_of_a_block_is_no_prefix() -> None:
    made = router("a", "b")
    made.began("a", blocks(1)[:-1])
    assert made.choose(blocks(1)[:-1]) == "b", "of equal load, the one that was sent fewer requests"


@pytest.mark.parametrize(
    ("load", "least", "chosen"),
    [(11, 0, "b"), (10, 0, "a"), (111, 100, "a"), (201, 100, "b"), (200, 100, "a")],
)
def test_overload_takes_both_measures(load: int, least: int, chosen: str) -> None:
    made = router("a", "b", absolute=10, relative=2)
    made.began("a", blocks(1, 2), load)
    made.began("b", None, least)
    assert made.choose(blocks(1, 2)) == chosen


def test_requests_without_ids_go_to_the_least_loaded() -> None:
    made = router("a", "b", "c")
    made.began("a", None, 3)
    made.began("b", None, 1)
    made.began("c", None, 2)
    assert made.choose(None) == "b"
    made.release("c", 2)
    assert made.choose(None) == "c"


def test_idle_replicas_take_turns() -> None:
    made = router("a", "b", "c")
    sent = []
    for number in range(6):
        name = made.choose(blocks(number))
        made.began(name, blocks(number))
        made.release(name)
        sent.append(name)
    assert sent == ["a", "b", "c"] * 2


def test_a_tree_stays_on_one_replica() -> None:
    """Sixty-four problems with a tree each, all with the same long instructions before the question."""
    made = router("a", "b", "c", "d", absolute=1000)
    shared = blocks(*range(100, 108))
    where: dict[int, set[str]] = {}
    for depth in range(4):
        for problem in range(64):
            for child in range(3):
                path = (*shared, *blocks(problem), *(depth * (child,)) * BLOCK)
                name = made.choose(path)
                made.began(name, path)
                where.setdefault(problem, set()).add(name)
                made.release(name)
    assert all(len(names) == 1 for names in where.values())


def test_shared_instructions_do_not_bind_all_problems_to_one_replica() -> None:
    made = router("a", "b", "c", "d", absolute=8)
    shared = blocks(*range(8))
    for problem in range(400):
        name = made.choose(shared + blocks(1000 + problem))
        made.began(name, shared + blocks(1000 + problem))
    loads = [made.load(name) for name in made]
    assert sum(loads) == 400
    assert max(loads) <= 1.5 * min(loads) + 9


def test_a_light_load_with_shared_instructions_is_spread() -> None:
    made = router("a", "b", "c", "d")
    shared = blocks(*range(8))
    for problem in range(16):
        name = made.choose(shared + blocks(1000 + problem))
        made.began(name, shared + blocks(1000 + problem), 4)
    assert max(made.load(name) for name in made) <= 24


def test_a_replica_that_left_is_forgotten_and_may_come_again() -> None:
    made = router("a", "b")
    made.began("a", blocks(1, 2), 5)
    made.leave("a")
    assert made.remembered == 0
    assert made.choose(blocks(1, 2)) == "b"
    made.release("a", 5)
    made.join("a")
    assert made.match_length("a", blocks(1, 2)) == 0
    assert made.load("a") == 0


def test_leaves_of_a_tree_are_forgotten_before_its_root() -> None:
    made = router("a", blocks=3)
    made.holds("a", blocks(1, 2, 3))
    made.holds("a", blocks(1, 9))
    assert made.match_length("a", blocks(1, 9)) == 2 * BLOCK
    assert made.match_length("a", blocks(1, 2, 3)) == 2 * BLOCK, "block 3 went, blocks 1 and 2 stayed"


@given(st.integers(1, 40), st.lists(st.lists(st.integers(0, 5), max_size=12), max_size=30))
def test_the_same_calls_give_the_same_choices(bound: int, asked: list[list[int]]) -> None:
    def choices() -> list[str]:
        made = router("a", "b", "c", blocks=bound)
        chosen = []
        for values in asked:
            chosen.append(made.choose(blocks(*values)))
            made.began(chosen[-1], blocks(*values))
        return chosen

    assert choices() == choices()


def test_errors_name_the_value() -> None:
    with pytest.raises(InputError, match="block=0: expected a number ≥ 1"):
        Router(block=0)
    with pytest.raises(InputError, match=r"relative=0\.5"):
        Router(relative=0.5)
    with pytest.raises(EngineError, match="no replica is there"):
        Router().choose((1, 2))
    with pytest.raises(InputError, match="'a' has joined before"):
        router("a", "a")


class Traffic(RuleBasedStateMachine):
    """Requests come and go, replicas too; beside the router, the plain truth."""

    @initialize(bound=st.integers(1, 60), absolute=st.integers(0, 4), relative=st.sampled_from([1, 1.5, 2]))
    def begin(self, bound: int, absolute: int, relative: float) -> None:
        self.router = Router(block=BLOCK, blocks=bound, absolute=absolute, relative=relative)
        self.loads: dict[str, int] = {}
        self.running: list[tuple[str, int]] = []
        self.names = count()

    @rule()
    def join(self) -> None:
        name = f"replica {next(self.names)}"
        self.router.join(name)
        self.loads[name] = 0

    @precondition(lambda self: self.loads)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.loads)))
        self.router.leave(name)
        del self.loads[name]

    @precondition(lambda self: self.loads)
    @rule(values=st.none() | st.lists(st.integers(0, 2), max_size=6), load=st.integers(1, 4))
    def ask(self, values: list[int] | None, load: int) -> None:
        ids = None if values is None else blocks(*values)
        name = self.router.choose(ids)
        least = min(self.loads.values())
        assert name in self.loads, "never a replica that has left"
        matched = {one: self.router.match_length(one, ids or ()) for one in self.loads}
        if matched[name] < max(matched.values()) or not max(matched.values()):
            assert self.loads[name] == least, "who has no prefix is chosen for the least load"
        if matched[name] < max(matched.values()):
            longest = [one for one in matched if matched[one] == max(matched.values())]
            lightest = min(self.loads[one] for one in longest)
            assert lightest > least + self.router.absolute and lightest > self.router.relative * least
        self.router.began(name, ids, load)
        self.loads[name] += load
        self.running.append((name, load))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        name, load = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.router.release(name, load)
        if name in self.loads:
            self.loads[name] -= load

    @invariant()
    def memory_is_bounded(self) -> None:
        if hasattr(self, "router"):
            assert self.router.remembered <= max(self.router.blocks, len(self.router))
            assert {name: self.router.load(name) for name in self.router} == self.loads


TestTraffic = Traffic.TestCase


def test_a_handicap_counts_as_load_and_is_none() -> None:
    router = Router(block=4, absolute=3, relative=1.5)
    router.join("a", handicap=2)
    router.join("b")
    assert [_send(router, None) for _ in range(3)] == ["b", "b", "a"]
    router.handicap("a", 0)
    assert _send(router, None) == "a"
    assert (router.load("a"), router.load("b")) == (2, 2), "what was sent"
    ids = tuple(range(8))
    router.holds("a", ids)
    router.handicap("a", 3)
    assert router.choose(ids) == "a", "busier, and not overloaded"
    router.handicap("a", 4)
    assert router.choose(ids) == "b"
    router.handicap("c", 1)  # is not there
    assert set(router) == {"a", "b"}


def _send(router: Router, ids: tuple[int, ...] | None) -> str:
    name = router.choose(ids)
    router.began(name, ids)
    return name
