"""Rows that decode: they join when their prefix is ready, take one token a step, and leave when they end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metagen.errors import EngineError, NumericsError
from metagen.generators.constraint import Matcher
from metagen.generators.engine import EngineStats, Generated, Sample
from metagen.generators.randomness import seed_array, uniform
from metagen.generators.torch.endings import EOS, STOP, TEXT, Endings
from metagen.generators.torch.jobs import Generation, Ticket
from metagen.generators.torch.language_model import Ints, LanguageModel
from metagen.generators.torch.prefix_tree import PrefixTree
from metagen.generators.torch.rows import Rows
from metagen.generators.torch.sampling import draw
from metagen.generators.torch.states import States


class Decoder:
    """`finished(generation)` is called when all samples are there, `failed` when they cannot go on."""

    def __init__(
        self,
        model: LanguageModel[Any],
        tree: PrefixTree[Any],
        rows: Rows,
        endings: Endings,
        stats: EngineStats,
        finished: Callable[[Generation], None],
        failed: Callable[[Generation, EngineError], None],
    ) -> None:
        self._model, self._tree, self._rows = model, tree, rows
        self._endings, self._stats, self._finished, self._failed = endings, stats, finished, failed
        self._states = States(model, rows)
        self._ready: deque[Generation] = deque()
        #: Requests whose grammar cannot be matched any further.
        self._lost: dict[Generation, EngineError] = {}

    @property
    def busy(self) -> bool:
        return bool(self._ready or self._rows.count)

    def add(self, generation: Generation) -> None:
        """Decode a generation whose prefix is in the tree, locked, and whose first row's room is reserved."""
        self._ready.append(generation)

    def cancel(self, tickets: Container[Ticket]) -> None:
        """Free the rows of requests and all they hold."""
        rows = [r for r in range(self._rows.count) if self._owner(r).ticket in tickets]
        waiting = [g for g in self._ready if g.ticket in tickets]
        held = list(dict.fromkeys([*waiting, *(self._owner(r) for r in rows)]))
        self._ready = deque(g for g in self._ready if g.ticket not in tickets)
        self._stats.aborted_tokens += int(self._rows.computed[rows].sum()) if rows else 0
        if rows:
            self._drop(rows)
        for generation in held:
            self._release(generation)

    def step(self) -> None:
        """Open rows, run the others one token on, draw for all of them, and let go of those that end."""
        rows, states, running = self._rows, self._states, self._states.count
        fresh = self._open() if self._ready else []
        if not rows.count:
            return
        self._stats.extra["decoded"] += running
        parts = [states.extend(running)] if running else []
        parts += fresh
        logits = states.logits(parts[0] if len(parts) == 1 else torch.cat(parts))
        n = rows.count
        held = np.flatnonzero(rows.held[:n])
        allowed = self._allowed(held) if len(held) else None
        drawn = draw(logits, uniform(rows.seed[:n], rows.position[:n]), rows.params, allowed)
        for row in held.tolist():
            # What is drawn was allowed; where the logits were no numbers, the row ends below.
            self._matcher(row).consume([int(drawn.tokens[row])])
        rows.push(drawn.tokens, drawn.logprobs, drawn.confidences)
        payers = states.payers()
        self._stats.generated += len(payers)
        rows.computed[payers] += 1
        self._stats.extra["near_edge"] += int(drawn.near.sum())
        flags = self._endings.flags(rows.kind[:n], drawn.tokens)
        concerned = (flags != 0) | drawn.bad | (rows.length[:n] >= rows.limit[:n])
        if concerned.any():
            self._end(np.flatnonzero(concerned), flags, drawn.bad)
        while self._lost:
            self._failed(*self._lost.popitem())
        states.part()

    def _allowed(self, held: Ints) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows that a grammar holds, and which tokens it lets them draw."""
        masks = np.stack([self._mask(row) for row in held.tolist()])
        device = self._rows.device
        return torch.from_numpy(held).to(device), torch.from_numpy(masks).to(device)

    def _mask(self, row: int) -> NDArray[np.bool_]:
        """The tokens that a row may draw; all of them once its request is lost."""
        try:
            return self._matcher(row).allowed()
        except EngineError as error:
            self._lost[self._owner(row)] = error
            return np.ones(self._endings.size, np.bool_)

    def _matcher(self, row: int) -> Matcher:
        matchers = self._owner(row).matchers
        assert matchers is not None
        return matchers[int(self._rows.sample[row])]

    # -- joining ---------------------------------------------------------------------------------

    def _open(self) -> list[torch.Tensor]:
        """Rows for samples whose prefix is ready; returns the logits of the first tokens of their states."""
        fresh = []
        while self._ready and self._rows.count < self._rows.capacity:
            g = self._ready[0]
            assert g.node is not None and g.logits is not None
            k = self._admitted(g, min(len(g.samples) - g.opened, self._rows.capacity - self._rows.count))
            if not k:
                break
            rows = self._rows.add(g, g.opened, seed_array(g.request.seeds[g.opened : g.opened + k]))
            self._states.open(rows, g.node.chain())
            fresh.append(g.logits.expand(1, -1))
            g.opened += k
            g.running += k
            if g.opened == len(g.samples):
                self._ready.popleft()
                g.logits = None
        return fresh

    def _admitted(self, g: Generation, wanted: int) -> int:
        """How many more rows there is memory for; room for one was reserved with the prefix."""
        while wanted:
            more = max(0, (g.running + wanted) * g.spill - g.reserved)
            if self._tree.reserve(more):
                g.reserved += more
                break
            wanted -= 1
        return wanted

    # -- leaving ---------------------------------------------------------------------------------

    def _end(self, rows: Ints, flags: NDArray[np.uint8], bad: NDArray[np.bool_]) -> None:
        """Of the rows concerned, let go of those that end, and fail the requests of those without numbers."""
        gone, over = [], []
        for row in rows.tolist():
            if self._owner(row) in self._lost:
                continue  # it fails as a whole
            sample = None if bad[row] else self._sample(row, int(flags[row]))
            if sample is None:
                continue
            gone.append(row)
            owner = self._owner(row)
            owner.samples[int(self._rows.sample[row])] = sample
            owner.finished += 1
            owner.running -= 1
            self._give_back(owner)
            if owner.finished == len(owner.samples):
                over.append(owner)
        poisoned = np.flatnonzero(bad)
        failed = {self._owner(row) for row in poisoned.tolist()}
        if len(poisoned):
            self._states.close(poisoned, poisoned=True)
        if gone:
            self._drop(gone)
        for generation in over:
            self._release(generation)
            self._finished(generation)
        for generation in failed:
            self._failed(
                generation,
                NumericsError(
                    f"the model returned NaN or infinite logits while it continued a prefix of "
                    f"{len(generation.ids)} tokens; check its weights, or choose dtype='float32'"
                ),
            )

    def _sample(self, row: int, flag: int) -> Sample | None:
        """The sample of a row if it ends with its newest token; what it computed is kept in the tree."""
        owner, count = self._owner(row), self._rows.length[row]
        ids = self._rows.ids[row, :count].tolist()
        sample = owner.continuation.sample(
            ids,
            self._rows.logprobs[row, :count].tolist(),
            eos=bool(flag & EOS),
            stop=bool(flag & STOP),
            text=bool(flag & TEXT),
        )
        if sample is None:
            return None
        sample = replace(sample, computed=int(self._rows.computed[row]))
        self._keep(row, owner, ids)
        if owner.request.params.top_logprobs:
            sample = replace(sample, token_confidences=tuple(self._rows.confidences[row, :count].tolist()))
        return sample

    def _keep(self, row: int, owner: Generation, ids: list[int]) -> None:
        """Put what the row computed into the tree: all but the last token, which was never run."""
        tokens, start = tuple(ids[:-1]), len(owner.ids)
        assert owner.node is not None
        if tokens and self._tree.room(len(tokens)):
            model, state = self._model, self._states.of(row)
            self._tree.insert(owner.node, tokens, lambda a, b: model.save(state, start + a, start + b))

    def _give_back(self, g: Generation) -> None:
        """Give back the promises of rows that have left, but for one while samples are to come."""
        spare = g.reserved - max(g.running, int(g.opened < len(g.samples))) * g.spill
        g.reserved -= spare
        self._tree.reserved -= spare

    def _release(self, g: Generation) -> None:
        """Take back lock and promises."""
        assert g.node is not None
        self._tree.unlock(g.node)
        self._tree.reserved -= g.reserved
        g.reserved = 0

    def _drop(self, gone: list[int]) -> None:
        """Take rows out, closing the gaps."""
        self._rows.remove(gone)
        self._states.leave()

    def _owner(self, row: int) -> Generation:
        owner = self._rows.owner[row]
        assert owner is not None
        return owner


def answer(g: Generation) -> Generated:
    """What the coroutine gets."""
    samples = tuple(s for s in g.samples if s is not None)
    total = len(g.ids)
    return Generated(samples, g.ids, total, g.prefilled, total * len(samples) - g.prefilled)
