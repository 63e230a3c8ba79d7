"""A recorded pool as a generator: samples of a real model, drawn without replacement in a seeded order."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Mapping
from pathlib import Path

from metagen.call import Ended, Item, Outcome
from metagen.cost import Usage
from metagen.errors import DataError, PoolExhausted
from metagen.generators.engine import Sample
from metagen.generators.pool import Recorded, read_pool
from metagen.generators.primitive import Primitive, payload
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, Until, digest

__all__ = ["Recorded", "ReplayGenerator"]

#: The score of a sample that was recorded without one.
UNSCORED = Score(None, verdict="unscored")


class ReplayGenerator(Primitive):
    """Sample number i of a problem is the i-th of its recorded samples in an order drawn from the seed.

    So files that are sorted (by likelihood, say) do no harm, and draws count as independent. Each place of a
    nested strategy draws from the whole pool again, in an order of its own.
    Recorded scores come with the sequences (`Sequence.scores`). scored: only the samples with this score; a problem
    may then have none. Raises PoolExhausted when asked for more than was recorded, DataError for a problem that the
    pool does not know, and where no sample has the score.
    """

    accepts_prefix = False
    accepts_until = False

    def __init__(
        self, pool: Mapping[str, Iterable[Recorded | str]], *, name: str = "replay", scored: str | None = None
    ) -> None:
        whole = {
            problem: tuple(r if isinstance(r, Recorded) else Recorded(r) for r in samples)
            for problem, samples in pool.items()
        }
        if not whole:
            raise DataError(f"the pool {name!r} is empty; give it recorded samples by problem id")
        self.name, self.scored = name, scored
        self._pool = {
            problem: tuple(r for r in samples if scored is None or r.scores.get(scored) is not None)
            for problem, samples in whole.items()
        }
        recorded = [r for samples in self._pool.values() for r in samples]
        if scored is not None and not recorded:
            raise DataError(f"no sample of the pool {name!r} has a score {scored!r}; leave out scored")
        #: Scores that are in [0, 1] throughout stand as they are; others go through the logistic function.
        self._unit = {
            score
            for score in {name for r in recorded for name in r.scores}
            if all(0.0 <= (r.scores.get(score) or 0.0) <= 1.0 for r in recorded)
        }
        content = json.dumps(
            {p: [[r.text, r.generated, dict(r.scores)] for r in rs] for p, rs in self._pool.items()},
            sort_keys=True,
        )
        self._fingerprint = digest("replay", content).hex()

    @classmethod
    def from_jsonl(
        cls, path: str | Path, fields: Mapping[str, str] | None = None, scored: str | None = None
    ) -> ReplayGenerator:
        """A pool from a JSONL file; `fields`, and what a file may hold, are those of `read_pool`."""
        return cls(read_pool(path, fields), name=Path(path).name, scored=scored)

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(self._pool)

    def size(self, problem: str) -> int:
        """Recorded samples of a problem."""
        return len(self._samples(problem))

    def _samples(self, problem: str) -> tuple[Recorded, ...]:
        if problem not in self._pool:
            raise DataError(
                f"the pool {self.name!r} has no problem {problem!r}; it has {len(self._pool)} others"
            )
        return self._pool[problem]

    async def sample(
        self, prefix: Sequence, items: list[Item], until: Until, cap: int | None, scope: Scope, ended: Ended
    ) -> list[Outcome]:
        samples = self._samples(prefix.prompt.problem_id)
        order = list(range(len(samples)))
        random.Random(scope.seed(Item(items[0].content, 0))).shuffle(order)
        last = max(item.index for item in items)
        if last >= len(samples):
            raise PoolExhausted(
                f"sample {last} of problem {prefix.prompt.problem_id!r} was asked for, the pool "
                f"{self.name!r} holds {len(samples)}; ask for at most that many"
            )
        return [self._outcome(samples[order[item.index]]) for item in items]

    def _outcome(self, recorded: Recorded) -> Outcome:
        sample = Sample(recorded.text, None, recorded.generated, finish="eos")
        scores = {
            name: UNSCORED
            if value is None
            else Score(value if name in self._unit else _logistic(value), raw=value)
            for name, value in recorded.scores.items()
        }
        usage = Usage(prefilled=None, cached=None, generated=recorded.generated, flops=None, flops_2n=None)
        return Outcome(payload(sample, scores), usage)

    def worst(self, prefix: Sequence, n: int, tokens: int | None, scope: Scope) -> Usage:
        known = [r.generated for r in self._samples(prefix.prompt.problem_id)]
        longest = None if None in known else max((g for g in known if g is not None), default=0)
        generated = None if longest is None else n * longest
        return Usage(prefilled=None, generated=generated, calls=n, flops=None, flops_2n=None)


def _logistic(value: float) -> float:
    return (
        1.0 / (1.0 + math.exp(-value))
        if value >= 0
        else math.exp(max(value, -700.0)) / (1.0 + math.exp(value))
    )
