"""The kernels of a GPU, run by Triton's interpreter on a CPU: steps against torch's, and draws."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from packaging.version import Version

from metagen.generators.compiled import build
from metagen.generators.decoding.parameters import SamplingParams
from metagen.generators.engine import GenerateRequest
from metagen.generators.torch import TorchEngine, sampling
from metagen.generators.torch.gpu import shared, steps
from metagen.generators.torch.kv.store import Located
from metagen.generators.torch.models.llama import LlamaModel
from metagen.generators.torch.parameters import RowParams
from metagen.sequence import Prompt, Sequence
from tests.generators.torch.conftest import make_model

CPU = torch.device("cpu")
try:
    triton: str | None = version("triton")
except PackageNotFoundError:
    triton = None


pytestmark = [
    # In older ones the interpreter fails with numpy 2.4. Where torch has CUDA, it decides on Triton's version.
    pytest.mark.skipif(triton is None or Version(triton) < Version("3.9"), reason=f"Triton is {triton}"),
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning"),
]


@pytest.fixture(autouse=True)
def without_compiled_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build.SETTING, "off")
    # Whatever is compiled here, other tests find as they left it.
    monkeypatch.setattr(steps, "_draws", False)


@pytest.fixture(autouse=True, scope="module")
def language_is_replaced_once() -> Iterator[None]:
    """By each kernel. The interpreter does it at each function that a kernel calls too, a quarter of all time."""
    from triton.runtime import interpreter

    replaced: set[str] = set()

    def call(self: Any, *args: Any, **named: Any) -> Any:
        # Functions of Triton itself see the language under other names, which no kernel puts back.
        if self.fn.__module__ not in replaced:
            replaced.add(self.fn.__module__)
            interpreter._patch_lang(self.fn)
        return self.rewrite()(*args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter.InterpretedFunction, "__call__", call)
        yield


def ids(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def with_steps(patch: pytest.MonkeyPatch) -> list[steps.Steps]:
    """Let models on the CPU run the kernels, one by one; with room for less, as the interpreter runs jobs that wait."""
    patch.setattr(steps, "PIECES", min(steps.PIECES, 64))
    made: list[steps.Steps] = []

    def make(self: LlamaModel, batch: int) -> steps.Steps:
        made.append(
            steps.Steps(
                self.config, self._embedding, self._layers, self._norm, self.head, self._turns, self._kv.tails,
                batch, plain=True,
            )
        )  # fmt: skip
        made[-1].compile()
        return made[-1]

    patch.setattr(LlamaModel, "_make_steps", make)
    return made


#: One layer, where nothing is asked of the second: the interpreter takes milliseconds for each program.
SMALL: dict[str, Any] = {"num_hidden_layers": 1}
#: Tokens of the prompt, which torch's products read.
PROMPT = 150


def read_prompt(model: LlamaModel, tokens: np.ndarray) -> torch.Tensor:
    """Of row 0, by torch's products."""
    model.open(ids(0), [])
    if (made := model._steps) is not None:
        made._ready = False
    found = model.extend(ids(0), tokens, ids(len(tokens)), np.arange(len(tokens)))
    if made is not None:
        made._ready = True
    return found


