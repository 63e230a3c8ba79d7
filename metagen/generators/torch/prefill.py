"""Prefixes on their way through the model: matched against the tree, run in batches, kept in the tree."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from typing import Any

import numpy as np
import torch

from metagen.errors import MetagenError, NumericsError
from metagen.generators.engine import EngineStats
from metagen.generators.torch.jobs import Prefill, Ticket
from metagen.generators.torch.models.language_model import LanguageModel, explain
from metagen.generators.torch.prefix_tree import Node, PrefixTree

#: Tokens of one batch, padding included; longer prefixes take several steps.
AREA = 2048
#: Logits that are looked at for numbers, or read, in one operation.
PART = 256
#: Waiting prefills that one step may pass over.
LOOK_AHEAD = 256


class Prefiller:
    """Runs prefills in the order of their arrival.

    No prefix is computed twice: a prefill whose next token another one is computing after the same
    prefix waits for it, and then finds it in the tree. `read(job, positions, logits)` says what is kept of the logits
    [positions, V] that follow some of the wanted positions: those of a long text are many times its keys and values.
    `done(job, found)` is called with all of that, and with the tree's lock on `job.node` held by the callee,
    `failed(job, error)` when the logits are no numbers, or `read` raises.
    """

    def __init__(
        self,
        model: LanguageModel[Any],
        tree: PrefixTree[Any],
        rows: range,
        stats: EngineStats,
        read: Callable[[Prefill, list[int], torch.Tensor], torch.Tensor],
        done: Callable[[Prefill, torch.Tensor], None],
        failed: Callable[[Prefill, MetagenError], None],
    ) -> None:
        self._model: Any = model
        self._tree, self._stats, self._read, self._done, self._failed = tree, stats, read, done, failed
        self._free = list(rows)
        self._waiting: deque[Prefill] = deque()
        self._running: list[Prefill] = []

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    def add(self, job: Prefill) -> None:
        self._waiting.append(job)

    def cancel(self, tickets: Container[Ticket]) -> None:
        """Forget the prefills of these requests."""
        self._waiting = deque(job for job in self._waiting if job.ticket not in tickets)
        for job in [job for job in self._running if job.ticket in tickets]:
            self._leave(job, poisoned=True)  # nobody has seen all of its logits

    def step(self) -> None:
        """Admit what fits, and run one batch."""
        if self._waiting:
            self._admit()
        if not self._running:
            return
        batch = self._batch()
        counts = [n for _, n in batch]
        wanted = [[p - job.at for p in job.wanted if job.at <= p < job.at + n] for job, n in batch]
        starts = np.cumsum([0, *counts[:-1]]).tolist()
        hidden = any(job.wants_hidden for job, _ in batch)
        if hidden:
            self._model.keeps_hidden = True
        logits = self._model.extend(
            np.array([job.row for job, _ in batch], np.int64),
            np.concatenate([np.array(job.ids[job.at : job.at + n], np.int64) for job, n in batch]),
            np.array(counts, np.int64),
            np.array([s + p for s, here in zip(starts, wanted, strict=True) for p in here], np.int64),
        )
        if hidden:
            self._model.keeps_hidden = False
        self._stats.prefilled += sum(counts)
        # Of all at once, since the device is waited for; in parts, each of which takes as much memory again.
        sums = [torch.logsumexp(part, -1) for part in logits.split(PART)]
        sound: list[bool] = torch.cat(sums).isfinite().tolist() if len(logits) else []
        at = 0
        for (job, n), here in zip(batch, wanted, strict=True):
            if here:
                job.sound &= all(sound[at : at + len(here)])
                # Beside rows with another head, there is more than this job's head gives.
                self._keep(job, [job.at + p for p in here], logits[at : at + len(here), : job.outputs])
                if job.wants_hidden:
                    job.hidden.append(self._model.hidden[at : at + len(here)])
                at += len(here)
            job.at += n
        self._finish([job for job, _ in batch if job.at == len(job.ids)])

    def _keep(self, job: Prefill, positions: list[int], logits: torch.Tensor) -> None:
        """Read the logits, which is pointless where the job fails."""
        try:
            for a in range(0, len(positions), PART):
                if job.sound and job in self._running:
                    job.found.append(self._read(job, positions[a : a + PART], logits[a : a + PART]))
        except MetagenError as error:
            self._leave(job, poisoned=True)  # nobody has seen all of its logits
            self._failed(job, error)

    def _admit(self) -> None:
        busy = {job.key for job in self._running}
        passed: list[Prefill] = []
        while self._waiting and self._free and len(passed) < LOOK_AHEAD:
            job = self._waiting[0]
            job.node, job.cached = self._tree.match(job.ids[: job.reuse], job.adapter)
            # What must be computed for its logits anyway is no reason to wait.
            if job.cached < job.reuse and job.key in busy:
                passed.append(self._waiting.popleft())
                continue
            self._tree.lock(job.node)
            job.need = len(job.ids) - job.cached + job.spill
            if not self._tree.reserve(job.need):
                self._tree.unlock(job.node)
                break
            self._waiting.popleft()
            busy.add(job.key)
            job.row, job.at = self._free.pop(), job.cached
            self._model.open(np.array([job.row]), job.node.chain())
            if job.adapter:
                self._model.assign(np.array([job.row]), job.adapter)
            self._running.append(job)
        self._waiting.extendleft(reversed(passed))

    def _batch(self) -> list[tuple[Prefill, int]]:
        """Prefills, oldest first, and how many tokens of each; others go along as far as the area allows."""
        batch: list[tuple[Prefill, int]] = []
        longest = 0
        for job in self._running:
            count = min(len(job.ids) - job.at, self._model.chunk)
            if batch and (len(batch) + 1) * max(longest, count) > AREA:
                continue
            batch.append((job, count))
            longest = max(longest, count)
        return batch

    def _finish(self, jobs: list[Prefill]) -> None:
        """Keep what these have computed, take back their rows all at once, and hand them on."""
        for job in jobs:
            # A text whose logits are no numbers takes the others of its request with it.
            if not job.sound and job in self._running:
                self._leave(job, poisoned=True)
                error = NumericsError(
                    f"the model returned NaN or infinite logits for an input of {len(job.ids)} tokens; "
                    "check its weights, or choose dtype='float32'"
                )
                self._failed(job, explain(self._model, job.ids, error))
        jobs = [job for job in jobs if job in self._running]
        for job in jobs:
            new = self._insert(job)
            self._tree.lock(new)
            self._release(job)
            job.node = new
        if jobs:
            self._model.close(np.array([job.row for job in jobs]))
        for job in jobs:
            self._done(job, job.found[0] if len(job.found) == 1 else torch.cat(job.found))

    def _insert(self, job: Prefill) -> Node[Any]:
        """What the row holds beyond its node, in the tree."""
        assert job.node is not None
        row, start = job.row, job.cached
        return self._tree.insert(
            job.node, job.ids[start:], lambda a, b: self._model.save(row, start + a, start + b)
        )

    def _leave(self, job: Prefill, *, poisoned: bool = False) -> None:
        self._release(job)
        self._model.close(np.array([job.row]), poisoned=poisoned)

    def _release(self, job: Prefill) -> None:
        """Take back the lock, the promise, and the row, which the model closes before the next step."""
        assert job.node is not None
        self._running.remove(job)
        self._tree.unlock(job.node)
        self._tree.reserved -= job.need
        self._free.append(job.row)
