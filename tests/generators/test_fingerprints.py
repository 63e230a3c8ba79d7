"""Fingerprints of generators and engines are keys of journals: a change of one would have runs pay again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from metagen.cost import Price
from metagen.generators.decoding.adapters import XTC, Dry, Mirostat
from metagen.generators.decoding.draft import Draft
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.search import (
    BeamSearch,
    ConstrainedBeamSearch,
    ContrastiveSearch,
    DiverseBeamSearch,
    StochasticBeamSearch,
)
from metagen.generators.engine import SamplingParams
from metagen.generators.function import FunctionGenerator
from metagen.generators.models.recipes import Contrastive, Tilted
from metagen.generators.models.sources import resolve
from metagen.generators.openai import OpenAIEngine
from metagen.generators.primitive import EngineGenerator
from metagen.generators.replay import Recorded, ReplayGenerator
from metagen.generators.tokenizer import Tokenizer
from metagen.generators.torch import TorchEngine
from metagen.generators.vllm import model as vllm_files
from metagen.generators.vllm import options as vllm_options

#: Parameters that a fingerprint always has, as it has them when nothing is said.
ALWAYS = {
    "temperature": "1.0", "top_k": "0", "top_p": "1.0", "max_tokens": "256", "stop": "()", "stop_token_ids": "()",
    "ignore_eos": "False", "logprobs": "False",
}  # fmt: skip
#: A value of each parameter, and what it adds to a fingerprint, in the order of the fingerprint.
VALUES: list[tuple[str, Any, str]] = [
    ("temperature", 0.7, "0.7"),
    ("top_k", 5, "5"),
    ("top_p", 0.9, "0.9"),
    ("max_tokens", 64, "64"),
    ("stop", ("\n",), "('\\n',)"),
    ("stop_token_ids", (5, 2), "(5, 2)"),
    ("ignore_eos", True, "True"),
    ("logprobs", True, "True"),
    ("grammar", Grammar.regex("[0-9]+"), "Grammar(kind='regex', source='[0-9]+')"),
    ("top_logprobs", 4, "4"),
    ("search", BeamSearch(2), "BeamSearch(width=2, alpha=1.0, early_stopping='estimate', score='adapted')"),
    ("healing", True, "True"),
    ("log_mass", True, "True"),
    ("top_n_sigma", 1.5, "1.5"),
    ("min_tokens_to_keep", 3, "3"),
    ("top_h", 0.5, "0.5"),
    ("min_p", 0.1, "0.1"),
    ("typical_p", 0.9, "0.9"),
    ("epsilon_cutoff", 0.001, "0.001"),
    ("eta_cutoff", 0.002, "0.002"),
    ("xtc", XTC(0.25), "XTC(probability=0.25, threshold=0.1)"),
    ("mirostat", Mirostat(3.0), "Mirostat(tau=3.0, eta=0.1)"),
    ("repetition_penalty", 1.1, "1.1"),
    ("presence_penalty", -1, "-1.0"),
    ("frequency_penalty", 0.5, "0.5"),
    (
        "dry",
        Dry(last=9),
        "Dry(multiplier=0.8, base=1.75, allowed_length=2, breakers=('\\n', ':', '\"', '*'), last=9)",
    ),
    ("no_repeat_ngram", 3, "3"),
    ("logit_bias", {"a": 1, 3: -2.5}, "((3, -2.5), ('a', 1.0))"),
    ("sequence_bias", {(1, 2): 1.0, "ab": 2}, "(((1, 2), 1.0), ('ab', 2.0))"),
    ("banned", ("a", (3,)), "('a', (3,))"),
    ("min_tokens", 2, "2"),
    ("forced", "b", "'b'"),
    ("thought_end", "</think>", "'</think>'"),
]


def fingerprint(*on: tuple[str, Any, str]) -> str:
    """As it was when the first journals were written."""
    parts = ALWAYS | {name: text for name, _, text in on}
    return f"SamplingParams({', '.join(f'{name}={text}' for name, text in parts.items())})"


@pytest.mark.parametrize("one", VALUES, ids=[name for name, _, _ in VALUES])
def test_each_parameter_is_in_the_fingerprint_as_ever(one: tuple[str, Any, str]) -> None:
    # Where nothing masks, a mass is refused.
    several = [other for other in VALUES if other is one or (one[0], other[0]) == ("log_mass", "healing")]
    given = {name: value for name, value, _ in several}
    assert SamplingParams(**given).fingerprint == fingerprint(*several)


def test_all_parameters_together_are_in_the_fingerprint_in_their_order() -> None:
    apart = ("search", "ignore_eos", "log_mass")  # of which each refuses one of the others
    together = [one for one in VALUES if one[0] not in apart]
    assert SamplingParams(**{name: value for name, value, _ in together}).fingerprint == fingerprint(
        *together
    )
    assert SamplingParams().fingerprint == fingerprint()


def test_values_of_several_fields_are_in_the_fingerprint_as_ever() -> None:
    known: list[tuple[str, Any, str]] = [
        (
            "search",
            DiverseBeamSearch(4, groups=2),
            "DiverseBeamSearch(width=4, alpha=1.0, early_stopping='estimate', score='adapted', groups=2, "
            "diversity=0.5)",
        ),
        (
            "search",
            ConstrainedBeamSearch(3, phrases=("a", (1,))),
            "ConstrainedBeamSearch(width=3, alpha=1.0, early_stopping='estimate', score='adapted', "
            "phrases=('a', (1,)))",
        ),
        ("search", StochasticBeamSearch(3), "StochasticBeamSearch(width=3)"),
        ("search", ContrastiveSearch(3), "ContrastiveSearch(k=3, alpha=0.6)"),
        (
            "grammar",
            Grammar.json({"type": "integer"}, compact=True, canonical=False, close=True),
            'Grammar(kind=\'json_schema\', source=\'{"type": "integer", "x-guidance": {"whitespace_flexible": '
            "false}}', canonical=False, close=True)",
        ),
        ("mirostat", Mirostat(), "Mirostat(tau=5.0, eta=0.1)"),
        ("xtc", XTC(), "XTC(probability=0.5, threshold=0.1)"),
    ]
    for one in known:
        assert SamplingParams(**{one[0]: one[1]}).fingerprint == fingerprint(one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SamplingParams(temperature=0, top_p=1), SamplingParams(temperature=0.0)),
        (SamplingParams(mirostat=Mirostat(3, eta=1)), SamplingParams(mirostat=Mirostat(3.0, eta=1.0))),
        (SamplingParams(temperature=np.float64(0.5)), SamplingParams(temperature=0.5)),
        (SamplingParams(dry=Dry(1), xtc=XTC(1)), SamplingParams(dry=Dry(1.0), xtc=XTC(1.0))),
        (SamplingParams(search=BeamSearch(2, alpha=1)), SamplingParams(search=BeamSearch(2))),
    ],
)
def test_equal_parameters_have_one_fingerprint(one: SamplingParams, other: SamplingParams) -> None:
    """However their numbers are written; experiment files have always had floats."""
    assert one == other and one.fingerprint == other.fingerprint


def test_equal_recipes_have_equal_options() -> None:
    one, other = (Tilted("a", ("b", "c"), weights) for weights in ((1, 2), (1.0, 2.0)))
    assert one == other and one.options == other.options
    assert Contrastive("a", "b", beta=1).options == Contrastive("a", "b", beta=1.0).options
    assert SamplingParams(top_k=3).fingerprint == fingerprint(("top_k", 3, "3")), "integers stay integers"


@pytest.mark.parametrize(
    ("model", "options", "known"),
    [
        ("tiny-0.1m", {"dtype": "float32"}, "9bd9b439ee9edbdc6b9d6a5b6a72adef"),
        ("tiny-0.1m", {"dtype": "bfloat16"}, "3219b4a4015e2ae864595d166a3b269a"),
        (
            "tiny-0.1m",
            {"dtype": "float32", "max_batch": 4, "max_context": 64, "threads": 1, "kv_memory_bytes": 1 << 24},
            "9bd9b439ee9edbdc6b9d6a5b6a72adef",
        ),
        (
            "tiny-0.1m",
            {"dtype": "float32", "draft": Draft.lookup(3)},
            "86cd6a7295cc554c72511bcfc0c0f3af",
        ),
        (
            "tiny-0.5m",
            {"dtype": "float32", "draft": Draft("tiny-0.1m", 2)},
            "6958d8b3290c429d4670a15852c897c7",
        ),
        ("tiny-0.5m", {"quantization": "int8"}, "a756b01f115b1d03cd22ebb224a6a9f4"),
        (
            Contrastive("tiny-0.5m", "tiny-0.1m"),
            {"dtype": "float32"},
            "a95e3ae25d2c33725e372e1819615fb9",
        ),
    ],
)
def test_torch_engines_are_named_by_their_weights_numbers_and_drafts(
    model: Any, options: dict[str, Any], known: str
) -> None:
    assert TorchEngine(model, device="cpu", **options).fingerprint == known


@pytest.mark.parametrize(
    ("options", "known", "generator"),
    [
        ({}, "be1ec65c79f83e6fe91616674069c267", "42663650b053d9de1f2fe2bf3f65eb84"),
        (
            {
                "dialect": "vllm",
                "api": "completions",
                "tokenizer": "tiny-0.1m",
                "n_per_request": 2,
                "seed_bits": 8,
            },
            "0ef9a75e93e5c5b642623398abcdb546",
            "b6dc8c07eeb2730b2675c91e51df31ba",
        ),
        (
            {
                "extra_body": {"x": [1]},
                "revision": "r1",
                "price": Price(1, 2),
                "max_context": 9,
                "stream": True,
            },
            "e7ba781f33c921ebb8434818d9e131cf",
            "d4016452d419c50e689e2a3bcf666934",
        ),
    ],
)
def test_servers_are_named_by_what_shapes_their_draws(
    options: dict[str, Any], known: str, generator: str
) -> None:
    if "tokenizer" in options:
        options = options | {"tokenizer": resolve(options["tokenizer"])}
    engine = OpenAIEngine("m", base_url="http://localhost:1/v1", **options)
    assert engine.fingerprint == known
    assert EngineGenerator(engine, SamplingParams(presence_penalty=0.5)).fingerprint == generator


def test_vllm_engines_are_named_by_their_files_and_the_arguments_that_change_numbers() -> None:
    directory = resolve("tiny-0.1m")
    tokenizer = Tokenizer(directory, vllm_files.vocabulary(directory))
    numerics = vllm_options.numerics({"quantization": "fp8", "max_num_seqs": 4})
    known = "3000573dce6cc0c3ecc1c4ee00e63463"
    assert vllm_files.fingerprint(directory, tokenizer, "float32", None, numerics) == known


def test_generators_are_named_by_engine_and_parameters() -> None:
    engine = TorchEngine("tiny-0.1m", device="cpu", dtype="float32")
    made = EngineGenerator(engine, SamplingParams(temperature=0.7, min_p=0.1))
    assert made.fingerprint == engine.generator(temperature=0.7, min_p=0.1).fingerprint
    assert made.fingerprint == "7ef111f42f90839205e742f3e0e00682"
    plain = FunctionGenerator(lambda prefix, seed, index: "a", name="a")
    assert plain.fingerprint == "cf1ef577cc3b2dab82549ea0114c43bc"


@pytest.mark.parametrize(
    ("options", "known"),
    [
        ({}, "23b892a7c1631a2bfe3a5f2c973f50e9"),
        ({"scored": "s"}, "334549ec439d73516f783e0dcce9d25e"),
        ({"maps": {"s": "minmax"}}, "a470362a5ec0137bcfbff46256cce973"),
        ({"price": Price(1, 2)}, "f87e64dd5a618dcf756d12fd6109381c"),
    ],
)
def test_recorded_pools_are_named_by_what_they_hold_and_how_it_is_read(
    options: dict[str, Any], known: str
) -> None:
    pool = {
        "a": [
            Recorded("x 1", generated=3, scores={"s": 2.0}),
            Recorded("y", generated=2, scores={"s": 1.0}),
        ],
        "b": [Recorded("z", generated=None, scores={"s": None})],
    }
    assert ReplayGenerator(pool, **options).fingerprint == known
