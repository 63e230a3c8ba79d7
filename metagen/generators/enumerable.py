"""A language model that is a small table, so that the exact distribution of its sequences is known.

For tests and for authors of strategies: what a method should do in expectation can be computed by
`EnumerableEngine.sequences`, and compared with what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Ordered
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metagen.cost import ModelShape
from metagen.errors import EngineError, InputError, NumericsError, PromptError, UnsupportedError
from metagen.generators.constraint import Constraints
from metagen.generators.continuation import Continuation
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
from metagen.sequence import MOST_CONFIDENT, Prompt, Sequence, digest

Floats = NDArray[np.float64]
Table = Mapping[tuple[str, ...], ArrayLike] | Callable[[str, tuple[str, ...]], ArrayLike]


class EnumerableEngine:
    """An Engine over a table of next-token probabilities, in float64 and without torch.

    tokens: the vocabulary, as texts; the last one is the end of sequence, whatever its text.
    table: completion so far (a tuple of token texts) -> probabilities of the next token; or a function of the
    prompt's text and the completion.
    name: enters the fingerprint; needed where the table is a function, whose content has no digest.

    The same seed gives the same tokens whatever else runs, bit by bit. Prompts are read as bytes, whose ids
    follow those of the vocabulary and never occur in completions. Raises InputError for rows that are
    no distribution.
    """

    directory = None
    shape: ModelShape | None = None

    def __init__(
        self, tokens: Ordered[str], table: Table, *, name: str = "", max_context: int | None = None
    ) -> None:
        if len(tokens) < 2 or len(set(tokens)) < len(tokens) or not all(tokens):
            raise InputError(f"tokens={tokens!r}: expected at least two different texts, the end token last")
        if callable(table) and not name:
            raise InputError("a table that is a function has no fingerprint of its own; give a name=")
        self.tokens = tuple(tokens)
        self.eos = len(tokens) - 1
        self._table = table
        self._context = max_context
        content = (
            "" if callable(table) else repr(sorted((k, np.asarray(v).tolist()) for k, v in table.items()))
        )
        self.tokenizer_fingerprint = digest("enumerable", *self.tokens).hex()
        self.fingerprint = digest(self.tokenizer_fingerprint, name, content).hex()
        self.stats = EngineStats()
        self._constraints: Constraints | None = None
        self._state = "new"

    def __repr__(self) -> str:
        return f"EnumerableEngine({self.tokens!r})"

    @property
    def max_context(self) -> int | None:
        return self._context

    @property
    def supports(self) -> frozenset[str]:
        return frozenset({"grammar", "top_logprobs"})

    def generator(self, **params: Any) -> EngineGenerator:
        """A generator that decodes with this engine under these SamplingParams."""
        return EngineGenerator(self, SamplingParams(**params))

    # -- the model -------------------------------------------------------------------------------

    def probabilities(self, prompt: str, completion: tuple[str, ...]) -> Floats:
        """p(· | prompt, completion) over the vocabulary."""
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
        stack: list[tuple[tuple[str, ...], float]] = [((), 1.0)]
        while stack:
            done, mass = stack.pop()
            ids = [self.tokens.index(token) for token in done]
            row = self._held(self.probabilities(text, done), params, ids)
            for token, p in zip(self.tokens, adapt(row, params), strict=True):
                if p == 0.0:
                    continue
                longer = (*done, token)
                if token == self.tokens[self.eos] or len(longer) == max_tokens:
                    found[longer] = mass * p
                else:
                    stack.append((longer, mass * p))
        return found

    # -- the Engine protocol ---------------------------------------------------------------------

    def render(self, prefix: Sequence) -> tuple[int, ...]:
        head = tuple(
            len(self.tokens) + b for b in _prompt_text(prefix.prompt).encode("utf-8", "surrogatepass")
        )
        if prefix.tokens is not None and prefix.tokens.tokenizer == self.tokenizer_fingerprint:
            return head + prefix.tokens.ids
        return head + self._completion(prefix.text)

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a completion's text: always the longest token that fits; bytes where none does."""
        ids: list[int] = []
        by_length = sorted(range(len(self.tokens)), key=lambda i: -len(self.tokens[i]))
        while text:
            i = next((i for i in by_length if text.startswith(self.tokens[i])), None)
            ids += (
                [i]
                if i is not None
                else [len(self.tokens) + b for b in text[0].encode("utf-8", "surrogatepass")]
            )
            text = text[len(self.tokens[i]) if i is not None else 1 :]
        return tuple(ids)

    def decode(self, ids: Ordered[int]) -> str:
        """Text of ids."""
        text, pending = "", bytearray()
        for i in ids:
            if i >= len(self.tokens):
                pending.append(i - len(self.tokens))
                continue
            text += pending.decode("utf-8", "replace") + self.tokens[i]
            pending.clear()
        return text + pending.decode("utf-8", "replace")

    async def generate(self, request: GenerateRequest) -> Generated:
        self._check_open()
        if not request.seeds:
            raise InputError("a Generate request has no seeds; give one per sample")
        if request.max_tokens < 1:
            raise InputError(f"max_tokens={request.max_tokens!r}: expected an integer ≥ 1")
        if (k := request.params.top_logprobs) > len(self.tokens):
            raise InputError(f"top_logprobs={k!r}: {self!r} has {len(self.tokens)} tokens; ask for no more")
        ids = self.render(request.prefix)
        self._check_fit(len(ids), request.max_tokens)
        prompt, before = self._read(ids)
        continuation = Continuation(self.decode, request, ids)
        samples = tuple(self._sample(request, continuation, prompt, before, seed) for seed in request.seeds)
        n, cached = len(samples), len(ids) * (len(samples) - 1)
        self.stats.requests += 1
        self.stats.samples += n
        self.stats.prefilled += len(ids)
        self.stats.cached += cached
        self.stats.generated += sum(s.generated or 0 for s in samples)
        return Generated(samples, ids, len(ids), len(ids), cached)

    async def evaluate(self, requests: list[EvaluateRequest]) -> list[Evaluated]:
        self._check_open()
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

    def _sample(
        self,
        request: GenerateRequest,
        continuation: Continuation,
        prompt: str,
        before: tuple[str, ...],
        seed: int,
    ) -> Sample:
        params, ids, logprobs, confidences = request.params, list[int](), list[float](), list[float]()
        begun = [self.tokens.index(token) for token in before]
        seeds = seed_array([seed])
        while True:
            p = self.probabilities(prompt, before + tuple(self.tokens[i] for i in ids))
            held = self._held(p, params, [*begun, *ids])
            token = _draw(adapt(held, params), float(uniform(seeds, len(before) + len(ids))[0]))
            ids.append(token)
            logprobs.append(float(np.log(p[token])))
            if params.top_logprobs:
                confidences.append(confidence(p, params.top_logprobs))
            sample = continuation.sample(
                ids,
                logprobs,
                eos=token == self.eos and not params.ignore_eos,
                stop=token in params.stop_token_ids,
            )
            if sample is not None:
                return replace(sample, token_confidences=tuple(confidences)) if confidences else sample

    def _held(self, p: Floats, params: SamplingParams, ids: Ordered[int]) -> Floats:
        """The probabilities of what the grammar allows behind `ids`, and 0 for the rest."""
        if params.grammar is None:
            return p
        if self._constraints is None:
            texts = [token.encode() for token in self.tokens]
            self._constraints = Constraints.of_tokens(
                texts,
                special=[self.eos],
                eos=[self.eos],
                encode=lambda text: [i for i in self.encode(text) if i < self.eos],
            )
        held: Floats = np.where(self._constraints.matcher(params.grammar, ids).allowed(), p, 0.0)
        if not held.any():
            raise InputError(
                f"after {self.decode(ids)!r} the table gives no probability to anything that the grammar "
                f"{params.grammar.source!r:.80} allows; give it some, or allow more"
            )
        return held

    def _evaluate(self, request: EvaluateRequest) -> Evaluated:
        if request.outputs:
            raise UnsupportedError(f"{self!r} has no head whose outputs score; ask for log-probabilities")
        vocab, n = len(self.tokens) + 256, len(request.ids)
        labels = request.labels
        last = n if labels is not None else n - 1
        if not request.positions or min(request.positions) < 0 or max(request.positions) >= last:
            raise InputError(f"positions={request.positions!r}: expected indices from 0 to {last - 1}")
        if bad := [i for i in (*request.ids, *(labels or ())) if not 0 <= i < vocab]:
            raise InputError(f"token id {bad[0]!r} is not in the vocabulary (0 … {vocab - 1})")
        self._check_fit(n, 0)
        rows = []
        for position in request.positions:
            wanted = labels if labels is not None else (request.ids[position + 1],)
            p = np.zeros(vocab)
            p[: len(self.tokens)] = self.probabilities(*self._read(request.ids[: position + 1]))
            with np.errstate(divide="ignore"):
                rows.append(tuple(np.log(p[list(wanted)]).tolist()))
        self.stats.requests += 1
        self.stats.prefilled += max(request.positions) + 1
        return Evaluated(tuple(rows), max(request.positions) + 1, 0)

    def _completion(self, text: str) -> tuple[int, ...]:
        ids = self.encode(text)
        if any(i >= len(self.tokens) for i in ids):
            raise PromptError(f"the completion {text!r} cannot be written in the tokens {self.tokens!r}")
        return ids

    def _read(self, ids: tuple[int, ...]) -> tuple[str, tuple[str, ...]]:
        """Prompt and completion of whole ids: the bytes, and the tokens after them."""
        head = max((i + 1 for i, token in enumerate(ids) if token >= len(self.tokens)), default=0)
        return self.decode(ids[:head]), tuple(self.tokens[i] for i in ids[head:])

    def _check_fit(self, prefix: int, new: int) -> None:
        if self._context is not None and prefix + new > self._context:
            raise PromptError(
                f"{prefix} tokens of prefix and max_tokens={new} exceed the context of {self._context} tokens; "
                f"shorten the prompt or give max_tokens ≤ {max(self._context - prefix, 0)}"
            )

    def _check_open(self) -> None:
        if self._state != "open":
            hint = "use it inside `with engine:`" if self._state == "new" else "make a new engine"
            raise EngineError(f"{self!r} is not open (it is {self._state}); {hint}")


