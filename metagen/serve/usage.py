"""What a request took, as the OpenAI API says it and as metagen does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from metagen.cost import Usage
from metagen.journal import Row
from metagen.sequence import Sequence
from metagen.trace import Trace


def usage_of(trace: Trace, returned: Iterable[Sequence]) -> dict[str, Any] | None:
    """The `usage` of an answer; None where a count is unknown that the API has no word for.

    prompt_tokens: of all prompts of generators, each token once where samples share it; `cached_tokens` of these were
    not computed now. completion_tokens: all that were generated, as a provider bills; `reasoning_tokens` of these are
    not in what is returned: other candidates, and thoughts. Tokens of verifiers are told beside, and not in the sums.
    """
    rows = trace.rows
    written = Usage.sum(row.usage for row in rows if row.kind == "generate")
    judged = Usage.sum(row.usage for row in rows if row.kind == "score")
    metagen = {**_amounts(trace.usage), "physical": _amounts(trace.physical), "lost": trace.lost}
    if written.prefilled is None or written.generated is None:
        return None
    real = Usage.sum(row.physical for row in rows if row.kind == "generate")
    cached = None if real.prefilled is None else max(0, written.prefilled - real.prefilled)
    shown = _tokens(returned, rows)
    details: dict[str, Any] = {
        "candidates": sum(row.kind == "generate" and row.status != "refused" for row in rows),
        "verifier_tokens": judged.tokens,
        "flops": trace.usage.flops,
        "money": trace.usage.money,
    }
    if shown is not None:
        shown = min(shown, written.generated)
        details |= {"reasoning_tokens": written.generated - shown, "returned_tokens": shown}
    return {
        "prompt_tokens": written.prefilled,
        "completion_tokens": written.generated,
        "total_tokens": written.prefilled + written.generated,
        "prompt_tokens_details": {} if cached is None else {"cached_tokens": cached},
        "completion_tokens_details": details,
        "metagen": metagen,
    }


def _amounts(usage: Usage) -> dict[str, Any]:
    """All fields; None is unknown."""
    return {
        name: getattr(usage, name)
        for name in ("prefilled", "cached", "generated", "calls", "flops", "money", "seconds")
    }


def _tokens(returned: Iterable[Sequence], rows: Iterable[Row]) -> int | None:
    """Tokens of what is returned, thoughts left out; None where they cannot be told.

    They are those of the ids that a sequence carries, with its end token, or of the one call that wrote its text.
    """
    by_text = {
        row.payload["text"]: row.usage.generated
        for row in rows
        if row.kind == "generate" and row.payload is not None
    }
    total = 0
    for sequence in returned:
        if sequence.text in by_text:
            count = by_text[sequence.text]
        elif sequence.tokens is not None:
            count = len(sequence.tokens.ids) + (sequence.finish in ("eos", "stop"))
        else:
            count = None if sequence.text else 0
        if count is None:
            return None
        if sequence.thought is not None:
            if sequence.thought.tokens is None:
                return None
            count = max(0, count - sequence.thought.tokens)
        total += count
    return total
