"""The blocks of a model as one CUDA graph for each number of tokens, filled up with tokens that are not there.

Launching the operations of a step one by one takes a CPU longer than a small model takes a GPU. A graph launches them
together; what it reads lies where it was when the graph was made, so whatever changes is copied there before.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metagen.generators.compiled.build import setting
from metagen.generators.torch import compiled
from metagen.generators.torch.gpu.shared import JOB, Plan, plan
from metagen.generators.torch.kv.store import Located
from metagen.generators.torch.models.checkpoint import LlamaConfig
from metagen.generators.torch.models.heads import Head, LanguageHead
from metagen.generators.torch.models.language_model import Ints
from metagen.generators.torch.models.layer import Layer
from metagen.generators.torch.send import pinned, send
from metagen.logs import logger

Floats = NDArray[np.float64]
_LOG = logger(__name__)
#: Tokens of a step that is recorded, at most; prompts are read by kernels that are launched one by one.
MOST = 512
#: Bytes of keys and values that a layer may read for a batch of more tokens: each token reads for itself what torch's
#: products read once for all tokens of a row. About half a millisecond, which launching these products takes.
READ = 1 << 30
#: Pieces that rows read before their tails, at most, until more are asked for. Then also jobs, a quarter as many.
PIECES = 1024


def sizes() -> list[int]:
    """Numbers of tokens that graphs are made for: the gaps are at most an eighth, and at least 8."""
    found, size = [1, 2, 4], 8
    while size <= MOST:
        found.append(size)
        size += max(8, 1 << (size // 8).bit_length() - 1)
    return found


@dataclass(frozen=True, slots=True)
class Graph:
    """A step that was recorded. hidden: [tokens, width], normed, after it has run."""

    graph: Any
    hidden: Tensor


class Steps:
    """The blocks, the norm behind them and the head, for steps of few tokens; compiled in the background.

    turns: [context, head_dim / 2] complex, the rotation of each position. tails: [layers, 2, places, head_dim].
    rows: that decode at once. plain: run the kernels one by one, as no graph is recorded; for a CPU.
    """

    def __init__(
        self,
        config: LlamaConfig,
        embedding: Tensor,
        layers: Sequence[Layer],
        norm: Tensor,
        head: Head,
        turns: Tensor,
        tails: Tensor,
        rows: int,
        *,
        plain: bool = False,
    ) -> None:
        self._config, self._plain = config, plain
        self._embedding, self._layers, self._norm, self._head = embedding, layers, norm, head
        self._turns = torch.view_as_real(turns).flatten(1).contiguous()
        self._tails = [(layer[0], layer[1]) for layer in tails]
        self._rows = min(rows, MOST)
        self._sizes = sizes()
        self._graphs: dict[tuple[int, bool, bool], Graph] = {}
        self._pool: Any = None
        #: The pieces that were sent last, the tokens of each row then, and how they are read.
        self._sent: Tensor | None = None
        self._counts = np.zeros(0, np.int64)
        self._plan: Plan | None = None
        self._ready = False

    def begin(self) -> None:
        """Compile in a thread of its own; until then, and if it fails, no step fits.

        A process that ends meanwhile waits for it: Triton's compiler cannot be left in the middle.
        """
        thread = threading.Thread(target=self._try_to_compile, name="steps on the GPU", daemon=False)
        thread.start()
        _compiling[:] = [*(one for one in _compiling if one.is_alive()), thread]

    def _try_to_compile(self) -> None:
        try:
            self.compile()
        except Exception as error:  # noqa: BLE001 - Triton raises whatever its compiler does
            reason = f"{type(error).__name__}: {error}"
            _LOG.warning("steps on the GPU are not compiled", extra={"error": reason})

    @torch.inference_mode()
    def compile(self) -> None:
        """Compile the kernels, by a step of a token that is not there."""
        global _draws
        from metagen.generators.torch.gpu import draw, kernels

        with torch.cuda.device_of(self._embedding):  # type: ignore[no-untyped-call]
            self._compile(draw, kernels)
        self._ready = _draws = True

    def _compile(self, draw: Any, kernels: Any) -> None:
        c, device = self._config, self._embedding.device
        self._kernels, self._of = kernels, kernels.Heads(c.heads, c.kv_heads, c.head_dim)
        self._processors = (
            torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 8
        )
        self._table = torch.zeros(MOST, kernels.COLUMNS, dtype=torch.int64, device=device)
        self._table[:, 2] = -1
        self._reads = self._room(PIECES, PIECES // 4, PIECES, 4 * PIECES, 4 * PIECES)
        outputs, dtype = len(self._embedding), self._embedding.dtype
        if self._head.outputs is not None:
            outputs, dtype = self._head.outputs, torch.float32
        self._numbers = torch.zeros(self._rows, outputs, dtype=dtype, device=device)
        self._step(self._table[:1], True, True)
        if not self._plain:
            # What a row reads is cut into parts when few decode, and not when many do.
            self._step(self._table, False, False)
        draw.draw(self._numbers[:1].float(), np.array([0.5]), np.array([0.5]), 0.0, 1.0)

    def fit(self, held: Ints, counts: Ints | None) -> bool:
        """Whether steps are compiled, and a batch is not better read by torch's products.

        held: tokens that each row holds; counts: tokens that it takes (None: one each).
        """
        if not self._ready or counts is None or counts.sum() <= MOST:
            return self._ready
        c = self._config
        read = int(((held + counts) * counts).sum()) * 2 * c.kv_heads * c.head_dim * self._embedding.itemsize
        return read <= READ

    def logits(self, tokens: Ints, at: Located) -> tuple[Tensor, Tensor]:
        """Hidden states [n, width] until the next step, and what the head makes of them [n, outputs], in float32."""
        n = len(tokens)
        if n > self._rows:
            hidden = self.hidden(tokens, at)
            return hidden, self._head(hidden)
        hidden = self._run(tokens, at, True)[:n]
        return hidden, self._numbers[:n].to(torch.float32, copy=True)

    def hidden(self, tokens: Ints, at: Located) -> Tensor:
        """Hidden states [N, width], normed; until the next step."""
        if len(tokens) <= MOST:
            return self._run(tokens, at, False)[: len(tokens)]
        with torch.cuda.device_of(self._table):  # type: ignore[no-untyped-call]
            told = send(self._told(tokens, at, len(tokens)), self._table.device)
            return self._step(told, False, self._shares)

    # -- a step ----------------------------------------------------------------------------------

    def _run(self, tokens: Ints, at: Located, with_head: bool) -> Tensor:
        size = next(size for size in self._sizes if size >= len(tokens))
        if with_head:
            size = min(size, self._rows)
        table = self._table[:size]
        table.copy_(pinned(self._told(tokens, at, size), table.device), non_blocking=True)
        key = size, with_head, self._shares
        # Triton and graphs run on the thread's device, whatever they are given.
        with torch.cuda.device_of(table):  # type: ignore[no-untyped-call]
            return self._run_at(table, key)

    def _run_at(self, table: Tensor, key: tuple[int, bool, bool]) -> Tensor:
        size, with_head, shares = key
        if (graph := self._graphs.get(key)) is not None:
            graph.graph.replay()
            return graph.hidden
        hidden = self._step(table, with_head, shares)
        if not self._plain:
            try:
                self._graphs[key] = self._record(table, with_head, shares)
            except RuntimeError as error:
                _LOG.warning("steps are not recorded on the GPU", extra={"tokens": size, "error": str(error)})
                self._plain = True
        return hidden

    def _record(self, table: Tensor, with_head: bool, shares: bool) -> Graph:
        """Of a step that has just run: what is compiled and chosen at first is there.

        Other threads may run other engines, but only one of a process records at a time. The outer `stream` is for a
        recording that fails: torch's `graph` then leaves the thread on the stream that it recorded.
        """
        graph = torch.cuda.CUDAGraph()
        with _recording:
            if (stream := _streams.get(table.device)) is None:
                stream = _streams[table.device] = torch.cuda.Stream(table.device)  # type: ignore[no-untyped-call]
            with (
                torch.cuda.stream(stream),
                torch.cuda.graph(graph, self._pool, stream, capture_error_mode="thread_local"),
            ):
                hidden = self._step(table, with_head, shares)
        self._pool = self._pool or graph.pool()
        return Graph(graph, hidden)

    def _told(self, tokens: Ints, at: Located, size: int) -> Ints:
        """The table [size, COLUMNS] of a step (`kernels`); what rows read before their tails is sent."""
        table = at.table.numpy()
        counts = table[:, 1]
        if self._plan is None or at.pieces is not self._sent or not np.array_equal(counts, self._counts):
            self._plan = self._send(at)
            self._sent, self._counts = at.pieces, counts.copy()
        how, row = self._plan, np.repeat(np.arange(len(table)), counts)
        offset = np.arange(len(row)) - np.repeat(table[:, 0], counts)
        told = np.zeros((size, self._kernels.COLUMNS), np.int64)
        told[len(row) :, 2] = -1
        here = told[: len(row)]
        here[:, 0] = tokens
        here[:, 1:3] = table[row, 2:4] + offset[:, None]
        here[:, 3:5] = table[row, 4:6]
        here[:, 5], here[:, 6] = how.first[row], how.last[row]
        here[:, 7], here[:, 8] = how.begin, how.end
        return told

    @property
    def _shares(self) -> bool:
        """Whether the newest step reads pieces for several tokens at once."""
        return self._plan is not None and bool(len(self._plan.jobs))

    def _send(self, at: Located) -> Plan:
        c = self._config
        of_token = 2 * c.kv_heads * c.head_dim * self._embedding.itemsize
        programs = max(1, self._kernels.BUSY * self._processors // c.kv_heads)
        found = plan(at, self._kernels.tile(self._of), self._kernels.BLOCK, programs, of_token)
        parts = found.pieces, found.jobs, found.members, found.listed
        there = self._reads.pieces, self._reads.jobs, self._reads.members, self._reads.listed
        room, needed = [*map(len, there), self._reads.rows], [*map(len, parts), found.rows]
        if any(a > b for a, b in zip(needed, room, strict=True)):
            # The graphs read where they were: others are made. Their memory is gone with them.
            self._graphs.clear()
            self._pool = None
            self._reads = self._room(*(max(2 * a, b) for a, b in zip(needed, room, strict=True)))
            there = self._reads.pieces, self._reads.jobs, self._reads.members, self._reads.listed
        if len(found.jobs):
            self._reads.jobs[len(found.jobs) :] = 0
        for part, place in zip(parts, there, strict=True):
            if len(part):
                place[: len(part)].copy_(pinned(part, place.device), non_blocking=True)
        return found

    def _room(self, pieces: int, jobs: int, members: int, listed: int, rows: int) -> Any:
        """For so many, none of them there yet (`kernels.Reads`)."""
        sizes = (pieces, self._kernels.PIECE), (jobs, JOB), (members,), (listed,)
        made = (torch.zeros(size, dtype=torch.int64, device=self._embedding.device) for size in sizes)
        return self._kernels.Reads(*made, rows)

    def _step(self, table: Tensor, with_head: bool, shares: bool) -> Tensor:
        k, of, eps = self._kernels, self._of, self._config.eps
        x = self._embedding[table[:, 0]]
        more: Tensor | None = None
        for i, (layer, (keys, values)) in enumerate(zip(self._layers, self._tails, strict=True)):
            qkv = layer.qkv(k.normalise(x, more, layer.norm, eps))
            k.rotate(qkv, table, self._turns, layer.qk_norm, keys, values, of, eps)
            read = k.attend(qkv, table, self._reads, keys, values, i, of, self._processors, shares)
            found = layer.out(read)
            more = layer.down(k.gate(layer.up(k.normalise(x, found, layer.mlp_norm, eps))))
        hidden: Tensor = k.normalise(x, more, self._norm, eps)
        if with_head:
            head = self._head
            found = head.map(hidden) if isinstance(head, LanguageHead) else head(hidden)
            self._numbers[: len(table)].copy_(found)
        return hidden


#: Threads that compile, and whether draws are compiled.
_compiling: list[threading.Thread] = []
_draws = False
#: One thread records a graph at a time, on the stream of its device.
_recording = threading.Lock()
_streams: dict[torch.device, Any] = {}


def there(device: torch.device) -> bool:
    """Whether kernels are compiled for a device: it is a GPU, Triton is installed, and METAGEN_COMPILED is not off."""
    if device.type != "cuda" or torch.version.cuda is None or setting() == "off":
        return False
    return importlib.util.find_spec("triton") is not None


def wait() -> None:
    """Until nothing is being compiled."""
    while _compiling:
        _compiling.pop().join()


def drawn_at_once(
    logits: Tensor, u: Floats, temperatures: Floats, cuts: Floats | None, near: float, out: float
) -> Floats | None:
    """As `compiled.draw`, on a CPU, or without cuts on a GPU; None where what it needs is not compiled."""
    if not _draws or logits.device.type == "cpu":
        return compiled.draw(logits, u, temperatures, cuts, near, out)
    if cuts is not None or logits.dtype != torch.float32 or setting() == "off":
        return None
    from metagen.generators.torch.gpu.draw import draw

    return draw(logits, u, temperatures, near, out)
