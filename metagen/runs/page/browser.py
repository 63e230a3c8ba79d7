"""The problems of a run as compact data, which the page's script reads: what is embedded, and what is left out.

The data are JSON, compressed and in base64. Equal candidates are there once. Where a run is larger than the room in
the page, each pool keeps fewer candidates (those that a strategy chose first), and at last fewer problems are there;
votes, choices and filters are always those of the whole pool. Until it is known how much fits, the data of problems lie
in a file of their own.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter, abc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np

from metagen.runs.directory import Aside
from metagen.runs.table.problem import Distinct, Examined, Pool
from metagen.runs.work.spans import Span

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
    problems: abc.Sequence[Examined],
    spans: abc.Sequence[Span | None],
    generators: abc.Sequence[str],
    room: int,
) -> Embedded:
    """As much of these problems as fits into `room` bytes."""
    with Pieces(generators, len(problems)) as pieces:
        for number, (problem, span) in enumerate(zip(problems, spans, strict=True)):
            pieces.add(number, problem, span)
        return pieces.embed(room)


class Pieces:
    """The data of problems, told one by one in any order; what they take lies in a file until this is closed.

    count: problems that there will be. kept: candidates of a pool at most; None for all.
    """

    def __init__(self, generators: abc.Sequence[str], count: int, kept: int | None = None) -> None:
        self._generators, self._kept = list(generators), kept
        #: Where the data of each problem begins, and how long they and the ranks of its candidates are.
        self._places = np.zeros((count, 3), np.int64)
        self._file = Aside()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, number: int, problem: Examined, span: Span | None) -> None:
        """The problem of this number, from 0."""
        data = data_of(problem, span)
        ranks = _cut_to([_ranks(pool) for pool in problem.pools], data, self._kept)
        written, beside = (_to_json(one).encode() for one in (data, ranks))
        self._places[number] = (self._file.write(written + beside), len(written), len(beside))

    def embed(self, room: int) -> Embedded:
        """As much as fits into `room` bytes."""
        count = len(self._places)
        some, embedded = spread_numbers(count), Embedded("", None, 0)
        for kept in KEPT[KEPT.index(self._kept) :]:
            embedded = self._pack(some, kept)
            # Packing all takes long.
            if len(some) < count and len(embedded.data) * count / len(some) <= SLACK * room:
                embedded = self._pack(range(count), kept)
            if embedded.problems == count and len(embedded.data) <= room:
                return embedded
        size = len(embedded.data) * count / (embedded.problems or 1)
        count = min(count - 1, int(count * room / (size or 1)))
        while count > 0:
            embedded = self._pack(range(count), KEPT[-1])
            if len(embedded.data) <= room:
                return embedded
            count = int(0.9 * count)
        return self._pack(range(0), KEPT[-1])

    def fitting(self, room: int, count: int) -> int | None:
        """Candidates of a pool with which `count` problems like these may fit."""
        every = range(len(self._places))
        sizes = ((kept, len(self._pack(every, kept).data) * count / max(1, len(every))) for kept in KEPT)
        return next((kept for kept, size in sizes if size <= SLACK * room), KEPT[-1])

    def _pack(self, numbers: abc.Sequence[int], kept: int | None) -> Embedded:
        packer = zlib.compressobj(9, wbits=31)
        head = _to_json({"generators": self._generators, "problems": []}).removesuffix("]}")
        parts = [packer.compress(head.encode())]
        for at, number in enumerate(numbers):
            parts.append(packer.compress(b"," * (at > 0) + self._data(number, kept)))
        parts += [packer.compress(b"]}"), packer.flush()]
        return Embedded(base64.b64encode(b"".join(parts)).decode(), kept, len(numbers))

    def _data(self, number: int, kept: int | None) -> bytes:
        start, written, beside = self._places[number].tolist()
        found = self._file.read(start, written)
        if kept == self._kept:
            return found
        data = json.loads(found)
        _cut_to(json.loads(self._file.read(start + written, beside)), data, kept)
        return _to_json(data).encode()


def spread_numbers(count: int) -> range:
    """The numbers of some of so many problems, spread over all."""
    return range(0, count, max(1, count // SAMPLE))


def _cut_to(ranks: list[list[int]], data: dict[str, Any], kept: int | None) -> list[list[int]]:
    """Leave so many candidates of each pool in the data of a problem; returns the ranks of those that stay."""
    stay = [[i for i, rank in enumerate(ours) if kept is None or rank < kept] for ours in ranks]
    for pool, inside in zip(data["pools"], stay, strict=True):
        pool["candidates"] = [pool["candidates"][i] for i in inside]
    return [[ours[i] for i in inside] for ours, inside in zip(ranks, stay, strict=True)]


def _ranks(pool: Pool) -> list[int]:
    """Of each distinct candidate, how many go before it: those that a strategy chose first."""
    chosen = {choice.sample for choice in pool.choices}
    order = sorted(range(len(pool.distinct)), key=lambda i: (chosen.isdisjoint(pool.distinct[i].samples), i))
    ranks = [0] * len(order)
    for rank, i in enumerate(order):
        ranks[i] = rank
    return ranks


def _to_json(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=True)


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


def data_of(problem: Examined, span: Span | None, longest: int = LONGEST) -> dict[str, Any]:
    """A problem as the pages' scripts read it. longest: characters of a text that are kept."""
    # Their texts are among the candidates.
    shown = {pool.configuration for pool in problem.pools if pool.choices}
    return {
        "id": problem.problem,
        "level": problem.level,
        "prompt": cut(problem.prompt, longest),
        "answer": problem.reference,
        "pools": [_pool(pool, longest) for pool in problem.pools],
        "direct": [
            [
                o["configuration"],
                o["answer"],
                o["correct"],
                None if o["configuration"] in shown else cut(o["text"], longest),
                _round(o["generated"]),
                _round(o["flops"]),
            ]
            for o in problem.outcomes
        ],
        "solved": any(pool.right for pool in problem.pools) or any(o["correct"] for o in problem.outcomes),
        "spans": None if span is None else _span(span),
    }


