"""What vLLM counts of its own work, added up in the engine's statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metagen.generators.engine import EngineStats

#: preemptions: requests put back for want of memory. recomputed: tokens that were computed once more for it.
#: drafted, accepted: tokens of speculative decoding. decoded: moves at each step, so that a pool sees that it lives.
COUNTED = ("preemptions", "recomputed", "drafted", "accepted", "decoded")


def counter(base: type[Any], stats: EngineStats) -> Callable[..., Any]:
    """What vLLM makes its loggers with: a logger that adds to `stats.extra`. base: vLLM's StatLoggerBase."""
    extra = stats.extra
    extra.update(dict.fromkeys(COUNTED, 0.0))

    class Counter(base):  # type: ignore[misc]  # a class of the installed version
        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            pass

        def log_engine_initialized(self) -> None:
            pass

        def record(
            self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
        ) -> None:
            if iteration_stats is not None:
                extra["preemptions"] += iteration_stats.num_preempted_reqs
                extra["decoded"] += iteration_stats.num_generation_tokens
            if scheduler_stats is None:
                return
            cache = scheduler_stats.prefix_cache_stats
            extra["recomputed"] += cache.preempted_queries - cache.preempted_hits
            if (drafts := scheduler_stats.spec_decoding_stats) is not None:
                extra["drafted"] += drafts.num_draft_tokens
                extra["accepted"] += drafts.num_accepted_tokens

    return Counter
