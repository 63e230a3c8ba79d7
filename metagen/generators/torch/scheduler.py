"""What runs next: one batch of prefill and one token of every decoding row by turns, so neither starves.

Memory is promised before work begins: a request waits, in order of arrival, until its prefix and one of its
rows fit beside what others were promised, and gets more rows as there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from metagen.errors import MetagenError
from metagen.generators.engine import EngineStats, Evaluated, EvaluateRequest
from metagen.generators.torch.decode import Decoder, answer
from metagen.generators.torch.endings import Endings
from metagen.generators.torch.jobs import Evaluation, Generation, Prefill, Ticket
from metagen.generators.torch.language_model import LanguageModel
from metagen.generators.torch.prefill import Prefiller
from metagen.generators.torch.prefix_tree import PrefixTree
from metagen.generators.torch.rows import Rows


class Scheduler:
    """Runs requests on a model, in one thread. `reply(ticket, result)` gets each answer, or the error, once."""

    def __init__(
        self,
        model: LanguageModel[Any],
        tree: PrefixTree[Any],
        rows: Rows,
        endings: Endings,
        stats: EngineStats,
        reply: Callable[[Ticket, Any], None],
    ) -> None:
        self._stats, self._reply, self._tree = stats, reply, tree
        self._decoder = Decoder(
            model, tree, rows, endings, stats, self._generated, lambda g, e: self._fail(g.ticket, e)
        )
        self._prefiller = Prefiller(
            model,
            tree,
            range(rows.capacity, model.rows),
            stats,
            self._prefilled,
            lambda job, e: self._fail(job.ticket, e),
        )

    @property
    def busy(self) -> bool:
        return self._prefiller.busy or self._decoder.busy

    def submit(self, job: Generation | Evaluation) -> None:
        """Queue a request."""
        self._stats.requests += 1
        if isinstance(job, Generation):
            self._stats.samples += len(job.samples)
            last = len(job.ids) - 1
            self._prefiller.add(Prefill(job, 0, job.ids, last, (last,), spill=job.spill))
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

    def _prefilled(self, job: Prefill, logits: torch.Tensor) -> None:
        owner = job.owner
        if isinstance(owner, Evaluation):
            assert job.node is not None
            self._tree.unlock(job.node)
            self._evaluated(job, owner, logits)
            return
        owner.node, owner.logits, owner.prefilled = job.node, logits, len(job.ids) - job.cached
        # The prefill gave back its whole promise; the part for one row lives on.
        owner.reserved = job.spill
        self._tree.reserved += job.spill
        self._stats.cached += len(job.ids) * len(owner.samples) - owner.prefilled
        self._decoder.add(owner)

    def _generated(self, generation: Generation) -> None:
        if not generation.ticket.done:
            generation.ticket.done = True
            self._reply(generation.ticket, answer(generation))

    def _evaluated(self, job: Prefill, evaluation: Evaluation, logits: torch.Tensor) -> None:
        values = _read(evaluation.requests[job.index], job.wanted, logits)
        evaluation.answers[job.index] = Evaluated(values, len(job.ids) - job.cached, job.cached)
        self._stats.cached += job.cached
        evaluation.left -= 1
        if not evaluation.left and not evaluation.ticket.done:
            evaluation.ticket.done = True
            self._reply(evaluation.ticket, evaluation.answers)


def _read(
    request: EvaluateRequest, wanted: tuple[int, ...], logits: torch.Tensor
) -> tuple[tuple[float, ...], ...]:
    """What the request asks for, from the head's outputs at the wanted positions."""
    place = {p: i for i, p in enumerate(wanted)}
    at = [place[p] for p in request.positions]
    if request.outputs:
        return tuple(map(tuple, logits[at].tolist()))
    logprobs = torch.log_softmax(logits, -1)
    if request.labels is None:
        following = [request.ids[p + 1] for p in request.positions]
        return tuple((v,) for v in logprobs[at, following].tolist())
    return tuple(map(tuple, logprobs[at][:, list(request.labels)].tolist()))
