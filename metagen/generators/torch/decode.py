"""Rows that decode: they join when their prefix is ready, go on by a token or several, and leave when they end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from metagen.errors import EngineError, MetagenError, NumericsError
from metagen.generators.decoding.constraint import Held, masks
from metagen.generators.decoding.draft import Draft
from metagen.generators.decoding.words import nothing_left
from metagen.generators.engine import EngineStats, Generated, Sample
from metagen.generators.randomness import seed_array, uniform
from metagen.generators.telling import Telling
from metagen.generators.torch.endings import EOS, STOP, TEXT
from metagen.generators.torch.jobs import Generation, Ticket
from metagen.generators.torch.joint import Joint
from metagen.generators.torch.models.language_model import Ints, LanguageModel, explain
from metagen.generators.torch.prefix_tree import PrefixTree
from metagen.generators.torch.rows import Rows
from metagen.generators.torch.runs import Runs, run_on, weigh
from metagen.generators.torch.sampling import draw
from metagen.generators.torch.send import send
from metagen.generators.torch.speculation.block import Flags
from metagen.generators.torch.speculation.speculate import Speculation
from metagen.generators.torch.states import Proposed, States


class Decoder:
    """`finished(generation)` is called when all samples are there, `failed` when they cannot go on."""

    def __init__(
        self,
        model: LanguageModel[Any],
        tree: PrefixTree[Any],
        rows: Rows,
        stats: EngineStats,
        finished: Callable[[Generation], None],
        failed: Callable[[Generation, MetagenError], None],
        draft: Draft | None = None,
    ) -> None:
        self._model: Any = model
        self._tree, self._rows = tree, rows
        self._stats, self._finished, self._failed = stats, finished, failed
        self._states = States(model, rows, apart=draft is not None)
        self._speculation = None if draft is None else Speculation(draft, model, rows, stats, self._matcher)
        self._ready: deque[Generation] = deque()
        #: Requests that are told of their texts while these are written, with the samples that have told some.
        self._streamed: dict[Generation, dict[int, Telling]] = {}
        #: Requests that cannot go on: nothing is left to draw, a grammar is beyond matching, a search found too little,
        #: who listens to them raises.
        self._lost: dict[Generation, MetagenError] = {}
        self._joint = Joint(rows, stats, self._masks, self._lost)

    @property
    def busy(self) -> bool:
        return bool(self._ready or self._rows.count)

    def add(self, generation: Generation) -> None:
        """Decode a generation whose prefix is in the tree, locked, and whose first row's room is reserved."""
        self._ready.append(generation)
        if generation.request.written is not None and generation.search is None:
            self._streamed[generation] = {}

    def cancel(self, tickets: Container[Ticket]) -> None:
        """Free the rows of requests and all they hold."""
        rows = [r for r in range(self._rows.count) if self._rows.generation(r).ticket in tickets]
        waiting = [g for g in self._ready if g.ticket in tickets]
        held = list(dict.fromkeys([*waiting, *(self._rows.generation(r) for r in rows)]))
        self._ready = deque(g for g in self._ready if g.ticket not in tickets)
        self._stats.aborted_tokens += int(self._rows.computed[rows].sum()) if rows else 0
        self._stats.aborted_tokens += sum(g.decoded for g in held)
        if rows:
            self._drop(rows)
        for generation in held:
            self._release(generation)

    def step(self) -> None:
        """Open rows, run the others on, choose what all of them go on by, and let go of those that end."""
        rows, states, running = self._rows, self._states, self._states.count
        fresh = self._open() if self._ready else []
        if not rows.count:
            return
        proposed = self._propose(running)
        if self._joint.wants_hidden:
            self._model.keeps_hidden = True
        branches = None if self._speculation is None else self._speculation.branches
        ran = states.extend(running, proposed, branches) if running else None
        self._stats.extra["decoded"] += 0 if ran is None else len(ran)
        own = 0 if ran is None else len(ran) - (0 if branches is None else int(branches.counts.sum()))
        parts = [*([] if ran is None else [ran[:own]]), *fresh]
        logits = parts[0] if len(parts) == 1 else torch.cat(parts)
        first, behind = states.places(running, proposed)
        n = rows.count
        joint = np.flatnonzero(rows.joint[:n])
        drafted = np.zeros(0, np.int64) if self._speculation is None else self._speculation.rows
        by_itself = ~rows.joint[:n]
        by_itself[drafted] = False
        alone = np.flatnonzero(by_itself)
        gone: list[int] = []
        over: list[Generation] = []
        poisoned: list[int] = []
        if len(alone):
            runs = self._runs(logits, alone, first[alone], behind[alone], proposed)
            self._go_on(alone, runs, gone, over)
            poisoned += alone[runs.bad].tolist()
        if len(drafted):
            assert self._speculation is not None and ran is not None
            runs, none = self._speculation.runs(logits, first[drafted], ran[own:])
            self._without(drafted[none], runs.counts[none] - 1)
            self._go_on(drafted, runs, gone, over)
            poisoned += drafted[runs.bad & ~none].tolist()
        if len(joint):
            hidden = None
            if self._joint.wants_hidden:
                hidden, self._model.keeps_hidden = self._model.hidden, False
            self._joint.choose(_pick(logits, first[joint]), hidden, joint, first[joint], gone, over, poisoned)
        self._end(gone, over, poisoned)
        if self._streamed:
            self._stream()
        while self._lost:
            self._failed(*self._lost.popitem())
        rows.parameters.faults.clear()
        states.leave()
        states.part()

    def _stream(self) -> None:
        """Tell of texts so far."""
        rows = self._rows
        for row in range(rows.count):
            owner, count = rows.generation(row), int(rows.length[row])
            if (told := self._streamed.get(owner)) is None or owner.request.written is None:
                continue
            number = int(rows.sample[row])
            if number not in told:
                told[number] = Telling(owner.continuation, partial(owner.request.written, number))
            if told[number].due(count):
                try:
                    told[number].hear(rows.ids[row, :count].tolist())
                except MetagenError as error:
                    self._lost.setdefault(owner, error)

    # -- choosing --------------------------------------------------------------------------------

    def _propose(self, running: int) -> Proposed | None:
        """What grammars force behind the newest token of each running state, where adapters have no say in it."""
        rows = self._rows
        runs: list[list[int]] = [[] for _ in range(running)]
        for row in np.flatnonzero(rows.held[: rows.count] & (rows.length[: rows.count] > 0)).tolist():
            state, room = self._states.of(row), int(rows.limit[row] - rows.length[row]) - 1
            if room > 0 and not runs[state] and not rows.joint[row] and not rows.params.forbids[row]:
                try:
                    runs[state] = self._matcher(row).forced_tokens(
                        self._tokens_left(row), min(room, self._model.chunk - 1)
                    )
                except EngineError as error:
                    self._lost[self._rows.generation(row)] = error
        if self._speculation is not None:
            self._speculation.propose(runs)
        return Proposed.of(runs)

    def _runs(
        self, logits: torch.Tensor, rows: Ints, first: Ints, behind: Ints, proposed: Proposed | None
    ) -> Runs:
        """What these rows go on by: what is forced, and one token drawn behind it."""
        columns = self._rows
        held = np.flatnonzero(columns.held[rows])
        known = None if proposed is None else proposed.of_states(columns.state[rows])
        for i in held.tolist():
            if behind[i]:
                assert known is not None
                self._matcher(int(rows[i])).consume(known[i, : behind[i]].tolist())
        allowed = self._masks(rows, held, behind) if len(held) else None
        weighed = np.array([i for i in held.tolist() if self._weighs(int(rows[i]))], np.int64)
        params = columns.params if len(rows) == columns.count else columns.params.take(rows)
        drawn = draw(
            _pick(logits, first + behind),
            uniform(columns.seed[rows], columns.position[rows] + behind),
            params,
            allowed,
            columns.history(rows, known, behind),
        )
        columns.parameters.follow(rows, drawn.mu)
        self._without(rows[drawn.none], behind[drawn.none])
        for i in held[~drawn.bad[held]].tolist():
            # What is drawn was allowed.
            matcher = self._matcher(int(rows[i]))
            matcher.consume([int(drawn.tokens[i])])
            columns.held[rows[i]] = not matcher.free
        runs = run_on(drawn, logits, first, behind, known, params)
        if allowed is not None and len(weighed):
            runs = replace(runs, masses=weigh(columns, rows, weighed, logits, first, behind, known, allowed))
        # A grammar may force what the model cannot write.
        row, place = np.nonzero(
            np.isneginf(runs.logprobs) & (np.arange(runs.logprobs.shape[1]) < behind[:, None])
        )
        self._without(rows[row], place)
        return runs

    def _without(self, rows: Ints, behind: Ints) -> None:
        """Rows of which, so many tokens behind their newest, no token is left: their requests fail."""
        for row, more in zip(rows.tolist(), behind.tolist(), strict=True):
            owner, after = self._rows.generation(row), int(self._rows.position[row]) + more
            problem = owner.request.prefix.prompt.problem_id
            error = self._fault(owner) or nothing_left(owner.request.params, problem, after)
            self._lost.setdefault(owner, error)

    def _masks(self, rows: Ints, held: Ints, behind: Ints | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Of `rows` those numbered `held` are held to grammars: these numbers, and which tokens each may go on by.

        behind: tokens of `rows` that their grammars know already. What a lost request may draw is of no account.
        """
        where = rows[held]
        left = [self._tokens_left(row) for row in where.tolist()]
        if behind is not None:
            left = [most - more for most, more in zip(left, behind[held].tolist(), strict=True)]
        found, lost = masks([self._matcher(row) for row in where.tolist()], left)
        for i, error in lost.items():
            self._lost[self._rows.generation(int(where[i]))] = error
        device = self._rows.device
        return send(held, device), send(found, device)

    def _tokens_left(self, row: int) -> int:
        """Tokens that may still come in a row, the end token too; a budget's cap shapes nothing that is drawn."""
        return self._rows.generation(row).request.params.max_tokens - int(self._rows.position[row])

    def _weighs(self, row: int) -> bool:
        """Whether what masks leave of a row is kept."""
        return self._rows.generation(row).request.params.weighs

    def _matcher(self, row: int) -> Held:
        matchers = self._rows.generation(row).matchers
        assert matchers is not None
        return matchers[int(self._rows.sample[row])]

    # -- joining ---------------------------------------------------------------------------------

    def _open(self) -> list[torch.Tensor]:
        """Rows for samples whose prefix is ready; returns the logits of the first tokens of their states."""
        fresh = []
        while self._ready:
            g = self._ready[0]
            assert g.node is not None and g.logits is not None
            free = self._rows.capacity - self._rows.count - self._joint.promised
            k = self._admit(g, min(g.wanted - g.opened, free))
            if not k:
                break
            seeds = seed_array(g.request.seeds[g.opened : g.opened + (1 if g.search else k)])
            rows = self._rows.add(g, g.opened, seeds)
            if g.search is not None:
                self._joint.add(g)
            self._states.open(rows, g.node.chain(), g.adapter)
            fresh.append(g.logits.expand(1, -1))
            g.opened += k
            g.running += k
            if g.opened == g.wanted:
                self._ready.popleft()
                g.logits = None
        return fresh

    def _admit(self, g: Generation, wanted: int) -> int:
        """How many more rows there is memory for; room for one was reserved with the prefix."""
        # The rows of a search are chosen together: all of them, or none yet.
        least = 1 if g.search is None else g.wanted
        while wanted >= least:
            more = max(0, (g.running + wanted) * g.spill - g.reserved)
            if self._tree.reserve(more):
                g.reserved += more
                return wanted
            wanted -= 1
        return 0

    # -- leaving ---------------------------------------------------------------------------------

    def _go_on(self, rows: Ints, runs: Runs, gone: list[int], over: list[Generation]) -> None:
        """Let rows take what was chosen for them, token by token, up to where they end."""
        columns, live = self._rows, ~runs.bad
        self._stats.extra["near_edge"] += int(runs.near.sum())
        if runs.tokens.shape[1] > 1 and runs.plain and self._states.count == columns.count:
            live &= ~self._go_on_at_once(rows, runs)
        for j in range(int(runs.counts[live].max(initial=0))):
            on = np.flatnonzero(live & (runs.counts > j))
            where, tokens = rows[on], runs.tokens[on, j]
            columns.push(
                where,
                tokens,
                runs.logprobs[on, j],
                None if runs.confidences is None else runs.confidences[on, j],
            )
            payers = self._states.payers(where, tokens)
            self._stats.generated += len(payers)
            columns.computed[payers] += 1
            columns.forced[where] += j < runs.forced[on]
            if runs.masses is not None:
                columns.log_mass[where] += runs.masses[on, j]
            flags = columns.flags(where, tokens)
            for i in np.flatnonzero((flags != 0) | (columns.length[where] >= columns.limit[where])).tolist():
                row = int(where[i])
                owner = self._rows.generation(row)
                if owner in self._lost or (sample := self._sample(row, int(flags[i]))) is None:
                    continue  # it fails as a whole, or goes on
                live[on[i]] = False
                gone.append(row)
                number = int(columns.sample[row])
                owner.samples[number] = sample
                try:
                    owner.request.note(number, sample)
                except MetagenError as error:
                    self._lost.setdefault(owner, error)
                owner.finished += 1
                owner.running -= 1
                self._give_back(owner)
                if owner.finished == len(owner.samples):
                    over.append(owner)

    def _go_on_at_once(self, rows: Ints, runs: Runs) -> Flags:
        """[n]: which of the rows took all that was chosen, of which no token may end them."""
        columns = self._rows
        counts = np.where(runs.bad, 0, runs.counts)
        row, place = np.nonzero(np.arange(runs.tokens.shape[1]) < counts[:, None])
        ends = columns.flags(rows[row], runs.tokens[row, place]) != 0
        done: Flags = (counts > 0) & (columns.length[rows] + counts < columns.limit[rows])
        done[row[ends]] = False
        on = np.flatnonzero(done)
        columns.push_runs(rows[on], runs.tokens[on], runs.logprobs[on], counts[on])
        self._stats.generated += int(counts[on].sum())
        return done

    def _end(self, gone: list[int], over: list[Generation], poisoned: list[int]) -> None:
        """Let go of rows that have ended, answer requests that are over, and fail those without numbers."""
        failed = {self._rows.generation(row): None for row in poisoned}
        if poisoned:
            self._states.close(np.array(poisoned), poisoned=True)
        if gone:
            self._drop(gone)
        for generation in over:
            self._release(generation)
            self._finished(generation)
        for generation in failed:
            error = NumericsError(
                f"the model returned NaN or infinite logits while it continued a prefix of "
                f"{len(generation.ids)} tokens; check its weights, or choose dtype='float32'"
            )
            fault = self._fault(generation) or explain(self._model, generation.ids, error)
            self._failed(generation, fault)

    def _fault(self, g: Generation) -> MetagenError | None:
        """What an adapter of another package did in this step instead of giving numbers."""
        return None if g.words is None else self._rows.parameters.faults.get(g.words)

    def _sample(self, row: int, flag: int) -> Sample | None:
        """The sample of a row if it ends with its newest token; what it computed is kept in the tree."""
        owner, count = self._rows.generation(row), self._rows.length[row]
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
        sample = replace(sample, computed=int(self._rows.computed[row]), forced=int(self._rows.forced[row]))
        self._keep(row, owner, ids)
        if self._weighs(row):
            sample = replace(sample, log_mass=float(self._rows.log_mass[row]))
        if owner.request.params.top_logprobs:
            own = self._rows.confidences[row, owner.continuation.begin(ids) or 0 : count]
            sample = replace(sample, token_confidences=tuple(own.tolist()))
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
        spare = g.reserved - max(g.running, int(g.opened < g.wanted)) * g.spill
        g.reserved -= spare
        self._tree.reserved -= spare

    def _release(self, g: Generation) -> None:
        """Take back lock and promises."""
        assert g.node is not None
        self._streamed.pop(g, None)
        self._joint.discard(g)
        self._tree.unlock(g.node)
        self._tree.reserved -= g.reserved
        g.reserved = 0

    def _drop(self, gone: list[int]) -> None:
        """Take rows out, closing the gaps."""
        self._rows.remove(gone)
        self._states.leave()


def answer(g: Generation) -> Generated:
    """What the coroutine gets."""
    samples = tuple(s for s in g.samples if s is not None)
    total = len(g.ids)
    return Generated(samples, g.ids, total, g.prefilled, total * len(samples) - g.prefilled)


def _pick(logits: torch.Tensor, places: Ints) -> torch.Tensor:
    """logits[places], and the logits themselves where these are all of them in order."""
    if len(places) == len(logits) and bool((places == np.arange(len(places))).all()):
        return logits
    return logits[send(places, logits.device)]
