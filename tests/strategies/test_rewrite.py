"""What can be told of a strategy's draws from its parts."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import pytest

import metagen as mg
from metagen.errors import UnsupportedError
from metagen.generators.enumerable import EnumerableEngine
from metagen.scope import Scope
from metagen.sequence import Sequence, Until
from metagen.strategies.chain.function import FunctionStrategy
from metagen.strategies.chain.least_to_most import LeastToMost
from metagen.strategies.chain.steps import Ask
from metagen.strategies.refine.reflexion import Reflexion
from metagen.strategies.refine.self_refine import SelfRefine
from metagen.strategies.rewrite import draws_alike, generators_of, with_samples, with_sampling
from metagen.strategies.universal import UniversalSelfConsistency
from metagen.testing import last_word, numbers


def test_what_chooses_among_equal_samples_is_told() -> None:
    with EnumerableEngine(["a", "b", "$"], lambda _, done: [0.4, 0.3, 0.3], name="three") as engine:
        greedy, warm = engine.generator(temperature=0), engine.generator(temperature=0.7)
        asked = mg.Chain({"a": Ask(greedy, "{prompt}")})
        for below in (greedy, mg.Sample(greedy), asked):
            assert draws_alike(mg.MajorityVote(below, 4, answer=last_word)), below
        different = [
            mg.MajorityVote(warm, 4, answer=last_word),
            mg.MajorityVote(greedy, 1, answer=last_word),
            mg.MajorityVote(numbers(), 4, answer=last_word),  # who draws cannot be told
            mg.MajorityVote(mg.Chain({"a": Ask(warm, "{prompt}")}), 4, answer=last_word),
            mg.Sample(greedy),
        ]
        assert not any(map(draws_alike, different))


def temperatures(strategy: mg.Strategy) -> list[float]:
    return [one.params.temperature for one in generators_of(strategy)]


class Twice(mg.Strategy):
    """Keeps what it is made with under names of its own, as a strategy of a user may."""

    def __init__(self, writer: mg.Generator) -> None:
        self._first, self._others = writer, [writer]

    @cached_property
    def fingerprint(self) -> str:
        return "twice " + self._first.fingerprint

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        (drawn,) = await self._others[0].generate(prefix, scope=scope.child("sample"))
        return drawn


def test_a_strategy_that_keeps_its_parts_under_other_names_is_changed_in_a_copy() -> None:
    with EnumerableEngine(["a", "b", "$"], lambda _, done: [0.4, 0.3, 0.3], name="three") as engine:
        warm = engine.generator(temperature=0.7, max_tokens=4)
        for made in (LeastToMost(warm), Twice(warm), mg.MajorityVote(LeastToMost(warm), 2, answer=last_word)):
            before = made.fingerprint
            cold = with_sampling(made, {"temperature": 0.1})
            assert set(temperatures(cold)) == {0.1} and set(temperatures(made)) == {0.7}
            assert cold.fingerprint != before == made.fingerprint
            assert cold.solve("?").sequence.finish and not draws_alike(made)
        assert with_samples(mg.MajorityVote(Twice(warm), 2, answer=last_word), 3).solve("?").sequence.finish
        with pytest.raises(UnsupportedError, match="no number of samples"):
            with_samples(LeastToMost(warm), 3)


def test_a_program_has_its_generators_in_itself_and_is_refused() -> None:
    with EnumerableEngine(["a", "$"], lambda _, done: [0.5, 0.5], name="two") as engine:
        inside = engine.generator(temperature=0.7, max_tokens=4)

        async def program(prefix: Sequence, scope: Scope) -> Sequence:
            return (await inside.generate(prefix, scope=scope.child("sample")))[0]

        with pytest.raises(UnsupportedError, match="no generator of FunctionStrategy"):
            with_sampling(FunctionStrategy(program), {"temperature": 0.2})


def test_models_that_judge_stay_as_they_are() -> None:
    with EnumerableEngine(["a", "b", "$"], lambda _, done: [0.4, 0.3, 0.3], name="three") as engine:
        warm, other = engine.generator(temperature=0.7), engine.generator(temperature=0.3)
        cases = [
            (UniversalSelfConsistency(warm, 3), "judge"),
            (SelfRefine(warm), "critic"),
            (Reflexion(warm, verifier=mg.FunctionVerifier(lambda s: 0.5)), "reflector"),
        ]
        for made, name in cases:
            assert with_sampling(made, {"temperature": 0.1}).__dict__[name] is warm
            explicit = replace(made, **{name: other})  # type: ignore[type-var]  # parts are data classes
            changed = with_sampling(explicit, {"temperature": 0.1})
            assert changed.__dict__[name] is other and temperatures(changed) == [0.1]
