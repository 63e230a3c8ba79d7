"""Scores that came with the samples."""

from __future__ import annotations

from dataclasses import replace

import pytest

from metagen.errors import DataError
from metagen.sequence import Prompt, Score, Sequence
from metagen.testing import run
from metagen.verifiers.recorded import RecordedVerifier

PROMPT = Prompt("p", text="?")


def sample(text: str, **scores: Score) -> Sequence:
    return replace(Sequence.of(PROMPT).extend(text, finish="eos"), scores=scores)


def test_the_score_of_its_name_is_given_as_it_was_recorded() -> None:
    unknown = Score(None, verdict="unscored")
    samples = [sample("a", v=Score(0.5, raw=3.0), w=Score(1.0)), sample("b", v=unknown)]
    found, rows = run(lambda s: RecordedVerifier("v").score(samples, scope=s))
    assert found == [Score(0.5, raw=3.0), unknown] and rows == []


def test_a_sample_without_it_is_named_with_what_it_has() -> None:
    with pytest.raises(DataError, match=r"problem 'p' has no recorded score 'v' \(it has w\); map it"):
        run(lambda s: RecordedVerifier("v").score([sample("a", w=Score(1.0))], scope=s))


def test_the_name_is_the_fingerprint() -> None:
    assert RecordedVerifier("v").fingerprint == RecordedVerifier("v").fingerprint
    assert RecordedVerifier("v").fingerprint != RecordedVerifier("w").fingerprint
