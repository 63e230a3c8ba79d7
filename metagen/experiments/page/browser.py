"""The problems of a run as compact data, which the page's script reads: what is embedded, and what is left out.

The data are JSON, compressed and in base64. Equal candidates are there once. Where a run is larger than the room in
the page, each pool keeps fewer candidates (those that a strategy chose first), and at last fewer problems are there;
votes, choices and filters are always those of the whole pool.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from typing import Any

from metagen.experiments.page.spans import Span
from metagen.experiments.problem import Distinct, Examined, Pool

#: Filters of the browser: name → what a reader sees, and what it means.
FILTERS: Mapping[str, tuple[str, str]] = {
    "voting": (
        "rescued by voting",
        "at most half of the samples are right, and yet the most frequent answer is",
    ),
    "verifier": (
        "rescued by the verifier",
        "the most frequent answer is wrong, and yet a strategy with a verifier chooses a right one",
    ),
    "lost": (
        "lost by the verifier",
        "the most frequent answer is right, and yet a strategy with a verifier chooses a wrong one",
    ),
    "never": ("never solved", "not one sample is right"),
}
#: Distinct candidates of a pool that are embedded, tried in this order; None is all.
KEPT = (None, 64, 48, 32, 24, 16, 12, 8, 4, 2, 1)
#: Problems that are packed to see how much all of them would take, and how far that may be from the truth.
SAMPLE, SLACK = 25, 1.1
#: Characters of a text that are embedded.
LONGEST = 6000


@dataclass(frozen=True, slots=True)
class Embedded:
    """data: base64 of gzip of JSON. kept: candidates of a pool at most, None for all. problems: that are there."""

    data: str
    kept: int | None
    problems: int


def embed(
    problems: Ordered[Examined], spans: Ordered[Span | None], generators: Ordered[str], room: int
) -> Embedded:
    """As much as fits into `room` bytes."""
    count = len(problems)
    sample = range(0, count, max(1, count // SAMPLE))

    def expected(kept: int | None) -> float:
        """Bytes of all problems, going by some of them: packing all takes long."""
        some = [problems[i] for i in sample], [spans[i] for i in sample]
        return len(_packed(*some, generators, kept, len(sample)).data) * count / max(1, len(sample))

    for kept in KEPT:
        if expected(kept) <= SLACK * room:
            embedded = _packed(problems, spans, generators, kept, count)
            if len(embedded.data) <= room:
                return embedded
    count = min(count - 1, int(count * room / (expected(KEPT[-1]) or 1)))
    while count > 0:
        embedded = _packed(problems, spans, generators, KEPT[-1], count)
        if len(embedded.data) <= room:
            return embedded
        count = int(0.9 * count)
    return _packed(problems, spans, generators, KEPT[-1], 0)


def marks(pool: Pool) -> list[str]:
    """The filters that a pool passes."""
    judged = [c.correct for c in pool.choices if c.line.verifier is not None and not c.line.oracle]
    found = {
        "voting": pool.voted and 2 * pool.right <= pool.size,
        "verifier": not pool.voted and any(judged),
        "lost": pool.voted and not all(judged),
        "never": pool.right == 0,
    }
    return [name for name, holds in found.items() if holds]


def _packed(
    problems: Ordered[Examined],
    spans: Ordered[Span | None],
    generators: Ordered[str],
    kept: int | None,
    count: int,
) -> Embedded:
    data = {
        "generators": list(generators),
        "problems": [_problem(p, s, kept) for p, s in zip(problems[:count], spans[:count], strict=True)],
    }
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    packed = gzip.compress(text.encode(), compresslevel=9, mtime=0)
    return Embedded(base64.b64encode(packed).decode(), kept, count)


def _problem(problem: Examined, span: Span | None, kept: int | None) -> dict[str, Any]:
    # Their texts are among the candidates.
    shown = {pool.configuration for pool in problem.pools if pool.choices}
    return {
        "id": problem.problem,
        "level": problem.level,
        "prompt": _cut(problem.prompt),
        "answer": problem.reference,
        "pools": [_pool(pool, kept) for pool in problem.pools],
        "direct": [
            [
                o["configuration"],
                o["answer"],
                o["correct"],
                None if o["configuration"] in shown else _cut(o["text"]),
                _round(o["generated"]),
                _round(o["flops"]),
            ]
            for o in problem.outcomes
        ],
        "solved": any(pool.right for pool in problem.pools) or any(o["correct"] for o in problem.outcomes),
        "spans": None if span is None else _span(span),
    }


def _pool(pool: Pool, kept: int | None) -> dict[str, Any]:
    chosen = {choice.sample for choice in pool.choices}
    order = sorted(range(len(pool.distinct)), key=lambda i: (chosen.isdisjoint(pool.distinct[i].samples), i))
    inside = sorted(order[:kept])
    return {
        "name": pool.name,
        "generator": pool.generator,
        "size": pool.size,
        "right": pool.right,
        "marks": marks(pool),
        "verifiers": list(pool.verifiers),
        "process": pool.process,
        "distinct": len(pool.distinct),
        "candidates": [_candidate(pool.distinct[i], pool) for i in inside],
        "votes": [
            [v.key, v.correct, v.votes, [_round(v.totals[name], 3) for name in pool.verifiers]]
            for v in pool.votes
        ],
        "silent": pool.silent,
        "choices": [[c.label, c.sample, c.answer, c.correct] for c in pool.choices],
    }


def _candidate(d: Distinct, pool: Pool) -> list[Any]:
    """[lines, values of steps, samples, answer, right, flaw, tokens, scores, thought, its tokens]."""
    lines = d.scored_lines(pool.process)
    values = [v for _, v in lines]
    scored = None if None in values else [_round(v, 3) for v in values]
    scores = [_round(d.scores[v], 3) for v in pool.verifiers]
    thought = None if d.thought is None else _cut(d.thought)
    return [
        _cut(d.text), scored, list(d.samples), d.answer, d.correct, d.flaw, _round(d.tokens), scores,
        thought, d.thought_tokens,
    ]  # fmt: skip


def _span(span: Span) -> list[Any]:
    """[label, records, status, prefilled, cached, generated, flops, children]."""
    used = span.usage
    counts = (used.prefilled, used.cached, used.generated, _round(used.flops, -3))
    return [span.label, span.count, span.status, *counts, [_span(child) for child in span.children]]


def _cut(text: str) -> str:
    """The beginning of a long text, with what is left out."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}\n… {len(text) - LONGEST:,} more characters"


def _round(value: float | None, digits: int = 0) -> float | None:
    if value is None:
        return None
    rounded = round(value, digits)
    return int(rounded) if rounded == int(rounded) else rounded


def counts(problems: Iterable[Examined]) -> dict[str, int]:
    """How many problems pass each filter with any generator; never: with none of them."""
    found = dict.fromkeys(FILTERS, 0)
    for problem in problems:
        passed = {name for pool in problem.pools for name in marks(pool)}
        solved = any(pool.right for pool in problem.pools) or any(o["correct"] for o in problem.outcomes)
        for name in passed - {"never"} | (set() if solved else {"never"}):
            found[name] += 1
    return found
