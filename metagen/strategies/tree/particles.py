"""Particle filtering: keep n partial sequences, and after each step draw anew, by weight, which of them go on.

Puri et al. 2025, A probabilistic inference approach to inference-time scaling of LLMs, arXiv:2502.01618. Weights that
undo what constraints do to the model: Lew et al. 2023, Sequential Monte Carlo steering, arXiv:2306.03081.
"""

from __future__ import annotations

import math
from collections import Counter, abc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from metagen.budget import BudgetLike
from metagen.call import Item
from metagen.errors import InputError
from metagen.generators.base import Generator
from metagen.journal import Journal
from metagen.parts import part, unused
from metagen.scope import Scope
from metagen.sequence import Message, Prompt, Score, Sequence, digest
from metagen.strategies.aggregators import Aggregator, Best, Weighted
from metagen.strategies.base import wait
from metagen.strategies.tree.growth import Growth
from metagen.strategies.tree.node import Node, Tree
from metagen.strategies.tree.resampling import Resampling, effective_size, log_mean, normalise, resample
from metagen.strategies.tree.search import TreeSearch
from metagen.values import Count, Positive
from metagen.verifiers.mass import ConstraintMass
from metagen.verifiers.odds import logit

#: What the particles are draws of, in the limit: see `ParticleFilter`.
Target = Literal["steps", "final"]
#: Values are kept this far from 0 and 1, where the logit is infinite.
EDGE = 1e-7


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a filter. effective: sample size, (Σw)²/Σw². log_mean: log of the mean weight.

    particles: how many there were. distinct: how many of them differ.
    """

    particles: int
    distinct: int
    effective: float
    log_mean: float


#: The steps of a particle that survives whatever happens, with their scores: see `gibbs.py`.
Reference = abc.Sequence[tuple[Sequence, Score | None]]


@dataclass(eq=False)
class Cloud:
    """The particles of one filter. weights: of each node at its end, with all its particles; they add up to 1.

    tree: all that was drawn. exhausted: the budget ended first.
    """

    tree: Tree
    levels: list[Level] = field(default_factory=list)
    weights: dict[Node, float] = field(default_factory=dict)
    exhausted: bool = False

    def weigh(self, counts: Mapping[Node, int], log_w: abc.Sequence[float]) -> None:
        """One level more: so many particles at each node, each of this log-weight."""
        many = list(counts.values())
        size = effective_size(log_w, many)
        self.levels.append(Level(sum(many), len(many), size, log_mean(log_w, many)))
        self.weights = dict(zip(counts, normalise(log_w, many), strict=True))

    @property
    def log_normaliser(self) -> float:
        """Estimates log Σ_y γ(y), γ the filter's target (see `ParticleFilter`); its exponential is unbiased."""
        return math.fsum(level.log_mean for level in self.levels)


