"""Engine arguments: which of vLLM's a user may give, which are given some other way, and which change the numbers."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from metagen.errors import InputError

#: Arguments of vLLM that are said otherwise, or that must not change, each with the way.
ELSEWHERE: Mapping[str, str] = {
    "model": "give it as model",
    "tokenizer": "the model directory's own tokenizer is used",
    "tokenizer_mode": "the model directory's own tokenizer is used",
    "tokenizer_revision": "the model directory's own tokenizer is used",
    "skip_tokenizer_init": "the model directory's own tokenizer is used",
    "revision": "give a model directory",
    "dtype": "give it as dtype",
    "max_model_len": "give it as max_context",
    "lora_modules": "give it as lora",
    "runner": "the engine generates and reads log-probabilities",
    "convert": "the engine generates and reads log-probabilities",
    "logprobs_mode": "log-probabilities are those of the raw model",
    "generation_config": "sampling parameters belong to the generator",
    "override_generation_config": "sampling parameters belong to the generator",
    "disable_log_stats": "the engine's own counters need them",
    "max_num_queued_reqs": "requests wait; give max_pending",
    "max_num_queued_tokens": "requests wait; give max_pending",
}
#: Arguments that change what the model computes, or what is drawn: they are part of the fingerprint.
NUMERICS = (
    "calculate_kv_scales",
    "hf_config_path",
    "hf_overrides",
    "kv_cache_dtype",
    "kv_cache_dtype_skip_layers",
    "load_format",
    "logits_processors",
    "lora_target_modules",
    "model_class_overrides",
    "quantization",
    "quantization_config",
    "quantization_param_path",
    "watermark_config",
)
#: A block that is computed without a warning on a CPU, where vLLM's own default is 128 tokens.
CPU_BLOCK = 32
#: Tokens of a step there: a prompt that is read in parts beside a sample with a seed ends vLLM's process on a CPU.
CPU_TOKENS = 16384


def check(given: Mapping[str, Any], known: Collection[str], *, seeded: bool = False) -> None:
    """Every argument is one of vLLM's, `known`, and not said elsewhere. InputError with the nearest name.

    seeded: whether each sample brings its own seed, beside which there is no other.
    """
    if seeded and given.get("seed"):
        raise InputError(
            f"seed={given['seed']!r}: with seeded=True each sample has a seed of its own; leave one out"
        )
    for name, value in given.items():
        if name in ELSEWHERE:
            raise InputError(f"{name}={value!r} is not passed on to vLLM: {ELSEWHERE[name]}")
        if name not in known:
            near = get_close_matches(name, known, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else "; see vLLM's engine arguments"
            raise InputError(f"{name!r} is no engine argument of the installed vLLM{meant}")
    for name in ("max_num_seqs", "max_num_batched_tokens", "block_size", "kv_cache_memory_bytes"):
        value = given.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise InputError(f"{name}={value!r}: expected an integer ≥ 1")


def defaults(given: Mapping[str, Any], *, on_cpu: bool, memory: int, seeded: bool) -> dict[str, Any]:
    """The arguments as vLLM gets them: what is not given has a default that serves searches.

    memory: bytes for keys and values on a CPU, where vLLM would take nearly all there is. seeded: whether each sample
    brings its own seed. If not, the engine starts from chance: vLLM draws the same numbers again in each process that
    starts from the same seed, so more samples of a prompt, asked for by a later process, would be copies of the first.
    """
    mine: dict[str, Any] = {
        "enable_prefix_caching": True,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8192,
        "seed": 0 if seeded else secrets.randbelow(2**31),
        # As many as are asked for: a generator with top_logprobs, or a judge, knows how many it needs.
        "max_logprobs": -1,
        "use_tqdm_on_load": False,
        "trust_remote_code": False,
        # The library that matches grammars on the torch engine too.
        "structured_outputs_config": {"backend": "guidance"},
    }
    if on_cpu:
        mine |= {
            "block_size": CPU_BLOCK, "kv_cache_memory_bytes": memory, "max_num_batched_tokens": CPU_TOKENS,
        }  # fmt: skip
    return mine | dict(given)


def threads(given: Mapping[str, Any], count: int) -> dict[str, str]:
    """Environment under which each of vLLM's processes on a CPU computes with so many threads, bound to no core.

    vLLM's own way binds every engine to the same cores. Where one process computes, it is the scheduler's too: the
    two would wait for each other by spinning.
    """
    found = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(count)}
    if given.get("tensor_parallel_size", 1) == 1 and given.get("distributed_executor_backend") is None:
        found["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    return found


def numerics(given: Mapping[str, Any]) -> str:
    """The arguments that a fingerprint names; empty where none is given."""
    return repr(sorted((name, repr(given[name])) for name in NUMERICS if given.get(name) is not None))
