"""TorchEngine: coroutines of any event loop on one side, one thread that runs the model on the other."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import abc, deque
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from metagen.errors import EngineError, InputError, PromptError, UnsupportedError
from metagen.generators.continuation import Continuation
from metagen.generators.declared import TorchDeclared
from metagen.generators.decoding.constraint import Held
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.healing import Boundaries, ForcedBytes
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
from metagen.generators.local import LocalEngine
from metagen.generators.models.describe import drafted_shape, shape_of
from metagen.generators.models.quantization import compress
from metagen.generators.models.recipes import Model
from metagen.generators.primitive import EngineGenerator
from metagen.generators.torch.endings import Endings
from metagen.generators.torch.jobs import Evaluation, Generation, Ticket
from metagen.generators.torch.models.compression import check_compressible, check_place
from metagen.generators.torch.models.language_model import LanguageModel
from metagen.generators.torch.models.loading import Place, load, load_drafted, memory_for
from metagen.generators.torch.numbers import default_dtype
from metagen.generators.torch.prefix_tree import PrefixTree
from metagen.generators.torch.reading import Decoding
from metagen.generators.torch.rows import Rows
from metagen.generators.torch.scheduler import Scheduler
from metagen.generators.torch.search import make_search
from metagen.generators.torch.search.step import Search
from metagen.generators.torch.speculation.speculate import COUNTS
from metagen.generators.torch.threads import default_threads
from metagen.generators.torch_options import TorchOptions
from metagen.logs import logger

_LOG = logger(__name__)
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class TorchEngine(TorchOptions):
    """Runs a Llama-like model directory with continuous batching over a prefix tree.

    Samples of one request are computed once for as long as they are alike. stats.extra: `decoded`, tokens run for rows
    that decode; `near_edge`, draws so close to a border that rounding may have decided; `steps`.

    A directory whose head scores (`heads.py`) answers Evaluate only, with outputs=True.

    Its options are those of `TorchOptions`. The weights are loaded at once; `with engine:` runs it. Raises ModelError,
    UnsupportedError or InputError, which name the place, the value and the remedy.
    """

    def _load(
        self,
        model: Model,
        device: str | torch.device | None,
        dtype: str | torch.dtype | None,
        max_batch: int,
        memory: int | None,
        max_context: int | None,
        threads: int | None,
    ) -> None:
        draft, quantization = self._draft, self._quantization
        self.device = _device(device)
        self.dtype = _dtype(dtype) or default_dtype(shape_of(model), self.device, quantization)
        check_place(quantization, self.dtype, self.device)
        shape = compress(drafted_shape(model, draft, self.dtype.itemsize), quantization)
        memory = memory or memory_for(self.device, shape)
        place = Place(self.dtype, self.device, max_batch, memory, quantization)
        loaded = load(model, place) if draft is None else load_drafted(model, draft, place)
        check_compressible(loaded.name, loaded.shape, quantization)
        self._scores = loaded.scores
        self._threads = threads or default_threads(loaded.shape, loaded.fingerprint)
        LocalEngine.__init__(
            self,
            loaded.name,
            loaded.tokenizer,
            context=min(max_context or loaded.model.max_context, loaded.model.max_context),
            shape=shape,
            fingerprint=loaded.fingerprint,
            stats=EngineStats(
                extra=dict.fromkeys(("near_edge", "steps", "decoded", *(COUNTS if draft else ())), 0.0)
            ),
        )
        self._declared = TorchDeclared(loaded.tokenizer, draft=draft, max_batch=max_batch)
        self._endings = Endings(loaded.tokenizer)
        tree: PrefixTree[Any] = PrefixTree(loaded.segment_tokens)
        #: What is large, and let go of at the end.
        self._held: tuple[LanguageModel[Any], PrefixTree[Any]] | None = (loaded.model, tree)
        self._rows = Rows(max_batch, self.device)
        self._scheduler = Scheduler(loaded.model, tree, self._rows, self._stats, self._reply, draft)
        self._across: Boundaries | None = None
        self._wake = threading.Condition()
        self._inbox: deque[Generation | Evaluation] = deque()
        self._cancelled: deque[Ticket] = deque()
        self._open: set[Ticket] = set()
        self._answers: list[tuple[Ticket, Any]] = []
        self._state, self._process = "new", 0
        self._cause: BaseException | None = None
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        kept = f", quantization={self._quantization!r}" if self._quantization else ""
        kept += f", draft={self._draft!r}" if self._draft else ""
        return (
            f"TorchEngine({self._name!r}, device={str(self.device)!r}, dtype={str(self.dtype)[6:]!r}{kept})"
        )

    @property
    def threads(self) -> int:
        """Of torch's operations in the engine's thread."""
        return self._threads

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
        answer = await self._ask(
            lambda ticket: Generation(
                ticket, request, ids, len(ids) - prompt, continuation.limit, spill, ends, continuation, samples,
                matchers, search, words,
            )
        )  # fmt: skip
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
        with self._wake:
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
                ticket, list(requests), decodings, [None] * len(requests), len(requests)
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

    async def _ask(self, make: Any) -> Any:
        """Hand a job to the engine's thread and await its answer; a cancelled wait frees what the job holds."""
        loop = asyncio.get_running_loop()
        ticket = Ticket(loop, loop.create_future())
        with self._wake:
            self._check_open()
            self._open.add(ticket)
            self._inbox.append(make(ticket))
            self._wake.notify()
        try:
            result = await ticket.future
        except asyncio.CancelledError:
            with self._wake:
                self._cancelled.append(ticket)
                self._wake.notify()
            raise
        if isinstance(result, BaseException):
            raise result
        return result

    # -- lifecycle -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        with self._wake:
            if self._state != "new":
                raise EngineError(f"{self!r} was opened before (it is {self._state}); make a new engine")
            self._state, self._process = "open", os.getpid()
        self._thread = threading.Thread(target=self._run, name=f"engine {self._name}", daemon=True)
        self._thread.start()
        _LOG.info("engine opened", extra={"engine": repr(self), "fingerprint": self._fingerprint})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the thread and free the memory; whoever waits gets an EngineError. Closing twice is allowed."""
        if self._process not in (0, os.getpid()):
            return
        with self._wake:
            if self._state in ("new", "open"):
                self._state = "closed"
            self._wake.notify()
        if self._thread is not threading.current_thread():
            if self._thread is not None:
                self._thread.join()
            self._held = None
            self._scheduler.release()

    @property
    def _model(self) -> LanguageModel[Any]:
        return self._parts()[0]

    @property
    def _tree(self) -> PrefixTree[Any]:
        return self._parts()[1]

    def _parts(self) -> tuple[LanguageModel[Any], PrefixTree[Any]]:
        """EngineError once they are let go of."""
        if (held := self._held) is None:
            self._check_open()
            raise AssertionError("an engine that is open holds them")
        return held

    def _check_open(self) -> None:
        if self._process not in (0, os.getpid()):
            raise EngineError(
                f"{self!r} runs in process {self._process}, off which this one, {os.getpid()}, was forked; open a new "
                "engine here, or start processes by spawn"
            )
        if self._state == "failed":
            raise EngineError(f"{self!r} has failed: {self._cause!r}; make a new engine") from self._cause
        if self._state != "open":
            hint = "use it inside `with engine:`" if self._state == "new" else "make a new engine"
            raise EngineError(f"{self!r} is not open (it is {self._state}); {hint}")

    def _run(self) -> None:
        """The engine's thread: take what came in, do a step, deliver what is done."""
        try:
            torch.set_num_threads(self._threads)
            with torch.inference_mode():
                while self._take_in():
                    if self._scheduler.busy:
                        self._scheduler.step()
                        self._stats.extra["steps"] += 1
                    self._deliver()
        except BaseException as error:  # noqa: BLE001 - every waiter must hear of it, whatever it is
            self._cause = error
            _LOG.error("engine failed", extra={"engine": repr(self), "error": repr(error)})
            with self._wake:
                self._state = "failed"
        finally:
            self._fail_all()
            _LOG.info("engine closed", extra={"engine": repr(self), "fingerprint": self._fingerprint})

    def _take_in(self) -> bool:
        """New and cancelled requests; sleeps while there is nothing to do. False when the engine closes."""
        with self._wake:
            while not (self._inbox or self._cancelled or self._scheduler.busy or self._state != "open"):
                self._wake.wait()
            if self._state != "open":
                return False
            jobs, self._inbox = self._inbox, deque()
            cancelled, self._cancelled = self._cancelled, deque()
        for job in jobs:
            self._scheduler.submit(job)
        self._scheduler.cancel(cancelled)
        self._open.difference_update(cancelled)
        return True

    def _reply(self, ticket: Ticket, result: Any) -> None:
        self._answers.append((ticket, result))

    def _deliver(self) -> None:
        """Wake the coroutines whose answers are there: one call for each event loop."""
        if not self._answers:
            return
        answers, self._answers = self._answers, []
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Ticket, Any]]] = {}
        for ticket, result in answers:
            self._open.discard(ticket)
            by_loop.setdefault(ticket.loop, []).append((ticket, result))
        for loop, batch in by_loop.items():
            try:
                loop.call_soon_threadsafe(_settle, batch)
            except RuntimeError:  # the loop is closed: nobody waits any more
                continue

    def _fail_all(self) -> None:
        """Wake everyone who still waits."""
        with self._wake:
            waiting, self._open = list(self._open), set()
            self._inbox.clear()
        reason = f"has failed: {self._cause!r}" if self._cause is not None else "was closed"
        for ticket in waiting:
            error = EngineError(f"{self!r} {reason} while a request was running; make a new engine")
            error.__cause__ = self._cause
            self._answers.append((ticket, error))
        self._deliver()


def _settle(batch: list[tuple[Ticket, Any]]) -> None:
    for ticket, result in batch:
        if not ticket.future.done():
            ticket.future.set_result(result)


def _device(device: str | torch.device | None) -> torch.device:
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise InputError(f"device={device!r}: expected 'cpu', 'cuda' or 'cuda:N'") from None
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise InputError(
            f"device={device!r}, but torch sees no GPU; install a CUDA build of torch, or use 'cpu'"
        )
    return chosen


def _dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    chosen = _DTYPES.get(str(dtype).removeprefix("torch."))
    if dtype is not None and chosen is None:
        raise InputError(f"dtype={dtype!r}: expected one of {', '.join(_DTYPES)}")
    return chosen
