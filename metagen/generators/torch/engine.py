"""TorchEngine: coroutines of any event loop on one side, one thread that runs the model on the other."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from metagen.errors import EngineError, InputError
from metagen.generators.engine import EngineStats
from metagen.generators.local import LocalEngine
from metagen.generators.models.describe import drafted_shape, shape_of
from metagen.generators.models.quantization import compress
from metagen.generators.models.recipes import Model
from metagen.generators.models.sources import resolve
from metagen.generators.torch.adapted import AdaptedEngine
from metagen.generators.torch.jobs import Evaluation, Generation, Ticket
from metagen.generators.torch.models.compression import check_compressible, check_place
from metagen.generators.torch.models.language_model import LanguageModel
from metagen.generators.torch.models.loading import Loaded, Place, adopt, load, load_drafted, memory_for
from metagen.generators.torch.numbers import default_dtype
from metagen.generators.torch.prefix_tree import PrefixTree
from metagen.generators.torch.requests import Requests
from metagen.generators.torch.rows import Rows
from metagen.generators.torch.scheduler import Scheduler
from metagen.generators.torch.speculation.speculate import COUNTS
from metagen.generators.torch.threads import default_threads, take
from metagen.generators.torch_options import TorchOptions
from metagen.logs import logger

_LOG = logger(__name__)
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class TorchEngine(Requests, TorchOptions):
    """Runs a Llama-like model directory with continuous batching over a prefix tree.

    Samples of one request are computed once for as long as they are alike. stats.extra: `decoded`, tokens run for rows
    that decode; `near_edge`, draws so close to a border that the rounding of float32 may have decided (in bfloat16 it
    decides more draws than these); `steps`.

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
        self._place = place
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
        self._speak(loaded, adapter=0, max_batch=max_batch)
        tree: PrefixTree[Any] = PrefixTree(loaded.segment_tokens)
        #: What is large, and let go of at the end.
        self._held: tuple[LanguageModel[Any], PrefixTree[Any]] | None = (loaded.model, tree)
        self._rows = Rows(max_batch, self.device)
        self._scheduler = Scheduler(loaded.model, tree, self._rows, self._stats, self._reply, draft)
        self._adopted: dict[Path, tuple[int, Loaded]] = {}
        self._adopting = threading.Lock()
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
    def max_batch(self) -> int:
        """Rows that decode at once."""
        return self._place.batch

    @property
    def threads(self) -> int:
        """Of torch's operations in the engine's thread."""
        return self._threads

    # -- adapters --------------------------------------------------------------------------------

    def adapted(self, model: str | Path) -> AdaptedEngine:
        """This engine's model with an adapter: an engine whose rows are computed in one batch with this one's.

        model: the adapter, a directory that `peft` saved or a name. It is loaded now, also while this engine runs.
        Raises as `AdaptedEngine` does.
        """
        return AdaptedEngine(self, model)

    def adopt(self, model: str | Path) -> tuple[int, Loaded]:
        """The adapter's number here, from 1, and what it makes of the model. For `AdaptedEngine`."""
        directory = resolve(model)
        with self._adopting:
            if directory not in self._adopted:
                self._adopted[directory] = adopt(
                    self._parts()[0], self._tokenizer.directory, model, self._place, self._draft
                )
            return self._adopted[directory]

    # -- requests --------------------------------------------------------------------------------

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
    def opened(self) -> bool:
        """Whether it has been opened; it may be closed since."""
        return self._state != "new"

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
            take(self._threads)
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