@torch.inference_mode()
def logits(directory: Path, dtype: torch.dtype, kernels: bool, *, brief: bool = False) -> torch.Tensor:
    """Of rows with and without a common prefix that take several tokens, and then one each; rows come, go and part.

    brief: to where they have taken one each.
    """
    with pytest.MonkeyPatch.context() as patch:
        made = with_steps(patch) if kernels else []
        model = LlamaModel(directory, dtype=dtype, device=CPU, batch=8, kv_bytes=1 << 28)
        rng = np.random.default_rng(0)
        found = [read_prompt(model, rng.integers(5, 300, PROMPT))]
        # Two pieces, one in place and one in a slot; a row that reads its own alone takes them into its tail.
        model.open(ids(1, 2), [model.save(0, 0, 140), model.save(0, 140, PROMPT)])
        model.open(ids(3), [model.save(0, 0, 30), model.save(0, 30, 50)])
        found.append(model.extend(ids(1, 2, 3), rng.integers(5, 300, 7), ids(1, 4, 2), np.arange(7)))
        found.append(model.extend(np.arange(4), rng.integers(5, 300, 4)))
        if brief:
            return torch.cat(found)
        found.append(model.extend(np.arange(4), rng.integers(5, 300, 4)))
        # The same rows with other counts read the same pieces by another plan.
        found.append(model.extend(np.arange(4), rng.integers(5, 300, 7), ids(1, 3, 2, 1), np.arange(7)))
        model.keeps_hidden = True
        model.fork(ids(1, 2), ids(4, 5))
        found.append(model.extend(np.arange(6), rng.integers(5, 300, 6)))
        assert model.hidden is not None
        found.append(model.hidden @ torch.ones(model.hidden.shape[1], found[0].shape[1]))
        model.close(ids(2))
        model.move(ids(5), ids(2))
        found.append(model.extend(np.arange(5), rng.integers(5, 300, 5)))
        # A row alone, and two that take several tokens beside one that takes one; then torch's products again.
        found.append(model.extend(ids(3), rng.integers(5, 300, 1)))
        found.append(model.extend(ids(3, 0, 4), rng.integers(5, 300, 5), ids(2, 1, 2)))
        for one in made:
            one._ready = False
        found += [model.extend(np.arange(5), rng.integers(5, 300, 5)) for _ in range(2)]
    return torch.cat(found)


@pytest.mark.parametrize("head_dim", [64, 80])
def test_steps_of_every_size_of_heads(tmp_path: Path, head_dim: int) -> None:
    """The other tests have heads of 16."""
    make_model(tmp_path, head_dim=head_dim, **SMALL)
    by_torch, found = (logits(tmp_path, torch.float32, kernels, brief=True) for kernels in (False, True))
    torch.testing.assert_close(found, by_torch, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("mistral", {"num_key_value_heads": 4}),
        ("qwen2", {"num_key_value_heads": 1, **SMALL}),
        ("qwen3", SMALL),
    ],
)
def test_steps_of_every_architecture(model_dir: Any, kind: str, sizes: dict[str, int]) -> None:
    directory = model_dir(kind, **sizes)
    by_torch, found = (logits(directory, torch.float32, kernels, brief=True) for kernels in (False, True))
    torch.testing.assert_close(found, by_torch, atol=1e-4, rtol=1e-4)


def test_steps_in_half_precision(model_dir: Any) -> None:
    """They round no more than torch does. (Triton's interpreter multiplies no matrices of bfloat16.)"""
    directory = model_dir("llama3", **SMALL)
    exact = logits(directory, torch.float32, False, brief=True)[PROMPT:]
    by_torch, found = (
        logits(directory, torch.float16, kernels, brief=True)[PROMPT:] for kernels in (False, True)
    )
    assert (found - exact).square().mean() < 1.5 * (by_torch - exact).square().mean()


