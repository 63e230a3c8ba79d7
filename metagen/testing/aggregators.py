"""The laws of aggregators, as tests: subclass `AggregatorLaws` in a test module and give `make`."""

from __future__ import annotations

import random
from abc import abstractmethod

from metagen.journal import Row
from metagen.scope import Scope
from metagen.sequence import Finish, Prompt, Sequence
from metagen.strategies.aggregators import Aggregator
from metagen.strategies.candidates import Candidate, judge
from metagen.testing.generators import run

#: Orders in which the same candidates are given.
ORDERS = 8


class AggregatorLaws:
    """What every Aggregator promises. `make` gives it over `last_word` and `first_word`, or over parts of your own.

    texts: completions of `prompt` that the rule and the verifier of the aggregator can read; some of them have the
    same answer, and one occurs twice.
    """

    prompt: Prompt = Prompt("law", text="Give numbers.")
    texts: tuple[str, ...] = (
        "0.2 so it is 1",
        "0.9 so it is 2",
        "0.4 so it is 2",
        "0.7 so it is 1",
        "0.5 so it is 0",
        "0.2 so it is 1",
    )

    @abstractmethod
    def make(self) -> Aggregator:
        """The aggregator under test; equal ones each time."""

    def _pool(self, aggregator: Aggregator, prompt: Prompt, finish: Finish = "eos") -> list[Candidate]:
        sequences = [Sequence.of(prompt).extend(text, finish=finish) for text in self.texts]

        async def read(scope: Scope) -> list[Candidate]:
            return await judge(sequences, scope, answer=aggregator.answer, verifier=aggregator.verifier)

        return run(read)[0]

    def _choose(
        self, aggregator: Aggregator, pool: list[Candidate], prompt: Prompt
    ) -> tuple[Sequence, list[Row]]:
        return run(lambda scope: aggregator.aggregate(pool, Sequence.of(prompt), scope.child("choose")))

    def _prompts(self) -> list[Prompt]:
        """Ties are broken otherwise for each of them."""
        text = Sequence.of(self.prompt).prompt.text or "Give numbers."
        return [self.prompt, *(Prompt(f"law {i}", text=f"{text} {i}") for i in range(3))]

    def test_it_returns_one_of_the_candidates(self) -> None:
        aggregator = self.make()
        pool = self._pool(aggregator, self.prompt)
        for size in range(1, len(pool) + 1):
            chosen, _ = self._choose(aggregator, pool[:size], self.prompt)
            assert chosen.text in self.texts[:size]

    def test_the_order_of_candidates_changes_nothing(self) -> None:
        aggregator, draw = self.make(), random.Random(0)
        for prompt in self._prompts():
            pool = self._pool(aggregator, prompt)
            for size in range(2, len(pool) + 1):
                orders = [pool[:size], pool[:size][::-1], *(pool[:size] for _ in range(ORDERS))]
                for order in orders[2:]:
                    draw.shuffle(order)
                chosen = {self._choose(aggregator, order, prompt)[0].text for order in orders}
                assert len(chosen) == 1, (
                    f"of the same {size} candidates it chooses {sorted(chosen)} by their order; break ties by the "
                    "salt, as the functions of metagen.strategies.aggregate do"
                )

    def test_another_that_is_made_alike_chooses_alike(self) -> None:
        first, second = self.make(), self.make()
        pool = self._pool(first, self.prompt)
        assert first.fingerprint == second.fingerprint
        assert self._choose(first, pool, self.prompt)[0] == self._choose(second, pool, self.prompt)[0]

    def test_a_text_that_was_cut_loses_to_one_that_ended(self) -> None:
        aggregator = self.make()
        ended, cut = (self._pool(aggregator, self.prompt, finish) for finish in ("eos", "length"))
        for place, one in enumerate(ended):
            if one.eligible:
                chosen, _ = self._choose(aggregator, [*cut[:place], one, *cut[place:]], self.prompt)
                assert chosen.finish == "eos"

    def test_it_says_that_it_makes_calls_of_its_own(self) -> None:
        aggregator = self.make()
        _, rows = self._choose(aggregator, self._pool(aggregator, self.prompt), self.prompt)
        assert aggregator.spends or not rows, (
            f"it made {len(rows)} calls and a budget keeps nothing for them; let its property `spends` be True"
        )
