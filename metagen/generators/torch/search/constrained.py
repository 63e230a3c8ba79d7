"""Constrained beam search: beams are shared by banks of prefixes that hold as many tokens of the phrases."""

from __future__ import annotations

from collections import Counter, abc, defaultdict
from typing import NamedTuple

import numpy as np
import torch

from metagen.generators.decoding.phrases import Phrases, Progress, check_room
from metagen.generators.decoding.search import ConstrainedBeamSearch
from metagen.generators.engine import Sample
from metagen.generators.torch.search.beam import Candidate, Kept, choose
from metagen.generators.torch.search.step import OVER, Chosen, Step, best, rank
from metagen.generators.torch.send import send


class Held(NamedTuple):
    """A candidate, what it holds of the phrases, and its sample if it ends."""

    candidate: Candidate
    progress: Progress
    sample: Sample | None

    @property
    def bank(self) -> int:
        return sum(self.progress)


class Constrained:
    """A constrained beam search under way.

    limit: new tokens that a text may have. phrases: as token ids. before: the completion so far, which counts.
    Raises InputError for phrases that cannot be written within the limit.
    """

    wants_hidden = False

    def __init__(
        self,
        spec: ConstrainedBeamSearch,
        limit: int,
        phrases: abc.Sequence[tuple[int, ...]],
        before: abc.Sequence[int] = (),
    ) -> None:
        self.rows = spec.rows
        self._spec, self._limit = spec, limit
        self._phrases = Phrases(phrases)
        self._kept = Kept(spec.width, spec.alpha, spec.early_stopping, limit)
        self._totals = np.zeros(1)
        self._progress = [self._phrases.start(before)]
        self._length = 0
        check_room(spec, self._phrases.fewest_tokens(self._progress[0]), limit)

    def select(self, step: Step) -> Chosen:
        self._length += 1
        width, found = self._spec.width, self._candidates(step)
        for one in share(found, width, self._phrases.size):
            if one.sample is not None:
                self._kept.add(one.sample, one.candidate.total, self._length)
        live = share([one for one in found if one.sample is None], width, self._phrases.size)
        if not live:
            return OVER
        if self._kept.is_settled(max(one.candidate.total for one in live), self._length):
            return OVER
        self._totals = np.array([one.candidate.total for one in live])
        self._progress = [one.progress for one in live]
        return choose((one.candidate.beam, one.candidate.token) for one in live)

    def results(self) -> list[tuple[Sample, float]]:
        return [(text.sample, text.score) for text in self._kept.texts]

    def _candidates(self, step: Step) -> list[Held]:
        """The candidates that may still hold all phrases, the best first."""
        wanted = 2 * self._spec.width
        values = step.values(self._spec.score)
        while True:
            pairs, all_there = self._pairs(values, wanted)
            found, barred = [], False
            for candidate in pairs:
                progress = self._phrases.after(self._progress[candidate.beam], candidate.token)
                needed = self._phrases.fewest_tokens(progress)
                if needed > self._limit - self._length:
                    barred = True
                    continue
                sample = step.ends(candidate.beam, candidate.token)
                if sample is None or not needed:
                    found.append(Held(candidate, progress, sample))
            enough = sum(one.sample is None for one in found) >= self._spec.width
            if enough or barred or all_there or self._length == self._limit:
                return found
            wanted *= 2

    def _pairs(self, values: torch.Tensor, wanted: int) -> tuple[list[Candidate], bool]:
        """The `wanted` best candidates, each beam's best, and what leads on in a phrase; whether there are no more."""
        tops, tokens = best(values, wanted)
        totals = tops + self._totals[:, None]
        beams, columns = rank(totals, wanted)
        pairs = {(b, int(tokens[b, c])) for b, c in zip(beams.tolist(), columns.tolist(), strict=True)}
        all_there = len(pairs) < wanted
        for beam, progress in enumerate(self._progress):
            pairs.add((beam, int(tokens[beam, 0])))
            pairs.update((beam, token) for token in self._phrases.following(progress))
        at = np.array(sorted(pairs), np.int64)
        where = send(at, values.device)
        sums = values[where[:, 0], where[:, 1]].double().cpu().numpy() + self._totals[at[:, 0]]
        found = [Candidate(t, b, v) for t, (b, v) in zip(sums.tolist(), at.tolist(), strict=True)]
        return sorted((c for c in found if c.total > -np.inf), key=lambda c: -c.total), all_there


def share(found: abc.Sequence[Held], width: int, tokens: int) -> list[Held]:
    """Which `width` of `found`, the best first, have a place; they come back the best first.

    Banks 0 … `tokens` have ⌊width / (tokens + 1)⌋ places each, the last one those that are left over. What a bank does
    not fill goes to the others, the one that holds most of the phrases first.
    """
    there = Counter(one.bank for one in found)
    quota = width // (tokens + 1)
    places = {bank: min(quota, count) for bank, count in there.items()}
    if tokens in there:
        places[tokens] = min(width - quota * tokens, there[tokens])
    for bank in sorted(there, reverse=True):
        places[bank] += min(there[bank] - places[bank], width - sum(places.values()))
    taken: defaultdict[int, int] = defaultdict(int)
    chosen_ones = []
    for one in found:
        if taken[one.bank] < places[one.bank]:
            taken[one.bank] += 1
            chosen_ones.append(one)
    return chosen_ones
