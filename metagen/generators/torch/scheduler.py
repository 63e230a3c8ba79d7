"""What runs next: one batch of prefill and one token of every decoding row by turns, so neither starves.

Memory is promised before work begins: a request waits, in order of arrival, until its prefix and one of its
rows fit beside what others were promised, and gets more rows as there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from metagen.errors import MetagenError
from metagen.generators.decoding.draft import Draft
from metagen.generators.engine import EngineStats, Evaluated
from metagen.generators.torch.decode import Decoder, answer
from metagen.generators.torch.jobs import Evaluation, Generation, Prefill, Ticket
from metagen.generators.torch.models.language_model import LanguageModel
from metagen.generators.torch.prefill import Prefiller
from metagen.generators.torch.prefix_tree import PrefixTree
from metagen.generators.torch.reading import collect, read
from metagen.generators.torch.rows import Rows


class Scheduler:
    """Runs requests on a model, in one thread. `reply(ticket, result)` gets each answer, or the error, once."""

    def __init__(
        self,
        model: LanguageModel[Any],
        tree: PrefixTree[Any],
        rows: Rows,
        stats: EngineStats,
        reply: Callable[[Ticket, Any], None],
        draft: Draft | None = None,
    ) -> None:
        self._stats, self._reply, self._tree = stats, reply, tree
        self._decoder = Decoder(
            model, tree, rows, stats, self._answer, lambda g, e: self._fail(g.ticket, e), draft
        )
        self._prefiller = Prefiller(
            model,
            tree,
            range(rows.capacity * (draft.drafts if draft else 1), model.rows),
            stats,
            _read,
            self._take_over,
            lambda job, e: self._fail(job.ticket, e),
        )

    def release(self) -> None:
        """Let go of weights, keys and values, at the end; parts that refer to each other would keep them for long."""
        for part in (*vars(self).values(), self):
            if isinstance(part, (Decoder, Prefiller, Scheduler)):
                vars(part).clear()

    @property
    def busy(self) -> bool:
        return self._prefiller.busy or self._decoder.busy

    def submit(self, job: Generation | Evaluation) -> None:
        """Queue a request."""
        self._stats.requests += 1
        if isinstance(job, Generation):
            self._stats.samples += len(job.samples)
            last = len(job.ids) - 1
            every = job.search is not None and job.search.wants_hidden
            # The rows of a search are chosen together: there is room for all of them, or for none.
            rows = 1 if job.search is None else job.search.rows
            reuse, wanted = (0, tuple(range(last + 1))) if every else (last, (last,))
            self._prefiller.add(Prefill(job, 0, job.ids, reuse, wanted, spill=job.spill * rows))
            return
        for i, request in enumerate(job.requests):
            wanted = tuple(sorted(set(request.positions)))
            self._prefiller.add(Prefill(job, i, request.ids[: wanted[-1] + 1], wanted[0], wanted))

    def step(self) -> None:
        self._prefiller.step()
        self._decoder.step()

    def cancel(self, tickets: Iterable[Ticket]) -> None:
        """Free what the requests hold; nothing is answered any more."""
        going = {ticket for ticket in tickets if not ticket.done}
        for ticket in going:
            ticket.done = True
        if going:
            self._prefiller.cancel(going)
            self._decoder.cancel(going)

    def _fail(self, ticket: Ticket, error: MetagenError) -> None:
        if not ticket.done:
            self.cancel([ticket])
            self._reply(ticket, error)

    def _take_over(self, job: Prefill, found: torch.Tensor) -> None:
        owner = job.owner
        if isinstance(owner, Evaluation):
            assert job.node is not None
            self._tree.unlock(job.node)
            self._answer_evaluation(job, owner, found)
            return
        owner.node, owner.logits, owner.prefilled = job.node, found[-1:], len(job.ids) - job.cached
        owner.hidden = torch.cat(job.hidden) if job.hidden else None
        # The prefill gave back its whole promise; the part for one row lives on.
        owner.reserved = job.spill
        self._tree.reserved += job.spill
        self._stats.cached += len(job.ids) * len(owner.samples) - owner.prefilled
        self._decoder.add(owner)

    def _answer(self, generation: Generation) -> None:
        if not generation.ticket.done:
            generation.ticket.done = True
            self._reply(generation.ticket, answer(generation))

    def _answer_evaluation(self, job: Prefill, evaluation: Evaluation, found: torch.Tensor) -> None:
        values, entropies = collect(evaluation.requests[job.index], job.wanted, found)
        evaluation.answers[job.index] = Evaluated(values, len(job.ids) - job.cached, job.cached, entropies)
        self._stats.cached += job.cached
        evaluation.left -= 1
        if not evaluation.left and not evaluation.ticket.done:
            evaluation.ticket.done = True
            self._reply(evaluation.ticket, evaluation.answers)


def _read(job: Prefill, positions: list[int], logits: torch.Tensor) -> torch.Tensor:
    """What is kept of the logits that follow some positions: of a generation the last, without the others' memory."""
    owner, i = job.owner, job.index
    if isinstance(owner, Generation):
        return logits[-1:].clone()
    return read(owner.requests[i], positions, logits, owner.decodings[i])
