"""What is no request, on any engine with tokens."""

from __future__ import annotations

from typing import Any

import pytest

from metagen.errors import InputError, PromptError
from metagen.generators.checks import Checks
from metagen.generators.engine import EvaluateRequest, GenerateRequest, SamplingParams
from metagen.sequence import Sequence

CHECKS = Checks("m", 104, 64)


def request(seeds: tuple[int, ...] = (1,), most: int = 8, **params: Any) -> GenerateRequest:
    return GenerateRequest(Sequence.of("Q"), seeds, SamplingParams(**params), most)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (request(()), "no seeds"),
        (request(most=0), "max_tokens=0"),
        (request(stop_token_ids=(3, 104)), r"stop_token_ids: 104 is no id of 'm' \(0 … 103\)"),
        (request(top_logprobs=105), "top_logprobs=105: 'm' has 104 tokens"),
    ],
)
def test_requests_for_samples(wrong: GenerateRequest, says: str) -> None:
    with pytest.raises(InputError, match=says):
        CHECKS.generates(wrong)
    CHECKS.generates(request(stop_token_ids=(0, 103), top_logprobs=104))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (EvaluateRequest((), (0,)), "no tokens"),
        (EvaluateRequest((1, 104), (0,)), "token id 104"),
        (EvaluateRequest((1, -1), (0,)), "token id -1"),
        (EvaluateRequest((1, 2), (1,)), "indices from 0 to 0"),
        (EvaluateRequest((1, 2), ()), "positions"),
        (EvaluateRequest((1, 2), (2,), (3,)), "indices from 0 to 1"),
        (EvaluateRequest((1, 2), (2,), outputs=True), "indices from 0 to 1"),
        (EvaluateRequest((1, 2), (0,), ()), "labels are empty"),
        (EvaluateRequest((1, 2), (0,), (200,)), "token id 200"),
        (EvaluateRequest((1,) * 65, (0,)), "65 tokens"),
    ],
)
def test_requests_for_readings(wrong: EvaluateRequest, says: str) -> None:
    with pytest.raises(InputError, match=says):
        CHECKS.reads(wrong)


def test_readings_that_are_well() -> None:
    CHECKS.reads(EvaluateRequest((1, 2), (0,)))
    CHECKS.reads(EvaluateRequest((1, 2), (1,), (3,)))
    CHECKS.reads(EvaluateRequest((1, 2), (1,), outputs=True))
    CHECKS.reads(EvaluateRequest((1,) * 64, (0,)))


def test_what_does_not_fit_says_what_would() -> None:
    CHECKS.fits(60, 4)
    with pytest.raises(PromptError, match=r"give max_tokens ≤ 4"):
        CHECKS.fits(60, 10)
    with pytest.raises(PromptError, match=r"shorten the prompt$"):
        CHECKS.fits(64, 1)
