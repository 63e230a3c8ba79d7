"""The tree of a search: explicit nodes, each with its sequence, score, children and cost.

Positions name nodes: the root is `0`, and `0.3.1` is draw 1 of draw 3 of the root. They are the places of the calls
too (`node/0.3`), so they depend on neither the order in which results arrive nor the rule that selects.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from metagen.cost import Usage
from metagen.sequence import Score, Sequence

if TYPE_CHECKING:
    import networkx

    from metagen.journal import Row

#: open: may be extended. expanded: has been. finished: its sequence has ended. pruned: given up by the rule.
State = Literal["open", "expanded", "finished", "pruned"]


@dataclass(slots=True, eq=False)
class Node:
    """A partial or finished sequence.

    position: the numbers of the draws that lead here. score: of its last step, by the process verifier; that of the
    parent, if the step is empty; None where nothing was scored. draws: each draw by its number; equal ones lead to
    one child. multiplicity: how many draws lead here. asked: draws asked for, also those under way; the next has
    this number. visits, worth: how often a search came by, and the sum of the values that it brought back, where a
    rule keeps them. cost: of drawing and scoring the children, once the search has ended.
    """

    sequence: Sequence
    position: tuple[int, ...] = (0,)
    parent: Node | None = None
    score: Score | None = None
    state: State = "open"
    multiplicity: int = 1
    asked: int = 0
    visits: int = 0
    worth: float = 0.0
    cost: Usage = field(default_factory=Usage)
    draws: dict[int, Node] = field(default_factory=dict)

    def __repr__(self) -> str:
        value = "" if self.value is None else f", {self.value:.3f}"
        return f"Node({self.name}, {self.step!r:.40}, {self.state}{value})"

    @property
    def name(self) -> str:
        """The position as a path: `0.3.1`."""
        return ".".join(map(str, self.position))

    @property
    def depth(self) -> int:
        """Steps from the root."""
        return len(self.position) - 1

    @property
    def value(self) -> float | None:
        """Of the last step; 0 for what was cut, however good it looks; None where nothing was scored."""
        value = self.score.value if self.score else None
        return 0.0 if value is not None and self.finished and not self.complete else value

    @property
    def step(self) -> str:
        """The text that this node adds to its parent's."""
        return self.sequence.text[len(self.parent.sequence.text) :] if self.parent else ""

    @property
    def empty(self) -> bool:
        """Nothing but blanks was added: there is nothing to score."""
        return not self.step.strip()

    @property
    def finished(self) -> bool:
        """The sequence cannot be extended; that of a step which was merely cut by its length can."""
        return self.sequence.finish is not None

    @property
    def complete(self) -> bool:
        """It has ended by itself. What `max_tokens` or a budget has cut is finished, but not complete."""
        return self.sequence.finish in ("eos", "stop")

    @property
    def open(self) -> bool:
        return self.state == "open"

    @property
    def children(self) -> list[Node]:
        """The distinct children, by position."""
        return distinct(self.draws[i] for i in sorted(self.draws))

    def path(self) -> list[Node]:
        """The nodes from the root to this one."""
        above = self.parent.path() if self.parent else []
        return [*above, self]

    def prune(self) -> None:
        """Give up what is still open; other nodes stay what they are."""
        if self.state == "open":
            self.state = "pruned"