@part
class ParticleFilter(TreeSearch):
    """n particles y_1 … y_n, step by step: propagate, y_i ~ p(· | y_i); weigh, w_i = φ(v(y_i)); resample n, i ∝ w_i.

    φ(v) = exp(logit(v)/temperature), so that the weights are the softmax of the logits of the scores. A finished
    particle stays what it is and takes part until all have finished.

    generator: if it keeps `log_mass`, particles are drawn under its masks and each step is weighed by what these left
    too, Π Σ_{x allowed} p(x | …), so that p in γ is the model without them, and γ(y) = 0 where y is not allowed.
    verifier: None then weighs by that alone, φ = 1.

    target: what the particles approximate. `steps`, as in the paper: each step's weight counts, γ(y) = p(y) Π_t
    φ(v(y_≤t)), and a finished particle goes on being weighed by its score. `final`: w_i = φ(v(y_≤t))/φ(v(y_<t)), which
    leaves γ(y) = p(y) φ(v(y)) whatever the number of steps; the scores before the last only guide. The normaliser
    Σ_y γ(y) of `steps` is defined where all sequences have equally many steps.
    resampling: `multinomial`, or `systematic`, which has less variance.

    Without an aggregator, the final weights decide: a vote weighted by them, or the heaviest particle where there is
    no answer rule. An aggregator gets n particles, resampled a last time. See `TreeSearch` for the rest. A step
    without a score, and a sequence that its generator's `max_tokens` cut, weigh as if their value were 0.
    temperature: divides the logarithms of the weights.

    Raises InputError for n < 1, a temperature that is not above 0, a resampling or target that there is not, or where
    nothing weighs.
    """

    searches = True

    #: It may weigh by masses alone.
    needs_scores = False

    n: Count = field(kw_only=False)
    temperature: Positive = 1.0
    target: Target = "steps"
    resampling: Resampling = "multinomial"

    @classmethod
    def conflict(cls, given: Mapping[str, Any]) -> str | None:
        blind = given.get("verifier") is None
        return unused(
            cls, given,
            ("temperature", blind, "divides scores, and there is no verifier; leave it out"),
            ("target", blind, "says which scores count, and there is no verifier; leave it out"),
        )  # fmt: skip

    def _default(self) -> Aggregator:
        if self.verifier is not None:
            return super()._default()
        if not _weighs(self.generator):
            raise InputError(
                f"{type(self).__name__}: nothing weighs the particles; give a verifier of steps, such as "
                "ProcessRewardModel, or a generator with log_mass=True (and a temperature above 0)"
            )
        mass = ConstraintMass()
        return Best(mass) if self.answer is None else Weighted(mass, self.answer)

    async def explore(self, growth: Growth) -> None:
        await self._filter(Cloud(growth.tree), (), growth)

    async def _filter(self, cloud: Cloud, reference: Reference, growth: Growth) -> None:
        """Propagate, weigh and resample until all particles have finished; the reference is among them throughout."""
        counts: Mapping[Node, int] = {cloud.tree.root: self.n}
        kept = cloud.tree.root if reference else None
        for step in range(self.max_depth):
            before = counts
            if kept is not None and kept.open:
                kept = _refer(cloud.tree, kept, reference[step])
            free = {node: n - (kept is not None and kept.parent is node) for node, n in before.items()}
            try:
                await growth.level((node, n) for node, n in free.items() if n and not node.finished)
            finally:
                # Also where the budget has ended on the way: each is weighed where it has come to.
                counts = _move(before)
                cloud.weigh(counts, [self._log_weight(node, before) for node in counts])
            if not any(node.open for node in counts):
                return
            counts = self._resample(cloud.weights, growth.scope, str(step), kept)
            for node in cloud.weights.keys() - counts.keys():
                node.prune()

    def _log_weight(self, node: Node, before: Mapping[Node, int]) -> float:
        """The log-weight of one particle at a node; `before`: where particles were a step ago."""
        above = None if node in before else node.parent
        left = self._log_mass(node) - self._log_mass(above) if above else 0.0
        if self.target == "steps":
            return left + self._log_potential(node)
        if above is None:
            return 0.0
        return left + self._log_potential(node) - (self._log_potential(above) if above.parent else 0.0)

    @staticmethod
    def _log_mass(node: Node) -> float:
        """What masks left of a node's sequence, where its generator keeps it."""
        return node.sequence.log_mass or 0.0

    def _log_potential(self, node: Node) -> float:
        """The log of φ: logit(v)/temperature."""
        if self.verifier is None:
            return 0.0
        return logit(node.value or 0.0, EDGE) / self.temperature

    def _resample(
        self, weights: Mapping[Node, float], scope: Scope, role: str, kept: Node | None = None
    ) -> Mapping[Node, int]:
        """How many particles go on from each node: n in all, one of them the reference's."""
        # By digest, so that it does not matter in which order the particles are.
        nodes = sorted(weights, key=lambda node: (digest(node.sequence.text), node.position))
        content = digest("resample", role)
        draws = [scope.seed(Item(content, i)) / 2**64 for i in range(self.n - (kept is not None))]
        taken = resample([weights[node] for node in nodes], draws, self.resampling)
        counts = Counter(dict(zip(nodes, taken, strict=True)))
        if kept is not None:
            counts[kept] += 1
        return {node: counts[node] for node in weights if counts[node]}

    # -- the end ---------------------------------------------------------------------------------

    async def _search(self, prefix: Sequence, scope: Scope) -> Tree:
        return (await self._cloud(prefix, scope)).tree

    async def _cloud(self, prefix: Sequence, scope: Scope) -> Cloud:
        """The last filter of one run; its tree has what all of them decide for."""
        clouds = await self._clouds(prefix, scope)
        clouds[-1].tree.chosen = await self._choose_among(clouds, prefix, scope)
        return clouds[-1]

    async def _clouds(self, prefix: Sequence, scope: Scope) -> list[Cloud]:
        """The filters of one run, in order."""
        return [await self._run(prefix, scope)]

    async def _run(self, prefix: Sequence, scope: Scope, reference: Reference = ()) -> Cloud:
        """One filter, to its end or that of the budget."""
        if prefix.log_mass is None and _weighs(self.generator):
            # What was written before counts as given.
            prefix = replace(prefix, log_mass=0.0)
        cloud = Cloud(Tree(prefix))
        cloud.exhausted = await self._grow(cloud.tree, scope, partial(self._filter, cloud, reference))
        return cloud

    async def _choose_among(self, clouds: abc.Sequence[Cloud], prefix: Sequence, scope: Scope) -> Sequence:
        """What the particles of all filters decide for, each filter with the same share."""
        weights = {node: weight / len(clouds) for cloud in clouds for node, weight in cloud.weights.items()}
        leaves = {node: w for node, w in weights.items() if node.complete} or weights
        if not leaves:
            return replace(prefix, exhausted=True)
        decide = self._by_weight if self.aggregator is None else self._by_aggregator
        chosen = await decide(leaves, prefix, scope)
        return replace(chosen, exhausted=True) if any(cloud.exhausted for cloud in clouds) else chosen

    async def _by_weight(self, leaves: Mapping[Node, float], prefix: Sequence, scope: Scope) -> Sequence:
        """The vote, or the choice of the best, with weights in the place of scores."""
        first: dict[tuple[str, str | None], Node] = {}
        shares: dict[tuple[str, str | None], float] = {}
        for node, weight in leaves.items():
            name = _key(node.sequence)
            first.setdefault(name, node)
            shares[name] = shares.get(name, 0.0) + weight
        known = {_key(c.sequence): c for c in await self._candidates([*first.values()], scope)}
        pool = [replace(c, score=Score(min(1.0, shares[name]))) for name, c in known.items()]
        leaf = first[_key(await self._decide(pool, prefix, scope))]
        if self.verifier is None or leaf.score is None:
            return leaf.sequence
        return leaf.sequence.with_score(self.verifier.name, leaf.score)

    async def _by_aggregator(self, leaves: Mapping[Node, float], prefix: Sequence, scope: Scope) -> Sequence:
        """The aggregator's choice among n particles, resampled a last time."""
        counts = self._resample(leaves, scope, "end")
        found = {id(c.sequence): c for c in await self._candidates([*counts], scope)}
        pool = [found[id(leaf.sequence)] for leaf, count in counts.items() for _ in range(count)]
        return await self._decide(pool, prefix, scope)

    # -- for studies -----------------------------------------------------------------------------

    async def acloud(
        self,
        prompt: Prompt | str | Iterable[Message | Mapping[str, Any]],
        *,
        budget: BudgetLike = None,
        seed: int = 0,
        journal: Journal | None = None,
    ) -> Cloud:
        """`cloud` for code that runs in an event loop of its own."""
        prefix, root = self.open_call(prompt, budget, seed, journal)
        cloud = await self._cloud(prefix, root.child("0"))
        cloud.tree.charge(root.trace.rows)
        return cloud

    def cloud(
        self,
        prompt: Prompt | str | Iterable[Message | Mapping[str, Any]],
        *,
        budget: BudgetLike = None,
        seed: int = 0,
        journal: Journal | None = None,
    ) -> Cloud:
        """Like `solve`, and returns the particles: their weights, the effective sample sizes, the normaliser."""
        return wait(self.acloud(prompt, budget=budget, seed=seed, journal=journal))


def _move(counts: Mapping[Node, int]) -> Mapping[Node, int]:
    """Where particles are after a step: who has not finished, at what was drawn, if anything was."""
    after = Counter({node: count for node, count in counts.items() if node.finished})
    for node, count in counts.items():
        if not node.finished:
            after.update(node.draws.values() or {node: count})
    return after


def _weighs(generator: Generator) -> bool:
    """Whether a generator keeps what masks leave."""
    return bool(getattr(getattr(generator, "params", None), "weighs", False))


def _key(sequence: Sequence) -> tuple[str, str | None]:
    """What decides: the text, and how it has ended, in whatever tokens."""
    return sequence.text, sequence.finish


def _refer(tree: Tree, node: Node, step: tuple[Sequence, Score | None]) -> Node:
    """The reference's next node: a draw that nobody has to make."""
    (child,) = tree.add(node, node.asked, [step[0]], [step[1]])
    node.asked += 1
    return child
