"""A recorded pool as a generator: samples of a real model, drawn without replacement in a seeded order."""

from __future__ import annotations

import json
import random
from collections import OrderedDict, abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Final, get_args
from weakref import WeakValueDictionary

import numpy as np

from metagen.call import NOTHING, Ended, Item, Outcome
from metagen.cost import Price, Usage
from metagen.errors import DataError, InputError, PoolExhausted
from metagen.generators.engine import Sample
from metagen.generators.pool import AMOUNTS, COUNTS, PoolFile, Recorded
from metagen.generators.pool_facts import UNIT, Facts, Floats, Rule, Unknown
from metagen.generators.primitive import Primitive, payload
from metagen.generators.unit import UnitMap
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, Until, digest

__all__ = ["ANSWER", "VERDICT", "Recorded", "ReplayGenerator", "Unknown"]

#: The name under which a recorded verdict is in `Sequence.scores`.
VERDICT: Final = "verdict"
#: The same of a recorded answer, which is the `feedback` of a score without a value.
ANSWER: Final = "answer"
#: The score of a sample that was recorded without one.
UNSCORED = Score(None, verdict="unscored")
#: Bytes of recorded samples that a generator keeps in memory, about; a single problem may have more.
ROOM: Final = 16_000_000

#: Pools of files for as long as somebody uses them, by file and options.
_HELD: WeakValueDictionary[str, ReplayGenerator] = WeakValueDictionary()


