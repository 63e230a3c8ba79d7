"""Particle Gibbs: filter again and again, each time with a particle of the filter before.

Puri et al. 2025, arXiv:2502.01618; Andrieu et al. 2010, Particle Markov chain Monte Carlo methods.
"""

from __future__ import annotations

from metagen.call import Item
from metagen.errors import InputError
from metagen.generators.base import Generator, is_count
from metagen.scope import Scope
from metagen.sequence import Sequence, digest
from metagen.strategies.aggregators import Aggregator
from metagen.strategies.tree.particles import Cloud, ParticleFilter, Reference, Target
from metagen.strategies.tree.resampling import resample
from metagen.strategies.tree.search import MAX_DEPTH, STEP, at_least_one
from metagen.strategies.tree.split import Steps
from metagen.verifiers.base import AnswerRule, Verifier


class ParticleGibbs(ParticleFilter):
    """`iterations` particle filters of n particles each. Between them a reference is drawn by the final weights; in the
    next filter it is one of the n, and no resampling removes it.

    The reference keeps its steps and their scores: neither is paid for again, and at each level it is weighed by its
    score there. The particles of all filters decide together, each filter with the same share. With one iteration
    it is the particle filter. See `ParticleFilter` for the options; resampling is multinomial.

    For target `final` the distribution p(y) φ(v(y))/Z is invariant, for any n ≥ 2. Raises InputError for n < 2.
    """

    def __init__(
        self,
        generator: Generator,
        n: int,
        *,
        verifier: Verifier | None = None,
        iterations: int,
        temperature: float = 1.0,
        target: Target = "steps",
        until: Steps = STEP,
        answer: AnswerRule | None = None,
        aggregator: Aggregator | None = None,
        max_depth: int = MAX_DEPTH,
    ) -> None:
        name = type(self).__name__
        at_least_one(name, iterations=iterations)
        if not is_count(n, 2):
            raise InputError(
                f"{name}: n={n!r}; expected at least 2 particles, for one of them is the reference"
            )
        super().__init__(
            generator, n, verifier=verifier, temperature=temperature, target=target, until=until, answer=answer,
            aggregator=aggregator, max_depth=max_depth,
        )  # fmt: skip
        self.iterations = iterations

    def options(self) -> str:
        return f"{super().options()} {self.iterations}"

    async def _clouds(self, prefix: Sequence, scope: Scope) -> list[Cloud]:
        clouds: list[Cloud] = []
        reference: Reference = ()
        for i in range(self.iterations):
            # The first filter stands where a particle filter does.
            place = scope.child(f"iteration/{i}") if i else scope
            clouds.append(await self._filtered(prefix, place, reference))
            if clouds[-1].exhausted:
                break
            reference = referred(clouds[-1], place)
        return clouds


def referred(cloud: Cloud, scope: Scope) -> Reference:
    """A particle drawn by the final weights, step by step."""
    nodes = sorted(cloud.weights, key=lambda node: (digest(node.sequence.text), node.position))
    draw = scope.seed(Item(digest("reference"))) / 2**64
    (leaf,) = (
        n for n, k in zip(nodes, resample([cloud.weights[n] for n in nodes], [draw]), strict=True) if k
    )
    return [(node.sequence, node.score) for node in leaf.path()[1:]]
