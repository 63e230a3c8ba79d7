"""Sampling adapters of many rows at once, beside transformers' processors that go from row to row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from transformers import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    LogitsProcessorList,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopHLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from benchmarks.row import Row, seconds
from metagen.generators.decoding.words import Words
from metagen.generators.engine import SamplingParams
from metagen.generators.torch.history import History
from metagen.generators.torch.parameters import RowParams
from metagen.generators.torch.sampling import adapt, draw

ROWS, LENGTH = 64, 256
#: Of an embedded model with pairs of bytes, and of one with a large vocabulary.
SIZES = (512, 32_000)
Adapt = Callable[[], torch.Tensor]
#: What a row may have beside its temperature, each with the processor that is its equal.
ONE: tuple[tuple[str, Callable[[float], float], Callable[[float], object]], ...] = (
    ("top_h", lambda x: 0.2 + 0.7 * x, TopHLogitsWarper),
    ("top_k", lambda x: 2 + int(100 * x), TopKLogitsWarper),
    ("top_p", lambda x: 0.3 + 0.6 * x, TopPLogitsWarper),
    ("min_p", lambda x: 0.01 + 0.2 * x, MinPLogitsWarper),
    ("typical_p", lambda x: 0.3 + 0.6 * x, TypicalLogitsWarper),
    ("epsilon_cutoff", lambda x: 1e-4 + 1e-3 * x, EpsilonLogitsWarper),
    ("eta_cutoff", lambda x: 1e-4 + 1e-3 * x, EtaLogitsWarper),
)


def rows() -> Iterator[Row]:
    """Both sides in one process, in float32, with one thread; the masks of both are the same."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for size in SIZES:
        for what, (params, theirs) in {"truncation": cutting(), "penalties and bans": looking(size)}.items():
            yield from both(what, size, params, theirs)
    yield from nucleus(SIZES[-1])
    torch.set_num_threads(threads)


def nucleus(size: int) -> Iterator[Row]:
    """A draw with top_p of one row: from as flat a distribution as no model has, and from one like a model's."""
    for what, scale in (("flat", 0.3), ("peaked", 8.0)):
        logits = torch.randn(1, size, generator=torch.Generator().manual_seed(size)) * scale
        params, u = RowParams.of([SamplingParams(top_p=0.9)]), np.array([0.5])
        taken = 1e6 * seconds(partial(draw, logits, u, params), repeat=200)
        how = "one row, one thread"
        yield Row(f"top_p, {size} tokens, {what}: a draw", taken, "µs a row and token", how, "≤ 200")


def both(
    what: str, size: int, params: list[SamplingParams], theirs: list[LogitsProcessorList]
) -> Iterator[Row]:
    together, one_by_one = sides(size, params, theirs)
    assert torch.equal(together().isneginf(), one_by_one().isneginf()), what
    ours, others = seconds(together), seconds(one_by_one)
    how = f"{ROWS} rows, each with parameters of its own, {size} tokens, one thread"
    yield Row(f"{what}, {size} tokens: processors row by row over metagen", others / ours, "×", how, "≥ 1")
    yield Row(f"{what}, {size} tokens: adapters", 1e6 * ours / ROWS, "µs a row and token", how)


def sides(size: int, params: list[SamplingParams], theirs: list[LogitsProcessorList]) -> tuple[Adapt, Adapt]:
    """Logits of all rows under metagen's adapters, and under the processors of each row."""
    logits = torch.randn(ROWS, size, generator=torch.Generator().manual_seed(size)) * 3
    ids = np.random.default_rng(size).integers(0, min(size, 200), (ROWS, LENGTH))
    table = RowParams.of(params, [Words(banned=one.banned) for one in params])  # type: ignore[arg-type]  # ids only
    history = History.of(ids.tolist(), [8] * ROWS)
    given = torch.from_numpy(ids)

    def together() -> torch.Tensor:
        return adapt(logits, table, History(history.ids, history.start) if table.remembers else None)

    def one_by_one() -> torch.Tensor:
        return torch.cat([each(given[i : i + 1], logits[i : i + 1]) for i, each in enumerate(theirs)])

    return together, one_by_one


def cutting() -> tuple[list[SamplingParams], list[LogitsProcessorList]]:
    """One kind of truncation a row, behind a temperature."""
    params, theirs = [], []
    for i in range(ROWS):
        name, value, processor = ONE[i % len(ONE)]
        warm, own = 0.5 + i / ROWS, value(i / ROWS)
        params.append(SamplingParams(temperature=warm, **{name: own}))  # type: ignore[arg-type]  # as it is named
        theirs.append(LogitsProcessorList([TemperatureLogitsWarper(warm), processor(own)]))
    return params, theirs


def looking(size: int) -> tuple[list[SamplingParams], list[LogitsProcessorList]]:
    """A repetition penalty, an n-gram length and banned sequences for each row."""
    draw, params, theirs = np.random.default_rng(1), [], []
    for i in range(ROWS):
        theta, order = 1.05 + i / ROWS, 2 + i % 3
        banned = tuple(tuple(draw.integers(0, min(size, 200), 1 + j % 3).tolist()) for j in range(6))
        params.append(SamplingParams(repetition_penalty=theta, no_repeat_ngram=order, banned=banned))
        ban = NoBadWordsLogitsProcessor([list(one) for one in banned], eos_token_id=None)
        penalty = RepetitionPenaltyLogitsProcessor(theta)
        theirs.append(LogitsProcessorList([penalty, NoRepeatNGramLogitsProcessor(order), ban]))
    return params, theirs
