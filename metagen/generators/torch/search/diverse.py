"""Diverse beam search: groups of beams that choose one after another, each away from the tokens of those before it."""

from __future__ import annotations

from collections import Counter

import numpy as np

from metagen.generators.decoding.search import DiverseBeamSearch
from metagen.generators.engine import Sample
from metagen.generators.torch.models.language_model import Ints
from metagen.generators.torch.search.beam import Kept, Text, choose, grow
from metagen.generators.torch.search.step import OVER, Chosen, Floats, Step, Tops


class Group:
    """The beams of one group: the row that each reads, its total, and the penalties in it."""

    def __init__(self, spec: DiverseBeamSearch, size: int, limit: int) -> None:
        self._spec, self._size, self._limit = spec, size, limit
        self.kept = Kept(size, spec.alpha, spec.early_stopping, limit)
        self.over = False
        self._reads = np.zeros(1, np.int64)
        self._totals, self._paid = np.zeros(1), np.zeros(1)

    def choose(
        self, step: Step, tops: Tops, vocabulary: int, taken: Counter[int], length: int
    ) -> list[tuple[int, int]]:
        """Rows and tokens that its live beams take. `taken`: how many beams took each token; its own are added."""
        penalty = np.zeros(vocabulary)
        for token, count in taken.items():
            penalty[token] = self._spec.diversity * count

        def pool(count: int) -> tuple[Floats, Ints]:
            # So many more, since those that are taken may fall behind.
            found, tokens = tops(count + len(taken))
            found, tokens = found[self._reads], tokens[self._reads]
            return found + self._totals[:, None] - penalty[tokens], tokens

        ended, live = grow(
            pool,
            lambda beam, token: step.ends(int(self._reads[beam]), token),
            self._size,
            last=length == self._limit,
        )
        for candidate, sample in ended:
            paid = float(self._paid[candidate.beam] + penalty[candidate.token])
            self.kept.add(sample, candidate.total, length, paid)
        taken.update(candidate.token for candidate, _ in ended)
        if not live or self.kept.is_settled(live[0].total, length):
            self.over = True
            return []
        beams, tokens = np.array([c.beam for c in live]), np.array([c.token for c in live])
        taken.update(tokens.tolist())
        rows = self._reads[beams]
        self._paid = self._paid[beams] + penalty[tokens]
        self._totals = np.array([c.total for c in live])
        return list(zip(rows.tolist(), tokens.tolist(), strict=True))

    def read(self, rows: Ints) -> None:
        """rows: [beams], in which the model runs the tokens that the beams took."""
        self._reads = rows


class Diverse:
    """A diverse beam search under way. Beams of several groups that are alike share a row of the model."""

    wants_hidden = False

    def __init__(self, spec: DiverseBeamSearch, limit: int) -> None:
        self.rows = spec.rows
        self._spec = spec
        groups = spec.groups if spec.groups is not None else spec.width
        self._groups = [Group(spec, spec.width // groups, limit) for _ in range(groups)]
        self._length = 0

    def select(self, step: Step) -> Chosen:
        self._length += 1
        values = step.values(self._spec.score)
        tops = Tops(values)
        tops(4 * self._spec.width)  # as many as the last group may need, which has most tokens to avoid
        taken: Counter[int] = Counter()
        places: dict[tuple[int, int], int] = {}
        for group in self._groups:
            if group.over:
                continue
            pairs = group.choose(step, tops, values.shape[-1], taken, self._length)
            group.read(np.array([places.setdefault(pair, len(places)) for pair in pairs], np.int64))
        if not places:
            return OVER
        return choose(places)

    def results(self) -> list[tuple[Sample, float]]:
        """What a second group found again comes behind what was found once."""
        texts = sorted((t for group in self._groups for t in group.kept.texts), key=lambda t: -t.score)
        first: list[Text] = []
        again: list[Text] = []
        seen: set[object] = set()
        for text in texts:
            content = (text.sample.ids, text.sample.text, text.sample.finish)
            (again if content in seen else first).append(text)
            seen.add(content)
        return [(text.sample, text.score) for text in first + again]
