"""Sampling parameters: what is no parameter, or no value of one, is told by name."""

from __future__ import annotations

from typing import Any

import pytest

from metagen.errors import InputError
from metagen.generators.decoding.adapters import XTC, Adapter, Dry, Mirostat
from metagen.generators.decoding.parameters import ADAPTERS
from metagen.generators.decoding.presets import PRESETS
from metagen.generators.decoding.search import BeamSearch
from metagen.generators.engine import SamplingParams
from metagen.generators.function import FunctionGenerator
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Sequence
from metagen.strategies.parallel import BestOfN
from metagen.testing import run
from metagen.values import Count
from metagen.verifiers.function import FunctionVerifier


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1), ("temperature", "hot"), ("temperature", float("nan")), ("temperature", None),
        ("top_k", -1), ("top_k", 2.5), ("top_k", True), ("top_p", 0), ("top_p", 1.5), ("top_p", "0.9"),
        ("max_tokens", 0), ("max_tokens", 2.5), ("stop", "\n"), ("stop", ("",)), ("stop", (3,)),
        ("stop_token_ids", ("a",)), ("stop_token_ids", [5]), ("stop", ["a"]), ("stop", None),
        ("temperature", 10**400), ("presence_penalty", 10**400), ("top_k", 10**400), ("top_k", 2**31),
        ("no_repeat_ngram", 10**400), ("min_tokens", 10**400), ("logit_bias", {5: 10**400}), ("logit_bias", {5: 1e300}),
        ("repetition_penalty", 1e-300), ("repetition_penalty", 1e300), ("frequency_penalty", -1e308),
        ("logit_bias", ((5, 1.0), (5, 2.0))),
        ("top_logprobs", -1), ("top_logprobs", 1), ("top_logprobs", True), ("top_logprobs", 2.0),
        ("top_h", 0), ("top_h", 1.1), ("min_p", -0.1), ("min_p", 1.1), ("min_p", "a"), ("typical_p", 0),
        ("epsilon_cutoff", 1), ("epsilon_cutoff", -0.1), ("eta_cutoff", 1.0), ("mirostat", 3.0), ("mirostat", (3, 1)),
        ("repetition_penalty", 0), ("repetition_penalty", float("inf")), ("presence_penalty", float("nan")),
        ("frequency_penalty", "1"), ("no_repeat_ngram", -1), ("no_repeat_ngram", 2.0), ("typical_p", 2),
        ("logit_bias", {1: float("inf")}), ("top_n_sigma", -1), ("top_n_sigma", float("nan")),
        ("min_tokens_to_keep", 0), ("min_tokens_to_keep", 2.0), ("dry", 0.8), ("xtc", (0.5, 0.1)),
        ("sequence_bias", {(): 1.0}), ("sequence_bias", {"a": "b"}), ("sequence_bias", 3), ("sequence_bias", {5: 1.0}),
        ("logit_bias", {"": 1.0}), ("logit_bias", {1.5: 1.0}), ("logit_bias", 3), ("logit_bias", ((1, 2, 3),)),
        ("banned", "no"), ("banned", ("",)), ("banned", ((),)), ("banned", (("a",),)), ("banned", (3,)),
        ("min_tokens", -1), ("min_tokens", 257), ("forced", 3), ("forced", ("a",)), ("forced", tuple(range(300))),
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
    with pytest.raises(InputError, match=r"n=.*expected an integer ≥ 1"):
        BestOfN(generator, n, verifier=FunctionVerifier(lambda s: 1.0))


def test_confidences_are_another_generator_and_their_absence_changes_no_fingerprint() -> None:
    plain = SamplingParams()
    assert "top_logprobs" not in plain.fingerprint
    assert plain.replace(top_logprobs=20).fingerprint == plain.fingerprint[:-1] + ", top_logprobs=20)"
    assert plain.replace(top_logprobs=20).replace(top_logprobs=0).fingerprint == plain.fingerprint


@part
class Softer(Adapter):
    """Smaller differences."""

    by: Count = 2

    def adapt(self, logits: Any, ids: Any, start: Any) -> Any:
        return logits / self.by


def test_adapters_of_others_are_named_by_their_class_and_options() -> None:
    one, other = (SamplingParams(adapters=(Softer(by=by),)) for by in (2, 3))
    assert one == SamplingParams(adapters=(Softer(),)) != other
    assert one.fingerprint == SamplingParams(adapters=(Softer(),)).fingerprint != other.fingerprint
    assert hash(one) == hash(SamplingParams(adapters=(Softer(),))) and one.on == ("adapters",)
    for wrong in (Softer(), (2,), [Softer()], (Softer,)):
        with pytest.raises(InputError, match="adapters="):
            SamplingParams(adapters=wrong)  # type: ignore[arg-type]