class Tree:
    """The nodes of one search, by position.

    below: the path below which its calls stand. chosen: what the search returned, once it has.
    """

    def __init__(self, prefix: Sequence, below: str = "") -> None:
        self.root, self.below = Node(prefix), below
        self.chosen: Sequence | None = None
        self._nodes: dict[tuple[int, ...], Node] = {self.root.position: self.root}

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        """By position: parents before children, siblings by number."""
        return iter([self._nodes[position] for position in sorted(self._nodes)])

    def __getitem__(self, name: str) -> Node:
        """The node at a position such as `0.3.1`; KeyError if there is none (duplicates have the first's)."""
        return self._nodes[tuple(map(int, name.split(".")))]

    def add(
        self, parent: Node, start: int, sequences: abc.Sequence[Sequence], scores: abc.Sequence[Score | None]
    ) -> list[Node]:
        """Draws start, start + 1, … of a node become its children; returns the child of each draw.

        A draw that says what one before it said is merged into it. What says nothing new has its parent's score.
        """
        known = {draw_key(child.sequence): child for child in parent.draws.values()}
        if sequences:
            parent.state = "expanded"
        nodes = []
        for number, (sequence, score) in enumerate(zip(sequences, scores, strict=True), start):
            child = known.get(draw_key(sequence))
            if child is None:
                child = Node(sequence, (*parent.position, number), parent, multiplicity=0)
                child.state = "finished" if child.finished else "open"
                known[draw_key(sequence)] = self._nodes[child.position] = child
            child.multiplicity += 1
            if child.score is None:
                child.score = parent.score if child.empty else score
            parent.draws[number] = child
            nodes.append(child)
        return nodes

    def finished_leaves(self) -> list[Node]:
        """The finished leaves, by position."""
        return [node for node in self if node.state == "finished"]

    def complete(self) -> list[Node]:
        """The finished leaves that were not cut, by position."""
        return [node for node in self.finished_leaves() if node.complete]

    def frontier(self) -> list[Node]:
        """The open nodes, by position."""
        return [node for node in self if node.state == "open"]

    def leaves(self) -> list[Node]:
        """The nodes without children, by position, the root not among them."""
        return [node for node in self if not node.draws and node.parent]

    def charge(self, rows: Iterable[Row]) -> None:
        """Tell each node what its children cost: of these rows, those below its position or a role in between."""
        spent: dict[str, list[Usage]] = {node.name: [] for node in self}
        for row in rows:
            if row.path.startswith(f"{self.below}/"):
                parts = row.path[len(self.below) + 1 :].split("/")
                if name := next((part for part in parts if part in spent), None):
                    spent[name].append(row.usage)
        for node in self:
            node.cost = Usage.sum(spent[node.name])

    def graph(self) -> networkx.DiGraph:
        """The tree for networkx: edges point to children, nodes are positions such as `0.3.1`.

        Attributes of nodes: step, text, value, state, depth, multiplicity, visits, finish, cut, chosen (on the way
        to what was returned), generated and prefilled (tokens that its children cost).
        """
        import networkx

        graph: networkx.DiGraph[Any] = networkx.DiGraph()
        leaf = next((n for n in self if self.chosen is not None and _same(n.sequence, self.chosen)), None)
        way = set(leaf.path()) if leaf else set()
        for node in self:
            graph.add_node(
                node.name, step=node.step, text=node.sequence.text, value=node.value, state=node.state,
                depth=node.depth, multiplicity=node.multiplicity, visits=node.visits,
                finish=node.sequence.finish, cut=node.sequence.cut, chosen=node in way,
                generated=node.cost.generated, prefilled=node.cost.prefilled,
            )  # fmt: skip
            if node.parent:
                graph.add_edge(node.parent.name, node.name)
        return graph


def draw_key(sequence: Sequence) -> tuple[object, ...]:
    """What makes two draws of one node the same: the text, and whether and how it has ended; and its tokens, where they
    have a weight.
    """
    tokens = None if sequence.log_mass is None or sequence.tokens is None else sequence.tokens.ids
    return sequence.text, sequence.finish, tokens


def rank(node: Node) -> tuple[float, int, tuple[int, ...]]:
    """The order of search: the highest value first, none after all; of equals the deeper, then the first drawn."""
    return (1.0 if node.value is None else -node.value, -node.depth, node.position)


def best_first(nodes: Iterable[Node]) -> list[Node]:
    """Nodes in the order of `rank`."""
    return sorted(nodes, key=rank)


def distinct(nodes: Iterable[Node]) -> list[Node]:
    """Each node once, in the order of its first place."""
    return list(dict.fromkeys(nodes))


def _same(one: Sequence, other: Sequence) -> bool:
    return draw_key(one) == draw_key(other)
