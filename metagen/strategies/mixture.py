"""Mixture of agents: layers of generators, each of which reads what the layer before has written."""

from __future__ import annotations

from collections import abc
from dataclasses import field
from typing import Final

from metagen.errors import InputError, PromptError
from metagen.generators.base import Generator
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Sequence, Until
from metagen.strategies.base import Strategy
from metagen.strategies.prompts import Form, Listing, ask_by
from metagen.values import Count
from metagen.verifiers.base import AnswerRule

#: Write one answer from several.
SYNTHESIS: Final = Listing(
    "Here are a task and {count} responses to it by others. Some of what they say may be wrong.\n\n"
    "Task:\n{task}\n\n{responses}\n\n"
    "Weigh what they say, keep what is right, mend what is not, and answer the task yourself."
)


@part
class MixtureOfAgents(Strategy):
    """Layers of agents; all of a layer read the responses of the layer before (Wang et al. 2024).

    layers: the generators of each layer, the first of which answer the task itself; an agent that stands twice is asked
    twice. aggregator: reads the last layer and writes the answer. ask: from task and responses to a prompt; by default
    a chat where the task is one, and else a text. Responses are handed on in the order of their agents, but for those
    that were cut, and offered when they are there. If the budget ends, or the responses do not fit a context, the first
    whole one of the layer before is returned. Raises InputError for no layers, and for a layer without agents.
    """

    layers: abc.Sequence[abc.Sequence[Generator]] = field(kw_only=False)
    aggregator: Generator = field(kw_only=False)
    ask: Form[abc.Sequence[str]] = SYNTHESIS
    answer: AnswerRule | None = None
    accepts_prefix = False

    def __post_init__(self) -> None:
        self.layers = tuple(map(tuple, self.layers))
        if not self.layers or not all(self.layers):
            raise InputError(
                f"MixtureOfAgents: layers of {[len(layer) for layer in self.layers]} agents; expected at least one "
                "layer, and at least one agent in each"
            )

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        question = prefix
        for i, layer in enumerate(self.layers):
            below = scope.child(f"layer/{i}")
            asked_of = [(agent, below.child(str(j))) for j, agent in enumerate(layer)]
            written = await self._ask(question, asked_of, scope, own=i > 0)
            responses = [one for one in written if one is not None and one.finish in ("eos", "stop")]
            if not responses:
                return self._best(written, prefix, scope)
            # The newest layer stands for all before it.
            scope.offers.clear()
            for one in responses:
                scope.offer(one.reroot(prefix), key=await self._key(one.reroot(prefix)))
            question = Sequence.of(ask_by(self.ask, prefix.prompt, [one.text for one in responses]))
        last = [(self.aggregator, scope.child("aggregate"))]
        (answer,) = await self._ask(question, last, scope, own=True)
        if answer is None or answer.finish not in ("eos", "stop"):
            return self._best([answer], prefix, scope)
        final = answer.reroot(prefix)
        scope.offer(final, key=await self._key(final))
        return final

    def _best(self, written: abc.Sequence[Sequence | None], prefix: Sequence, scope: Scope) -> Sequence:
        """A whole response of the layer before; else the first of what was written, cut as it is."""
        cut = next((one.reroot(prefix) for one in written if one is not None), prefix)
        return scope.best_offer() or cut

    async def _ask(
        self, question: Sequence, agents: abc.Sequence[tuple[Generator, Scope]], scope: Scope, *, own: bool
    ) -> list[Sequence | None]:
        """What each agent responds; None where a limit left nothing for it, or the question does not fit its context.

        own: the question is of our making, and not the task.
        """

        async def respond(one: tuple[Generator, Scope]) -> Sequence | None:
            agent, place = one
            try:
                (response,) = await agent.generate(question, scope=place)
            except PromptError:
                if not own:
                    raise
                return None
            return response

        return (await scope.batch(agents, respond)).results

    async def _key(self, sequence: Sequence) -> str | None:
        if self.answer is None:
            return None
        (answer,) = await self.answer.read([sequence])
        return answer.key


def mixture(
    generator: Generator,
    agents: abc.Sequence[Generator],
    *,
    layers: Count = 1,
    words: str | None = None,
    chat: bool | None = None,
    answer: AnswerRule | None = None,
) -> MixtureOfAgents:
    """Layers of the same agents, for experiment files; the generator aggregates. words, chat: as in `Listing`.

    agents: generators that answer side by side.
    """
    return MixtureOfAgents([agents] * layers, generator, ask=SYNTHESIS.but(words, chat), answer=answer)
