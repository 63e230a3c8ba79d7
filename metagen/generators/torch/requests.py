"""What a model of a torch engine is asked: requests become jobs of the engine's thread, in this model's tokens."""

from __future__ import annotations

from abc import abstractmethod
from collections import abc
from dataclasses import replace
from threading import Lock
from types import TracebackType
from typing import Any, Self

import numpy as np

from metagen.errors import InputError, PromptError, UnsupportedError
from metagen.generators.continuation import Continuation
from metagen.generators.declared import TorchDeclared
from metagen.generators.decoding.constraint import Held
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.healing import Boundaries, ForcedBytes
from metagen.generators.decoding.words import Words
from metagen.generators.engine import (
    Evaluated,
    EvaluateRequest,
    Generated,
    GenerateRequest,
    Sample,
    SamplingParams,
)
from metagen.generators.primitive import EngineGenerator
from metagen.generators.telling import Ear
from metagen.generators.torch.endings import Endings
from metagen.generators.torch.jobs import Evaluation, Generation
from metagen.generators.torch.models.language_model import LanguageModel
from metagen.generators.torch.models.loading import Loaded
from metagen.generators.torch.prefix_tree import PrefixTree
from metagen.generators.torch.reading import Decoding
from metagen.generators.torch.search import make_search
from metagen.generators.torch.search.step import Search
from metagen.generators.torch_options import TorchModel


