"""What the laws of strategies are tried on: a generator that goes on step by step, and judges without insight."""

from __future__ import annotations

import asyncio
import random
import re
from zlib import crc32

from metagen.call import Ended, Item, Outcome
from metagen.cost import Usage
from metagen.generators.engine import Sample
from metagen.generators.primitive import Primitive, letters, payload
from metagen.journal import Row
from metagen.scope import Scope
from metagen.sequence import Sequence, Step, Tokens, Until, digest
from metagen.verifiers.function import FunctionRule, FunctionVerifier

#: Words that a line, and all lines, are said to have at most. They never have as many: what is reserved for them is
#: given back in part, and when that happens depends on who is faster.
LINE, WHOLE = 8, 24
#: Lines before the one that must answer.
LINES = 3


class Numbers(Primitive):
    """Writes one to four lines, a word being a token: each begins with a number, the last ends in an answer, 0 to 2.

    Which word comes next depends on those before it and on the sample's seed, so that texts can be cut anywhere and
    gone on with. It stops at steps and blocks and may be capped; where it is not cut, it writes less than its worst
    case. It reports log-probabilities, which mean nothing.
    """

    @property
    def fingerprint(self) -> str:
        return digest("law numbers").hex()

    def most(self, prefix: Sequence, until: Until) -> int | None:
        if isinstance(until, Tokens):
            return min(until.count, WHOLE)
        if isinstance(until, Step):
            return min(LINE if until.delimiter == "\n" else WHOLE, until.max_tokens or WHOLE)
        return WHOLE

    async def sample(
        self, prefix: Sequence, items: list[Item], until: Until, cap: int | None, scope: Scope, ended: Ended
    ) -> list[Outcome]:
        await asyncio.sleep(0)
        return [self._outcome(prefix, scope.seed(item), until, cap, scope) for item in items]

    def _outcome(self, prefix: Sequence, seed: int, until: Until, cap: int | None, scope: Scope) -> Outcome:
        most = self.most(prefix, until) if cap is None else cap
        sample = _write(prefix.text, random.Random(seed), until, most or 0)
        words = _words(prefix)
        known = scope.prefixes(self.fingerprint).add(words)
        usage = Usage(len(words) - known, known, sample.generated, calls=1)
        truncated = sample.generated == cap and sample.finish is None and sample.step_end is None
        return Outcome(payload(sample), usage, usage, truncated)

    def worst(self, prefix: Sequence, n: int, tokens: int | None, scope: Scope) -> Usage:
        words = _words(prefix)
        known = scope.prefixes(self.fingerprint).count_known(words)
        return Usage(len(words) - known, known, n * (tokens or 0), calls=n)

    def remember(self, prefix: Sequence, scope: Scope, rows: list[Row]) -> None:
        for row in rows:
            assert row.payload is not None
            # The last word was written and never read.
            scope.prefixes(self.fingerprint).note(_words(prefix, row.payload["text"])[:-1])


def numbers() -> Numbers:
    """The generator of the laws: see `Numbers`."""
    return Numbers()


def _words(prefix: Sequence, new: str = "") -> list[int]:
    """The words of the prompt and then of what was written, each as a number."""
    prompt, text = letters(Sequence.of(prefix.prompt)), prefix.text + new
    return [crc32(word) for word in (*prompt.split(), *text.encode("utf-8", "surrogatepass").split())]


def _write(before: str, draw: random.Random, until: Until, most: int) -> Sample:
    """Write what follows a text, up to its end, the end of the step, or `most` tokens."""
    delimiter = until.delimiter if isinstance(until, Step) else None
    text, logprobs, step_end, ended = before, list[float](), None, False
    while len(logprobs) < most and not ended and step_end is None:
        word = _next(text, draw)
        text += (" " if text and not text[-1].isspace() else "") + word
        logprobs.append(-draw.random())
        ended, new = word.isdecimal(), text[len(before) :]
        if delimiter and delimiter in new and not ended:
            step_end = new.index(delimiter) + len(delimiter)
    return Sample(
        text[len(before) :],
        None,
        len(logprobs),
        sum(logprobs),
        tuple(logprobs),
        finish="eos" if ended else None,
        cut=delimiter is not None and not ended and step_end is None,
        step_end=step_end,
    )


def _next(text: str, draw: random.Random) -> str:
    *lines, last = text.split("\n")
    line = last.split()
    if not line:
        return f"{draw.random():.6f} "
    if line[-1] in ("so", "it"):
        return {"so": "it ", "it": "is "}[line[-1]]
    if line[-1] == "is":
        return draw.choice("0112")
    if len(line) == 1 and (len(lines) >= LINES or draw.random() < 0.3):
        return "so "
    return "on\n" if len(line) >= 4 or draw.random() < 0.5 else "then "


#: Reads the last word as the answer.
last_word = FunctionRule(lambda text: text.split()[-1] if text.split() else None)


def _number(sequence: Sequence) -> float:
    found = re.findall(r"^\d\.\d+", sequence.text, re.MULTILINE)
    return float(found[-1]) if found else 0.0


#: A verifier without insight, of steps and of whole texts: the number that the last line begins with.
first_word = FunctionVerifier(_number, name="law first word")