ON = {
    "top_h": 0.5, "min_p": 0.1, "typical_p": 0.9, "epsilon_cutoff": 1e-3, "eta_cutoff": 1e-3, "mirostat": Mirostat(),
    "repetition_penalty": 1.1, "presence_penalty": -1.0, "frequency_penalty": 0.5, "no_repeat_ngram": 3,
    "sequence_bias": {"ab": 1.0}, "dry": Dry(), "min_tokens_to_keep": 3, "top_n_sigma": 1.5, "xtc": XTC(),
    "logit_bias": {3: 1.0}, "banned": ("a",), "min_tokens": 2, "forced": "b", "adapters": (Softer(),),
}  # fmt: skip


def test_adapters_that_are_off_change_no_fingerprint_and_each_that_is_on_makes_another_generator() -> None:
    plain = SamplingParams()
    assert set(ON) == set(ADAPTERS) == set(plain.replace(**ON).on)
    assert plain.on == () and not any(name in plain.fingerprint for name in ADAPTERS)
    prints = {name: plain.replace(**{name: value}).fingerprint for name, value in ON.items()}
    assert len({*prints.values(), plain.fingerprint}) == len(ON) + 1
    assert all(f"{name}=" in prints[name] for name in ON)
    assert plain.replace(**ON).replace(**dict(ADAPTERS)).fingerprint == plain.fingerprint


def test_biases_are_the_same_however_they_are_written() -> None:
    one = SamplingParams(logit_bias={"a": 1.0, 3: -2.0, 1: 0.5})
    assert one == SamplingParams(logit_bias=((3, -2.0), (1, 0.5), ("a", 1.0)))
    assert hash(one) == hash(one.replace(temperature=1.0))
    assert one.biases == ((1, 0.5), (3, -2.0), ("a", 1.0))
    assert SamplingParams(logit_bias={5: 1}).fingerprint == SamplingParams(logit_bias={5: 1.0}).fingerprint


@pytest.mark.parametrize("values", [(0, 0.1), (-1, 0.1), (float("inf"), 0.1), (3, 0), (3, 1.5), ("a", 1)])
def test_a_mirostat_that_aims_at_nothing_is_refused(values: Any) -> None:
    with pytest.raises(InputError, match=r"mirostat: (tau|eta)="):
        Mirostat(*values)


@pytest.mark.parametrize(
    ("kind", "given", "named"),
    [
        (Dry, {"multiplier": 0}, "dry: multiplier=0"), (Dry, {"base": 0.5}, "dry: base="),
        (Dry, {"base": 9}, "dry: base="),
        (Dry, {"allowed_length": 0}, "dry: allowed_length="), (Dry, {"last": -1}, "dry: last="),
        (Dry, {"breakers": "x"}, "dry: breakers="), (Dry, {"breakers": ("",)}, "dry: breakers="),
        (XTC, {"probability": 0}, "xtc: probability="), (XTC, {"probability": 1.1}, "xtc: probability="),
        (XTC, {"threshold": 0.6}, "xtc: threshold="), (XTC, {"threshold": float("nan")}, "xtc: threshold="),
    ],
)  # fmt: skip
def test_repetitions_and_top_choices_of_no_meaning_are_refused(kind: Any, given: Any, named: str) -> None:
    with pytest.raises(InputError, match=named):
        kind(**given)


def test_mirostat_has_nothing_to_follow_in_a_search() -> None:
    with pytest.raises(InputError, match=r"mirostat follows what is drawn.*leave one out"):
        SamplingParams(mirostat=Mirostat(), search=BeamSearch(2))


def test_presets_are_those_of_the_literature() -> None:
    assert SamplingParams.preset("code") == SamplingParams(temperature=0.2, top_p=0.1)
    assert SamplingParams.preset("chat", top_p=0.9, min_p=0.1) == SamplingParams(0.5, top_p=0.9, min_p=0.1)
    assert len(PRESETS) == 6
    with pytest.raises(InputError, match=r"'creativ' is no preset; .*did you mean 'creative'\?"):
        SamplingParams.preset("creativ")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"search": BeamSearch(2), "temperature": 0, "top_k": 1},
            "top_k=1: a search at temperature=0 cuts nothing",
        ),
        ({"search": BeamSearch(2), "temperature": 1, "top_k": 1}, ""),
        ({"min_tokens": 12, "ignore_eos": True}, "min_tokens=12: with ignore_eos no token ends a completion"),
        ({"min_tokens": 12, "ignore_eos": True, "stop_token_ids": (1,)}, ""),
        ({"log_mass": True}, "log_mass=True: nothing masks"),
        ({"log_mass": True, "healing": True}, ""),
    ],
)
def test_what_would_have_no_effect_beside_the_others_is_refused(given: Any, says: str) -> None:
    if says:
        with pytest.raises(InputError, match=says):
            SamplingParams(**given)
    else:
        SamplingParams(**given)
