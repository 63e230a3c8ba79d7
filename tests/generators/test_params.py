"""Sampling parameters: what is no parameter, or no value of one, is told by name."""

from __future__ import annotations

from typing import Any

import pytest

from metagen.errors import InputError
from metagen.generators.engine import SamplingParams
from metagen.generators.function import FunctionGenerator
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.strategies.parallel import BestOfN
from metagen.testing import run
from metagen.verifiers.function import FunctionVerifier


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1), ("temperature", "hot"), ("temperature", float("nan")), ("temperature", None),
        ("top_k", -1), ("top_k", 2.5), ("top_k", True), ("top_p", 0), ("top_p", 1.5), ("top_p", "0.9"),
        ("max_tokens", 0), ("max_tokens", 2.5), ("stop", "\n"), ("stop", ("",)), ("stop", (3,)),
        ("stop_token_ids", ("a",)),
        ("top_logprobs", -1), ("top_logprobs", 1), ("top_logprobs", True), ("top_logprobs", 2.0),
    ],
)  # fmt: skip
def test_values_that_say_nothing_are_refused_by_name(name: str, value: Any) -> None:
    for make in (lambda: SamplingParams(**{name: value}), lambda: SamplingParams().replace(**{name: value})):
        with pytest.raises(InputError, match=f"{name}="):
            make()


def test_a_misspelt_parameter_is_told_with_the_nearest() -> None:
    with pytest.raises(
        InputError, match=r"'temprature' is no sampling parameter; .*did you mean 'temperature'\?"
    ):
        SamplingParams().replace(temprature=0.7)
    assert SamplingParams().replace(temperature=0.7) == SamplingParams(temperature=0.7)


@pytest.mark.parametrize("n", [0, -1, 2.5, "4", None])
def test_numbers_of_samples_are_whole(n: Any) -> None:
    generator = FunctionGenerator(lambda prefix, seed, index: "x")

    async def ask(scope: Scope) -> None:
        await generator.generate(Sequence.of("?"), n=n, scope=scope)

    with pytest.raises(InputError, match=r"n=.*expected the number of samples"):
        run(ask)
    with pytest.raises(InputError, match=r"n=.*expected the number of candidates"):
        BestOfN(generator, n, verifier=FunctionVerifier(lambda s: 1.0))


def test_confidences_are_another_generator_and_their_absence_changes_no_fingerprint() -> None:
    plain = SamplingParams()
    assert "top_logprobs" not in plain.fingerprint
    assert plain.replace(top_logprobs=20).fingerprint == plain.fingerprint[:-1] + ", top_logprobs=20)"
    assert plain.replace(top_logprobs=20).replace(top_logprobs=0).fingerprint == plain.fingerprint
