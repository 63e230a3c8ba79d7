"""Particle Gibbs: filter again and again, each time with a particle of the filter before.

Puri et al. 2025, arXiv:2502.01618; Andrieu et al. 2010, Particle Markov chain Monte Carlo methods.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Literal

from annotated_types import Ge

from metagen.call import Item
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Sequence, digest
from metagen.strategies.tree.particles import Cloud, ParticleFilter, Reference
from metagen.strategies.tree.resampling import resample
from metagen.values import MOST, AtMost, Count, Expects


@part
class ParticleGibbs(ParticleFilter):
    """`iterations` particle filters of n particles each. Between them a reference is drawn by the final weights; in the
    next filter it is one of the n, and no resampling removes it.

    The reference keeps its steps and their scores: neither is paid for again, and at each level it is weighed by its
    score there. The particles of all filters decide together, each filter with the same share. With one iteration
    it is the particle filter. See `ParticleFilter` for the options; resampling is multinomial.

    For target `final` the distribution p(y) φ(v(y))/Z is invariant, for any n ≥ 2. iterations: particle filters.
    Raises InputError for n < 2.
    """

    searches = True

    n: Annotated[
        int, Ge(2), Expects("an integer ≥ 2: one of the particles is the reference"), AtMost(MOST)
    ] = field(kw_only=False)
    iterations: Count = 2
    #: With a reference among the particles only this one is right.
    resampling: Literal["multinomial"] = "multinomial"

    async def _clouds(self, prefix: Sequence, scope: Scope) -> list[Cloud]:
        clouds: list[Cloud] = []
        reference: Reference = ()
        for i in range(self.iterations):
            # The first filter stands where a particle filter does.
            place = scope.child(f"iteration/{i}") if i else scope
            clouds.append(await self._run(prefix, place, reference))
            if clouds[-1].exhausted:
                break
            reference = draw_reference(clouds[-1], place)
        return clouds


def draw_reference(cloud: Cloud, scope: Scope) -> Reference:
    """A particle drawn by the final weights, step by step."""
    nodes = sorted(cloud.weights, key=lambda node: (digest(node.sequence.text), node.position))
    draw = scope.seed(Item(digest("reference"))) / 2**64
    (leaf,) = (
        n for n, k in zip(nodes, resample([cloud.weights[n] for n in nodes], [draw]), strict=True) if k
    )
    return [(node.sequence, node.score) for node in leaf.path()[1:]]
