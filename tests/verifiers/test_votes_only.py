"""Answers that serve votes alone."""

from __future__ import annotations

import asyncio

from metagen.sequence import Prompt, Sequence
from metagen.strategies.candidates import Candidate
from metagen.verifiers.math import MathRule
from metagen.verifiers.votes_only import VotesOnly


def test_what_cannot_be_read_has_no_vote_and_may_be_chosen() -> None:
    rule, prompt = VotesOnly(MathRule()), Prompt("p", text="?")
    texts = [Sequence(prompt, text, finish="eos") for text in ("so 4", "?", "")]
    answers = asyncio.run(rule.read(texts))
    assert [a.key for a in answers] == ["4", None, None] and not any(a.needed for a in answers)
    assert all(Candidate(s, a).eligible for s, a in zip(texts, answers, strict=True))
    plain = asyncio.run(MathRule().read(texts))
    assert [Candidate(s, a).eligible for s, a in zip(texts, plain, strict=True)] == [True, False, False]
    cut = Sequence(prompt, "so 4", finish="length")
    assert not Candidate(cut, answers[0]).eligible, "what is cut loses, whoever grades"
    assert asyncio.run(rule.key("8/2")) == "4" and rule.fingerprint != MathRule().fingerprint
