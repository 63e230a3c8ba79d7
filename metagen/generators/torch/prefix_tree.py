"""A radix tree over token ids that owns the frozen state of every prefix still in memory.

Each node holds a run of tokens and their segment; a path from a root is a prefix. Each adapter has a root of its own,
since its keys and values are others for the same tokens. What running requests use is locked; the rest is evicted,
least recently used first, when room is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic

from metagen.generators.torch.models.language_model import S


class Node(Generic[S]):
    """A run of tokens after its parent's path. `locks` counts the requests that use it or its descendants."""

    __slots__ = ("children", "locks", "parent", "segment", "tokens", "used")

    def __init__(self, parent: Node[S] | None, tokens: tuple[int, ...], segment: S | None) -> None:
        self.parent = parent
        self.tokens = tokens
        self.segment = segment
        self.children: dict[int, Node[S]] = {}
        self.locks = 0
        self.used = 0

    def path(self) -> list[Node[S]]:
        """The nodes from the root (excluded) to this one."""
        nodes: list[Node[S]] = []
        node: Node[S] | None = self
        while node is not None and node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def chain(self) -> list[S]:
        """The segments along the path."""
        return [node.segment for node in self.path() if node.segment is not None]

    @property
    def depth(self) -> int:
        """Tokens from the root to the end of this node."""
        return sum(len(node.tokens) for node in self.path())


def overlap(tokens: tuple[int, ...], start: int, other: tuple[int, ...]) -> int:
    """How many tokens of `other` follow in `tokens` from `start`."""
    if tokens[start : start + len(other)] == other:
        return len(other)
    n = 0
    for a, b in zip(tokens[start : start + len(other)], other, strict=False):
        if a != b:
            break
        n += 1
    return n


class PrefixTree(Generic[S]):
    """Holds at most `capacity` tokens, less what is reserved.

    tokens, locked, evicted: tokens held, those of them that cannot be evicted, and those evicted so far.
    reserved: room promised to work that is under way.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.reserved = 0
        self.root: Node[S] = Node(None, (), None)
        self.root.locks = 1
        #: By the number of an adapter; 0: none.
        self._roots = {0: self.root}
        self.tokens = 0
        self.locked = 0
        self.evicted = 0
        self._clock = 0

    def match(self, ids: tuple[int, ...], adapter: int = 0) -> tuple[Node[S], int]:
        """The node that ends the longest prefix of `ids` in memory under this adapter, and the prefix's length.

        A node is split where the prefix ends inside it. Marks the path as used now.
        """
        if adapter not in self._roots:
            self._roots[adapter] = Node(None, (), None)
            self._roots[adapter].locks = 1
        node, at = self._roots[adapter], 0
        self._clock += 1
        while at < len(ids) and (child := node.children.get(ids[at])) is not None:
            n = overlap(ids, at, child.tokens)
            if n < len(child.tokens):
                child = self._split(child, n)
            child.used = self._clock
            node, at = child, at + n
        return node, at

    def insert(self, node: Node[S], tokens: tuple[int, ...], segment: Callable[[int, int], S]) -> Node[S]:
        """Extend `node` by `tokens` and return the node that ends them.

        What is there already is kept; `segment(start, stop)` is asked only for the part of `tokens`
        that is new.
        """
        at = 0
        self._clock += 1
        while at < len(tokens):
            child = node.children.get(tokens[at])
            if child is None:
                child = Node(node, tokens[at:], segment(at, len(tokens)))
                node.children[tokens[at]] = child
                self.tokens += len(child.tokens)
            elif (n := overlap(tokens, at, child.tokens)) < len(child.tokens):
                child = self._split(child, n)
            child.used = self._clock
            node, at = child, at + len(child.tokens)
        return node

    def _split(self, node: Node[S], at: int) -> Node[S]:
        """Cut `node` after `at` tokens; returns the new upper part. `node` stays the lower one."""
        assert node.parent is not None and node.segment is not None and 0 < at < len(node.tokens)
        head, tail = node.segment.split(at)
        upper: Node[S] = Node(node.parent, node.tokens[:at], head)
        upper.locks, upper.used = node.locks, node.used
        upper.children[node.tokens[at]] = node
        node.parent.children[upper.tokens[0]] = upper
        node.parent, node.tokens, node.segment = upper, node.tokens[at:], tail
        return upper

    def lock(self, node: Node[S]) -> None:
        """Keep the path to `node` in memory until it is unlocked."""
        for step in node.path():
            if step.locks == 0:
                self.locked += len(step.tokens)
            step.locks += 1

    def unlock(self, node: Node[S]) -> None:
        """Undo one `lock`."""
        for step in node.path():
            step.locks -= 1
            if step.locks == 0:
                self.locked -= len(step.tokens)

    def reserve(self, tokens: int) -> bool:
        """Promise room for `tokens`, evicting for it; False if what is locked and promised leaves too little."""
        if self.locked + self.reserved + tokens > self.capacity:
            return False
        self.reserved += tokens
        self._clear(self.capacity - self.reserved)
        return True

    def room(self, tokens: int) -> bool:
        """Make room for `tokens` that nobody was promised, if that is possible."""
        left = self.capacity - self.reserved - tokens
        if self.locked > left:
            return False  # evicting what is not locked would not be enough
        self._clear(left)
        return self.tokens <= left

    def _clear(self, tokens: int) -> None:
        """Hold at most `tokens`; if that needs evictions, some more, so that a full tree is searched seldom."""
        if self.tokens > tokens:
            self.shrink(tokens - self.capacity // 16)

    def shrink(self, tokens: int) -> None:
        """Evict until at most `tokens` are held, or all that is left is locked."""
        if self.tokens <= tokens:
            return
        leaves = [(leaf.used, i, leaf) for i, leaf in enumerate(self._leaves())]
        heapify(leaves)
        serial = len(leaves)
        while self.tokens > tokens and leaves:
            _, _, leaf = heappop(leaves)
            parent = leaf.parent
            assert parent is not None
            del parent.children[leaf.tokens[0]]
            self.tokens -= len(leaf.tokens)
            self.evicted += len(leaf.tokens)
            leaf.parent, leaf.segment = None, None
            if not parent.children and parent.locks == 0:
                serial += 1
                heappush(leaves, (parent.used, serial, parent))

    def _leaves(self) -> Iterator[Node[S]]:
        """The unlocked nodes without children."""
        stack = [child for root in self._roots.values() for child in root.children.values()]
        while stack:
            node = stack.pop()
            if node.children:
                stack.extend(node.children.values())
            elif node.locks == 0:
                yield node
