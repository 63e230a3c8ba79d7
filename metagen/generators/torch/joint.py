"""Rows that a search chooses for: those of one request go on together, branch, and end as the search says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from metagen.errors import InputError, MetagenError
from metagen.generators.decoding.words import nothing_left
from metagen.generators.engine import EngineStats, Sample
from metagen.generators.torch.endings import EOS, STOP, TEXT
from metagen.generators.torch.jobs import Generation
from metagen.generators.torch.models.language_model import Ints
from metagen.generators.torch.rows import Rows
from metagen.generators.torch.sampling import adapt, confidence
from metagen.generators.torch.search.step import Floats, Step
from metagen.generators.torch.send import send

#: Of rows [n], those numbered [k] that grammars hold -> these numbers, and the tokens [k, V] that each may go on by.
Allowed = Callable[[Ints, Ints], tuple[Tensor, Tensor]]


class Joint:
    """The requests that are searches. lost: where requests are noted that fail, and why."""

    def __init__(
        self,
        rows: Rows,
        stats: EngineStats,
        allowed: Allowed,
        lost: dict[Generation, MetagenError],
    ) -> None:
        self._rows, self._stats, self._allowed, self._lost = rows, stats, allowed, lost
        #: Rows that each may still take.
        self._promised: dict[Generation, int] = {}

    @property
    def promised(self) -> int:
        """Rows that searches have not taken yet, and may."""
        return sum(self._promised.values())

    def add(self, g: Generation) -> None:
        """A search that has one row so far."""
        self._promised[g] = g.wanted - 1

    def discard(self, g: Generation) -> None:
        """A request that is over, of whatever kind."""
        self._promised.pop(g, None)

    @property
    def wants_hidden(self) -> bool:
        """Whether any of them reads hidden states."""
        return any(g.search.wants_hidden for g in self._promised if g.search is not None)

    def choose(
        self,
        logits: Tensor,
        hidden: Tensor | None,
        rows: Ints,
        first: Ints,
        gone: list[int],
        over: list[Generation],
        poisoned: list[int],
    ) -> None:
        """Let the searches that own these rows, all of theirs, choose by the logits [rows, V] that follow them.

        hidden: the hidden states of all that ran; those of row i are `hidden[first[i]]`, but for rows that are new.
        Rows to be removed are noted in `gone`, requests that are over in `over`, rows without numbers in `poisoned`.
        """
        columns = self._rows
        held = np.flatnonzero(columns.held[rows])
        allowed = self._allowed(rows, held) if len(held) else None
        params = columns.params.take(rows)
        raw = torch.log_softmax(logits, -1)
        adapted = torch.log_softmax(adapt(logits, params, columns.history(rows), allowed), -1)
        bad = raw.isnan().any(-1).cpu().numpy()
        # Also those of which no token is left; whose adapters have failed is known by their words.
        faults = params.faults or {}
        lost = adapted.isnan().any(-1).cpu().numpy() if faults else bad
        confidences = confidence(raw, params)[:, 0].cpu().numpy() if params.most_logprobs else None
        owners: dict[Generation, list[int]] = {}
        for i, row in enumerate(rows.tolist()):
            owners.setdefault(columns.generation(row), []).append(i)
        for g, places in owners.items():
            if g in self._lost:
                continue
            own = np.array(sorted(places, key=lambda i: columns.sample[rows[i]]), np.int64)
            if bad[own].any() or (g.words in faults and lost[own].any()):
                poisoned += rows[own].tolist()
                continue
            # A search that reads hidden states looks at what follows its prefix, and then at each of its rows.
            looked = len(own) if g.hidden is None else 0
            self._stats.generated += looked
            g.decoded += looked
            at = send(own, logits.device)
            step = Step(
                adapted[at],
                raw[at],
                partial(self._ends, rows[own], raw[at], None if confidences is None else confidences[own]),
                self._hidden_states(g, hidden, first[own]),
            )
            self._go_on(g, rows[own], step, None if confidences is None else confidences[own], gone, over)

    def _hidden_states(self, g: Generation, hidden: Tensor | None, first: Ints) -> Tensor | None:
        """Hidden states of the prefix at a search's first step, and of its rows from then on."""
        if g.search is None or not g.search.wants_hidden:
            return None
        if g.hidden is not None:
            found, g.hidden = g.hidden, None
            return found
        assert hidden is not None
        return hidden[send(first, hidden.device)]

    def _go_on(
        self,
        g: Generation,
        rows: Ints,
        step: Step,
        confidences: Floats | None,
        gone: list[int],
        over: list[Generation],
    ) -> None:
        assert g.search is not None
        columns, raw = self._rows, step.raw
        try:
            chosen = g.search.select(step)
        except MetagenError as error:
            self._lost[g] = error
            return
        if not len(chosen):
            self._finish(g, int(columns.position[rows[0]]), over)
            if g not in self._lost:  # what fails gives its rows back itself
                gone += rows.tolist()
            return
        parents = send(chosen.parents, raw.device)
        read = raw[parents, send(chosen.tokens, raw.device)].double().cpu().numpy()
        if g.matchers is not None:
            g.matchers = [g.matchers[int(parent)].copy() for parent in chosen.parents]
            for matcher, token in zip(g.matchers, chosen.tokens.tolist(), strict=True):
                matcher.consume([token])
        targets, surplus = columns.branch(rows, rows[chosen.parents])
        gone += surplus
        columns.push(
            targets, chosen.tokens, read, None if confidences is None else confidences[chosen.parents]
        )
        self._promised[g] = g.wanted - len(targets)

    def _ends(
        self,
        rows: Ints,
        raw: Tensor,
        confidences: Floats | None,
        place: int,
        token: int,
    ) -> Sample | None:
        """The sample of a row if it ends with this token."""
        columns, row = self._rows, int(rows[place])
        owner, count = columns.generation(row), int(columns.length[row])
        flag = owner.ends[token]
        if not flag and count + 1 < columns.limit[row]:
            return None
        ids = [*columns.ids[row, :count].tolist(), token]
        sample = owner.continuation.sample(
            ids,
            [*columns.logprobs[row, :count].tolist(), float(raw[place, token])],
            eos=bool(flag & EOS),
            stop=bool(flag & STOP),
            text=bool(flag & TEXT),
        )
        if sample is None or confidences is None:
            return sample
        own = columns.confidences[row, owner.continuation.begin(ids) or 0 : count].tolist()
        return replace(sample, token_confidences=(*own, float(confidences[place])))

    def _finish(self, g: Generation, after: int, over: list[Generation]) -> None:
        """Hand out the results that are asked for; the first pays for the whole search.

        after: tokens of the completion so far.
        """
        assert g.search is not None
        found, problem = g.search.results(), g.request.prefix.prompt.problem_id
        if not found:
            self._lost[g] = nothing_left(g.request.params, problem, after)
            return
        for i, rank in enumerate(g.request.ranks):
            if rank < len(found):
                sample, score = found[rank]
                paid = g.decoded if i == 0 else 0
                g.samples[i] = replace(sample, score=score, generated=paid, computed=paid)
        if (most := max(g.request.ranks)) >= len(found):
            self._lost[g] = InputError(
                f"problem {problem!r}: a search has found {len(found)} sequences, and number {most + 1} is asked for; "
                "ask for fewer"
            )
            return
        g.finished = len(g.samples)
        over.append(g)
