"""What a stream tells before its answer: only candidates for the answer vote."""

from __future__ import annotations

from typing import Any

import metagen as mg
from metagen.strategies.adaptive.by_difficulty import by_difficulty
from metagen.strategies.base import Strategy
from metagen.strategies.chain.steps import Ask

ASKED = [{"role": "user", "content": "?"}]
RULE = mg.NumberRule()


def saying(*texts: str) -> mg.FunctionGenerator:
    return mg.FunctionGenerator(lambda prefix, seed, index: texts[index % len(texts)], name=repr(texts))


def lines(strategy: Strategy, **how: Any) -> list[str]:
    chunks = mg.client(strategy).chat.completions.create(messages=ASKED, stream=True, **how)
    told = [choice.delta.reasoning_content for chunk in chunks for choice in chunk.choices]
    return [line for line in told if line]


MIDDLE = mg.MajorityVote(saying("A:10\n", "A:11\n"), 4, answer=RULE)


def test_votes_of_a_middle_step_are_not_those_of_the_answer() -> None:
    steps = {"middle": Ask(MIDDLE, "{prompt} first"), "answer": Ask(saying("A:7\n"), "{middle} then")}
    told = lines(mg.Chain(steps, answer=RULE))
    assert not any("votes" in line for line in told)
    assert told[:4] == ["step: A:10\n", "step: A:11\n"] * 2 and told[4:] == ["sample 1: A:7\n"]


def test_a_chain_that_ends_with_a_vote_tells_that_vote_alone() -> None:
    last = mg.MajorityVote(saying("A:7\n", "A:8\n", "A:7\n"), 3, answer=RULE)
    for strategy in (
        mg.Chain(
            {"middle": Ask(MIDDLE, "{prompt} first"), "answer": Ask(last, "{middle} then")}, answer=RULE
        ),
        # A chain within the last step of another.
        mg.Chain(
            {
                "middle": Ask(MIDDLE, "{prompt} first"),
                "answer": Ask(mg.Chain({"vote": Ask(last, "{prompt}")}), "{middle} then"),
            }
        ),
    ):
        told = [line for line in lines(strategy) if "votes" in line]
        assert told == [
            "sample 1 of 3; votes: 7 ×1\n",
            "sample 2 of 3; votes: 7 ×1, 8 ×1\n",
            "sample 3 of 3; votes: 7 ×2, 8 ×1\n",
        ]


def test_steps_within_a_candidate_do_not_vote() -> None:
    chain = mg.Chain({"think": Ask(saying("A:10\n"), "{prompt}"), "say": Ask(saying("A:7\n"), "{think} so")})
    told = lines(mg.MajorityVote(chain, 3, answer=RULE))
    assert sorted(told) == ["step: A:10\n"] * 3 + ["step: A:7\n"] * 3


def test_each_choice_has_votes_of_its_own() -> None:
    told = lines(mg.MajorityVote(saying("A:7\n", "A:7\n", "A:8\n"), 3, answer=RULE), n=2)
    for choice in (1, 2):
        own = [line for line in told if line.startswith(f"choice {choice}, ")]
        assert own[-1] == f"choice {choice}, sample 3 of 3; votes: 7 ×2, 8 ×1\n" and len(own) == 3
    assert len(told) == 6


def test_a_vote_that_may_go_on_tells_its_votes() -> None:
    told = lines(by_difficulty(saying("A:7\n"), first=2, edges=(0.5,), then=(6, 2), answer=RULE))
    assert told == ["sample 1; votes: 7 ×1\n", "sample 2; votes: 7 ×2\n"]
