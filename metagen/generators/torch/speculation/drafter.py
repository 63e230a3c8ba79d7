"""Who drafts: a small language model, or the text itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metagen.errors import EngineError
from metagen.generators.decoding.constraint import Held
from metagen.generators.randomness import Purpose
from metagen.generators.torch.endings import EOS, STOP
from metagen.generators.torch.models.formulas import LEAST
from metagen.generators.torch.models.language_model import Ints, Rules
from metagen.generators.torch.rows import Rows
from metagen.generators.torch.sampling import NEAR, distribution, pick
from metagen.generators.torch.send import send
from metagen.generators.torch.speculation.block import Block, Flags, numbers
from metagen.generators.torch.speculation.pair import Pair, sound


class Drafter(Protocol):
    """Who drafts."""

    def draft(self, at: Ints, wanted: Ints) -> Block:
        """For rows `at` [n], in order of their states, at most wanted [n] ≥ 1 tokens, up to where a completion ends."""
        ...


class Grammars:
    """Where rows that are held stand in their grammars, and the ends of completions.

    matcher: of a row, which stays where it is.
    """

    def __init__(self, rows: Rows, matcher: Callable[[int], Held]) -> None:
        self._rows, self._matcher = rows, matcher

    def copies(self, owners: Ints) -> dict[int, Held]:
        """By line of `owners` [lines]: a copy of the matcher of each that is held."""
        return {
            i: self._matcher(int(owners[i])).copy() for i in np.flatnonzero(self._rows.held[owners]).tolist()
        }

    def mask(self, block: Block, line: int, place: int, matcher: Held) -> bool:
        """Note what is allowed at a place; False if nobody can tell, so that nothing is to be drafted there."""
        row = int(block.owners[line])
        left = self._rows.generation(row).request.params.max_tokens - int(self._rows.position[row]) - place
        try:
            block.masks[line, place] = matcher.allowed_tokens(left)
        except EngineError:
            # The request fails in the next step, if the row gets there.
            block.masks[line, place] = np.ones(matcher.size, np.bool_)
            return False
        return True

    def ends(self, rows: Ints, tokens: Ints) -> Flags:
        """[n]: whether a token ends its row, wherever it stands."""
        found: Flags = (self._rows.flags(rows, tokens) & (EOS | STOP)) != 0
        return found

    def to_end(self, row: int, run: Ints) -> Ints:
        """Of the tokens `run` [n] of a row those up to and with the first that ends it."""
        ends = np.flatnonzero(self.ends(np.full(len(run), row), run))
        return run[: ends[0] + 1] if len(ends) else run


class ModelDrafter:
    """The draft of a pair, token by token for all rows at once.

    drafts: k of each row; those beyond the first are run in rows of the model from `spare` on.
    """

    def __init__(self, model: Pair, rows: Rows, grammars: Grammars, drafts: int, spare: int) -> None:
        self._model, self._rows, self._grammars = model, rows, grammars
        self._drafts, self._spare = drafts, spare

    def draft(self, at: Ints, wanted: Ints) -> Block:
        if (block := self._draft_at_once(at, wanted)) is not None:
            return block
        model, rows, k, n = self._model, self._rows, self._drafts, len(at)
        most = int(wanted.max())
        homes = np.concatenate([rows.state[at], self._spare + np.arange((k - 1) * n)])
        if k > 1:
            model.fork(np.tile(rows.state[at], k - 1), homes[n:])
        q = torch.zeros(n * k, most, model.vocab_size, device=rows.device)
        block = Block(at, homes, np.zeros((n * k, most), np.int64), np.tile(wanted, k), q)
        owners = block.owners
        matchers = self._grammars.copies(owners)
        for line, matcher in matchers.items():
            if not self._grammars.mask(block, line, 0, matcher):
                block.counts[line] = 0
        index, candidate = np.arange(1, most + 1), np.arange(n * k)[:, None] // n
        seeds, positions = rows.seed[owners][:, None], rows.position[owners][:, None]
        u = numbers(seeds, positions, index, Purpose.SAMPLE, candidate)
        for place in range(most):
            live = np.flatnonzero(block.counts > place)
            if not len(live):
                break
            newest = block.tokens[live, place - 1] if place else rows.token[owners[live]]
            logits = model.ahead(homes[live], newest)
            lost = self._draw(block, live, place, logits, u[live, place])
            # Where no token is left, none is drafted.
            block.counts[live[lost]] = place
            ended = ~lost & self._grammars.ends(owners[live], block.tokens[live, place])
            block.counts[live[ended]] = place + 1
            for line in live[~lost & ~ended].tolist():
                if (held := matchers.get(line)) is not None:
                    held.consume([int(block.tokens[line, place])])
                    if not self._grammars.mask(block, line, place + 1, held):
                        block.counts[line] = place + 1
        return block

    def _draft_at_once(self, at: Ints, wanted: Ints) -> Block | None:
        """All tokens in one call, where nothing but temperatures shapes what is drawn, and the draft can."""
        model, rows = self._model, self._rows
        params = rows.params_of(at)
        if self._drafts > 1 or not params.plain or rows.held[at].any():
            return None
        if (flags := rows.table_of_flags(at, model.vocab_size)) is None:
            return None
        rules = Rules(
            rows.seed[at], rows.position[at], params.own("temperature"), NEAR, -LEAST / 2, flags, EOS | STOP
        )
        found = model.draft_ahead(rows.state[at], rows.token[at], wanted, rules)
        if found is None:
            return None
        block = Block(at, rows.state[at], found.tokens, found.counts, found.q)
        block.near, block.bad = found.near, found.bad
        return block

    def _draw(self, block: Block, live: Ints, place: int, logits: Tensor, u: NDArray[np.float64]) -> Flags:
        """A token of each live line, from the draft's distribution behind all adapters; where there was none."""
        rows, at = self._rows, block.owners[live]
        assert block.q is not None
        history = rows.history(at, block.tokens[live], np.full(len(live), place))
        allowed = block.allowed_tokens(live, np.full(len(live), place), rows.device)
        q = distribution(logits, rows.params_of(at), history, allowed)
        tokens, near, _ = pick(q, u)
        block.q[send(live, rows.device), place] = q
        found = torch.stack([tokens[:, 0], near[:, 0].long(), q.sum(-1).isnan().long()]).cpu().numpy()
        block.tokens[live, place] = found[0]
        block.near[live] += found[1]
        lost: Flags = found[2] != 0
        if lost.any():
            # Without numbers there is no distribution, nor where nothing is allowed.
            block.bad[live] |= ~sound(logits).cpu().numpy()
        return lost


class LookupDrafter:
    """What followed the newest tokens, at most `ngram` of them, where they occurred last in the row's own text."""

    def __init__(self, rows: Rows, grammars: Grammars, ngram: int) -> None:
        self._rows, self._grammars, self._ngram = rows, grammars, ngram

    def draft(self, at: Ints, wanted: Ints) -> Block:
        found = [self._look_up(row, most) for row, most in zip(at.tolist(), wanted.tolist(), strict=True)]
        counts = np.array([len(run) for run in found], np.int64)
        tokens = np.zeros((len(at), int(counts.max())), np.int64)
        for i, run in enumerate(found):
            tokens[i, : len(run)] = run
        block = Block(at, self._rows.state[at], tokens, counts, None)
        for line, matcher in self._grammars.copies(at).items():
            block.counts[line] = self._follow(block, line, matcher)
        return block

    def _look_up(self, row: int, most: int) -> Ints:
        """[≤ most]: the tokens that are drafted for a row."""
        ids = np.concatenate([self._rows.generation(row).head, self._rows.ids[row, : self._rows.length[row]]])
        return self._grammars.to_end(row, look_up(ids, self._ngram, most))

    def _follow(self, block: Block, line: int, matcher: Held) -> int:
        """Note what the grammar allows along a line; how many of its tokens that is."""
        for place, token in enumerate(block.tokens[line, : block.counts[line]].tolist()):
            if not self._grammars.mask(block, line, place, matcher) or not block.masks[line, place][token]:
                return place
            if self._grammars.ends(block.rows[line : line + 1], np.array([token]))[0]:
                return place + 1
            matcher.consume([token])
        self._grammars.mask(block, line, int(block.counts[line]), matcher)
        return int(block.counts[line])


def look_up(ids: Ints, ngram: int, most: int) -> Ints:
    """At most `most` tokens that followed the end of `ids` [L] where it occurred last before.

    The end is the longest, of at most `ngram` tokens, that occurred at all; nothing where not even the last token did.
    """
    length = len(ids)
    for n in range(min(ngram, length - 1), 0, -1):
        windows = np.lib.stride_tricks.sliding_window_view(ids[:-1], n)
        found = np.flatnonzero((windows == ids[length - n :]).all(1))
        if len(found):
            start = int(found[-1]) + n
            return ids[start : start + most]
    return ids[:0]
