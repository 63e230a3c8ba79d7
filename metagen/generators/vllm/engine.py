"""VLLMEngine: coroutines of any event loop on one side, vLLM's engine in processes of its own on the other."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine
from dataclasses import fields, replace
from functools import cached_property
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from metagen.cost import ModelShape
from metagen.errors import EngineError, InputError, ModelError, UnsupportedError
from metagen.generators.continuation import Continuation
from metagen.generators.engine import (
    EngineStats,
    Evaluated,
    EvaluateRequest,
    Generated,
    GenerateRequest,
    SamplingParams,
)
from metagen.generators.primitive import EngineGenerator
from metagen.generators.tiny import resolve
from metagen.generators.tokenizer import Tokenizer
from metagen.generators.vllm import model as files
from metagen.generators.vllm import options, sampling
from metagen.generators.vllm.checks import Checks
from metagen.generators.vllm.counters import counter
from metagen.generators.vllm.endings import Endings
from metagen.generators.vllm.library import kept, library, words
from metagen.generators.vllm.requests import Requests, Work
from metagen.generators.vllm.worker import Worker
from metagen.logs import logger
from metagen.sequence import Sequence

_LOG = logger(__name__)
Dtype = Literal["float32", "bfloat16", "float16"]
DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2}
#: Seconds for a process to be gone that was told to end, or killed.
PATIENCE = 60.0
T = TypeVar("T")


class VLLMEngine:
    """Runs a model directory by vLLM's asynchronous engine: continuous batching, a prefix cache of whole blocks.

    model: a Hugging Face model directory, or an embedded model's name. dtype: bfloat16 by default, on a CPU float32.
    max_context: below the model's own, if given. One place of it is kept for the token that vLLM draws when it reads.
    max_pending: requests, one for each sample, that are inside vLLM at once; 4 · max_num_seqs by default. The others
    wait as coroutines.
    lora: the directory of an adapter that is applied to all requests.
    threads: of each of vLLM's processes on a CPU, which are then bound to no core; vLLM's own choice if None.
    args: any other of vLLM's engine arguments, such as tensor_parallel_size, quantization, speculative_config or
    gpu_memory_utilization; `options.defaults` has those that are not vLLM's own. Several engines that share a device
    need kv_cache_memory_bytes each.

    vLLM draws by seeds of its own kind: other samples than those of the torch engine, of the same distribution. Its
    processes run from `__enter__` to `close`. Raises UnsupportedError if vLLM is missing, and ModelError or InputError,
    which name the place, the value and the remedy.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        dtype: Dtype | None = None,
        max_context: int | None = None,
        max_pending: int | None = None,
        lora: str | Path | None = None,
        threads: int | None = None,
        **args: Any,
    ) -> None:
        self._name = str(model)
        self.directory = directory = resolve(model)
        for name, value in (("max_context", max_context), ("max_pending", max_pending), ("threads", threads)):
            if value is not None and value < 1:
                raise InputError(f"{name}={value!r}: expected an integer ≥ 1")
        if dtype is not None and dtype not in DTYPES:
            raise InputError(f"dtype={dtype!r}: expected one of {', '.join(DTYPES)}")
        self._vllm = vllm = library()
        options.check(args, {f.name for f in fields(vllm.AsyncEngineArgs)})
        self.dtype: Dtype = dtype or ("float32" if vllm.on_cpu else "bfloat16")
        self._tokenizer = Tokenizer(directory, files.vocabulary(directory))
        given = options.defaults(args, on_cpu=vllm.on_cpu, memory=_memory())
        self._lora: Path | None
        self._lora, rank = files.adapter(lora) if lora is not None else (None, 0)
        if self._lora is not None:
            given = {"enable_lora": True, "max_lora_rank": rank} | given
        self._environment: dict[str, str] = {}
        if threads is not None and vllm.on_cpu:
            self._environment = options.threads(args, threads)
        self._config = self._configure(given, max_context)
        self._context: int = self._config.model_config.max_model_len - 1
        self._pending = max_pending or 4 * self._config.scheduler_config.max_num_seqs
        self._shape = _shape(directory, self.dtype)
        self._fingerprint = files.fingerprint(
            directory, self._tokenizer, self.dtype, self._lora, options.numerics(args)
        )
        self._endings = Endings(self._tokenizer)
        self._checks = Checks(self._name, self._tokenizer.vocab_size, self._context)
        self._stats = EngineStats()
        self._lock = Lock()
        self._state = "new"
        self._worker: Worker | None = None
        self._llm: Any = None
        self._processes: list[BaseProcess] = []
        self._requests: Requests | None = None

    def _configure(self, given: dict[str, Any], max_context: int | None) -> Any:
        """The configuration of vLLM. InputError for what it does not take."""
        vllm, length = self._vllm, files.length(self.directory, max_context)
        with kept(**self._environment) as found:
            try:
                args = vllm.AsyncEngineArgs(
                    model=str(self.directory), dtype=self.dtype, max_model_len=length, **given
                )
                config = args.create_engine_config()
            except (ValueError, TypeError, NotImplementedError, *vllm.refusals) as error:
                raise InputError(
                    f"vLLM cannot run {self._name!r} with {given!r}: {words(error)}; mend the argument that it names"
                ) from error
        self._environment = found
        return config

    def __repr__(self) -> str:
        return f"VLLMEngine({self._name!r}, dtype={self.dtype!r})"

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def tokenizer_fingerprint(self) -> str:
        return self._tokenizer.fingerprint

    @property
    def shape(self) -> ModelShape | None:
        return self._shape

    @property
    def max_context(self) -> int:
        return self._context

    @property
    def block_size(self) -> int:
        """Tokens of a prefix that the cache shares at once."""
        return int(self._config.cache_config.block_size)

    @property
    def stats(self) -> EngineStats:
        return self._stats

    @cached_property
    def supports(self) -> frozenset[str]:
        """`grammar` too, if the tokens are bytes: vLLM cannot match grammars over other vocabularies."""
        held = {"grammar"} if files.writes_bytes(self._tokenizer) else set[str]()
        return frozenset({"top_logprobs", *held})

    def generator(self, **params: Any) -> EngineGenerator:
        """A generator that decodes with this engine under these SamplingParams."""
        return EngineGenerator(self, SamplingParams(**params))

    def render(self, prefix: Sequence) -> tuple[int, ...]:
        return self._tokenizer.render(prefix)[0]

    def encode(self, text: str) -> tuple[int, ...]:
        return self._tokenizer.encode(text)

    # -- requests --------------------------------------------------------------------------------

    async def generate(self, request: GenerateRequest) -> Generated:
        """Raises PromptError at once if the request can never fit, and InputError for what is no request."""
        self._checks.asked(request)
        sampling.check(request.params, self._tokenizer.vocab_size, self._name)
        ids, prompt = self._tokenizer.render(request.prefix)
        self._checks.ids(ids)
        self._checks.fits(len(ids), request.max_tokens)
        continuation = Continuation(self._tokenizer.decode, request, ids)
        kind = self._endings.take(request)
        work = Work(request, ids, len(ids) - prompt, kind, continuation, [None] * len(request.seeds))
        try:
            return await self._ask(lambda requests: requests.generate(work))
        except BaseException:
            request.ended.update((i, sample) for i, sample in enumerate(work.samples) if sample is not None)
            raise
        finally:
            self._endings.give_back(kind)

    async def evaluate(self, requests: list[EvaluateRequest]) -> list[Evaluated]:
        """Raises as `generate` does; UnsupportedError for the outputs of a head that scores."""
        for request in requests:
            self._checks.evaluated(request)
        if not requests:
            return []
        return await self._ask(lambda inside: inside.evaluate(list(requests)))

    async def _ask(self, make: Callable[[Requests], Coroutine[Any, Any, T]]) -> T:
        with self._lock:
            self._check_open()
            assert self._worker is not None and self._requests is not None
            future = self._worker.submit(self._answered(make(self._requests)))
        return await asyncio.wrap_future(future)

    async def _answered(self, work: Coroutine[Any, Any, T]) -> T:
        """In vLLM's loop: an answer, or an error that says whose end it was."""
        try:
            return await work
        except BaseException as error:
            if self._state != "open" and not isinstance(error, EngineError):
                raise EngineError(
                    f"{self!r} was closed while a request was running; make a new engine"
                ) from error
            raise

    # -- lifecycle -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        with self._lock:
            if self._state != "new":
                raise EngineError(f"{self!r} was opened before (it is {self._state}); make a new engine")
            self._worker = Worker(f"engine {self._name}")
            try:
                with kept(**self._environment):
                    self._worker.submit(self._start()).result()
            except BaseException:
                self._state = "failed"
                self._end(self._worker)
                raise
            self._state = "open"
        # vLLM and torch have loaded millions of objects, which live on: no collection has to walk through them.
        gc.collect()
        gc.freeze()
        _LOG.info("engine opened", extra={"engine": repr(self), "fingerprint": self._fingerprint})
        return self

    async def _start(self) -> None:
        vllm, others = self._vllm, set(active_children())
        try:
            self._llm = vllm.AsyncLLM.from_vllm_config(
                vllm_config=self._config,
                stat_loggers=[counter(vllm.StatLoggerBase, self._stats)],
                enable_log_requests=False,
                disable_log_stats=True,
            )
        except (RuntimeError, ValueError, OSError, *vllm.refusals) as error:
            raise EngineError(
                f"{self!r} did not start: {words(error)}; vLLM's log above says more. Where memory is short, give "
                "kv_cache_memory_bytes or a smaller max_context"
            ) from error
        self._processes = [process for process in active_children() if process not in others]
        lora = vllm.LoRARequest("adapter", 1, str(self._lora)) if self._lora is not None else None
        self._requests = Requests(
            vllm, self._llm, self._endings, self._stats, room=self._pending, block=self.block_size, lora=lora
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End vLLM's processes, which frees their memory; whoever waits gets an EngineError. Twice is allowed."""
        with self._lock:
            if self._state == "new":
                self._state = "closed"
            if self._state != "open":
                return
            self._state = "closed"
        assert self._worker is not None
        self._end(self._worker)
        _LOG.info("engine closed", extra={"engine": repr(self), "fingerprint": self._fingerprint})

    def _end(self, worker: Worker) -> None:
        """The core of vLLM ends first, then what still runs in the thread, and the thread; then the processes."""
        worker.submit(self._stop()).result()
        worker.stop()
        gc.unfreeze()
        for process in self._processes:
            process.join(PATIENCE)
        self._llm = self._requests = None

    async def _stop(self) -> None:
        if self._llm is not None:
            self._llm.shutdown()

    def sleep(self, level: int = 1) -> None:
        """Free the device's memory until `wake`: keys and values, and the weights, which level 1 keeps in main memory.

        Waits for what runs to be aborted. Needs enable_sleep_mode=True; UnsupportedError on a CPU, where only
        `close` frees memory.
        """
        self._may_sleep()
        self._wait(self._llm.sleep(level))

    def wake(self) -> None:
        """Undo `sleep`."""
        self._may_sleep()
        self._wait(self._llm.wake_up())

    def _may_sleep(self) -> None:
        self._check_open()
        if self._vllm.on_cpu:
            raise UnsupportedError(
                f"{self!r} runs on a CPU, where vLLM cannot sleep; close it to free its memory"
            )
        if not self._config.model_config.enable_sleep_mode:
            raise UnsupportedError(f"{self!r} cannot sleep; make it with enable_sleep_mode=True")

    def _wait(self, work: Coroutine[Any, Any, Any]) -> None:
        assert self._worker is not None
        self._worker.submit(work).result()

    def _check_open(self) -> None:
        if self._state != "open":
            hint = "use it inside `with engine:`" if self._state == "new" else "make a new engine"
            raise EngineError(f"{self!r} is not open (it is {self._state}); {hint}")


def _memory() -> int:
    """Bytes for keys and values on a CPU: as the torch engine takes."""
    return min(2 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8)


def _shape(directory: Path, dtype: Dtype) -> ModelShape | None:
    """For the cost model; None for an architecture that it does not know."""
    try:
        return replace(ModelShape.from_config(directory), dtype_bytes=DTYPES[dtype])
    except ModelError:
        return None
