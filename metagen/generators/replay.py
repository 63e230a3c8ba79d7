"""A recorded pool as a generator: samples of a real model, drawn without replacement in a seeded order."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metagen.call import Ended, Item, Outcome
from metagen.cost import Usage
from metagen.errors import DataError, PoolExhausted
from metagen.generators.engine import Sample
from metagen.generators.primitive import Primitive, payload
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, Until, digest


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded sample. generated: its tokens, if known. scores: recorded with it, by name."""

    text: str
    generated: int | None = None
    scores: Mapping[str, float] = field(default_factory=dict)


class ReplayGenerator(Primitive):
    """Sample number i of a problem is the i-th of its recorded samples in an order drawn from the seed.

    So files that are sorted (by likelihood, say) do no harm, and draws count as independent. Each place of a
    nested strategy draws from the whole pool again, in an order of its own.
    Recorded scores come with the sequences (`Sequence.scores`). Raises PoolExhausted when asked for
    more than was recorded, DataError for a problem that the pool does not know.
    """

    accepts_prefix = False
    accepts_until = False

    def __init__(self, pool: Mapping[str, Iterable[Recorded | str]], *, name: str = "replay") -> None:
        self._pool = {
            problem: tuple(r if isinstance(r, Recorded) else Recorded(r) for r in samples)
            for problem, samples in pool.items()
        }
        if not self._pool:
            raise DataError(f"the pool {name!r} is empty; give it recorded samples by problem id")
        self.name = name
        recorded = [r for samples in self._pool.values() for r in samples]
        #: Scores that are in [0, 1] throughout stand as they are; others go through the logistic function.
        self._unit = {
            score
            for score in {name for r in recorded for name in r.scores}
            if all(0.0 <= r.scores.get(score, 0.0) <= 1.0 for r in recorded)
        }
        content = json.dumps(
            {p: [[r.text, r.generated, dict(r.scores)] for r in rs] for p, rs in self._pool.items()},
            sort_keys=True,
        )
        self._fingerprint = digest("replay", content).hex()

    @classmethod
    def from_jsonl(cls, path: str | Path, fields: Mapping[str, str] | None = None) -> ReplayGenerator:
        """A pool from a file with one problem a line.

        fields: names in the file for `id`, `texts` (a list, one a sample) and, if there are,
        `generated` (a list of token counts); `scores.NAME` maps a list of numbers. Samples that are
        null (abstentions) become empty texts.
        """
        names = {"id": "id", "texts": "texts", **(fields or {})}
        unknown = [n for n in names if n not in ("id", "texts", "generated") and not n.startswith("scores.")]
        if unknown:
            raise DataError(f"fields maps {unknown[0]!r}; expected id, texts, generated or scores.NAME")
        pool: dict[str, list[Recorded]] = {}
        try:
            # Lines end at "\n" alone: texts may hold other characters that end lines elsewhere.
            lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"cannot read the pool {str(path)!r}: {error}; expected a JSONL file in UTF-8"
            ) from error
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            where = f"{str(path)!r}, line {number}"
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where} is not JSON ({error}); expected one object a line") from error
            if not isinstance(record, dict):
                raise DataError(f"{where} is {record!r:.60}; expected one object a line")
            problem = _field(record, names["id"], where)
            if isinstance(problem, bool) or not isinstance(problem, str | int):
                raise DataError(f"{where}: the id is {problem!r:.60}; expected a text or a number")
            problem = str(problem)
            if problem in pool:
                raise DataError(f"{where}: problem id {problem!r} occurs twice; ids must be unique")
            pool[problem] = _samples(record, names, where)
        if not pool:
            raise DataError(f"{str(path)!r} holds no samples; expected one problem a line")
        return cls(pool, name=Path(path).name)

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
            name: Score(value if name in self._unit else _logistic(value), raw=value)
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


def _list(record: Mapping[str, Any], name: str, where: str, like: list[Any] | None = None) -> list[Any]:
    values = _field(record, name, where)
    if not isinstance(values, list) or (like is not None and len(values) != len(like)):
        raise DataError(f"{where}: {name!r} is {values!r:.60}; expected a list with one entry a sample")
    return values


def _field(record: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in record:
        raise DataError(
            f"{where} has no field {name!r} (it has {', '.join(sorted(record))}); map it with fields="
        )
    return record[name]


def _samples(record: Mapping[str, Any], names: Mapping[str, str], where: str) -> list[Recorded]:
    texts = _list(record, names["texts"], where)
    counts = _list(record, names["generated"], where, texts) if "generated" in names else [None] * len(texts)
    scores = {
        k.removeprefix("scores."): _list(record, v, where, texts)
        for k, v in names.items()
        if k.startswith("scores.")
    }
    for count in counts:
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
            raise DataError(f"{where}: a token count is {count!r}; expected an integer ≥ 0, or null")
    for name, values in scores.items():
        wrong = [v for v in values if isinstance(v, bool) or not isinstance(v, int | float) or not _finite(v)]
        if wrong:
            raise DataError(f"{where}: a score {name!r} is {wrong[0]!r:.60}; expected numbers")
    odd = [text for text in texts if text is not None and not isinstance(text, str | int | float)]
    if odd:
        raise DataError(f"{where}: a sample is {odd[0]!r:.60}; expected texts, or null for an abstention")
    return [
        Recorded("" if text is None else str(text), counts[i], {k: float(v[i]) for k, v in scores.items()})
        for i, text in enumerate(texts)
    ]


def _finite(value: float) -> bool:
    """Whether a number is one that a float can hold."""
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