class ReplayGenerator(Primitive):
    """Sample number i of a problem is the i-th of its recorded samples in an order drawn from the seed.

    So files that are sorted (by likelihood, say) do no harm, and draws count as independent. Each place of a
    nested strategy draws from the whole pool again, in an order of its own. A null sample is the empty text. One whose
    thought has no end was cut (`Sequence.cut_in_thought`).
    Recorded scores come with the sequences (`Sequence.scores`), verdicts too, as VERDICT. Scores that lie in [0, 1]
    throughout are values as they are; others are raw scores, and their values are mapped by `maps`, score by score over
    the samples of a problem: by ranks unless it says otherwise (see `UnitMap`).

    scored: only the samples with this score; a problem may then have none. unknown: where verdicts are recorded,
    samples without one and calls that failed are left out, are wrong, or are an error. price: of tokens, where the
    file does not say what calls have cost. A count or amount that is null for some samples is the mean of the
    others' of its problem, or else of the pool. notes: what was counted, estimated, mapped and left out, for
    people. Raises PoolExhausted when asked for more than was recorded, DataError for a problem that the pool does
    not know, where no sample has the score, and for unknown verdicts that are an error; InputError for options that
    say nothing.
    """

    recorded: ClassVar[bool] = True
    accepts_prefix = False
    accepts_until = False

    def __init__(
        self,
        pool: Mapping[str, Iterable[Recorded | str]] | PoolFile,
        *,
        name: str = "replay",
        scored: str | None = None,
        unknown: Unknown = "exclude",
        maps: Mapping[str, str | UnitMap] | None = None,
        price: Price | None = None,
    ) -> None:
        if unknown not in get_args(Unknown):
            raise InputError(f"unknown={unknown!r}: expected one of {', '.join(get_args(Unknown))}")
        self.name, self.scored, self._price = name, scored, price
        self._source = pool if isinstance(pool, PoolFile) else _Memory(pool)
        rule = Rule(self._source.judged, unknown, scored)
        chosen = {score: UnitMap.of(given) for score, given in (maps or {}).items()}
        self._facts = Facts(rule, chosen, self._source.thoughts)
        self._source.each(self._facts.add)
        if not self._facts.sizes:
            raise DataError(f"the pool {name!r} is empty; give it recorded samples by problem id")
        if self._source.judged and VERDICT in self._facts.scales:
            raise DataError(
                f"the pool {name!r} has verdicts, and a score {VERDICT!r}; give the score another name"
            )
        self._facts.check(name)
        #: Problems whose samples are all left out.
        self.emptied = frozenset(self._facts.emptied)
        self._maps = {score: self._facts.unit_map(score) for score in self._facts.scales}
        self._guesses = {amount: self._facts.guess(amount) for amount in (*COUNTS, *AMOUNTS)}
        self._ready: OrderedDict[str, _Problem] = OrderedDict()
        self._room = 0

    @classmethod
    def from_jsonl(
        cls,
        path: str | Path,
        fields: Mapping[str, str] | None = None,
        scored: str | None = None,
        *,
        where: Mapping[str, Any] | None = None,
        unknown: Unknown = "exclude",
        maps: Mapping[str, str | UnitMap] | None = None,
        price: Price | None = None,
        thought_end: str = "",
    ) -> ReplayGenerator:
        """A pool from a JSONL file; `fields`, `where`, `thought_end` and what a file may hold are those of `read_pool`.

        Samples stay in the file, and are read problem by problem. A file that somebody holds, with equal options, and
        that has not changed since, is not looked through again.
        """
        mapped = {name: str(given) for name, given in (maps or {}).items()}
        options = (dict(fields or {}), scored, dict(where or {}), unknown, mapped, price, thought_end)
        key = repr((cls, _state(Path(path)), options))
        if (pool := _HELD.get(key)) is None:
            file = PoolFile(Path(path), fields, where, thought_end)
            pool = cls(file, name=Path(path).name, scored=scored, unknown=unknown, maps=maps, price=price)
            _HELD[key] = pool
        return pool

    @cached_property
    def fingerprint(self) -> str:
        maps = json.dumps({name: str(given) for name, given in self._maps.items()}, sort_keys=True)
        guesses = json.dumps(self._guesses, sort_keys=True)
        return digest("replay", self._facts.digest, maps, guesses, repr(self._price)).hex()

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self._facts.notes, *self._note_missing_price(), *self._facts.scale_notes)

    @property
    def timed(self) -> bool:
        """Whether the file says how long calls took."""
        return self._facts.amounts["seconds"].some

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(self._source)

    def size(self, problem: str) -> int:
        """Recorded samples of a problem that can be drawn."""
        if problem not in self._facts.sizes:
            raise DataError(
                f"the pool {self.name!r} has no problem {problem!r}; it has {len(self._facts.sizes)} others"
            )
        return self._facts.sizes[problem]

    def places(self, prefix: Sequence, n: int, scope: Scope) -> list[int]:
        """Where in the file the first n samples that `generate` gives in this scope stand: from 0, in their problem."""
        problem = prefix.prompt.problem_id
        size = self.size(problem)
        at = self._facts.left.get(problem, range(size))
        return [at[i] for i in _order(self.request_digest(prefix, None), size, scope)[:n]]

    def _problem(self, problem: str) -> _Problem:
        """What is known of a problem. Several are kept: strategies ask for the same one again."""
        if problem in self._ready:
            self._ready.move_to_end(problem)
            return self._ready[problem]
        self.size(problem)
        samples, _ = self._facts.rule.select(self._source[problem])
        made = _Problem(tuple(samples), self._amounts(samples), self._map_scores(samples))
        self._ready[problem] = made
        self._room += made.room
        while self._room > ROOM and len(self._ready) > 1:
            self._room -= self._ready.popitem(last=False)[1].room
        return made

    async def sample(
        self, prefix: Sequence, items: list[Item], until: Until, cap: int | None, scope: Scope, ended: Ended
    ) -> list[Outcome]:
        problem = prefix.prompt.problem_id
        known = self._problem(problem)
        samples = known.samples
        order = _order(items[0].content, len(samples), scope)
        last = max(item.index for item in items)
        if last >= len(samples):
            raise PoolExhausted(
                f"sample {last} of problem {problem!r} was asked for, the pool "
                f"{self.name!r} holds {len(samples)}; ask for at most that many"
            )
        # Equal samples share a payload.
        made: dict[tuple[Any, ...], dict[str, Any]] = {}
        payloads: dict[int, dict[str, Any]] = {}
        outcomes = []
        for item in items:
            number = order[item.index]
            recorded = samples[number]
            if (found := payloads.get(id(recorded))) is None:
                same = (
                    recorded.text,
                    recorded.correct,
                    recorded.answer,
                    recorded.thought,
                    *recorded.scores.items(),
                )
                if same not in made:
                    made[same] = self._payload(known, number)
                found = payloads[id(recorded)] = made[same]
            outcomes.append(Outcome(found, known.usages[number], NOTHING))
        return outcomes

    def _payload(self, known: _Problem, number: int) -> dict[str, Any]:
        recorded = known.samples[number]
        thought = recorded.thought
        cut = thought is not None and not thought.ended
        sample = Sample(recorded.text or "", None, None, finish="length" if cut else "eos", thought=thought)
        scores = {}
        for name, value in recorded.scores.items():
            scores[name] = (
                UNSCORED
                if value is None
                else Score(value)
                if self._maps[name] == UNIT
                else Score(float(known.values[name][number]), raw=value)
            )
        if recorded.correct is not None:
            scores[VERDICT] = Score(float(recorded.correct), oracle=True)
        if recorded.answer is not None:
            scores[ANSWER] = Score(None, verdict="recorded", feedback=recorded.answer)
        return payload(sample, scores)

    def worst(self, prefix: Sequence, n: int, tokens: int | None, scope: Scope) -> Usage:
        usages = self._problem(prefix.prompt.problem_id).usages

        def most(name: str) -> Any:
            known = [getattr(usage, name) for usage in usages]
            return None if None in known else n * max(known, default=0)

        limits = {name: most(name) for name in ("prefilled", "generated", "money")}
        return Usage(**limits, calls=n, flops=None, flops_2n=None)

    # -- what a file leaves unsaid -----------------------------------------------------------------

    def _amounts(self, samples: abc.Sequence[Recorded]) -> tuple[Usage, ...]:
        """What each sample has cost, as far as it is known or can be estimated."""
        columns = {name: self._fill(name, [getattr(r, name) for r in samples]) for name in self._guesses}
        rows = list(zip(*columns.values(), strict=True))
        #: What costs the same is one object.
        made = {row: self._usage(dict(zip(columns, row, strict=True))) for row in set(rows)}
        return tuple(made[row] for row in rows)

    def _note_missing_price(self) -> Iterator[str]:
        """A note where a price cannot be applied."""
        if self._price is None:
            return
        known = {name: 1 if self._facts.amounts[name].known else None for name in self._guesses}
        if self._usage(known).money is None:
            yield "money is unknown: a price needs the tokens of prompts too; map them as fields.prefilled"

    def _usage(self, known: Mapping[str, Any]) -> Usage:
        tokens = Usage(
            prefilled=known["prefilled"],
            cached=None if known["prefilled"] is None else 0,
            generated=known["generated"],
            flops=None,
            flops_2n=None,
            money=known["money"],
            seconds=known["seconds"] or 0,
        )
        if tokens.money is None and self._price is not None:
            free = replace(tokens, prefilled=0, cached=0) if not self._price.prompt else tokens
            return replace(tokens, money=self._price.of(free))
        return tokens

    def _fill(self, name: str, values: list[Any]) -> list[Any]:
        """A count or amount of each sample of a problem; what is null is estimated from the others, if any."""
        if (whole := self._guesses[name]) is None or None not in values:
            return values
        known = [v for v in values if v is not None]
        mean = fmean(known) if known else whole
        guess: float = round(mean) if name in COUNTS else mean
        return [guess if v is None else v for v in values]

    def _map_scores(self, samples: abc.Sequence[Recorded]) -> dict[str, Floats]:
        """By score, its values in [0, 1] of the samples of a problem, NaN for none."""
        found = {}
        for name, given in self._maps.items():
            raw = np.array([r.scores.get(name) for r in samples], dtype=np.float64)
            there = ~np.isnan(raw)
            found[name] = np.full(raw.shape, np.nan)
            found[name][there] = given(raw[there])
        return found


