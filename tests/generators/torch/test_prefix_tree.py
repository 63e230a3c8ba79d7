"""The tree against a naive model: a set of prefixes."""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from metagen.generators.torch.prefix_tree import Node, PrefixTree


@dataclass(frozen=True)
class Text:
    """A segment that knows which tokens it stands for."""

    tokens: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.tokens)

    def split(self, at: int) -> tuple[Text, Text]:
        return Text(self.tokens[:at]), Text(self.tokens[at:])


ids = st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple)


def spelled(node: Node[Text]) -> tuple[int, ...]:
    return tuple(t for segment in node.chain() for t in segment.tokens)


class TreeMachine(RuleBasedStateMachine):
    locks = Bundle("locks")

    def __init__(self) -> None:
        super().__init__()
        self.tree: PrefixTree[Text] = PrefixTree(capacity=24)
        self.known: set[tuple[int, ...]] = {()}
        self.held: list[tuple[int, ...]] = []

    def put(self, tokens: tuple[int, ...]) -> Node[Text]:
        node, at = self.tree.match(tokens)
        rest = tokens[at:]
        asked: list[tuple[int, int]] = []

        def segment(a: int, b: int) -> Text:
            asked.append((a, b))
            return Text(rest[a:b])

        node = self.tree.insert(node, rest, segment)
        assert asked == ([(0, len(rest))] if rest else []), "what is known is never asked for"
        self.known |= {tokens[:n] for n in range(len(tokens) + 1)}
        return node

    @rule(tokens=ids)
    def insert(self, tokens: tuple[int, ...]) -> None:
        if self.room(len(tokens)):
            self.put(tokens)

    @rule(target=locks, tokens=ids)
    def insert_and_lock(self, tokens: tuple[int, ...]) -> Node[Text] | None:
        if not self.room(len(tokens)):
            return None
        node = self.put(tokens)
        self.tree.lock(node)
        self.held.append(tokens)
        return node

    @rule(node=consumes(locks))
    def unlock(self, node: Node[Text] | None) -> None:
        if node is not None:
            self.held.remove(spelled(node))
            self.tree.unlock(node)

    @rule(tokens=ids)
    def match(self, tokens: tuple[int, ...]) -> None:
        node, at = self.tree.match(tokens)
        assert spelled(node) == tokens[:at]
        assert at == max(n for n in range(len(tokens) + 1) if tokens[:n] in self.known)

    @rule(tokens=st.integers(0, 30))
    def reserve(self, tokens: int) -> None:
        fits = self.tree.locked + tokens <= self.tree.capacity
        assert self.tree.reserve(tokens) is fits
        if fits:
            assert self.tree.tokens + tokens <= self.tree.capacity
            self.tree.reserved -= tokens
        self.forget()

    def room(self, tokens: int) -> bool:
        fits = self.tree.locked + tokens <= self.tree.capacity
        assert self.tree.room(tokens) is fits
        self.forget()
        return fits

    def forget(self) -> None:
        """Evicted prefixes leave the naive model; those that are locked must be there."""
        stack, here = [self.tree.root], {()}
        while stack:
            node = stack.pop()
            end = spelled(node)
            here |= {end[:n] for n in range(len(end) + 1)}
            stack.extend(node.children.values())
        assert here <= self.known
        assert all(tokens in here for tokens in self.held)
        self.known = here

    @invariant()
    def counts_are_exact(self) -> None:
        assert self.tree.tokens == len(self.known) - 1
        locked = {t[:n] for t in self.held for n in range(1, len(t) + 1)}
        assert self.tree.locked == len(locked)
        assert self.tree.tokens <= self.tree.capacity


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_the_least_recently_used_goes_first() -> None:
    tree: PrefixTree[Text] = PrefixTree(capacity=6)
    for tokens in ((1, 1), (2, 2), (3, 3)):
        tree.insert(tree.root, tokens, lambda a, b, t=tokens: Text(t[a:b]))
    tree.match((1, 1))
    tree.shrink(4)
    assert [tree.match((t, t))[1] for t in (1, 2, 3)] == [2, 0, 2]
    assert tree.evicted == 2


def test_leaves_go_before_what_they_hang_on() -> None:
    tree: PrefixTree[Text] = PrefixTree(capacity=10)
    for tokens in ((1, 2, 3), (1, 2, 4)):
        node, at = tree.match(tokens)
        tree.insert(node, tokens[at:], lambda a, b, t=tokens[at:]: Text(t[a:b]))
    assert tree.tokens == 4
    tree.shrink(3)
    assert tree.match((1, 2, 3))[1] == 2
    assert tree.match((1, 2, 4))[1] == 3
    tree.shrink(0)
    assert tree.tokens == 0
    assert not tree.root.children


def test_what_cannot_be_made_room_for_evicts_nothing() -> None:
    tree: PrefixTree[Text] = PrefixTree(capacity=100)

    def put(tokens: tuple[int, ...]) -> Node[Text]:
        return tree.insert(tree.match(tokens)[0], tokens, lambda a, b: Text(tokens[a:b]))

    tree.lock(put(tuple(range(50))))
    put(tuple(range(100, 120)))
    assert tree.reserve(30)
    assert (tree.locked, tree.tokens) == (50, 70)
    assert not tree.room(25)
    assert tree.tokens == 70
    assert tree.room(5)
    assert tree.tokens <= 65
