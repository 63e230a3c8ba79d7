"""What a request took, as the OpenAI API says it and as metagen does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from metagen.attempts import Lost
from metagen.budget import DIMENSIONS
from metagen.cost import Usage
from metagen.generators.primitive import thought_of
from metagen.journal import Row
from metagen.runs.table.costs import is_scoring
from metagen.sequence import Sequence
from metagen.trace import Trace


def usage_of(traces: Iterable[Trace], returned: Iterable[Sequence]) -> dict[str, Any] | None:
    """The `usage` of an answer; None where a count is unknown that the API has no word for.

    traces: one for each prompt. prompt_tokens: of all prompts of generators, each token once where samples share it;
    `cached_tokens` of these were not computed now. completion_tokens: all that were generated, as a provider bills;
    `reasoning_tokens` of these are not in what is returned: other candidates, and thoughts. Tokens of verifiers are
    told beside, and not in the sums.
    """
    traces = list(traces)
    drawn = [row for trace in traces for row in trace.rows if row.kind == "generate" and not is_scoring(row)]
    judging = [row for trace in traces for row in trace.rows if is_scoring(row)]
    cut = {is_scoring(row) for trace in traces for row in _cut_off(trace)}
    written, whole = Usage.sum(row.usage for row in drawn), Usage.sum(trace.usage for trace in traces)
    if written.prefilled is None or written.generated is None or False in cut:
        return None
    real = Usage.sum(row.physical for row in drawn)
    cached = None if real.prefilled is None else max(0, written.prefilled - real.prefilled)
    shown = _tokens(returned, drawn)
    details: dict[str, Any] = {
        "candidates": sum(row.payload is not None for row in drawn),
        "verifier_tokens": None if cut else Usage.sum(row.usage for row in judging).tokens,
        "flops": None if cut else whole.flops,
        "money": None if cut else whole.money,
    }
    if shown is not None:
        shown = min(shown, written.generated)
        details |= {"reasoning_tokens": written.generated - shown, "returned_tokens": shown}
    physical = Usage.sum(trace.physical for trace in traces)
    lost = sum(trace.lost for trace in traces)
    return {
        "prompt_tokens": written.prefilled,
        "completion_tokens": written.generated,
        "total_tokens": written.prefilled + written.generated,
        "prompt_tokens_details": {} if cached is None else {"cached_tokens": cached},
        "completion_tokens_details": details,
        "metagen": {**_amounts(whole), "physical": _amounts(physical), "lost": lost},
    }


def spent_of(traces: Iterable[Trace]) -> dict[str, Any] | None:
    """What is known of the cost where calls were cut off, or a count is unknown; None where `usage_of` tells it all.

    at_least: what ended calls took, as far as they know it; None where none of them does. at_most: the same with the
    worst case of each call that was cut off; None where a call does not know, or nothing bounds it. candidates,
    scores: calls that ended. cut_off: those that began and did not.
    """
    traces = list(traces)
    rows = [row for trace in traces for row in trace.rows if row.payload is not None]
    cut = [row for trace in traces for row in _cut_off(trace)]
    written = Usage.sum(row.usage for row in rows if row.kind == "generate" and not is_scoring(row))
    if not cut and written.tokens is not None:
        return None
    most = Usage.sum([*(row.usage for row in rows), *(row.worst for row in cut)])
    return {
        "at_least": {name: _known(getattr(row.usage, name) for row in rows) for name in DIMENSIONS},
        "at_most": {name: getattr(most, name) for name in DIMENSIONS},
        "candidates": sum(row.kind == "generate" and not is_scoring(row) for row in rows),
        "scores": sum(is_scoring(row) for row in rows),
        "cut_off": sum(row.physical.calls for row in cut),
    }


def tell_generated(trace: Trace) -> str:
    """The tokens that were generated, in words."""
    spent = spent_of([trace])
    if spent is None:
        return str(trace.usage.generated)
    return f"at least {spent['at_least']['generated'] or 0}"


def _known(amounts: Iterable[float | None]) -> float | None:
    """The sum of those that are known; None where there are some, and none is."""
    given = list(amounts)
    known = [amount for amount in given if amount is not None]
    return None if given and not known else sum(known)


def _cut_off(trace: Trace) -> list[Lost]:
    """What began and never ended, as under a deadline: what it took is in no usage."""

    def name(row: Row) -> tuple[object, ...]:
        return row.path, row.kind, row.by, row.content, row.index

    ended = {name(row) for row in trace.rows if row.payload is not None}
    return [row for row in trace.rows if isinstance(row, Lost) and name(row) not in ended]


def _amounts(usage: Usage) -> dict[str, Any]:
    """All fields; None is unknown."""
    return {
        name: getattr(usage, name)
        for name in ("prefilled", "cached", "generated", "calls", "flops", "money", "seconds")
    }


def _tokens(returned: Iterable[Sequence], rows: Iterable[Row]) -> int | None:
    """Tokens of what is returned, thoughts left out; None where they cannot be told.

    They are those of the one call that wrote its text behind its thought, or of the ids that a sequence carries, with
    its end token. Calls that wrote the same in other numbers of tokens tell nothing.
    """
    wrote = [
        (row.payload["text"], thought_of(row.payload), row.usage.generated) for row in rows if row.payload
    ]
    total = 0
    for sequence in returned:
        same = [(thought, count) for text, thought, count in wrote if text == sequence.text]
        counts = {count for thought, count in same if thought == sequence.thought} or {
            count for _, count in same
        }
        count: int | None
        if len(counts) == 1:
            (count,) = counts
        elif sequence.tokens is not None:
            count = len(sequence.tokens.ids) + (sequence.finish in ("eos", "stop"))
        else:
            count = None if sequence.text or counts else 0
        if count is None:
            return None
        if sequence.thought is not None:
            if sequence.thought.tokens is None:
                return None
            count = max(0, count - sequence.thought.tokens)
        total += count
    return total