@dataclass(frozen=True, slots=True)
class _Problem:
    """The samples of a problem that count, what each has cost, and by score their values in [0, 1]."""

    samples: tuple[Recorded, ...]
    usages: tuple[Usage, ...]
    values: Mapping[str, Floats]

    @property
    def room(self) -> int:
        """Bytes that it takes, about."""
        thoughts = (r.thought for r in self.samples if r.thought is not None)
        thought = sum(len(one.text or "") + len(one.written or "") for one in thoughts)
        return thought + sum(100 + len(r.text or "") for r in self.samples)


class _Memory:
    """Samples that are in memory, as `PoolFile` has those of a file."""

    def __init__(self, pool: Mapping[str, Iterable[Recorded | str]]) -> None:
        self._pool = {
            problem: tuple(r if isinstance(r, Recorded) else Recorded(r) for r in samples)
            for problem, samples in pool.items()
        }
        self.thoughts: dict[str, str] = {}
        self.judged = any(r.correct is not None for samples in self._pool.values() for r in samples)

    def __iter__(self) -> Iterator[str]:
        return iter(self._pool)

    def __getitem__(self, problem: str) -> tuple[Recorded, ...]:
        return self._pool[problem]

    def each(self, seen: Callable[[str, abc.Sequence[Recorded]], None]) -> None:
        for problem, samples in self._pool.items():
            seen(problem, samples)


def _order(content: bytes, size: int, scope: Scope) -> tuple[int, ...]:
    return _shuffle(scope.seed(Item(content, 0)), size)


@lru_cache(maxsize=128)
def _shuffle(seed: int, size: int) -> tuple[int, ...]:
    order = list(range(size))
    random.Random(seed).shuffle(order)
    return tuple(order)


def _state(path: Path) -> tuple[Any, ...]:
    """Names a file as it is now."""
    try:
        now = path.stat()
    except OSError:
        return (str(path),)  # whoever reads it says what is wrong
    return str(path.resolve()), now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns
