"""What one machine for each model would do with the calls of a problem: slots that are taken, and keys and values held.

Continuous batching (Yu et al. 2022, Orca, OSDI): calls are admitted in the order in which they can begin, as many as
there are slots; what is admitted is read at once, and then every running sequence gets a token in each step, whose time
is that of the roofline at the present occupancy. Shared prefixes are held once, for as long as somebody reads them
(Zheng et al. 2024, SGLang, arXiv:2312.07104).
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from dataclasses import dataclass
from itertools import count

import numpy as np

from metagen.cost import Hardware, ModelShape, prefill_flops, roofline_seconds
from metagen.runs.curves.efficiency.called import Accelerator, Called, Shapes, shape_of
from metagen.runs.curves.efficiency.critical import Graph
from metagen.runs.curves.efficiency.roofline import step
from metagen.runs.curves.study import Floats

#: FLOP/s of a machine that nothing but its memory holds up.
UNBOUND = 1e300


@dataclass(frozen=True, eq=False)
class Held:
    """Something that is held over time: `size[i]` from `begin[i]` to `end[i]`, reached from `start[i]` in a straight
    line at `full[i]`.
    """

    begin: Floats
    full: Floats
    end: Floats
    start: Floats
    size: Floats

    def at(self, times: Floats) -> tuple[Floats, Floats]:
        """How much is held just before and just after each of these times, [times] each."""
        t = times[:, None]
        rise = np.divide(t - self.begin, self.full - self.begin, out=np.ones((len(times), len(self.size))),
                         where=self.full > self.begin)  # fmt: skip
        now = self.start + (self.size - self.start) * np.clip(rise, 0.0, 1.0)
        before = np.where((self.begin < t) & (t <= self.end), now, 0.0).sum(axis=1)
        after = np.where((self.begin <= t) & (t < self.end), now, 0.0).sum(axis=1)
        return before, after

    @property
    def times(self) -> Floats:
        """When it changes its course, in ascending order, [times]."""
        return np.unique(np.concatenate([self.begin, self.full, self.end]))

    @property
    def peak(self) -> float:
        """The most that is held at a time: it is piecewise linear."""
        return float(max(a.max(initial=0.0) for a in self.at(self.times)))

    @property
    def mean(self) -> float:
        """Over the time from 0 to the last end."""
        rising = (self.full - self.begin) * (self.start + self.size) / 2
        whole = float((rising + (self.end - self.full) * self.size).sum())
        last = float(self.end.max(initial=0.0))
        return whole / last if last else 0.0


@dataclass(frozen=True, eq=False)
class Schedule:
    """begin, end: seconds at which each call is admitted and has ended. held: bytes of keys and values, shared prefixes
    once; apart: if nothing were shared. running: sequences.
    """

    begin: Floats
    end: Floats
    held: Held
    apart: Held
    running: Held

    @property
    def seconds(self) -> float:
        """Until the last call has ended."""
        return float(self.end.max(initial=0.0))


def schedule(rows: Called, accelerator: Accelerator, shapes: Shapes) -> Schedule | None:
    """The schedule of one problem's calls; None if the shape of a model, or what a call reads or writes, is unknown."""
    known = [shape_of(shapes, maker) for maker in rows.maker]
    idle = (rows.context == 0) & (rows.generated == 0)
    if any(shape is None and not nothing for shape, nothing in zip(known, idle, strict=True)):
        return None
    if not np.isfinite(np.stack([rows.prefilled, rows.context, rows.generated])).all():
        return None
    begin, end = _run(rows, known, accelerator)
    bytes_each = np.array([0.0 if shape is None else shape.kv_bytes_per_token for shape in known])
    prompts, texts = _read_until(rows, known, end)
    # A score holds what it reads while it reads it; who shares its prefix is not followed.
    read = np.where(rows.kind == "generate", rows.prefilled, rows.context) * bytes_each
    twice = np.concatenate([begin, begin])
    held = Held(
        twice, np.concatenate([begin, end]), np.concatenate([prompts, texts]), np.concatenate([read, 0.0 * read]),
        np.concatenate([read, rows.generated * bytes_each]),
    )  # fmt: skip
    whole = rows.context + rows.generated
    apart = Held(begin, end, end, rows.context * bytes_each, whole * bytes_each)
    ones = (~idle).astype(np.float64)
    return Schedule(begin, end, held, apart, Held(begin, end, end, ones, ones))


def _read_until(rows: Called, known: list[ModelShape | None], end: Floats) -> tuple[Floats, Floats]:
    """When the last call has ended that reads the keys and values of what each call has read, and of what it has
    written: those that go on from it, and of its prompt also those that are asked for together with it.
    """
    prompts, texts = end.copy(), end.copy()
    first: dict[tuple[object, ...], int] = {}
    links: list[tuple[int, int, int | None]] = []
    for i in np.flatnonzero(rows.kind == "generate").tolist():
        above = rows.parents[rows.starts[i] : rows.starts[i + 1]].tolist()
        written = next((j for j in above if rows.kind[j] == "generate" and known[j] == known[i]), None)
        links.append((i, first.setdefault((rows.part[i], rows.maker[i], rows.path[i], written), i), written))
    for i, together, written in reversed(links):
        prompts[together] = max(prompts[together], texts[i])
        if written is not None:
            texts[written] = max(texts[written], texts[i])
    return prompts, texts


