"""A language model that is a small table, so that the exact distribution of its sequences is known.

For tests and for authors of strategies: what a method should do in expectation can be computed by
`EnumerableEngine.sequences`, and compared with what it does.
"""

from __future__ import annotations

import asyncio
import sys
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metagen.border import checked
from metagen.cost import ModelShape
from metagen.errors import EngineError, InputError, NumericsError, PromptError, UnsupportedError
from metagen.generators.checks import Checks
from metagen.generators.continuation import Continuation
from metagen.generators.decoding.constraint import Constraints
from metagen.generators.decoding.exact import Adapters, Flags, Row, confidence, draw
from metagen.generators.decoding.parameters import BEYOND
from metagen.generators.decoding.words import Words
from metagen.generators.engine import (
    EngineStats,
    Evaluated,
    EvaluateRequest,
    Generated,
    GenerateRequest,
    Sample,
    SamplingParams,
)
from metagen.generators.primitive import EngineGenerator
from metagen.generators.randomness import seed_array, uniform
from metagen.generators.telling import Telling
from metagen.prefixes import Prefixes
from metagen.sequence import Prompt, Sequence, digest

#: Ids behind those of the tokens, for the bytes of prompts.
BYTES = 256

Floats = NDArray[np.float64]
Table = Mapping[tuple[str, ...], ArrayLike] | Callable[[str, tuple[str, ...]], ArrayLike]