def adapt(p: Floats, params: SamplingParams) -> Floats:
    """Probabilities after temperature, top_k and top_p, in float64; temperature 0 keeps the first of the best."""
    if params.temperature == 0:
        best: Floats = np.eye(len(p))[int(np.argmax(p))]
        return best
    with np.errstate(divide="ignore"):
        z = np.log(p) / params.temperature
    q: Floats = np.exp(z - z.max())
    if 0 < params.top_k < len(p):
        q = np.where(q >= np.sort(q)[-params.top_k], q, 0.0)
    q /= q.sum()
    if params.top_p < 1:
        order = np.argsort(-q, kind="stable")[::-1]
        remove = np.cumsum(q[order]) <= 1.0 - params.top_p
        remove[-1] = False
        q = q.copy()
        q[order[remove]] = 0.0
    total = float(q.sum())
    return q / total


def confidence(p: Floats, k: int) -> float:
    """−(1/k) Σ_j log p_j over the k most probable tokens; none of these logarithms counts less than −100."""
    with np.errstate(divide="ignore"):
        return float(-np.log(np.sort(p)[-k:]).clip(min=-MOST_CONFIDENT).mean())


def _draw(p: Floats, u: float) -> int:
    """The first token, in order of ids, whose cumulative probability exceeds u."""
    cdf = np.cumsum(p)
    goal = min(u * cdf[-1], float(np.nextafter(cdf[-1], 0.0)))
    return int(np.searchsorted(cdf, goal, side="right"))


def _prompt_text(prompt: Prompt) -> str:
    return prompt.text or "".join(f"{m.role}: {m.content}\n" for m in prompt.messages)