def test_a_row_may_be_read_in_parts(model_dir: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In 2, 3 and 12 parts here, of which some find nothing."""
    directory = model_dir("llama3", **SMALL)
    by_torch, compile_all = logits(directory, torch.float32, False), steps.Steps.compile

    def compile_with_more(self: steps.Steps) -> None:
        compile_all(self)
        self._processors = 12

    monkeypatch.setattr(steps.Steps, "compile", compile_with_more)
    torch.testing.assert_close(logits(directory, torch.float32, True), by_torch, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("llama3", {}),
        ("mistral", {"num_key_value_heads": 4, **SMALL}),
        ("qwen2", {"num_key_value_heads": 1, **SMALL}),
    ],
)
def test_a_piece_may_be_read_once_for_several_tokens(
    model_dir: Any, monkeypatch: pytest.MonkeyPatch, kind: str, sizes: dict[str, int]
) -> None:
    """Of several rows, or of one; pieces of several parts, read by more tokens than one program takes."""
    directory = model_dir(kind, **sizes)
    by_torch, made = logits(directory, torch.float32, False, brief=True), noted(monkeypatch)
    monkeypatch.setattr(shared, "WORTH", 0)
    monkeypatch.setattr(kernels(), "QUERIES", 4)
    found = logits(directory, torch.float32, True, brief=True)
    torch.testing.assert_close(found, by_torch, atol=1e-4, rtol=1e-4)
    with_jobs = [one for one in made if len(one.jobs)]
    assert with_jobs and max(one.jobs[:, 3].max() for one in with_jobs) > 0, "no piece has several parts"
    tiles = [np.unique(one.jobs[:, [0, 2]], axis=0) for one in with_jobs]
    assert any(len(one) > len(np.unique(one[:, 1])) for one in tiles), "no piece has several tiles"


def kernels() -> Any:
    from metagen.generators.torch.gpu import kernels

    return kernels


def noted(patch: pytest.MonkeyPatch) -> list[shared.Plan]:
    """The plans that are made."""
    made: list[shared.Plan] = []

    def note(*args: Any) -> shared.Plan:
        made.append(shared.plan(*args))
        return made[-1]

    patch.setattr(steps, "plan", note)
    return made


def located(rng: np.random.Generator, rows: int, lengths: list[int]) -> Located:
    """Rows that take 1 to 3 tokens, in groups of the same chain; chains take pieces from the same few."""
    known = np.array([[1000 * (i + 1), 1, 2, 3, 4, length] for i, length in enumerate(lengths)], np.int64)
    counts = rng.integers(1, 4, rows)
    table = np.zeros((rows, 6), np.int64)
    table[:, 0], table[:, 1] = counts.cumsum() - counts, counts
    order, cuts = rng.permutation(rows), np.unique([0, *rng.integers(0, rows, 3), rows])
    groups, pieces = [], np.zeros((0, 6), np.int64)
    for begin, end in pairwise(cuts.tolist()):
        chain = known[rng.random(len(known)) < 0.5]
        groups.append((begin, end, len(pieces), len(pieces) + len(chain)))
        pieces = np.concatenate([pieces, chain])
    made = [torch.from_numpy(one) for one in (table, order, np.array(groups), pieces)]
    return Located(made[0], made[1], made[2], made[3], [])


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("worth", [0, 300, 10**9])
def test_each_token_reads_its_pieces_once(monkeypatch: pytest.MonkeyPatch, seed: int, worth: int) -> None:
    """For itself, or by the jobs whose rows are listed for it; and only what is worth it is read by jobs."""
    monkeypatch.setattr(shared, "WORTH", worth)
    rng = np.random.default_rng(seed)
    lengths, tile, block = [1, 63, 64, 65, 300], 4, 64
    at = located(rng, 9, lengths)
    found = shared.plan(at, tile, block, 8, 1)
    table, order, groups, pieces = (one.numpy() for one in (at.table, at.order, at.groups, at.pieces))
    by_row: dict[int, tuple[int, int, int, int, int]] = {}
    for first, count, piece, begin, end, row in found.jobs.tolist():
        assert 0 < count <= tile and begin % block == 0 and begin < end
        for slot in range(count):
            assert row + slot not in by_row
            by_row[row + slot] = (
                int(found.members[first + slot]),
                *found.pieces[piece, [0, 5]].tolist(),
                begin,
                end,
            )
    assert set(by_row) == set(range(found.rows)), "rows without a gap"
    for begin, end, start, stop in groups.tolist():
        for row in order[begin:end].tolist():
            own = found.pieces[found.first[row] : found.last[row], 0].tolist()
            for token in range(table[row, 0], table[row, 0] + table[row, 1]):
                read = {(address, i) for address in own for i in range(lengths[address // 1000 - 1])}
                size = len(read)
                for one in found.listed[found.begin[token] : found.end[token]].tolist():
                    whose, address, _, first, last = by_row[one]
                    assert whose == token
                    read |= {(address, i) for i in range(first, last)}
                    size += last - first
                wanted = {(p[0], i) for p in pieces[start:stop].tolist() for i in range(p[5])}
                assert read == wanted and size == len(wanted), "nothing is read twice"
    n = int(table[:, 1].sum())
    reads = np.zeros(len(lengths), int)
    for begin, end, start, stop in groups.tolist():
        for address in pieces[start:stop, 0].tolist():
            reads[address // 1000 - 1] += table[order[begin:end], 1].sum()
    less = (reads - -(-reads // tile)) * lengths
    assert {p // 1000 - 1 for _, p, *_ in by_row.values()} == set(
        np.flatnonzero((less >= worth) & (reads > 0))
    )
    assert len(found.begin) == n and (worth < 10**9 or not len(found.jobs))


@pytest.mark.usefixtures("recorded")
@torch.inference_mode()
def test_more_tokens_than_a_step_that_is_recorded_has(
    model_dir: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read by the kernels too, unless every token would read much."""
    monkeypatch.setattr(steps, "MOST", 4)
    directory = model_dir("llama3", **SMALL)
    by_torch, found = (logits(directory, torch.float32, kernels) for kernels in (False, True))
    torch.testing.assert_close(found, by_torch, atol=1e-4, rtol=1e-4)
    with_steps(monkeypatch)
    model = LlamaModel(directory, dtype=torch.float32, device=CPU, batch=8, kv_bytes=1 << 28)
    assert model._steps is not None
    assert model._steps.fit(ids(0), ids(4)) and model._steps.fit(ids(100), ids(5))
    assert model._steps.fit(ids(10**9), None) and not model._steps.fit(ids(10**9), ids(5))


def test_more_pieces_than_there_was_room_for(model_dir: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = model_dir("llama3", **SMALL)
    monkeypatch.setattr(steps, "PIECES", 1)
    by_torch, found = (logits(directory, torch.float32, kernels) for kernels in (False, True))
    torch.testing.assert_close(found, by_torch, atol=1e-4, rtol=1e-4)


class Cuda:
    """As much of torch.cuda as a recording needs, with its rules: a graph reads and writes where the step did.

    One recording at a time; in memory of graphs that are there; on a stream of the current device; and one that fails
    leaves its thread on that stream.
    """

    class CUDAGraph:
        def __init__(self) -> None:
            self.played: tuple[Any, ...] = ()
            self.memory: object = None

        def pool(self) -> object:
            return self.memory

        def replay(self) -> None:
            of, step, args, hidden, reads = self.played
            CUDA.count += 1
            of._reads, now = reads, of._reads
            hidden.copy_(step(of, *args))
            of._reads = now

    def __init__(self) -> None:
        self.count, self.current, self.devices = 0, "default", 0
        self.recording: Any = None
        self.memories: weakref.WeakKeyDictionary[Any, object] = weakref.WeakKeyDictionary()

    def Stream(self, device: torch.device) -> str:  # noqa: N802 - torch's name
        return f"stream of {device}"

    @contextmanager
    def device_of(self, _: torch.Tensor) -> Iterator[None]:
        self.devices += 1
        yield
        self.devices -= 1

    @contextmanager
    def stream(self, stream: str) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def graph(self, graph: Any, pool: object, stream: str, *, capture_error_mode: str) -> Iterator[None]:
        if self.recording is not None:
            raise RuntimeError("operation not permitted when stream is capturing")
        if pool is not None and pool not in self.memories.values():
            raise RuntimeError("use_count > 0 INTERNAL ASSERT FAILED")
        assert self.devices and stream and capture_error_mode == "thread_local"
        graph.memory = self.memories[graph] = pool or object()
        self.current, self.recording = stream, graph
        try:
            yield
        finally:
            self.recording = None


CUDA = Cuda()


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[steps.Steps]:
    """Steps are recorded, as on a GPU; those that are."""
    CUDA.__init__()  # type: ignore[misc]
    for name in ("CUDAGraph", "Stream", "device_of", "stream", "graph"):
        monkeypatch.setattr(torch.cuda, name, getattr(CUDA, name))
    compile_all, step = steps.Steps.compile, steps.Steps._step
    made: list[steps.Steps] = []

    def compile_as_on_a_gpu(self: steps.Steps) -> None:
        compile_all(self)
        self._plain = False
        made.append(self)

    def note(self: steps.Steps, *args: Any) -> torch.Tensor:
        assert CUDA.devices, "kernels run on the current device, whatever they are given"
        hidden = step(self, *args)
        if CUDA.recording is not None:
            CUDA.recording.played = self, step, args, hidden, self._reads
        return hidden

    monkeypatch.setattr(steps.Steps, "compile", compile_as_on_a_gpu)
    monkeypatch.setattr(steps.Steps, "_step", note)
    monkeypatch.setattr(steps, "_streams", {})
    return made


@torch.inference_mode()
def test_where_there_is_no_room_for_more_pieces_other_graphs_are_recorded(
    model_dir: Any, monkeypatch: pytest.MonkeyPatch, recorded: list[steps.Steps]
) -> None:
    """In memory of their own: that of the others is gone with them."""
    monkeypatch.setattr(steps, "PIECES", 1)
    with_steps(monkeypatch)
    directory = model_dir("llama3", **SMALL)
    model = LlamaModel(directory, dtype=torch.float32, device=CPU, batch=2, kv_bytes=1 << 26)
    read_prompt(model, np.full(PROMPT, 7))
    model.extend(ids(0), ids(7))
    assert (1, True, False) in recorded[0]._graphs
    model.open(ids(1), [model.save(0, 0, 130), model.save(0, 0, 140)])
    for _ in range(2):
        model.extend(ids(0, 1), ids(7, 7))
    assert list(recorded[0]._graphs) == [(2, True, False)] and CUDA.count == 1


@pytest.mark.parametrize("worth", [0, shared.WORTH])
def test_graphs_read_what_changes_from_where_it_was(
    model_dir: Any, monkeypatch: pytest.MonkeyPatch, recorded: list[steps.Steps], worth: int
) -> None:
    directory = model_dir("llama3", **SMALL)
    by_torch = logits(directory, torch.float32, False)
    monkeypatch.setattr(steps, "PIECES", 1)
    monkeypatch.setattr(shared, "WORTH", worth)
    found = logits(directory, torch.float32, True)
    torch.testing.assert_close(found, by_torch, atol=1e-4, rtol=1e-4)
    assert CUDA.count >= 3 and not recorded[0]._plain and recorded[0]._graphs
    assert any(shares for _, _, shares in recorded[0]._graphs) == (worth == 0)


def test_steps_that_cannot_be_recorded_run_on(
    model_dir: Any, monkeypatch: pytest.MonkeyPatch, recorded: list[steps.Steps]
) -> None:
    """On the stream that they ran on before."""
    step = steps.Steps._step

    def fail(self: steps.Steps, *args: Any) -> torch.Tensor:
        if CUDA.recording is not None:
            raise RuntimeError("operation not permitted when stream is capturing")
        return step(self, *args)

    directory = model_dir("llama3", **SMALL)
    by_torch = logits(directory, torch.float32, False, brief=True)
    monkeypatch.setattr(steps.Steps, "_step", fail)
    found = logits(directory, torch.float32, True, brief=True)
    torch.testing.assert_close(found, by_torch, atol=1e-4, rtol=1e-4)
    assert recorded[0]._plain and CUDA.current == "default"


@pytest.mark.usefixtures("recorded")
def test_one_of_several_engines_records_at_a_time() -> None:
    def step(table: torch.Tensor, *_: bool) -> torch.Tensor:
        time.sleep(0.05)
        return table

    def record() -> steps.Graph:
        with torch.cuda.device_of(torch.zeros(1)):  # type: ignore[no-untyped-call]
            return steps.Steps._record(SimpleNamespace(_step=step, _pool=None), torch.zeros(1), True, False)  # type: ignore[arg-type]

    with ThreadPoolExecutor(3) as threads:
        found = [threads.submit(record) for _ in range(3)]
    assert len({one.result().graph for one in found}) == 3


def test_what_no_row_reads_any_more_is_let_go(model_dir: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with_steps(monkeypatch)
    directory = model_dir("llama3", **SMALL)
    model = LlamaModel(directory, dtype=torch.float32, device=CPU, batch=2, kv_bytes=1 << 26)
    with torch.inference_mode():
        read_prompt(model, np.full(PROMPT, 7))
        segment = model.save(0, 0, 140)
        keys = weakref.ref(segment.kv)
        model.open(ids(1), [segment])
        model.extend(ids(0, 1), ids(7, 7))
        model.close(ids(0, 1))
    del segment
    assert keys() is None


@pytest.mark.parametrize("head_dim", [36, 64])
def test_the_compiler_is_told_nothing_untrue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head_dim: int
) -> None:
    """By what addresses and distances can be divided, on which the width of a read depends."""
    from triton.runtime import interpreter

    told: list[int] = []

    def check(numbers: Any, name: str, values: list[int]) -> None:
        if name == "tt.divisibility":
            told.extend(values)
            assert not (numbers.data % values[0]).any()

    monkeypatch.setattr(interpreter.TensorHandle, "set_attr", check)
    make_model(tmp_path, head_dim=head_dim, **SMALL)
    logits(tmp_path, torch.float16, True, brief=True)
    assert set(told) == {math.gcd(head_dim, 16)}


def test_a_process_that_ends_waits_for_the_compiler() -> None:
    """Triton's compiler, left in the middle, ends it by an abort."""
    program = """
import time
from metagen.generators.torch.gpu.steps import Steps
Steps.compile = lambda self: (time.sleep(0.5), print("compiled", flush=True))
Steps.begin(Steps.__new__(Steps))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "compiled\n"


@pytest.mark.parametrize("error", [None, RuntimeError("Failed to find C compiler")])
def test_steps_are_compiled_in_the_background(
    model_dir: Any, monkeypatch: pytest.MonkeyPatch, error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Until they are, and where that fails, no step fits, and torch's products are used."""
    begun = threading.Event()
    compile_all = steps.Steps.compile

    def compile_late(self: steps.Steps) -> None:
        begun.wait(60)
        if error is not None:
            raise error
        compile_all(self)

    monkeypatch.setattr(steps.Steps, "compile", compile_late)
    monkeypatch.setattr(steps, "_draws", False)
    directory = model_dir("llama3", **SMALL)
    model = LlamaModel(directory, dtype=torch.float32, device=CPU, batch=2, kv_bytes=1 << 26)
    assert model._steps is None, "there is no GPU"
    made = steps.Steps(
        model.config, model._embedding, model._layers, model._norm, model.head, model._turns, model._kv.tails,
        2, plain=True,
    )  # fmt: skip
    made.begin()
    assert not made.fit(ids(0), None)
    begun.set()
    steps.wait()
    assert made.fit(ids(0), None) == steps._draws == (error is None)
    told = [one.error for one in caplog.records if "not compiled" in one.message]  # type: ignore[attr-defined]
    assert told == ([] if error is None else [f"RuntimeError: {error}"])


def test_sizes_of_graphs_leave_small_gaps() -> None:
    sizes = steps.sizes()
    assert sizes[0] == 1 and sizes[-1] == steps.MOST and len(sizes) < 40
    assert all(b - a <= max(8, a / 8) for a, b in pairwise(sizes))


# -- engines ---------------------------------------------------------------------------------------------------


def samples(seeds: int = 2) -> list[Any]:
    """Of two prompts, of which those of the longer one end earlier."""
    asked = [
        GenerateRequest(
            Sequence(Prompt(text, text=text)), tuple(range(seeds)), SamplingParams(max_tokens=n), n
        )
        for text, n in (("Q:12+7", 5), ("Q:a=12+7;b?", 3))
    ]

    async def together(engine: TorchEngine) -> list[Any]:
        return list(await asyncio.gather(*map(engine.generate, asked)))

    with TorchEngine("tiny-0.1m", threads=1, device="cpu", dtype="float32") as engine:
        return [[(s.ids, s.finish) for s in answer.samples] for answer in asyncio.run(together(engine))]


def test_an_engine_writes_the_same_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    by_torch = samples()
    made = with_steps(monkeypatch)
    assert samples() == by_torch and made[0]._sent is not None


# -- draws ---------------------------------------------------------------------------------------------------


def rows(*temperatures: float) -> RowParams:
    return RowParams.of([SamplingParams(temperature=t) for t in temperatures])


def both(z: torch.Tensor, u: np.ndarray, params: RowParams) -> tuple[sampling.Draw, sampling.Draw]:
    """What the kernels draw, and torch's operations."""
    from metagen.generators.torch.gpu import draw

    by_torch = sampling.draw(z, u, params)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "drawn_at_once", lambda z, u, t, _, *edges: draw.draw(z, u, t, *edges))
        return sampling.draw(z, u, params), by_torch


@pytest.mark.parametrize("vocab", [1, 2, 255, 256, 257, 5000, 49_153])
@pytest.mark.parametrize("spread", [0.01, 1.0, 8.0])
def test_draws_are_those_of_torch(vocab: int, spread: float) -> None:
    # Of each temperature as many; of the largest fewer, where the interpreter takes long.
    n = 32 if vocab <= 4096 else 12
    generator = torch.Generator().manual_seed(vocab)
    z = spread * torch.randn(n, vocab, generator=generator)
    z[::3, ::2] = -torch.inf if vocab > 1 else z[::3, ::2]
    u = np.random.default_rng(vocab).random(n)
    found, by_torch = both(z, u, rows(*(t for t in (1.0, 0.0, 0.7, 2.5) for _ in range(n // 4))))
    sure = ~(found.near | by_torch.near)
    assert sure.sum() > 20 or vocab < 3 or vocab > 4096
    assert (found.tokens == by_torch.tokens)[sure].all()
    same = found.tokens == by_torch.tokens
    np.testing.assert_allclose(found.logprobs[same], by_torch.logprobs[same], atol=2e-5)
    assert not found.bad.any() and not found.none.any()


def test_draws_follow_the_probabilities() -> None:
    """Numbers spread evenly over the unit interval fall on each token as often as it is probable."""
    z = torch.tensor([[0.0, math.log(2), -torch.inf, math.log(5), 0.0]])
    u = (np.arange(45) + 0.5) / 45
    found, _ = both(z.expand(45, -1), u, rows(*[1.0] * 45))
    assert np.bincount(found.tokens, minlength=5).tolist() == [5, 10, 0, 25, 5]
    np.testing.assert_allclose(np.unique(found.logprobs), np.log([1 / 9, 2 / 9, 5 / 9]), atol=1e-6)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_no_distribution_is_told(wrong: float, temperature: float) -> None:
    z = torch.zeros(3, 5000)
    z[1, 4999] = wrong
    z[2] = -torch.inf
    found, by_torch = both(z, np.array([0.1, 0.1, 0.1]), rows(*[temperature] * 3))
    assert found.bad.tolist() == by_torch.bad.tolist() == [False, True, True]


@pytest.mark.parametrize("u", [0.0, 1e-300, 1 - 1e-16, np.nextafter(1.0, 0.0)])
def test_the_ends_of_the_unit_interval(u: float) -> None:
    z = torch.full((1, 1000), -torch.inf)
    z[0, 100], z[0, 900] = 0.0, 0.0
    found, by_torch = both(z, np.array([u]), rows(1.0))
    assert found.tokens.tolist() == by_torch.tokens.tolist() == [100 if u < 0.5 else 900]
    assert not found.near.any()


def test_nothing_impossible_is_drawn_at_the_end_of_the_unit_interval() -> None:
    """Sums in another order differ by rounding, which may lead beyond all blocks of tokens that have any weight."""
    generator = torch.Generator().manual_seed(0)
    z = 12 * torch.randn(12, 20_000, generator=generator)
    z[:, 15_000:] = -torch.inf
    found, _ = both(z, np.full(12, np.nextafter(1.0, 0.0)), rows(*[1.0] * 12))
    assert (found.tokens < 15_000).all() and np.isfinite(found.logprobs).all()


def test_draws_are_on_the_device_of_their_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    from metagen.generators.torch.gpu import draw

    at: list[torch.Tensor] = []
    kernel = draw._choose

    @contextmanager
    def device_of(tensor: torch.Tensor) -> Iterator[None]:
        at.append(tensor)
        yield
        at.pop()

    class Watched:
        def __getitem__(self, grid: Any) -> Any:
            assert at and at[-1] is z, "kernels run on the current device, whatever they are given"
            return kernel[grid]

    z = torch.zeros(1, 300)
    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    monkeypatch.setattr(draw, "_choose", Watched())
    assert draw.draw(z, np.array([0.5]), np.array([1.0]), 1e-5, 1e4)[0] == 150
