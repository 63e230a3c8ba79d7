"""Where a sequence ends, and how to go on from there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from metagen.generators.base import Generator
from metagen.generators.continuation import BROKEN
from metagen.sequence import Sequence


def reopen(sequence: Sequence, text: str = "") -> Sequence:
    """The sequence as one that can be extended, with `text`, which no model has chosen, at its end.

    What ended it decides what survives:

    - `None`, `length`: nothing had ended it but a limit; ids, log-probabilities and confidences stay. A character of
      which the limit left a part, shown as U+FFFD, is taken out of the text: its other part comes with the next tokens.
    - `eos`: the end token is no part of text and ids, but it is of log-probabilities and confidences; it is taken out
      of them where each token's is known, and else they are unknown, as the mass that masks left is.
    - `stop`: the text was cut before the stop text, perhaps inside a token; ids, log-probabilities and confidences
      are dropped, and an engine reads the text anew.

    With `text`, they are dropped in any case. Steps stay; scores, `cut` and `exhausted` go.
    """
    logprob, logprobs, tokens = sequence.logprob, sequence.token_logprobs, sequence.tokens
    confidences, mass, written = sequence.token_confidences, sequence.log_mass, sequence.text
    match sequence.finish:
        case "eos":
            kept = len(tokens.ids) if tokens is not None else None
            logprobs = logprobs[:kept] if logprobs is not None and kept is not None else None
            confidences = confidences[:kept] if confidences is not None and kept is not None else None
            logprob = sum(logprobs) if logprobs is not None else None
            mass = None
            written = written.rstrip(BROKEN)
        case "length":
            written = written.rstrip(BROKEN)
        case "stop":
            logprob = logprobs = confidences = tokens = mass = None
        case _:
            pass
    opened = replace(
        sequence, text=written, tokens=tokens, logprob=logprob, token_logprobs=logprobs,
        token_confidences=confidences, log_mass=mass,
        finish=None, cut=False, exhausted=False, scores={},
    )  # fmt: skip
    return opened.extend(text) if text else opened


def stop_at(generator: Generator, text: str) -> Generator:
    """The generator, stopped before `text` and wherever it stops by itself.

    Raises UnsupportedError for a generator that cannot be told where to stop.
    """
    params: Any = getattr(generator, "params", None)
    own = params.stop if params is not None else ()
    return generator.replace(stop=tuple(dict.fromkeys((*own, text))))