def _pool(pool: Pool, longest: int) -> dict[str, Any]:
    return {
        "name": pool.name,
        "generator": pool.generator,
        "size": pool.size,
        "right": pool.right,
        "marks": marks(pool),
        "verifiers": list(pool.verifiers),
        "process": pool.process,
        "distinct": len(pool.distinct),
        "candidates": [_candidate(one, pool, longest) for one in pool.distinct],
        "votes": [
            [v.key, v.correct, v.votes, [_round(v.totals[name], 3) for name in pool.verifiers]]
            for v in pool.votes
        ],
        "silent": pool.silent,
        "choices": [[c.label, c.sample, c.answer, c.correct] for c in pool.choices],
    }


def _candidate(d: Distinct, pool: Pool, longest: int) -> list[Any]:
    """[lines, values of steps, samples, answer, right, flaw, tokens, scores, thought, its tokens]."""
    lines = d.scored_lines(pool.process)
    values = [v for _, v in lines]
    scored = None if None in values else [_round(v, 3) for v in values]
    scores = [_round(d.scores[v], 3) for v in pool.verifiers]
    thought = None if d.thought is None else cut(d.thought, longest)
    return [
        cut(d.text, longest), scored, list(d.samples), d.answer, d.correct, d.flaw, _round(d.tokens), scores,
        thought, d.thought_tokens,
    ]  # fmt: skip


def _span(span: Span) -> list[Any]:
    """[label, records, status, prefilled, cached, generated, flops, children]."""
    used = span.usage
    counts = (used.prefilled, used.cached, used.generated, _round(used.flops, -3))
    return [span.label, span.count, span.status, *counts, [_span(child) for child in span.children]]


def cut(text: str, longest: int = LONGEST) -> str:
    """The beginning of a long text, with what is left out."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}\n… {len(text) - longest:,} more characters"


def _round(value: float | None, digits: int = 0) -> float | None:
    if value is None:
        return None
    rounded = round(value, digits)
    return int(rounded) if rounded == int(rounded) else rounded


def counts(problems: Iterable[Examined]) -> dict[str, int]:
    """How many problems pass each filter with any generator; never: with none of them."""
    found = Counter(name for problem in problems for name in matching_filters(problem))
    return {name: found[name] for name in FILTERS}


def matching_filters(problem: Examined) -> set[str]:
    """The filters that a problem passes."""
    found = {name for pool in problem.pools for name in marks(pool)}
    solved = any(pool.right for pool in problem.pools) or any(o["correct"] for o in problem.outcomes)
    return found - {"never"} | (set() if solved else {"never"})