class Requests(TorchModel):
    """Of one model: that of the engine, or that with an adapter."""

    def _speak(self, loaded: Loaded, *, adapter: int, max_batch: int) -> None:
        """Take requests for this model. adapter: its number in the engine's model; 0: none."""
        self._adapter, self._scores = adapter, loaded.scores
        self._declared = TorchDeclared(loaded.tokenizer, draft=self._draft, max_batch=max_batch)
        self._endings = Endings(loaded.tokenizer)
        self._across: Boundaries | None = None
        self._finding = Lock()

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @abstractmethod
    async def _ask(self, make: Any) -> Any:
        """Hand a job to the engine's thread and await its answer."""

    @abstractmethod
    def _parts(self) -> tuple[LanguageModel[Any], PrefixTree[Any]]:
        """The model and the prefixes in memory. EngineError once they are let go of."""

    @property
    def _model(self) -> LanguageModel[Any]:
        return self._parts()[0]

    @property
    def _tree(self) -> PrefixTree[Any]:
        return self._parts()[1]

    def generator(self, **params: Any) -> EngineGenerator:
        """A generator that decodes with this engine under these SamplingParams.

        UnsupportedError if the model's head scores.
        """
        self._check_generates()
        return EngineGenerator(self, SamplingParams(**params))

    # -- requests --------------------------------------------------------------------------------

    async def generate(self, request: GenerateRequest) -> Generated:
        """Raises PromptError at once if the request can never fit, InputError for what is no request, and
        UnsupportedError if the model's head scores.
        """
        self._check_generates()
        self._checks.generates(request)
        if self._draft is not None and request.params.mirostat is not None:
            raise UnsupportedError(
                f"mirostat={request.params.mirostat!r}: its cut follows each token that is drawn, and nobody knows it "
                f"along a draft; use an engine without draft={self._draft!r}"
            )
        ids, prompt = self._tokenizer.render(request.prefix)
        self._checks.ids(ids)
        self._checks.fits(len(ids), request.max_tokens)
        dropped: tuple[int, ...] = ()
        if request.params.healing and prompt == len(ids):
            ids, dropped = self._boundaries().heal(ids)
            prompt = len(ids)
        continuation = Continuation(self._tokenizer.decode, request, ids, dropped)
        spill = self._model.spill(continuation.limit)
        samples: list[Sample | None] = [None] * len(request.seeds)
        matchers = self._matchers(request, ids[prompt:], dropped)
        tokens = self._tokenizer
        words = Words.of(request.params, tokens.encode, tokens.decode, tokens.vocab_size, tokens.eos)
        words.check(ids[prompt:])
        search = self._search(request, continuation.limit, ids[prompt:])
        self._check_memory(len(ids), request.max_tokens, spill * (search.rows if search else 1))
        ends = self._endings.of(request.params, request.until)
        ear = None if request.written is None else Ear(request.written)
        heard = replace(request, written=ear)
        try:
            answer = await self._ask(
                lambda ticket: Generation(
                    ticket, heard, ids, len(ids) - prompt, continuation.limit, spill, ends, continuation, samples,
                    matchers, search, words, self._adapter,
                )
            )  # fmt: skip
        finally:
            if ear is not None:
                ear.close()
        assert isinstance(answer, Generated)
        return answer

    def _matchers(
        self, request: GenerateRequest, before: abc.Sequence[int], dropped: abc.Sequence[int]
    ) -> list[Held] | None:
        """Where the samples stand in the bytes of dropped tokens and in the request's grammar, if there are any."""
        grammar, held = request.params.grammar, None
        if grammar is not None:
            held = self._matcher(grammar, before, request.params.max_tokens - len(before) - len(dropped))
        if dropped:
            boundaries = self._boundaries()
            held = ForcedBytes(boundaries, b"".join(boundaries.texts[i] for i in dropped), held)
        return None if held is None else [held.copy() for _ in request.seeds]

    def _matcher(self, grammar: Grammar, before: abc.Sequence[int], left: int | None = None) -> Held:
        return self._declared.constraints().matcher(grammar, before, left)

    def _boundaries(self) -> Boundaries:
        constraints = self._declared.constraints()
        with self._finding:
            if self._across is None:
                self._across = Boundaries(constraints.texts)
            return self._across

    def _search(self, request: GenerateRequest, limit: int, before: abc.Sequence[int]) -> Search | None:
        """What chooses for the rows of the request together, if anything does."""
        if (spec := request.params.search) is None:
            return None
        spec.check(max(request.ranks) + 1, self._tokenizer.vocab_size)
        self._declared.check_rows(spec)
        search = make_search(
            spec,
            self.encode,
            self._tokenizer.decode,
            self._tokenizer.vocab_size,
            limit,
            request.seeds[0],
            before,
        )
        if search.wants_hidden and not hasattr(self._model, "hidden"):
            raise UnsupportedError(
                f"a {spec.kind} search reads hidden states, which {self!r} does not have; use a model directory"
            )
        return search

    async def evaluate(self, requests: list[EvaluateRequest]) -> list[Evaluated]:
        """All requests of one call are answered together. Raises as `generate` does."""
        for request in requests:
            self._checks.reads(request)
            self._check_memory(len(request.ids), 0, 0)
            self._check_head(request)
        if not requests:
            return []
        decodings = [self._decoding(request) for request in requests]
        answers = await self._ask(
            lambda ticket: Evaluation(
                ticket,
                list(requests),
                decodings,
                [None] * len(requests),
                len(requests),
                self._adapter,
                None if self._scores is None else self._scores.outputs,
            )
        )
        assert isinstance(answers, list)
        return answers

    def _decoding(self, request: EvaluateRequest) -> Decoding | None:
        """How what the request reads is adapted, if it is."""
        if (params := request.params) is None:
            return None
        tokens = self._tokenizer
        masks = None
        if params.grammar is not None:
            held = [
                self._matcher(params.grammar, request.ids[request.start : p + 1]) for p in request.positions
            ]
            ends = (params.max_tokens - (p + 1 - request.start) for p in request.positions)
            masks = np.stack([matcher.allowed_tokens(left) for matcher, left in zip(held, ends, strict=True)])
        words = Words.of(params, tokens.encode, tokens.decode, tokens.vocab_size, tokens.eos)
        return Decoding(params, words, masks)

    def _check_memory(self, prefix: int, new: int, spill: int) -> None:
        if prefix + spill > self._tree.capacity:
            raise PromptError(
                f"{prefix} tokens of prefix and {new} new ones need more keys and values than the engine's "
                f"memory holds ({self._tree.capacity} tokens beside the running rows); raise kv_memory_bytes"
            )

    def _check_generates(self) -> None:
        head = self._scores
        if head is not None:
            raise UnsupportedError(
                f"{self!r} does not generate: its head {head.name!r} gives {head.outputs} numbers that score, not "
                "logits over the vocabulary; use it as a verifier, or generate with a language model"
            )

    def _check_head(self, request: EvaluateRequest) -> None:
        """What is asked for can be read from the model's head."""
        head = self._scores
        if request.outputs and request.labels is not None:
            raise InputError(
                f"labels={request.labels!r} with outputs=True: all outputs of a head are read; leave labels out"
            )
        if request.outputs and head is None:
            raise UnsupportedError(
                f"{self!r} is a language model and has no outputs that score; ask for log-probabilities, "
                "by labels or of the tokens that follow"
            )
        if not request.outputs and head is not None:
            raise UnsupportedError(
                f"{self!r} has no log-probabilities: its head {head.name!r} gives {head.outputs} numbers that "
                "score; ask for them by outputs=True"
            )
