"""Facts that a server of models tells of itself, without a request that it would count or bill."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Final

from metagen.generators.openai.keys import address

#: Seconds that a server has to answer.
PATIENCE: Final = 2.0
#: Bytes of its metrics that are read, at most.
MOST: Final = 1 << 24
_CACHE: Final = re.compile(r"^vllm:cache_config_info\{(.*)\}", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
#: Tokens of a block by default, where vLLM runs on a CPU.
BLOCK: Final = "128"


def metrics(base_url: str) -> str | None:
    """What it says under /metrics, beside the API; None if it says nothing there.

    No key is sent. Raises InputError for what is no address, and OSError where no server answers.
    """
    root = address(base_url).removesuffix("/v1")
    try:
        with urllib.request.urlopen(f"{root}/metrics", timeout=PATIENCE) as answer:
            return str(answer.read(MOST).decode("utf-8", "replace"))
    except (urllib.error.HTTPError, HTTPException):
        return None


def cache(told: str) -> Mapping[str, str]:
    """The configuration of vLLM's cache in its metrics, of the first engine; empty if there is none."""
    found = _CACHE.search(told)
    return dict(_LABEL.findall(found[1])) if found else {}


def default_blocks(cache: Mapping[str, str]) -> bool:
    """Whether a vLLM on a CPU shows the blocks that it has by default.

    That it runs on a CPU shows in the bytes of its cache: `cpu_kvcache_space_bytes` of versions that have it; of newer
    ones `kv_cache_memory_bytes`, which vLLM sets by itself on CPUs alone, beside a block size that nobody chose.
    """
    if cache.get("block_size") != BLOCK or cache.get("enable_prefix_caching") == "False":
        return False
    if (older := cache.get("cpu_kvcache_space_bytes")) is not None:
        return older.isdecimal()
    chosen = cache.get("user_specified_block_size")
    return chosen == "False" and cache.get("kv_cache_memory_bytes", "").isdecimal()