class _Machine:
    """A machine with one model: what it runs, and what waits for a slot."""

    def __init__(self, shape: ModelShape, accelerator: Accelerator, rows: Called) -> None:
        self.shape, self.accelerator, self.rows = shape, accelerator, rows
        self.waiting: deque[int] = deque()
        self.running: dict[int, int] = {}  # call → tokens that it still writes, the prefill's apart
        self.keys = 0
        self.busy = False

    def admit(self) -> list[int]:
        """Calls that get a slot now."""
        admitted = []
        while self.waiting and len(self.running) < self.accelerator.batch:
            call = self.waiting.popleft()
            admitted.append(call)
            self.running[call] = max(0, int(self.rows.generated[call]) - 1)
            self.keys += int(self.rows.context[call])
        return admitted

    def work(self, admitted: list[int], *, alone: bool) -> tuple[float, list[int]]:
        """Seconds until it looks around again, and the calls that have ended by then. alone: nothing comes before."""
        time = self._read([call for call in admitted if self.rows.prefilled[call]])
        if not time:
            steps = min(self.running.values())
            for _ in range(min(steps, 1) if not alone else steps):
                self.keys += len(self.running)
                time += step(
                    self.shape, self.accelerator.hardware, len(self.running), self.keys / len(self.running)
                )
                self.running = {call: left - 1 for call, left in self.running.items()}
        done = [call for call, left in self.running.items() if not left]
        for call in done:
            del self.running[call]
            self.keys -= int(self.rows.context[call] + max(0, self.rows.generated[call] - 1))
        return time, done

    def _read(self, calls: list[int]) -> float:
        """Seconds of reading the prompts of some calls at once: their FLOPs add up, and weights are read once."""
        hardware, each = (
            self.accelerator.hardware,
            self.shape.kv_bytes_per_token / self.accelerator.hardware.bandwidth,
        )
        flops = keys = weights = 0.0
        for call in calls:
            new, context = int(self.rows.prefilled[call]), int(self.rows.context[call])
            flops += prefill_flops(self.shape, context, cached=context - new)
            memory = roofline_seconds(
                self.shape, Hardware("memory", UNBOUND, hardware.bandwidth), new, 0, context
            )
            weights, keys = max(weights, memory - context * each), keys + context * each
        return max(flops / hardware.peak, weights + keys)


def _run(rows: Called, known: list[ModelShape | None], accelerator: Accelerator) -> tuple[Floats, Floats]:
    """When each call begins and ends, on one machine for each model."""
    machines = {shape: _Machine(shape, accelerator, rows) for shape in known if shape is not None}
    begin, end, left = np.zeros(len(rows)), np.zeros(len(rows)), _Left(rows.graph)
    events: list[tuple[float, int, list[int], _Machine | None]] = []
    now, number, ready = 0.0, count(), left.first()
    while True:
        for call in ready:
            begin[call] = now
            if (shape := known[call]) is None or not rows.context[call] + rows.generated[call]:
                heapq.heappush(events, (now, next(number), [call], None))  # nothing to read or write
            else:
                machines[shape].waiting.append(call)
        for machine in machines.values():
            if machine.busy or not (machine.waiting or machine.running):
                continue
            admitted = machine.admit()
            begin[admitted] = now
            others = any(m.busy or m.waiting or m.running for m in machines.values() if m is not machine)
            seconds, done = machine.work(admitted, alone=not (others or events))
            machine.busy = True
            heapq.heappush(events, (now + seconds, next(number), done, machine))
        if not events:
            return begin, end
        now, _, done, worked = heapq.heappop(events)
        if worked is not None:
            worked.busy = False
        end[done] = now
        ready = left.without(done)


class _Left:
    """What calls still wait for."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._children: list[list[int]] = [[] for _ in range(len(graph))]
        self._missing = [len(graph.of(i)) + int(graph.waits[i]) for i in range(len(graph))]
        for i in range(len(graph)):
            for j in graph.of(i):
                self._children[j].append(i)
        self._open = Counter(graph.depth.tolist())
        self._closed: list[int] = sorted(self._open)
        self._waiting: dict[int, list[int]] = {depth: [] for depth in self._open}
        for i in np.flatnonzero(graph.waits).tolist():
            self._waiting[int(graph.depth[i])].append(i)

    def first(self) -> list[int]:
        """Calls that wait for nothing."""
        free = [i for i, missing in enumerate(self._missing) if not missing]
        return sorted([*free, *self._next()])

    def without(self, done: list[int]) -> list[int]:
        """Calls that wait for nothing any more, once these have ended."""
        free = []
        for call in done:
            self._open[int(self._graph.depth[call])] -= 1
            free += [child for child in self._children[call] if self._less(child)]
        return sorted([*free, *self._next()])

    def _next(self) -> list[int]:
        """Calls of depths of which none that is less has an open call."""
        free = []
        while self._closed:
            depth = self._closed[0]
            free += [call for call in self._waiting.pop(depth, ()) if self._less(call)]
            if self._open[depth]:
                break
            self._closed.pop(0)
        return free

    def _less(self, call: int) -> bool:
        self._missing[call] -= 1
        return not self._missing[call]
