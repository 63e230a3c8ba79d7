"""VLLMEngine: coroutines of any event loop on one side, vLLM's engine in processes of its own on the other."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from functools import partial
from multiprocessing import active_children
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from metagen.border import checked
from metagen.cost import ModelShape
from metagen.errors import EngineError, InputError, ModelError, UnsupportedError
from metagen.generators.continuation import Continuation
from metagen.generators.declared import VLLMDeclared
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
from metagen.generators.frozen import frozen
from metagen.generators.local import LocalEngine, key_value_bytes
from metagen.generators.loop import Loop
from metagen.generators.models.lora import adapter_of, parameters_of
from metagen.generators.models.sources import resolve
from metagen.generators.primitive import EngineGenerator
from metagen.generators.tokenizer import Tokenizer
from metagen.generators.vllm import model as files
from metagen.generators.vllm import options, refusals
from metagen.generators.vllm.counters import counter
from metagen.generators.vllm.endings import Endings
from metagen.generators.vllm.library import kept, library, words
from metagen.generators.vllm.requests import Requests, Work
from metagen.logs import logger
from metagen.values import Count, Size, Switch

_LOG = logger(__name__)
Dtype = Literal["float32", "bfloat16", "float16"]
DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2}
#: Seconds for a process to be gone that was told to end, or killed.
PATIENCE = 60.0
T = TypeVar("T")


@partial(checked, first=True)
class VLLMEngine(LocalEngine):
    """Runs a model directory by vLLM's asynchronous engine: continuous batching, a prefix cache of whole blocks.

    model: a Hugging Face model directory, or an embedded model's name. dtype: bfloat16 by default, on a CPU float32.
    max_context: below the model's own, if given. One place of it is kept for the token that vLLM draws when it reads.
    max_pending: requests, one for each sample, that are inside vLLM at once; 4 · max_num_seqs by default. The others
    wait as coroutines.
    lora: the directory of an adapter that is applied to all requests.
    seeded: draw each sample by a seed of its own, so that it comes again. By default vLLM draws by its own random
    numbers, which begin anywhere (unless args has `seed`) and are faster: what the journal has comes again, and nothing
    else.
    threads: of each of vLLM's processes on a CPU, which are then bound to no core; vLLM's own choice if None.
    args: any other of vLLM's engine arguments, such as tensor_parallel_size, quantization, speculative_config or
    gpu_memory_utilization; `options.defaults` has those that are not vLLM's own. Several engines that share a device
    need kv_cache_memory_bytes each.

    Samples are others than those of the torch engine, of the same distribution. Log-probabilities of samples are read
    where a generator asks for them (`logprobs`, `top_logprobs`); else they are unknown. Its processes run from
    `__enter__` to `close`. Raises UnsupportedError if vLLM is missing, and ModelError or InputError,
    which name the place, the value and the remedy.
    """

    declares = VLLMDeclared

    def __init__(
        self,
        model: str | Path,
        *,
        dtype: Dtype | None = None,
        max_context: Size | None = None,
        max_pending: Count | None = None,
        lora: str | Path | None = None,
        threads: Count | None = None,
        seeded: Switch = False,
        **args: Any,
    ) -> None:
        directory = whole = resolve(model)
        adapter = adapter_of(whole)
        if adapter is not None and lora is not None:
            raise InputError(
                f"lora={str(lora)!r}: {str(model)!r} is an adapter already; give its base as model, or no lora"
            )
        if adapter is not None and adapter.scores:
            raise UnsupportedError(
                f"{str(model)!r} brings a head that scores, which vLLM does not read from an adapter; use TorchEngine"
            )
        if adapter is not None:
            directory, lora = adapter.base, whole
        self._seeded = seeded
        self._vllm = vllm = library()
        options.check(args, {f.name for f in fields(vllm.AsyncEngineArgs)}, seeded=seeded)
        self.dtype: Dtype = dtype or ("float32" if vllm.on_cpu else "bfloat16")
        tokenizer = Tokenizer(whole, files.vocabulary(directory))
        given = options.defaults(args, on_cpu=vllm.on_cpu, memory=key_value_bytes(), seeded=seeded)
        self._lora: Path | None
        self._lora, rank = files.adapter(lora) if lora is not None else (None, 0)
        if self._lora is not None:
            given = {"enable_lora": True, "max_lora_rank": rank} | given
        self._environment: dict[str, str] = {}
        if threads is not None and vllm.on_cpu:
            self._environment = options.threads(args, threads)
        self._config = self._configure(directory, given, max_context)
        self._pending = max_pending or 4 * self._config.scheduler_config.max_num_seqs
        super().__init__(
            str(model),
            tokenizer,
            context=self._config.model_config.max_model_len - 1,
            shape=_shape(directory, self.dtype, self._lora),
            fingerprint=files.fingerprint(
                directory, tokenizer, self.dtype, self._lora, options.numerics(args)
            ),
            stats=EngineStats(),
        )
        self._declared = VLLMDeclared(tokenizer)
        self._endings = Endings(tokenizer)
        self._llm: Any = None
        self._requests: Requests | None = None
        self._loop = Loop(self._live, shown=repr(self))

    def _configure(self, directory: Path, given: dict[str, Any], max_context: int | None) -> Any:
        """The configuration of vLLM. InputError for what it does not take."""
        vllm, length = self._vllm, files.length(directory, max_context, given)
        with kept(**self._environment) as found:
            try:
                args = vllm.AsyncEngineArgs(
                    model=str(directory), dtype=self.dtype, max_model_len=length, **given
                )
                config = args.create_engine_config()
            except (ValueError, TypeError, NotImplementedError, *vllm.refusals) as error:
                raise InputError(
                    f"vLLM cannot run {str(directory)!r} with {given!r}: {words(error)}; mend the argument "
                    "that it names"
                ) from error
        self._environment = found
        return config

    def __repr__(self) -> str:
        return f"VLLMEngine({self._name!r}, dtype={self.dtype!r})"

    @property
    def block_size(self) -> int:
        """Tokens of a prefix that the cache shares at once."""
        return int(self._config.cache_config.block_size)

    @property
    def supports(self) -> frozenset[str]:
        """Some adapters; `grammar` too, if the tokens are bytes: vLLM cannot match grammars over other vocabularies."""
        return self._declared.supports

    def check(self, params: SamplingParams) -> None:
        """InputError or UnsupportedError for what vLLM cannot do, or would do otherwise, whatever the prompt."""
        self._declared.check(params)

    def generator(self, **params: Any) -> EngineGenerator:
        """A generator that decodes with this engine under these SamplingParams."""
        return EngineGenerator(self, SamplingParams(**params))

    # -- requests --------------------------------------------------------------------------------

    async def generate(self, request: GenerateRequest) -> Generated:
        """Raises PromptError at once if the request can never fit, and InputError for what is no request."""
        self._checks.generates(request)
        self._declared.check(request.params)
        refusals.generates(request)
        ids, prompt = self._tokenizer.render(request.prefix)
        self._checks.ids(ids)
        self._checks.fits(len(ids), request.max_tokens)
        tokens = self._tokenizer
        said = Words.of(request.params, tokens.encode, tokens.decode, tokens.vocab_size, tokens.eos)
        continuation = Continuation(self._tokenizer.decode, request, ids)
        ends = self._endings.of(request)
        samples: list[Sample | None] = [None] * len(request.seeds)
        work = Work(request, ids, len(ids) - prompt, ends, continuation, samples, dict(said.bias))
        return await self._loop.run(self._inside(lambda requests: requests.generate(work)))

    async def evaluate(self, requests: list[EvaluateRequest]) -> list[Evaluated]:
        """Raises as `generate` does; UnsupportedError for the outputs of a head that scores."""
        for request in requests:
            refusals.reads(request, self._name)
            self._checks.reads(request)
        if not requests:
            return []
        return await self._loop.run(self._inside(lambda inside: inside.evaluate(list(requests))))

    async def _inside(self, ask: Callable[[Requests], Coroutine[Any, Any, T]]) -> T:
        """In vLLM's loop."""
        assert self._requests is not None
        return await ask(self._requests)

    # -- lifecycle -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        with kept(**self._environment):
            self._loop.open()
        _LOG.info("engine opened", extra={"engine": repr(self), "fingerprint": self._fingerprint})
        return self

    @asynccontextmanager
    async def _live(self) -> AsyncIterator[None]:
        """What lives in the engine's thread: vLLM's own, whose core ends before the thread, and its processes last."""
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
        lora = vllm.LoRARequest("adapter", 1, str(self._lora)) if self._lora is not None else None
        self._requests = Requests(
            vllm, self._llm, self._endings, self._stats, room=self._pending, block=self.block_size, lora=lora,
            seeded=self._seeded,
        )  # fmt: skip
        processes = [process for process in active_children() if process not in others]
        gc.collect()
        try:
            # vLLM and torch have loaded millions of objects, which live on: no collection walks through them.
            with frozen():
                yield
        finally:
            self._llm.shutdown()
            for process in processes:
                process.join(PATIENCE)
            self._llm = self._requests = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End vLLM's processes, which frees their memory; whoever waits gets an EngineError. Twice is allowed."""
        if self._loop.close():
            _LOG.info("engine closed", extra={"engine": repr(self), "fingerprint": self._fingerprint})

    def sleep(self) -> None:
        """Free the device's memory until `wake`: keys and values, and the weights, which main memory keeps.

        It is vLLM's level 1; level 2 forgets the weights, which `close` does too. Waits for what runs to be aborted.
        Needs enable_sleep_mode=True; UnsupportedError on a CPU, where only `close` frees memory.
        """
        self._may_sleep()
        self._loop.wait(self._llm.sleep(1))

    def wake(self) -> None:
        """Undo `sleep`."""
        self._may_sleep()
        self._loop.wait(self._llm.wake_up())

    def _may_sleep(self) -> None:
        self._loop.check()
        if self._vllm.on_cpu:
            raise UnsupportedError(
                f"{self!r} runs on a CPU, where vLLM cannot sleep; close it to free its memory"
            )
        if not self._config.model_config.enable_sleep_mode:
            raise UnsupportedError(f"{self!r} cannot sleep; make it with enable_sleep_mode=True")


def _shape(directory: Path, dtype: Dtype, lora: Path | None) -> ModelShape | None:
    """For the cost model; None for an architecture that it does not know."""
    try:
        beside = 0 if lora is None else parameters_of(lora)
        return replace(ModelShape.from_config(directory), dtype_bytes=DTYPES[dtype], adapter=beside)
    except ModelError:
        return None
