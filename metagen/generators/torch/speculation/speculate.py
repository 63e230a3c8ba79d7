"""Rows that go on by drafted tokens: what is proposed behind their newest token, and what of it stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metagen.generators.decoding.constraint import Held
from metagen.generators.decoding.draft import Draft
from metagen.generators.engine import EngineStats
from metagen.generators.randomness import Purpose
from metagen.generators.torch import compiled
from metagen.generators.torch.models.formulas import LEAST
from metagen.generators.torch.models.language_model import Ints, LanguageModel
from metagen.generators.torch.parameters import Floats
from metagen.generators.torch.rows import Rows
from metagen.generators.torch.runs import Runs, masses
from metagen.generators.torch.sampling import NEAR, confidence, distribution, pick, restrict
from metagen.generators.torch.send import send
from metagen.generators.torch.speculation.block import Block, Flags, numbers
from metagen.generators.torch.speculation.drafter import Drafter, Grammars, LookupDrafter, ModelDrafter
from metagen.generators.torch.speculation.pair import Pair
from metagen.generators.torch.speculation.select import select
from metagen.generators.torch.speculation.verify import Drafted, Kept, verify
from metagen.generators.torch.states import Branches

#: What `stats.extra` counts: passes that verified a row's block; tokens drafted (of the longest draft of each row) and
#: accepted; tokens whose acceptance was decided, and Σ_x min(p, q) summed over their places.
COUNTS = ("blocks", "drafted", "accepted", "tested", "overlap")


class Speculation:
    """Drafts for rows that decode alone, each with a state of its own.

    matcher: where a row that is held stands in its grammar.
    """

    def __init__(
        self,
        draft: Draft,
        model: LanguageModel[Any],
        rows: Rows,
        stats: EngineStats,
        matcher: Callable[[int], Held],
    ) -> None:
        self._draft, self._model, self._rows, self._stats, self._matcher = draft, model, rows, stats, matcher
        self._grammars = grammars = Grammars(rows, matcher)
        self._drafter: Drafter = (
            ModelDrafter(model, rows, grammars, draft.drafts, rows.capacity)
            if isinstance(model, Pair)
            else LookupDrafter(rows, grammars, draft.ngram)
        )
        self._block: Block | None = None

    @property
    def rows(self) -> Ints:
        """[n]: those for which tokens are proposed in this step."""
        return np.zeros(0, np.int64) if self._block is None else self._block.rows

    @property
    def branches(self) -> Branches | None:
        """What is run in this step beside the states: all drafts of a row but its first."""
        block = self._block
        if block is None or block.drafts == 1:
            return None
        n = len(block.rows)
        newest = self._rows.token[block.owners[n:]]
        return Branches(
            block.homes[n:], np.concatenate([newest[:, None], block.tokens[n:]], 1), 1 + block.counts[n:]
        )

    def propose(self, runs: list[list[int]]) -> None:
        """Add to `runs`, by state, what is drafted behind each row's newest token, where nothing is forced."""
        rows, n = self._rows, self._rows.count
        room = np.minimum(rows.limit[:n] - rows.length[:n], self._model.chunk) - 1
        at = np.flatnonzero(~rows.joint[:n] & (rows.length[:n] > 0) & (room > 0))
        if any(runs):
            at = at[np.array([not runs[state] for state in rows.state[at].tolist()], np.bool_)]
        at = at[np.argsort(rows.state[at])]
        self._block = None
        if not len(at):
            return
        wanted = np.minimum(self._gamma(at), room[at])
        block = self._drafter.draft(at, wanted)
        if not block.counts[: len(at)].all():
            some = np.flatnonzero(block.counts[: len(at)])
            self._model.close(np.setdiff1d(block.homes[len(at) :], block.take(some).homes))
            block = block.take(some)
        if len(block.rows):
            self._block = block
        first = zip(
            rows.state[block.rows].tolist(), block.tokens.tolist(), block.counts.tolist(), strict=False
        )
        for state, tokens, count in first:
            runs[state] = tokens[:count]

    def _gamma(self, at: Ints) -> Ints:
        """Tokens that are drafted for each row."""
        own = self._rows.drafts[at]
        gamma: Ints = np.where(own > 0, own, self._draft.tokens)
        return gamma

    # -- verifying -------------------------------------------------------------------------------

    def runs(self, logits: Tensor, first: Ints, beside: Tensor) -> tuple[Runs, Flags]:
        """What the rows of this step's block go on by, and of which of them no token is left to be drawn.

        The logits that follow each row's newest token are `logits[first]`, those of its drafted tokens come behind, and
        those of the branches are `beside`. States keep what is accepted, and no more.
        """
        block, rows = self._block, self._rows
        assert block is not None
        if (found_all := self._judge(block, logits, first)) is not None:
            return found_all
        lines, most = block.tokens.shape
        n = len(block.rows)
        line, place = np.nonzero(np.arange(most + 1) <= block.counts[:, None])
        own = line < n
        found = logits[send(first[line[own]] + place[own], logits.device)]
        if block.drafts > 1:
            found = torch.cat([found, beside])
        params = rows.params.take(block.owners[line])
        history = rows.history(block.owners[line], block.tokens[line], place)
        allowed = block.allowed_tokens(line, place, rows.device)
        p = found.new_zeros(lines, most + 1, found.shape[-1])
        index = send(np.stack([line, place]), rows.device)
        p[index[0], index[1]] = distribution(found, params, history, allowed)
        kept, last, near = self._verify(block, p)
        counts, draft = kept.counts.cpu().numpy(), kept.draft.cpu().numpy()
        winner = draft * n + np.arange(n)
        tokens = np.concatenate([block.tokens[winner], np.zeros((n, 1), np.int64)], 1)
        tokens[np.arange(n), counts] = last.cpu().numpy()

        used = (winner[line % n] == line) & (place <= counts[line % n])
        line, place = line[used], place[used]
        row = line % n
        found, params = (
            found[send(np.flatnonzero(used), found.device)],
            params.take(np.flatnonzero(used)),
        )
        raw = torch.log_softmax(found, -1)
        chosen = send(tokens[row, place][:, None], raw.device)
        table = np.zeros((n, most + 1))
        table[row, place] = raw.gather(1, chosen)[:, 0].double().cpu().numpy()
        if params.any_greedy:
            history = rows.history(block.rows[row], tokens[row], place)
            kept_logits = restrict(found, params, history, block.allowed_tokens(line, place, rows.device))
            near = _greedy(near, kept_logits, params.own("temperature") == 0, row)
        confidences = None
        if params.most_logprobs:
            confidences = np.zeros((n, most + 1))
            confidences[row, place] = confidence(raw, params)[:, 0].cpu().numpy()
        left = self._masses(block, found, tokens, line, place)
        bad = block.bad.reshape(-1, n).any(0) | (np.bincount(row, np.isnan(table[row, place]), n) > 0)
        none = ~bad & ~(kept.rest.sum(-1).cpu().numpy() > 0)
        self._settle(block, tokens, counts, draft, bad | none)
        tested, overlap = kept.tested.sum().item(), kept.overlap.nan_to_num().sum().item()
        self._note(block, counts, winner, tested, overlap)
        return Runs(
            tokens, counts + 1, table, np.zeros(n, np.int64), near, bad | none, confidences, left
        ), none

    def _judge(self, block: Block, logits: Tensor, first: Ints) -> tuple[Runs, Flags] | None:
        """As `runs`, in one call, where nothing but temperatures shapes what is drawn, and steps are compiled."""
        rows, at = self._rows, block.rows
        params = rows.params_of(at)
        if block.drafts > 1 or block.masks or not params.plain:
            return None
        found = compiled.judge(
            logits,
            first,
            block.tokens,
            block.counts,
            block.q,
            rows.seed[at],
            rows.position[at],
            params.own("temperature"),
            self._draft.rule == "block",
            NEAR,
            -LEAST / 2,
        )
        if found is None:
            return None
        bad = found.bad | block.bad
        none = found.none & ~bad
        greedy = params.own("temperature") == 0
        near = found.near + np.where(greedy, 0, block.near)
        self._settle(block, found.tokens, found.kept, 0 * found.kept, bad | none)
        self._note(block, found.kept, np.arange(len(at)), found.tested, found.overlap)
        runs = Runs(found.tokens, found.kept + 1, found.logprobs, 0 * found.kept, near, bad | none)
        return runs, none

    def _verify(self, block: Block, p: Tensor) -> tuple[Kept, Tensor, Ints]:
        """What is kept of each row, the token drawn behind it, and decisions that rounding could have flipped."""
        rows, at, k = self._rows, block.rows, block.drafts
        seeds, positions, n = rows.seed[at], rows.position[at], len(at)
        most = block.tokens.shape[1]
        drafted = Drafted(
            send(block.tokens, p.device),
            send(block.counts, p.device),
            block.q,
        )
        index, candidate = np.arange(1, most + 1), np.arange(k)[:, None]
        u = numbers(seeds[:, None, None], positions[:, None, None], index, Purpose.ACCEPT, candidate)
        chances = send(u, p.device)
        if k == 1:
            kept = verify(p, drafted, chances[:, 0], self._draft.rule, near=NEAR)
        else:
            kept = select(_by_row(p, n), drafted.by_row(n), chances, near=NEAR)
        behind = kept.counts.cpu().numpy() + 1
        last, close, _ = pick(kept.rest, numbers(seeds, positions, behind, Purpose.RESIDUAL))
        near = (kept.near.long() + close[:, 0].long()).cpu().numpy() + block.near.reshape(k, n).sum(0)
        return kept, last[:, 0], near

    def _masses(self, block: Block, found: Tensor, tokens: Ints, line: Ints, place: Ints) -> Floats | None:
        """What masks left at what is kept and drawn, of rows that ask: the logits `found` at these lines and places."""
        rows, n = self._rows, len(block.rows)
        asks = np.array([rows.generation(row).request.params.weighs for row in block.rows.tolist()])
        at = np.flatnonzero(asks[line % n])
        if (allowed := block.allowed_tokens(line[at], place[at], rows.device)) is None:
            return None
        held = at[allowed[0].cpu().numpy()]
        row = line[held] % n
        history = rows.history(block.rows[row], tokens[row], place[held])
        left = np.zeros((n, tokens.shape[1]))
        some = found[send(held, found.device)]
        left[row, place[held]] = masses(some, rows.params.take(block.rows[row]), history, allowed[1])
        return left

    def _settle(self, block: Block, tokens: Ints, counts: Ints, draft: Ints, lost: Flags) -> None:
        """Give each row the state of the draft that was kept, cut behind what was, and let grammars follow."""
        rows, n = self._rows, len(block.rows)
        states = rows.state[block.rows]
        others = np.flatnonzero(draft > 0)
        if block.drafts > 1:
            homes = block.homes[(draft * n + np.arange(n))[others]]
            if len(others):
                self._model.close(states[others])
                self._model.move(homes, states[others])
            self._model.close(np.setdiff1d(block.homes[n:], homes))
        for i, (row, count) in enumerate(zip(block.rows.tolist(), counts.tolist(), strict=True)):
            self._model.truncate(
                int(states[i]), len(rows.generation(row).ids) + int(rows.length[row]) + count
            )
            if rows.held[row] and not lost[i]:
                # Behind an end there is nothing to follow.
                self._matcher(row).consume(self._grammars.to_end(row, tokens[i, : count + 1]).tolist())

    def _note(self, block: Block, counts: Ints, winner: Ints, tested: float, overlap: float) -> None:
        """Count what came of the block, and let γ follow it."""
        drafted = block.counts.reshape(-1, len(counts)).max(0).sum()
        sums = (len(counts), drafted, counts.sum(), tested, overlap)
        for name, value in zip(COUNTS, sums, strict=True):
            self._stats.extra[name] += float(value)
        if self._draft.adapt:
            more = np.where(counts == block.counts[winner], 2, -1)
            self._rows.drafts[block.rows] = (self._gamma(block.rows) + more).clip(1, 2 * self._draft.tokens)


def _by_row(lines: Tensor, n: int) -> Tensor:
    """[k · n, …] -> [n, k, …]."""
    return lines.view(-1, n, *lines.shape[1:]).transpose(0, 1)


def _greedy(near: Ints, logits: Tensor, greedy: Flags, row: Ints) -> Ints:
    """For greedy rows, how many of their choices were between two that are nearly equal; of the others, `near`."""
    best = torch.topk(logits, min(2, logits.shape[-1]), -1).values
    close = (best[:, 0] - best[:, -1] < NEAR).cpu().numpy()
    rows = np.bincount(row[greedy], minlength=len(near)) > 0
    found: Ints = np.where(rows, np.bincount(row[close], minlength=len(near)), near)
    return found
