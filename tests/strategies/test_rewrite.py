"""What can be told of a strategy's draws from its parts."""

from __future__ import annotations

import metagen as mg
from metagen.generators.enumerable import EnumerableEngine
from metagen.strategies.chain.steps import Ask
from metagen.strategies.rewrite import draws_alike
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
