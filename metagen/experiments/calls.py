"""The calls of a run as a table: each sample and score that a pool or a configuration needed, and what it waited for.

A call waits for those that wrote what it reads, which the digests of contents tell: a sample for the call that wrote
its prefix, and for the score of that if it has one; a score for the samples of its text. Searches that go level by
level (`LEVELS`), and samples that are drawn in batches, wait besides for all calls of a lesser `depth`: such a call
`waits`. What is written for a prompt of a strategy's own making names no call; it is taken to wait for every call
before it that does not stand beside it in parallel, and is `assumed`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from metagen.cost import ModelShape
from metagen.experiments.costs import POOL, SAMPLING, is_scoring
from metagen.generators.base import Generator
from metagen.journal import Row
from metagen.sequence import Prompt, Sequence, Step, Tokens, digest
from metagen.strategies.parallel import Parallel
from metagen.strategies.tree.split import Split
from metagen.tasks.base import Problem
from metagen.verifiers.base import Verifier
from metagen.verifiers.generative.judge import Judge

if TYPE_CHECKING:
    from metagen.experiments.build import Configuration, Setup
    from metagen.experiments.makers import Makers

#: Kinds whose rounds are known from the paths of their calls: a round begins when the one before has ended.
LEVELS = frozenset({"rebase", "beam", "dvts", "particles", "gibbs", "blockwise", "lookahead"})
#: Kinds that wait for more than their calls tell: what is known is the least.
AT_LEAST = frozenset({
    "lookahead", "async_rebase", "best_first", "depth_first", "mcts", "treefinement", "by_difficulty", "deepconf",
})  # fmt: skip
#: Kinds that draw a sample when they have seen the one before.
ONE_BY_ONE = frozenset({"length_control"})
GENERATION = "generation"
#: Depths of one iteration of a search that is repeated.
ITERATION = 1 << 16
#: Places whose numbered children run side by side; other numbers follow one another.
BESIDE = ("sample", "rollout", "critique", "node")
_NUMBER = re.compile(r"\d+(?:\.\d+)*")
_ROUND = re.compile(r"(?:^|/)iteration/(\d+)(?:/|$)")
_NODE = re.compile(r"(?:^|/)node/(\d+(?:\.\d+)*)(?:/|$)")
_BLOCK = re.compile(r"(?:^|/)block/(\d+)(?:/|$)")


@dataclass(frozen=True)
class Calls:
    """Makes the rows of the table `calls` of a run. makers: the names of who answers."""

    setup: Setup
    makers: Makers

    def pool(
        self, problem: Problem, generator: str, rows: Iterable[Row], judged: Mapping[str, Iterable[Row]]
    ) -> list[dict[str, Any]]:
        """The calls of a pool, under its generator's name. judged: those of each verifier, as if it stood alone."""
        drawn = [(GENERATION, row) for row in rows]
        scored = [(name, row) for name, ours in judged.items() for row in ours]
        known = Known(problem.prompt, ("None",), self._judges(judged))
        return self._rows(generator, (*drawn, *scored), known, f"{POOL}/{SAMPLING}")

    def direct(
        self, configuration: Configuration, problem: Problem, rows: Iterable[Row]
    ) -> list[dict[str, Any]]:
        """The calls of a configuration that ran by itself."""
        strategy, verifier = self._strategies[configuration.name], configuration.verifier
        batch = strategy.batch if isinstance(strategy, Parallel) else None
        parted = [((verifier or "verification") if is_scoring(row) else GENERATION, row) for row in rows]
        known = Known(
            problem.prompt,
            ("None", *dict.fromkeys(map(repr, _untils(strategy)))),
            self._judges([verifier] if verifier else []),
            levels=configuration.kind in LEVELS,
            batch=1 if configuration.kind in ONE_BY_ONE else batch,
        )
        return self._rows(configuration.name, parted, known, f"{POOL}/{SAMPLING}")

    @cached_property
    def _strategies(self) -> dict[str, Generator]:
        return {one.name: self.setup.strategy(one) for one in self.setup.configurations}

    def _judges(self, names: Iterable[str]) -> list[Judge]:
        every = (one for name in names for one in _members(self.setup.verifiers[name]))
        return [one for one in every if isinstance(one, Judge)]

    def _rows(
        self, configuration: str, parted: Iterable[tuple[str, Row]], known: Known, sampling: str
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for part, row in parted:
            if row.payload is None:  # refused
                continue
            usage = row.usage
            context = (
                None if usage.prefilled is None or usage.cached is None else usage.prefilled + usage.cached
            )
            found.append({
                "configuration": configuration, "part": part, "index": len(found), "kind": row.kind,
                "maker": self.makers.name(row.by), "path": row.path, "sample": _sample(row, sampling),
                **known.add(row, part), "prefilled": usage.prefilled, "cached": usage.cached,
                "generated": usage.generated, "context": context, "physical": row.physical.tokens,
            })  # fmt: skip
        return found


class Known:
    """What the calls of one problem have written so far, by the digests under which later calls may ask for it.

    untils: how calls may be told to end, as they are written in digests. judges: who asks about a text in words of
    their own. levels: whether paths tell rounds. batch: samples that are drawn before the next are.
    """

    def __init__(
        self,
        prompt: Prompt,
        untils: Ordered[str],
        judges: Ordered[Judge] = (),
        *,
        levels: bool = False,
        batch: int | None = None,
    ) -> None:
        self._prompt, self._untils, self._judges = prompt, untils, judges
        self._levels, self._batch = levels, batch
        self._prefixes: dict[bytes, tuple[str, int | None]] = {}
        self._written: defaultdict[bytes, list[int]] = defaultdict(list)
        self._scored: defaultdict[bytes, list[int]] = defaultdict(list)
        self._asked: dict[bytes, list[int]] = {}
        self._at: defaultdict[str, list[int]] = defaultdict(list)
        self._kinds: list[str] = []
        self._depths: list[int] = []
        self._parts: list[str] = []
        self._note(prompt, "", None)

    def add(self, row: Row, part: str) -> dict[str, Any]:
        """`parents`, `depth`, `waits` and `assumed` of the next call."""
        i, scoring = len(self._parts), is_scoring(row)
        parents, assumed = self._parents(row, part, scoring)
        depth, waits = self._depth(row, scoring, parents)
        self._at[row.path].append(i)
        self._kinds.append(row.kind)
        self._parts.append(part)
        self._depths.append(depth)
        if row.kind == "score":
            self._scored[row.content].append(i)
        if row.kind == "generate" and row.content in self._prefixes and not scoring:
            self._note(self._prompt, self._prefixes[row.content][0] + (row.payload or {}).get("text", ""), i)
        return {"parents": parents, "depth": depth, "waits": waits, "assumed": assumed}

    def _note(self, prompt: Prompt, text: str, row: int | None) -> None:
        """A text that can be gone on from, or asked about."""
        name = digest(prompt.digest, text)
        if row is not None:
            self._written[name].append(row)
        for until in self._untils:
            self._prefixes.setdefault(digest(name, until), (text, row))
        for judge in self._judges if row is not None else ():
            question = judge.respondent.question.prompt(prompt, candidate=text)
            asked = Sequence(judge.respondent.written_behind(question))
            self._asked[digest(asked.digest, "None")] = self._written[name]

    def _parents(self, row: Row, part: str, scoring: bool) -> tuple[list[int], bool]:
        if row.kind == "generate" and not scoring and row.content in self._prefixes:
            text, parent = self._prefixes[row.content]
            # Who goes on from a text that was scored has seen the score.
            scores = self._scored.get(digest(self._prompt.digest, text), [])
            return ([] if parent is None else [parent]) + scores, False
        found = self._asked.get(row.content) if row.kind == "generate" else self._written.get(row.content)
        if found and scoring:
            return list(found), False
        if scoring and row.kind == "score":
            # A judge reads its own words, where it has written any.
            words = [
                j
                for j in self._at.get(row.path, ())
                if self._kinds[j] == "generate" and self._parts[j] == part
            ]
            if words:
                return words, True
        apart = (rows for path, rows in self._at.items() if not beside(path, row.path))
        # In a pool each verifier stands by itself.
        return sorted(j for rows in apart for j in rows if self._parts[j] in (GENERATION, part)), True

    def _depth(self, row: Row, scoring: bool, parents: Ordered[int]) -> tuple[int, bool]:
        if self._levels:
            turn, node, block = (p.search(row.path) for p in (_ROUND, _NODE, _BLOCK))
            if not (node or block) and any(map(_NODE.search, self._at)):
                return 1 + max(self._depths), True  # what chooses among the leaves
            at = node[1].count(".") + 1 if node else 1 + int(block[1]) if block else 1
            at += ITERATION * int(turn[1] if turn else 0)
            return max([at, *(self._depths[j] for j in parents)]), True
        if self._batch is not None and not scoring and row.path == f"{POOL}/{SAMPLING}":
            return 1 + row.index // self._batch, True
        above = max((self._depths[j] for j in parents), default=0)
        return above + (not scoring), False


def beside(one: str, other: str) -> bool:
    """Whether calls at these paths of a problem stand beside each other, so that neither waits for the other."""
    if one == other:
        return True
    a, b = one.split("/"), other.split("/")
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            if not (_NUMBER.fullmatch(x) and _NUMBER.fullmatch(y)):
                return False
            below = x.startswith(f"{y}.") or y.startswith(f"{x}.")
            return not below and (not i or a[i - 1] in BESIDE or a[i - 1].isdecimal())
    return False


def shapes(setup: Setup, makers: Makers) -> dict[str, ModelShape | None]:
    """The shape of the model behind each maker of the table `calls`, by name; None where it is not known.

    What a strategy makes of its generator by other parameters has that one's model, unless the strategy is given other
    generators: then it is not known which of them it is.
    """
    found: dict[str, ModelShape | None] = {}
    for name in {*setup.generators, *setup.verifiers, *makers.names.values()}:
        found[name] = next((s for one in name.split(", ") if (s := _shape(setup, one)) is not None), None)
    return found


def _shape(setup: Setup, name: str) -> ModelShape | None:
    spec: Any = None
    if name in setup.generators:
        engine = getattr(setup.generators[name], "engine", None)
        return _known(engine)
    if name in setup.verifiers:
        spec = setup.experiment.verifiers.get(name)
        used = {
            getattr(spec, field)
            for field, section in (spec.uses if spec else {}).items()
            if section == "engines"
        }
        # Of several engines it is not known which of them reads.
        engines = [setup.engines.get(engine) for engine in used - {None}]
        return _known(engines[0]) if len(engines) == 1 else None
    generator, _, strategy = name.partition("/")
    spec = setup.experiment.strategies.get(strategy)
    if spec is None or generator not in setup.generators:
        return None
    others = [
        field for field, section in spec.uses.items() if section == "generators" and getattr(spec, field)
    ]
    return None if others else _shape(setup, generator)


def _known(engine: object) -> ModelShape | None:
    shape = getattr(engine, "shape", None)
    return shape if isinstance(shape, ModelShape) else None


def _sample(row: Row, sampling: str) -> int:
    """The number of the sample that a call belongs to."""
    if row.path.startswith(f"{sampling}/"):
        first = row.path.removeprefix(f"{sampling}/").partition("/")[0]
        return int(first) if first.isdecimal() else row.index
    return row.index


def _untils(part: Any, seen: frozenset[int] = frozenset()) -> Iterator[Step | Tokens]:
    """The ends of steps that a strategy, and what it is made of, may ask for."""
    for value in vars(part).values() if hasattr(part, "__dict__") else ():
        if isinstance(value, Step):
            yield value.asked
        elif isinstance(value, Tokens):
            yield value
        elif isinstance(value, Split):
            yield Tokens(value.block)
        elif isinstance(value, Generator) and id(value) not in seen:
            yield from _untils(value, seen | {id(value)})


def _members(verifier: Verifier) -> Iterator[Verifier]:
    yield verifier
    for member in verifier.members:
        yield from _members(member)
