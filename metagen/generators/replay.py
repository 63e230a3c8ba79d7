"""A recorded pool as a generator: samples of a real model, drawn without replacement in a seeded order."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Final, Literal, get_args
from weakref import WeakValueDictionary

import numpy as np

from metagen.call import NOTHING, Ended, Item, Outcome
from metagen.cost import Price, Usage
from metagen.errors import DataError, InputError, PoolExhausted
from metagen.generators.engine import Sample
from metagen.generators.pool import AMOUNTS, COUNTS, Recorded, read_pool
from metagen.generators.primitive import Primitive, payload
from metagen.generators.unit import UnitMap
from metagen.scope import Scope
from metagen.sequence import Score, Sequence, Until, digest

__all__ = ["ANSWER", "VERDICT", "Recorded", "ReplayGenerator"]

#: The name under which a recorded verdict is in `Sequence.scores`.
VERDICT: Final = "verdict"
#: The same of a recorded answer, which is the `feedback` of a score without a value.
ANSWER: Final = "answer"
#: The score of a sample that was recorded without one.
UNSCORED = Score(None, verdict="unscored")
#: What becomes of a sample without a verdict where others have one, and of a call that failed.
Unknown = Literal["exclude", "wrong", "error"]
UNIT: Final = UnitMap("identity")
USUAL: Final = UnitMap("ranks")

#: Pools of files for as long as somebody uses them, by file and options.
_HELD: WeakValueDictionary[str, ReplayGenerator] = WeakValueDictionary()


class ReplayGenerator(Primitive):
    """Sample number i of a problem is the i-th of its recorded samples in an order drawn from the seed.

    So files that are sorted (by likelihood, say) do no harm, and draws count as independent. Each place of a
    nested strategy draws from the whole pool again, in an order of its own. A null sample is the empty text.
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
        pool: Mapping[str, Iterable[Recorded | str]],
        *,
        name: str = "replay",
        scored: str | None = None,
        unknown: Unknown = "exclude",
        maps: Mapping[str, str | UnitMap] | None = None,
        price: Price | None = None,
    ) -> None:
        whole = {
            problem: tuple(r if isinstance(r, Recorded) else Recorded(r) for r in samples)
            for problem, samples in pool.items()
        }
        if not whole:
            raise DataError(f"the pool {name!r} is empty; give it recorded samples by problem id")
        if unknown not in get_args(Unknown):
            raise InputError(f"unknown={unknown!r}: expected one of {', '.join(get_args(Unknown))}")
        self.name, self.scored, self._price = name, scored, price
        self._notes: list[str] = []
        if any(r.correct is not None and VERDICT in r.scores for samples in whole.values() for r in samples):
            raise DataError(
                f"the pool {name!r} has verdicts, and a score {VERDICT!r}; give the score another name"
            )
        kept = {
            problem: [(i, r) for i, r in samples if scored is None or r.scores.get(scored) is not None]
            for problem, samples in self._judged(whole, unknown).items()
        }
        self._pool = {problem: tuple(r for _, r in samples) for problem, samples in kept.items()}
        #: Where each stands in its problem's part of the file.
        self._at = {problem: tuple(i for i, _ in samples) for problem, samples in kept.items()}
        #: Problems whose samples are all left out.
        self.emptied = frozenset(p for p, samples in self._pool.items() if not samples and whole[p])
        if scored is not None and not any(self._pool.values()):
            raise DataError(f"no sample of the pool {name!r} has a score {scored!r}; leave out scored")
        self._count()
        self._usages = self._amounts()
        self._values = self._mapped({name: UnitMap.of(given) for name, given in (maps or {}).items()})

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
    ) -> ReplayGenerator:
        """A pool from a JSONL file; `fields` and `where`, and what a file may hold, are those of `read_pool`.

        A file that is held in memory, with equal options, and has not changed since, is not read again.
        """
        mapped = {name: str(given) for name, given in (maps or {}).items()}
        options = (dict(fields or {}), scored, dict(where or {}), unknown, mapped, price)
        key = repr((cls, _state(Path(path)), options))
        if (pool := _HELD.get(key)) is None:
            read = read_pool(path, fields, where)
            pool = cls(read, name=Path(path).name, scored=scored, unknown=unknown, maps=maps, price=price)
            _HELD[key] = pool
        return pool

    @cached_property
    def fingerprint(self) -> str:
        content = json.dumps(
            {
                problem: [
                    [
                        r.text,
                        r.correct,
                        dict(r.scores),
                        u.prefilled,
                        u.generated,
                        u.money,
                        u.seconds,
                        *_said(r),
                    ]
                    for r, u in zip(samples, self._usages[problem], strict=True)
                ]
                for problem, samples in self._pool.items()
            },
            sort_keys=True,
        )
        maps = json.dumps({name: str(given) for name, (given, _) in self._values.items()}, sort_keys=True)
        return digest("replay", content, maps).hex()

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)

    @property
    def timed(self) -> bool:
        """Whether the file says how long calls took."""
        return any(usage.seconds for usages in self._usages.values() for usage in usages)

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(self._pool)

    def size(self, problem: str) -> int:
        """Recorded samples of a problem that can be drawn."""
        return len(self._samples(problem))

    def places(self, prefix: Sequence, n: int, scope: Scope) -> list[int]:
        """Where in the file the first n samples that `generate` gives in this scope stand: from 0, in their problem."""
        at = self._at[prefix.prompt.problem_id]
        return [at[i] for i in _order(self.named(prefix, None), len(at), scope)[:n]]

    def _samples(self, problem: str) -> tuple[Recorded, ...]:
        if problem not in self._pool:
            raise DataError(
                f"the pool {self.name!r} has no problem {problem!r}; it has {len(self._pool)} others"
            )
        return self._pool[problem]

    async def sample(
        self, prefix: Sequence, items: list[Item], until: Until, cap: int | None, scope: Scope, ended: Ended
    ) -> list[Outcome]:
        problem = prefix.prompt.problem_id
        samples = self._samples(problem)
        order = _order(items[0].content, len(samples), scope)
        last = max(item.index for item in items)
        if last >= len(samples):
            raise PoolExhausted(
                f"sample {last} of problem {problem!r} was asked for, the pool "
                f"{self.name!r} holds {len(samples)}; ask for at most that many"
            )
        # Equal samples share a payload.
        made: dict[tuple[Any, ...], dict[str, Any]] = {}
        outcomes = []
        for item in items:
            number = order[item.index]
            recorded = samples[number]
            same = (recorded.text, recorded.correct, recorded.answer, *recorded.scores.items())
            if same not in made:
                made[same] = self._payload(problem, number)
            outcomes.append(Outcome(made[same], self._usages[problem][number], NOTHING))
        return outcomes

    def _payload(self, problem: str, number: int) -> dict[str, Any]:
        recorded = self._pool[problem][number]
        sample = Sample(recorded.text or "", None, None, finish="eos")
        scores = {}
        for name, value in recorded.scores.items():
            given, values = self._values[name]
            scores[name] = (
                UNSCORED
                if value is None
                else Score(value)
                if given == UNIT
                else Score(float(values[problem][number]), raw=value)
            )
        if recorded.correct is not None:
            scores[VERDICT] = Score(float(recorded.correct), oracle=True)
        if recorded.answer is not None:
            scores[ANSWER] = Score(None, verdict="recorded", feedback=recorded.answer)
        return payload(sample, scores)

    def worst(self, prefix: Sequence, n: int, tokens: int | None, scope: Scope) -> Usage:
        usages = self._usages[prefix.prompt.problem_id] if self._samples(prefix.prompt.problem_id) else ()

        def most(name: str) -> Any:
            known = [getattr(usage, name) for usage in usages]
            return None if None in known else n * max(known, default=0)

        limits = {name: most(name) for name in ("prefilled", "generated", "money")}
        return Usage(**limits, calls=n, flops=None, flops_2n=None)

    # -- what a file leaves unsaid -----------------------------------------------------------------

    def _note(self, text: str) -> None:
        self._notes.append(text)

    def _judged(
        self, pool: Mapping[str, tuple[Recorded, ...]], unknown: Unknown
    ) -> dict[str, list[tuple[int, Recorded]]]:
        """The samples that count, with their numbers, each with a verdict where verdicts are recorded.

        What has no verdict is noted.
        """
        recorded = any(r.correct is not None for rs in pool.values() for r in rs)

        def silent(r: Recorded) -> bool:
            return r.failed or (recorded and r.correct is None)

        told = {problem: [(i, r) for i, r in enumerate(rs) if not silent(r)] for problem, rs in pool.items()}
        every, known = sum(map(len, pool.values())), sum(map(len, told.values()))
        if known == every:
            return told
        failed = sum(r.failed for rs in pool.values() for r in rs)
        parts = {
            "failed call" if failed == 1 else "failed calls": failed,
            "without a verdict (null)": every - known - failed,
        }
        what = f"{' and '.join(f'{n:,} {part}' for part, n in parts.items() if n)} among {every:,} samples"
        if unknown == "error":
            problem, number = next((p, i) for p, rs in pool.items() for i, r in enumerate(rs) if silent(r))
            raise DataError(
                f"the pool {self.name!r} has {what}, the first is sample {number} of problem {problem!r}; give them "
                "verdicts, or choose unknown: exclude or wrong"
            )
        text = f"{what}: {'left out' if unknown == 'exclude' else 'counted as wrong'} (unknown: {unknown})"
        if empty := sum(not rs for rs in told.values()):
            text += f"; {empty:,} of {len(pool):,} problems have no other sample"
        if recorded:
            left = _right({problem: [r for _, r in rs] for problem, rs in told.items()})
            text += f"; a sample is right in {left:.1%} without them, in {_right(pool):.1%} if they are wrong"
        self._note(text)
        if unknown == "exclude":
            return told
        return {
            problem: [(i, replace(r, correct=0.0) if recorded and silent(r) else r) for i, r in enumerate(rs)]
            for problem, rs in pool.items()
        }

    def _count(self) -> None:
        """Note verdicts in part, and abstentions."""
        samples = [r for rs in self._pool.values() for r in rs]
        if part := sum(r.correct is not None and 0.0 < r.correct < 1.0 for r in samples):
            self._note(f"{part:,} of {len(samples):,} verdicts lie between 0 and 1: right above ½")
        textless = sum(r.text is None for r in samples)
        if textless == len(samples):
            self._note("no sample has a text: none has a vote")
        elif textless:
            self._note(f"{textless:,} of {len(samples):,} samples are null: they abstain, and have no vote")

    def _amounts(self) -> dict[str, tuple[Usage, ...]]:
        """What each sample has cost, as far as it is known or can be estimated."""
        columns = {name: self._filled(name) for name in (*COUNTS, *AMOUNTS)}
        usages = {}
        for problem in self._pool:
            rows = list(zip(*(column[problem] for column in columns.values()), strict=True))
            #: What costs the same is one object.
            made = {row: self._usage(dict(zip(columns, row, strict=True))) for row in set(rows)}
            usages[problem] = tuple(made[row] for row in rows)
        priced = self._price is not None and all(u.money is None for us in usages.values() for u in us)
        if priced:
            self._note(
                "money is unknown: a price needs the tokens of prompts too; map them as fields.prefilled"
            )
        return usages

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

    def _filled(self, name: str) -> dict[str, list[Any]]:
        """A count or amount of every sample; what is null is estimated from the others, if there are any."""
        found = {problem: [getattr(r, name) for r in rs] for problem, rs in self._pool.items()}
        known = {problem: [v for v in values if v is not None] for problem, values in found.items()}
        every = [v for values in known.values() for v in values]
        if not every or len(every) == (size := sum(map(len, found.values()))):
            return found
        self._note(
            f"{size - len(every):,} of {size:,} samples have no {name} (null): each counts as the mean of the others "
            "of its problem, or of the pool"
        )
        whole = fmean(every)
        for problem, values in found.items():
            mean = fmean(known[problem]) if known[problem] else whole
            guess: float = round(mean) if name in COUNTS else mean
            found[problem] = [guess if v is None else v for v in values]
        return found

    def _mapped(self, maps: Mapping[str, UnitMap]) -> dict[str, tuple[UnitMap, dict[str, Any]]]:
        """By score: its map into [0, 1], and by problem the values of all samples, NaN for none."""
        names = dict.fromkeys(name for rs in self._pool.values() for r in rs for name in r.scores)
        if strange := sorted(set(maps) - set(names)):
            raise InputError(
                f"maps names {strange[0]!r}, and the pool {self.name!r} has the scores {', '.join(names) or '(none)'}"
            )
        found = {}
        for name in names:
            raw = {
                problem: np.array([r.scores.get(name) for r in rs], dtype=np.float64)
                for problem, rs in self._pool.items()
            }
            known = [x[~np.isnan(x)] for x in raw.values()]
            low = min((float(x.min()) for x in known if x.size), default=0.0)
            high = max((float(x.max()) for x in known if x.size), default=0.0)
            given = maps.get(name) or (UNIT if low >= 0.0 and high <= 1.0 else USUAL)
            values = {}
            for problem, x in raw.items():
                values[problem] = np.full(x.shape, np.nan)
                values[problem][~np.isnan(x)] = given(x[~np.isnan(x)])
            found[name] = given, values
            if given != UNIT:
                self._scale(name, given, low, high, known, chosen=name in maps)
        return found

    def _scale(
        self, name: str, given: UnitMap, low: float, high: float, known: list[Any], *, chosen: bool
    ) -> None:
        """Note how a score is mapped, and where its order is lost."""
        how = f"mapped into [0, 1] by {given}{'' if chosen else ', the default'}"
        self._note(
            f"scores {name!r} run from {low:g} to {high:g}: best-of-n goes by them as they are; for weighted votes "
            f"they are {how}, over the samples of a problem"
        )
        if lost := sum(map(given.lost, known)):
            self._note(
                f"{given} makes {lost:,} scores {name!r} equal to others that they differ from, of "
                f"{sum(len(np.unique(x)) for x in known):,}: weighted votes cannot tell them apart; ranks can, and "
                "so may a higher temperature"
            )


def _order(content: bytes, size: int, scope: Scope) -> list[int]:
    order = list(range(size))
    random.Random(scope.seed(Item(content, 0))).shuffle(order)
    return order


def _state(path: Path) -> tuple[Any, ...]:
    """Names a file as it is now."""
    try:
        now = path.stat()
    except OSError:
        return (str(path),)  # whoever reads it says what is wrong
    return str(path.resolve()), now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns


def _said(recorded: Recorded) -> list[str]:
    """The recorded answer, where the pool has any."""
    return [] if recorded.answer is None else [recorded.answer]


def _right(pool: Mapping[str, Iterable[Recorded]]) -> float:
    """The share of right samples, over problems that have any."""
    rates = [[(r.correct or 0.0) > 0.5 for r in rs] for rs in pool.values()]
    return fmean([fmean(rate) for rate in rates if rate] or [0.0])