@checked
class EnumerableEngine:
    """An Engine over a table of next-token probabilities, in float64 and without torch.

    tokens: the vocabulary, as texts; the last one is the end of sequence, whatever its text.
    table: completion so far (a tuple of token texts) -> probabilities of the next token; or a function of the
    prompt's text and the completion.
    name: enters the fingerprint; needed where the table is a function, whose content has no digest.
    delay: seconds that every token takes, for whoever has to meet a request on its way. 0 answers at once.

    The same seed gives the same tokens whatever else runs, bit by bit. Prompts are read as bytes, whose ids
    follow those of the vocabulary and never occur in completions. What was read or decoded once is read from the
    prefix cache from then on, save the last token before a draw; nothing is evicted. Raises InputError for rows that
    are no distribution.
    """

    directory = None
    shape: ModelShape | None = None

    def __init__(
        self,
        tokens: abc.Sequence[str],
        table: Table,
        *,
        name: str = "",
        max_context: int | None = None,
        delay: float = 0.0,
    ) -> None:
        if len(tokens) < 2 or len(set(tokens)) < len(tokens) or not all(tokens):
            raise InputError(f"tokens={tokens!r}: expected at least two different texts, the end token last")
        if callable(table) and not name:
            raise InputError("a table that is a function has no fingerprint of its own; give a name=")
        if not 0 <= delay < float("inf"):
            raise InputError(f"delay={delay!r}: expected seconds a token, at least 0")
        self.tokens = tuple(tokens)
        self.eos = len(tokens) - 1
        self._table = table
        self._context = max_context
        self._delay = delay
        content = (
            "" if callable(table) else repr(sorted((k, np.asarray(v).tolist()) for k, v in table.items()))
        )
        self.tokenizer_fingerprint = digest("enumerable", *self.tokens).hex()
        self.fingerprint = digest(self.tokenizer_fingerprint, name, content).hex()
        self.stats = EngineStats()
        self.chat: str | None = None
        self._constraints: Constraints | None = None
        self._cache = Prefixes()
        # Without a bound of its own any text fits.
        self._checks = Checks(
            "the table", len(tokens) + BYTES, sys.maxsize if max_context is None else max_context
        )
        self._lock = Lock()
        self._state = "new"

    def __repr__(self) -> str:
        return f"EnumerableEngine({self.tokens!r})"

    @property
    def max_context(self) -> int | None:
        return self._context

    @property
    def ends(self) -> tuple[int, ...]:
        """The id that ends a completion."""
        return (self.eos,)

    @property
    def vocabulary(self) -> int:
        """Tokens that a completion may hold; ids of a prompt's bytes follow."""
        return len(self.tokens)

    @property
    def supports(self) -> frozenset[str]:
        return BEYOND - {"search", "healing"}

    def generator(self, **params: Any) -> EngineGenerator:
        """A generator that decodes with this engine under these SamplingParams."""
        return EngineGenerator(self, SamplingParams(**params))

    def check(self, params: SamplingParams) -> None:
        """InputError for a grammar that is none, or that the tokens cannot write."""
        if params.grammar is not None:
            self._grammars().matcher(params.grammar, (), params.max_tokens)

    # -- the model -------------------------------------------------------------------------------

    def probabilities(self, prompt: str, completion: tuple[str, ...]) -> Floats:
        """[V]: p(· | prompt, completion) over the vocabulary.

        Raises NumericsError for NaN, InputError for a row that is no distribution.
        """
        if callable(self._table):
            row = self._table(prompt, completion)
        elif completion in self._table:
            row = self._table[completion]
        else:
            raise InputError(f"the table has no row for the completion {completion!r}; add it")
        p = np.asarray(row, np.float64)
        if np.isnan(p).any():
            raise NumericsError(f"the table's row after {completion!r} holds NaN: {p.tolist()!r}")
        if p.shape != (len(self.tokens),) or (p < 0).any() or abs(p.sum() - 1) > 1e-9:
            raise InputError(
                f"the table's row after {completion!r} is {p.tolist()!r}; expected {len(self.tokens)} "
                "probabilities that sum to 1"
            )
        return p

    def sequences(
        self, prompt: Prompt | str = "?", params: SamplingParams | None = None, *, max_tokens: int = 8
    ) -> dict[tuple[str, ...], float]:
        """The exact probability of every completion (end token included) of at most `max_tokens` tokens.

        Under the adapters of `params`; completions cut at `max_tokens` count as they are. Texts that stop
        are not looked at.
        """
        params = params or SamplingParams()
        text = _prompt_text(Prompt.of(prompt))
        found: dict[tuple[str, ...], float] = {}
        head = self._bytes(text)
        adapters = self._adapters(params, head)
        stack: list[tuple[tuple[str, ...], float, float]] = [((), 1.0, adapters.mu)]
        while stack:
            done, mass, cut = stack.pop()
            row = self.probabilities(text, done)
            allowed = self._allowed(row, params, done)
            q, cuts = adapters(row, (*head, *map(self.tokens.index, done)), cut, allowed)
            for token, p, behind in zip(self.tokens, q.tolist(), cuts.tolist(), strict=True):
                if p == 0.0:
                    continue
                longer = (*done, token)
                if token == self.tokens[self.eos] or len(longer) == max_tokens:
                    found[longer] = mass * p
                else:
                    stack.append((longer, mass * p, behind))
        return found

    # -- the Engine protocol ---------------------------------------------------------------------

    def render(self, prefix: Sequence) -> tuple[int, ...]:
        head = tuple(self._bytes(_prompt_text(prefix.prompt)))
        if prefix.tokens is not None and prefix.tokens.tokenizer == self.tokenizer_fingerprint:
            return head + prefix.tokens.ids
        return head + self._completion(prefix.written)

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a completion's text: always the longest token that fits; bytes where none does."""
        ids: list[int] = []
        by_length = sorted(range(len(self.tokens)), key=lambda i: -len(self.tokens[i]))
        while text:
            i = next((i for i in by_length if text.startswith(self.tokens[i])), None)
            ids += [i] if i is not None else self._bytes(text[0])
            text = text[len(self.tokens[i]) if i is not None else 1 :]
        return tuple(ids)

    def decode(self, ids: abc.Sequence[int]) -> str:
        """Text of ids."""
        size = len(self.tokens)
        pieces = (bytes([i - size]) if i >= size else self.tokens[i].encode() for i in ids)
        return b"".join(pieces).decode("utf-8", "replace")

    async def generate(self, request: GenerateRequest) -> Generated:
        self._check_open()
        self._checks.generates(request)
        if (k := request.params.top_logprobs) > len(self.tokens):
            raise InputError(f"top_logprobs={k!r}: {self!r} has {len(self.tokens)} tokens; ask for no more")
        ids = self.render(request.prefix)
        self._checks.fits(len(ids), request.max_tokens)
        n, cached = len(request.seeds), self._read(ids, len(ids) - 1)
        prefilled, cached = len(ids) - cached, len(ids) * (n - 1) + cached
        with self._lock:
            self.stats.requests += 1
            self.stats.samples += n
            self.stats.prefilled += prefilled
            self.stats.cached += cached
        return Generated(tuple(await self._decode(request, ids)), ids, len(ids), prefilled, cached)

    async def evaluate(self, requests: list[EvaluateRequest]) -> list[Evaluated]:
        self._check_open()
        for request in requests:
            if request.outputs:
                raise UnsupportedError(f"{self!r} has no head whose outputs score; ask for log-probabilities")
            self._checks.reads(request)
        with self._lock:
            self.stats.requests += bool(requests)
        return [self._evaluate(request) for request in requests]

    def __enter__(self) -> Self:
        if self._state != "new":
            raise EngineError(f"{self!r} was opened before (it is {self._state}); make a new engine")
        self._state = "open"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Requests are refused from here on."""
        self._state = "closed"

    # -- inside ----------------------------------------------------------------------------------

    async def _decode(self, request: GenerateRequest, ids: tuple[int, ...]) -> list[Sample]:
        """The samples, all of them one token on at a time."""
        prompt, before = self._parts(ids)
        continuation = Continuation(self.decode, request, ids)
        adapters = self._adapters(request.params, ids, len(before), request.prefix.prompt.problem_id)
        rows = {i: Row(adapters.mu) for i in range(len(request.seeds))}
        told = dict[int, Telling]()
        if request.written is not None:
            told = {i: Telling(continuation, partial(request.tell, i)) for i in rows}
        position = len(before)
        try:
            while rows:
                if self._delay:
                    await asyncio.sleep(self._delay)
                    self._check_open()
                numbers = uniform(seed_array([request.seeds[i] for i in rows]), position)
                for (i, row), u in zip(list(rows.items()), numbers, strict=True):
                    self._draw(row, adapters, (prompt, before), ids, u)
                    if (sample := self._end(row, request.params, continuation)) is not None:
                        request.note(i, sample)
                        self._read((*ids, *rows.pop(i).ids[:-1]))  # the last token was only drawn
                    elif told and told[i].due(len(row.ids)):
                        told[i].hear(row.ids)
                position += 1
        except BaseException:
            with self._lock:
                self.stats.aborted_tokens += sum(len(row.ids) for row in rows.values())
            raise
        return [request.ended[i] for i in range(len(request.seeds))]

    def _adapters(
        self, params: SamplingParams, ids: abc.Sequence[int], new: int = 0, name: str = ""
    ) -> Adapters:
        """Behind a prefix of which the last tokens, so many, are the completion's."""
        words = Words.of(params, self.encode, self.decode, len(self.tokens), [self.eos])
        words.check(ids[len(ids) - new :])
        return Adapters(params, words, len(ids) - new, name)

    def _draw(
        self, row: Row, adapters: Adapters, texts: tuple[str, tuple[str, ...]], ids: tuple[int, ...], u: float
    ) -> None:
        """One more token of a row, by the random number u."""
        (prompt, before), params = texts, adapters.params
        done = before + tuple(self.tokens[i] for i in row.ids)
        p = self.probabilities(prompt, done)
        allowed = self._allowed(p, params, done)
        q, cuts = adapters(p, (*ids, *row.ids), row.cut, allowed)
        token = draw(q, u)
        if params.weighs and allowed is not None:
            free, _ = adapters(p, (*ids, *row.ids), row.cut)
            row.log_mass += min(0.0, float(np.log(free[allowed].sum())))
        row.cut = float(cuts[token])
        row.ids.append(token)
        row.logprobs.append(float(np.log(p[token])))
        if params.top_logprobs:
            row.confidences.append(confidence(p, params.top_logprobs))
        with self._lock:
            self.stats.generated += 1

    def _end(self, row: Row, params: SamplingParams, continuation: Continuation) -> Sample | None:
        """The sample of a row, if its newest token ends it."""
        stop = row.ids[-1] in params.stop_token_ids
        eos = row.ids[-1] == self.eos and not params.ignore_eos
        sample = continuation.sample(row.ids, row.logprobs, eos=eos, stop=stop)
        mass = row.log_mass if params.weighs else None
        return sample and replace(sample, token_confidences=tuple(row.confidences) or None, log_mass=mass)

    def _read(self, ids: tuple[int, ...], most: int | None = None) -> int:
        """Keep ids in the prefix cache; of the first `most` of them, how many it held before."""
        with self._lock:
            return max(0, min(self._cache.add(ids), len(ids) if most is None else most))

    def _grammars(self) -> Constraints:
        if self._constraints is None:
            texts = [token.encode() for token in self.tokens]
            self._constraints = Constraints.of_tokens(
                texts,
                special=[self.eos],
                eos=[self.eos],
                encode=lambda text: [i for i in self.encode(text) if i < self.eos],
            )
        return self._constraints

    def _allowed(self, p: Floats, params: SamplingParams, done: tuple[str, ...]) -> Flags | None:
        """[V]: what the grammar allows behind a completion; None without one. InputError if p gives none of it any."""
        if params.grammar is None:
            return None
        ids = [self.tokens.index(token) for token in done]
        left = params.max_tokens - len(ids)
        matcher = self._grammars().matcher(params.grammar, ids, left)
        allowed = matcher.allowed_tokens(left)
        if not p[allowed].any():
            raise InputError(
                f"after {''.join(done)!r} the table gives no probability to anything that the grammar "
                f"{params.grammar.source!r:.80} allows; give it some, or allow more"
            )
        return allowed

    def _evaluate(self, request: EvaluateRequest) -> Evaluated:
        seen = request.ids[: max(request.positions) + 1]
        rows, entropies = [], []
        for position in request.positions:
            labels = request.labels if request.labels is not None else (request.ids[position + 1],)
            p = np.zeros(len(self.tokens) + BYTES)
            p[: len(self.tokens)] = self._read_at(request, seen[: position + 1])
            entropies.append(float(-(p[p > 0] * np.log(p[p > 0])).sum()))
            with np.errstate(divide="ignore"):
                rows.append(tuple(np.log(p[list(labels)]).tolist()))
        cached = self._read(seen, min(request.positions))
        with self._lock:
            self.stats.prefilled += len(seen) - cached
            self.stats.cached += cached
        asked = tuple(entropies) if request.entropies else None
        return Evaluated(tuple(rows), len(seen) - cached, cached, asked)

    def _read_at(self, request: EvaluateRequest, ids: tuple[int, ...]) -> Floats:
        """The distribution behind ids, adapted if the request says so."""
        prompt, done = self._parts(ids)
        p = self.probabilities(prompt, done)
        if (params := request.params) is None:
            return p
        words = Words.of(params, self.encode, self.decode, len(self.tokens), [self.eos])
        adapters = Adapters(params, words, request.start)
        return adapters(p, ids, adapters.mu, self._allowed(p, params, done))[0]

    def _bytes(self, text: str) -> list[int]:
        return [len(self.tokens) + b for b in text.encode("utf-8", "surrogatepass")]

    def _completion(self, text: str) -> tuple[int, ...]:
        ids = self.encode(text)
        if any(i >= len(self.tokens) for i in ids):
            raise PromptError(f"the completion {text!r} cannot be written in the tokens {self.tokens!r}")
        return ids

    def _parts(self, ids: tuple[int, ...]) -> tuple[str, tuple[str, ...]]:
        """Prompt and completion of whole ids: the bytes, and the tokens after them."""
        head = max((i + 1 for i, token in enumerate(ids) if token >= len(self.tokens)), default=0)
        return self.decode(ids[:head]), tuple(self.tokens[i] for i in ids[head:])

    def _check_open(self) -> None:
        if self._state != "open":
            hint = "use it inside `with engine:`" if self._state == "new" else "make a new engine"
            raise EngineError(f"{self!r} is not open (it is {self._state}); {hint}")


def _prompt_text(prompt: Prompt) -> str:
    said = prompt.plain(template=False)
    return "".join(f"{m.role}: {m.content}\n" for m in prompt.messages) if said is None else said
